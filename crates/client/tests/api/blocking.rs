//! The blocking API.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use monolock_client::blocking::Client;
use monolock_client::{CancellationToken, Config, Error, Loss, RunError};
use standin::{Gate, Opening, Server};

use crate::common::{KEPT, LONG, PATIENCE, stand_still};

fn client(server: &Server) -> Client {
    Client::new(Config::new(server.address())).unwrap()
}

#[test]
fn work_may_block_for_many_leases_and_its_lock_is_released_when_it_returns() {
    let server = Server::start();
    let client = client(&server);
    let held = client.run("a", KEPT, |grant| {
        stand_still(2 * KEPT);
        grant.is_held()
    });
    assert!(held.unwrap());
    server.wait_for(|counts| counts.sessions == 0);
}

#[test]
fn work_that_panics_releases_its_lock() {
    let server = Server::start();
    let client = client(&server);
    let panicking = || client.run("a", LONG, |_| -> () { panic!("the work panics") });
    assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    server.wait_for(|counts| counts.sessions == 0);
    client.run("a", LONG, |_| ()).unwrap();
}

#[test]
fn a_claim_that_is_lost_tells_the_work_and_its_result_carries_the_cause() {
    let server = Server::start();
    let outcome = client(&server).run("a", LONG, |grant| {
        assert!(server.force_release("a"));
        let begun = std::time::Instant::now();
        while !grant.stop().is_cancelled() {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!grant.is_held());
        "half done"
    });
    match outcome {
        Err(RunError::Lost { loss: Loss::Server { .. }, result }) => assert_eq!(result, Some("half done")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn guards_hold_and_tell_of_their_loss_and_outlive_their_client() {
    let server = Server::start();
    let guard = client(&server).acquire("a", KEPT).unwrap();
    stand_still(2 * KEPT);
    assert!(guard.is_held());
    assert!(guard.token().0 > 0);
    server.set_mute(true);
    assert_eq!(guard.lost(), Loss::HeartbeatTimeout);
    assert!(!guard.is_held());
}

#[test]
fn a_taken_lock_is_not_waited_for_longer_than_one_likes() {
    let server = Server::start();
    let client = client(&server);
    let guard = client.try_acquire("a", LONG).unwrap().expect("it is free");
    assert!(client.try_acquire("a", LONG).unwrap().is_none());
    assert!(client.acquire_timeout("a", LONG, Duration::from_millis(20)).unwrap().is_none());
    server.wait_for(|counts| counts.sessions == 1);
    drop(guard);
    assert!(client.acquire_timeout("a", LONG, PATIENCE).unwrap().is_some());
}

#[test]
fn another_thread_cancels_a_wait() {
    let server = Server::start();
    let client = client(&server);
    let _guard = client.acquire("a", LONG).unwrap();
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.run_until(&cancel, "a", LONG, |_| ()));
        let acquiring = scope.spawn(|| client.acquire_until(&cancel, "a", LONG));
        server.wait_for(|counts| counts.waiters == 2);
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(RunError::Cancelled)));
        assert!(acquiring.join().unwrap().unwrap().is_none());
    });
    server.wait_for(|counts| counts.waiters == 0);
}

#[test]
fn another_thread_asks_the_work_to_stop() {
    let server = Server::start();
    let client = client(&server);
    let cancel = CancellationToken::new();
    let held_when_asked = client.run_until(&cancel, "a", LONG, |grant| {
        cancel.cancel();
        grant.stop().is_cancelled() && grant.is_held()
    });
    assert!(held_when_asked.unwrap());
}

#[test]
fn a_server_that_cannot_serve_yet_is_asked_again_until_it_can() {
    let server = Server::start();
    server.set_gate(Gate::Standby);
    let client = client(&server);
    assert!(matches!(client.run("a", LONG, |_| ()), Err(RunError::NotAcquired(Error::Lost(_)))));
    thread::scope(|scope| {
        let running = scope.spawn(|| client.run_retry("a", LONG, |_| ()));
        let begun = std::time::Instant::now();
        while server.accepted() < 3 {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        server.set_gate(Gate::Open(Opening::FIRST));
        running.join().unwrap().unwrap();
    });
}
