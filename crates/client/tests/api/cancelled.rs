//! Cancelling, in each phase.

use monolock_client::{CancellationToken, RunError, boottime_ns};
use standin::Server;

use crate::common::{Flag, KEPT, LONG, client, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_dropped_leaves_the_queue_at_once() {
    let server = Server::start();
    let client = client(server.address());
    let guard = client.acquire("a", LONG).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.run("a", LONG, async |_| ()).await }
    });
    server.wait_for(|counts| counts.waiters == 1);
    waiting.abort();
    assert!(soon(waiting).await.unwrap_err().is_cancelled());
    server.wait_for(|counts| counts.waiters == 0);
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_cancelled_leaves_the_queue_at_once_and_never_begins_the_work() {
    let server = Server::start();
    let client = client(server.address());
    let _guard = client.acquire("a", LONG).await.unwrap();
    let cancel = CancellationToken::new();
    let waiting = tokio::spawn({
        let (client, cancel) = (client.clone(), cancel.clone());
        async move { client.run_until(&cancel, "a", LONG, async |_| ()).await }
    });
    server.wait_for(|counts| counts.waiters == 1);
    cancel.cancel();
    assert!(matches!(soon(waiting).await.unwrap(), Err(RunError::Cancelled)));
    server.wait_for(|counts| counts.waiters == 0);
}

#[tokio::test]
async fn an_acquire_that_is_cancelled_gives_up() {
    let server = Server::start();
    let client = client(server.address());
    let cancel = CancellationToken::new();
    let guard = soon(client.acquire_until(&cancel, "a", LONG)).await.unwrap().unwrap();
    cancel.cancel();
    assert!(guard.is_held(), "only the wait is cancelled");
    assert!(soon(client.acquire_until(&cancel, "a", LONG)).await.unwrap().is_none());
    assert_eq!(server.accepted(), 1, "who has cancelled before does not even connect");
}

#[tokio::test]
async fn work_that_is_cancelled_keeps_its_lock_for_as_long_as_it_takes_to_stop() {
    let server = Server::start();
    let client = client(server.address());
    let cancel = CancellationToken::new();
    let (canceller, asked) = (cancel.clone(), Flag::default());
    let told = asked.clone();
    let result = client.run_until(&cancel, "a", KEPT, async |grant| {
        canceller.cancel();
        grant.stop().cancelled().await;
        told.raise();
        let begun_ns = boottime_ns();
        tokio::time::sleep(2 * KEPT).await;
        assert!(boottime_ns() - begun_ns > 1_500_000_000, "the lease is long over");
        grant.is_held()
    });
    assert!(soon(result).await.unwrap(), "a graceful stop is no loss");
    assert!(asked.is_raised());
    server.wait_for(|counts| counts.sessions == 0);
}
