//! Guards: locks that are held without a closure.

use std::time::Duration;

use monolock_client::{Loss, boottime_ns};
use standin::Server;

use crate::common::{KEPT, LONG, SHORT, TOKEN, client, grant_and_fall_silent, serve, soon, stand_still};

#[tokio::test]
async fn a_guard_holds_its_lock_over_many_leases_until_it_is_dropped() {
    let server = Server::start();
    let guard = soon(client(server.address()).acquire("a", KEPT)).await.unwrap();
    let begun_ns = boottime_ns();
    while boottime_ns() - begun_ns < 3 * u64::try_from(KEPT.as_nanos()).unwrap() {
        assert!(guard.is_held());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(guard);
    server.wait_for(|counts| counts.sessions == 0);
}

#[test]
fn a_guard_that_is_dropped_while_nobody_drives_its_runtime_releases_its_lock_all_the_same() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(client(server.address()).acquire("a", LONG)).unwrap();
    server.wait_for(|counts| counts.locks_held == 1);
    drop(guard);
    server.wait_for(|counts| counts.sessions == 0);
}

#[test]
fn a_guard_holds_nothing_once_its_runtime_is_gone() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(client(server.address()).acquire("a", LONG)).unwrap();
    assert!(guard.is_held());
    drop(runtime);
    assert!(!guard.is_held());
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(other.block_on(soon(guard.lost())), Loss::HeartbeatTimeout);
}

#[tokio::test]
async fn a_guard_tells_why_its_claim_is_lost_as_often_as_it_is_asked() {
    let server = Server::start();
    let guard = soon(client(server.address()).acquire("a", LONG)).await.unwrap();
    let waiting_in_vain = tokio::time::timeout(Duration::from_millis(10), guard.lost());
    assert!(waiting_in_vain.await.is_err());
    assert!(server.force_release("a"));
    for _ in 0..2 {
        assert!(matches!(soon(guard.lost()).await, Loss::Server { .. }));
        assert!(!guard.is_held());
    }
}

#[tokio::test]
async fn a_guard_of_a_silent_server_is_held_until_eight_tenths_of_its_lease_and_then_lost() {
    let (address, server) = serve(grant_and_fall_silent);
    let begun_ns = boottime_ns();
    let guard = soon(client(address).acquire("a", SHORT)).await.unwrap();
    let held_at_least_until_ns = begun_ns + 400_000_000;
    let loss = async {
        let loss = guard.lost().await;
        (loss, boottime_ns())
    };
    let (loss, lost_ns) = soon(loss).await;
    assert_eq!(loss, Loss::HeartbeatTimeout);
    assert!(lost_ns >= held_at_least_until_ns);
    assert!(!guard.is_held());
    assert_eq!(guard.token(), TOKEN);
    drop(guard);
    server.join().unwrap();
}

#[tokio::test]
async fn a_guard_is_not_held_after_a_pause_although_nothing_has_told_it_so() {
    let server = Server::start();
    let guard = soon(client(server.address()).acquire("a", SHORT)).await.unwrap();
    assert!(guard.is_held());
    stand_still(SHORT);
    assert!(!guard.is_held());
    assert_eq!(soon(guard.lost()).await, Loss::HeartbeatTimeout);
}

#[tokio::test]
async fn try_acquire_takes_a_free_lock_and_leaves_the_queue_of_a_taken_one() {
    let server = Server::start();
    let client = client(server.address());
    let guard = soon(client.try_acquire("a", LONG)).await.unwrap().expect("it is free");
    assert!(soon(client.try_acquire("a", LONG)).await.unwrap().is_none());
    server.wait_for(|counts| counts.sessions == 1);
    assert!(guard.is_held());
    drop(guard);
    server.wait_for(|counts| counts.sessions == 0);
    assert!(soon(client.try_acquire("a", LONG)).await.unwrap().is_some());
}

#[tokio::test]
async fn acquire_timeout_gives_up_in_time_and_leaves_the_queue() {
    let server = Server::start();
    let client = client(server.address());
    let _guard = soon(client.acquire_timeout("a", LONG, LONG)).await.unwrap().expect("it is free");
    let timeout = Duration::from_millis(50);
    let begun_ns = boottime_ns();
    assert!(soon(client.acquire_timeout("a", LONG, timeout)).await.unwrap().is_none());
    assert!(boottime_ns() - begun_ns >= 50_000_000);
    server.wait_for(|counts| counts.waiters == 0);
}

#[tokio::test]
async fn acquire_timeout_counts_a_server_that_does_not_answer() {
    let (address, server) = serve(|stream| std::io::Read::read_to_end(stream, &mut Vec::new()).unwrap());
    let timeout = Duration::from_millis(50);
    assert!(soon(client(address).acquire_timeout("a", LONG, timeout)).await.unwrap().is_none());
    server.join().unwrap();
}
