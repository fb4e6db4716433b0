//! Claims that are lost while their work runs.

use std::io::Write;
use std::time::Duration;

use monolock_client::{Closed, Error, ErrorCode, Loss, RunError, boottime_ns};
use protocol::acquired;
use standin::Server;

use crate::common::{Flag, LONG, SHORT, TOKEN, client, grant_and_fall_silent, serve, soon, stand_still};

fn administrator() -> ErrorCode {
    ErrorCode::CLOSED_BY_ADMINISTRATOR
}

#[tokio::test]
async fn work_that_stops_when_it_is_asked_to_hands_back_its_result_with_the_cause() {
    let server = Server::start();
    let run = client(server.address());
    let outcome = run.run("a", LONG, async |grant| {
        assert!(server.force_release("a"));
        grant.stop().cancelled().await;
        assert!(!grant.is_held());
        "half done"
    });
    match soon(outcome).await {
        Err(RunError::Lost { loss: Loss::Server { code, .. }, result }) => {
            assert_eq!((code, result), (administrator(), Some("half done")));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn work_that_does_not_stop_is_dropped_a_tenth_of_the_lease_later() {
    let server = Server::start();
    let client = client(server.address());
    let dropped = Flag::default();
    let lease = Duration::from_secs(3);
    let released_ns = std::cell::Cell::new(0);
    let outcome = soon(client.run("a", lease, |_| {
        let raiser = dropped.raised_by_drop();
        assert!(server.force_release("a"));
        released_ns.set(boottime_ns());
        async move {
            let _raiser = raiser;
            std::future::pending::<()>().await;
        }
    }))
    .await;
    let took = Duration::from_nanos(boottime_ns() - released_ns.get());
    assert!(dropped.is_raised());
    assert!(matches!(outcome, Err(RunError::Lost { result: None, .. })), "{outcome:?}");
    assert!((lease / 10..lease * 9 / 10).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_silent_servers_claim_is_stopped_in_time_and_its_connection_closed_only_after_the_work() {
    let ended = Flag::default();
    let seen = ended.clone();
    let (address, server) = serve(move |stream| {
        grant_and_fall_silent(stream);
        seen.is_raised()
    });
    let begun_ns = boottime_ns();
    let client = client(address);
    let outcome = soon(client.run("a", SHORT, |_| {
        let raiser = ended.raised_by_drop();
        async move {
            let _raiser = raiser;
            std::future::pending::<()>().await;
        }
    }))
    .await;
    let took = Duration::from_nanos(boottime_ns() - begun_ns);
    let expected = RunError::<()>::Lost { loss: Loss::HeartbeatTimeout, result: None };
    assert_eq!(format!("{outcome:?}"), format!("{:?}", Err::<(), _>(expected)));
    assert!(took >= SHORT * 9 / 10, "{took:?}");
    assert!(server.join().unwrap(), "the server saw the end of the connection after that of the work");
}

#[tokio::test]
async fn work_that_stood_still_for_too_long_is_not_gone_on_with() {
    let server = Server::start();
    let client = client(server.address());
    let went_on = Flag::default();
    let outcome = soon(client.run("a", SHORT, async |grant| {
        // The one thread of this runtime stands still: so does everything else, as in a suspend.
        stand_still(SHORT);
        assert!(!grant.is_held(), "the clock is looked at");
        tokio::task::yield_now().await;
        went_on.raise();
    }))
    .await;
    assert!(
        matches!(outcome, Err(RunError::Lost { loss: Loss::HeartbeatTimeout, result: None })),
        "{outcome:?}"
    );
    assert!(!went_on.is_raised());
}

#[tokio::test]
async fn work_that_stood_still_for_a_little_too_long_has_been_asked_to_stop_when_it_goes_on() {
    let server = Server::start();
    let client = client(server.address());
    let lease = Duration::from_secs(2);
    for _ in 0..10 {
        let outcome = soon(client.run("a", lease, async |grant| {
            // Past 0.8 of the lease, and before 0.9.
            stand_still(lease * 81 / 100);
            tokio::task::yield_now().await;
            grant.stop().is_cancelled()
        }))
        .await;
        match outcome {
            Err(RunError::Lost { result: Some(was_asked), .. }) => return assert!(was_asked),
            // The machine stood still for longer than it was to, which proves nothing.
            Err(RunError::Lost { result: None, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("the machine is too slow for this");
}

#[tokio::test]
async fn a_result_that_comes_after_the_end_of_the_claim_is_marked_so() {
    let server = Server::start();
    let client = client(server.address());
    let outcome = soon(client.run("a", SHORT, async |_| {
        stand_still(SHORT);
        "late"
    }))
    .await;
    let late = Some("late");
    assert!(
        matches!(outcome, Err(RunError::Lost { loss: Loss::HeartbeatTimeout, result }) if result == late)
    );
}

#[tokio::test]
async fn a_server_that_goes_away_ends_the_claim() {
    let (address, server) = serve(|stream| stream.write_all(&acquired(TOKEN)).unwrap());
    let client = client(address);
    let outcome = soon(client.run("a", LONG, async |grant| grant.stop().cancelled().await)).await;
    match outcome {
        Err(RunError::Lost { loss, result: Some(()) }) => {
            assert_eq!(loss, Loss::ConnectionClosed(Closed::ByServer));
        }
        // The end of the connection was there when the grant was read.
        Err(RunError::NotAcquired(Error::Lost(loss))) => {
            assert_eq!(loss, Loss::ConnectionClosed(Closed::ByServer));
        }
        other => panic!("{other:?}"),
    }
    server.join().unwrap();
}
