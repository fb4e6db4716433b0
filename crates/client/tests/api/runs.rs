//! `run`: work under a lock.

use monolock_client::{CancellationToken, RunError};
use standin::Server;

use crate::common::{Flag, KEPT, LONG, client, soon};

#[tokio::test]
async fn the_work_runs_under_the_lock_which_is_released_when_it_returns() {
    let server = Server::start();
    let client = client(server.address());
    let first = soon(client.run("a", LONG, |grant| {
        let server = &server;
        async move {
            server.wait_for(|counts| counts.locks_held == 1);
            assert!(grant.is_held());
            assert!(!grant.stop().is_cancelled());
            grant
        }
    }))
    .await
    .unwrap();
    server.wait_for(|counts| counts.sessions == 0);
    assert!(!first.is_held(), "a grant that outlives its work holds nothing");
    let second = soon(client.run("a", LONG, async |grant| grant.token())).await.unwrap();
    assert!(second > first.token());
}

#[tokio::test]
async fn a_taken_lock_is_waited_for() {
    let server = Server::start();
    let client = client(server.address());
    let guard = client.acquire("a", LONG).await.unwrap();
    let waiting = client.run("a", LONG, async |grant| grant.token());
    let release = async {
        server.wait_for(|counts| counts.locks_held == 1);
        while server.accepted() < 2 {
            tokio::task::yield_now().await;
        }
        let token = guard.token();
        drop(guard);
        token
    };
    let (second, first) = soon(async { tokio::join!(waiting, release) }).await;
    assert!(second.unwrap() > first);
}

#[tokio::test]
async fn the_claim_is_kept_for_many_leases_while_the_work_waits() {
    let server = Server::start();
    let client = client(server.address());
    let held = client.run("a", KEPT, async |grant| {
        tokio::time::sleep(3 * KEPT).await;
        grant.is_held()
    });
    assert!(soon(held).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_blocks_its_thread_keeps_its_claim_where_another_thread_runs_the_heartbeats() {
    let server = Server::start();
    let client = client(server.address());
    let work = tokio::spawn(async move {
        client
            .run("a", KEPT, async |grant| {
                crate::common::stand_still(2 * KEPT);
                grant.is_held()
            })
            .await
    });
    assert!(soon(work).await.unwrap().unwrap());
}

#[tokio::test]
async fn work_that_panics_releases_its_lock() {
    let server = Server::start();
    let client = client(server.address());
    let work = tokio::spawn(async move {
        let never = client.run("a", LONG, async |_| panic!("the work panics")).await;
        let Err(RunError::NotAcquired(_) | RunError::Cancelled | RunError::Lost { .. }) = never;
    });
    assert!(soon(work).await.unwrap_err().is_panic());
    server.wait_for(|counts| counts.sessions == 0);
}

#[tokio::test]
async fn a_run_that_is_dropped_drops_its_work_before_it_releases_the_lock() {
    let (began, ended) = (Flag::default(), Flag::default());
    let seen = ended.clone();
    let (address, server) = crate::common::serve(move |stream| {
        crate::common::grant_and_fall_silent(stream);
        seen.is_raised()
    });
    let client = client(address);
    let run = client.run("a", LONG, |_| {
        began.raise();
        let dropped = ended.raised_by_drop();
        async move {
            let _dropped = dropped;
            std::future::pending::<()>().await;
        }
    });
    let begun = async {
        while !began.is_raised() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = run => panic!("{result:?}"),
        () = soon(begun) => {}
    }
    assert!(server.join().unwrap(), "the server saw the end of the connection after that of the work");
}

#[tokio::test]
async fn claims_may_run_side_by_side() {
    let server = Server::start();
    let client = client(server.address());
    let cancel = CancellationToken::new();
    let both = async {
        tokio::join!(
            client.run_until(&cancel, "a", LONG, async |_| server.wait_for(|counts| counts.locks_held >= 1)),
            client.run_until(&cancel, "b", LONG, async |_| server.wait_for(|counts| counts.locks_held >= 1)),
        )
    };
    let (a, b) = soon(both).await;
    a.and(b).unwrap();
}
