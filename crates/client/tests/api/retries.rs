//! `run_retry`: attempt after attempt, until the work has begun once.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use monolock_client::{CancellationToken, Error, ErrorCode, Loss, RunError};
use protocol::{ErrorFrame, acquired};
use standin::{Gate, Opening, Server};

use crate::common::{LONG, PATIENCE, TOKEN, accept, client, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_serve_yet_is_asked_again_until_it_can() {
    let server = Server::start();
    server.set_gate(Gate::Standby);
    let client = client(server.address());
    let work = tokio::spawn(async move { client.run_retry("a", LONG, async |grant| grant.token()).await });
    let begun = Instant::now();
    while server.accepted() < 3 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.set_gate(Gate::Open(Opening::FIRST));
    soon(work).await.unwrap().unwrap();
}

#[tokio::test]
async fn lost_dials_and_lost_connections_are_tried_again() {
    // Bound, and not listening yet: connections are refused.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = client(socket.local_addr().unwrap().to_string());
    let retrying = client.run_retry("a", LONG, async |grant| grant.token());
    let serving = async {
        assert!(matches!(client.acquire("a", LONG).await, Err(Error::Dial { .. })));
        let listener = socket.listen(8).unwrap().into_std().unwrap();
        listener.set_nonblocking(false).unwrap();
        let serve = move || {
            drop(accept(&listener));
            let mut stream = accept(&listener);
            stream.write_all(&acquired(TOKEN)).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        };
        tokio::task::spawn_blocking(serve).await.unwrap();
    };
    let (token, ()) = soon(async { tokio::join!(retrying, serving) }).await;
    assert_eq!(token.unwrap(), TOKEN);
}

#[tokio::test]
async fn a_client_error_and_invalid_input_are_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let mut stream = accept(&listener);
        stream.write_all(&ErrorFrame::new(ErrorCode::NOT_AUTHORIZED)).unwrap();
        drop(stream);
        listener.set_nonblocking(true).unwrap();
        listener
    });
    let client = client(address);
    let refused = soon(client.run_retry("a", LONG, async |_| ())).await;
    let Err(RunError::NotAcquired(Error::Lost(Loss::Server { code, .. }))) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(code, ErrorCode::NOT_AUTHORIZED);
    let invalid = soon(client.run_retry("", LONG, async |_| ())).await;
    assert!(matches!(invalid, Err(RunError::NotAcquired(Error::InvalidName(_)))));
    assert!(server.join().unwrap().accept().is_err(), "nobody has come again");
}

#[tokio::test]
async fn work_that_has_begun_never_runs_a_second_time() {
    let server = Server::start();
    let client = client(server.address());
    let runs = Cell::new(0);
    let outcome = soon(client.run_retry("a", LONG, async |grant| {
        runs.set(runs.get() + 1);
        server.force_release("a");
        grant.stop().cancelled().await;
    }))
    .await;
    assert!(matches!(outcome, Err(RunError::Lost { loss: Loss::Server { .. }, result: Some(()) })));
    assert_eq!((runs.get(), server.accepted()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retrying_ends_when_it_is_cancelled() {
    let server = Server::start();
    server.set_gate(Gate::Standby);
    let client = client(server.address());
    let cancel = CancellationToken::new();
    let trying = tokio::spawn({
        let cancel = cancel.clone();
        async move { client.run_retry_until(&cancel, "a", LONG, async |_| ()).await }
    });
    let begun = Instant::now();
    while server.accepted() < 4 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cancel.cancel();
    assert!(matches!(soon(trying).await.unwrap(), Err(RunError::Cancelled)));
}

/// How long after its first claim has ended with this a client is back with its second. The first is granted
/// before, if its work is to have begun.
async fn back_after(begins: bool) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (begin, begun) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut stream = accept(&listener);
        if begins {
            stream.write_all(&acquired(TOKEN)).unwrap();
            begun.recv_timeout(PATIENCE).unwrap();
        }
        let told = Instant::now();
        stream.write_all(&ErrorFrame::new(ErrorCode::SHUTTING_DOWN)).unwrap();
        drop(stream);
        let mut stream = accept(&listener);
        let after = told.elapsed();
        stream.write_all(&acquired(TOKEN)).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        after
    });
    let client = client(address);
    if begins {
        let lost = client.run_retry("a", LONG, async |grant| {
            begin.send(()).unwrap();
            grant.stop().cancelled().await;
        });
        assert!(matches!(soon(lost).await, Err(RunError::Lost { .. })));
    }
    soon(client.run_retry("a", LONG, async |_| ())).await.unwrap();
    server.join().unwrap()
}

async fn assert_spread_over_100_ms(begins: bool) {
    let mut returns = Vec::new();
    for _ in 0..20 {
        returns.push(back_after(begins).await);
    }
    returns.sort();
    // Twenty draws from 100 ms all lie within 30 ms once in 10⁸ runs.
    assert!(returns[19] - returns[0] > Duration::from_millis(30), "{returns:?}");
    // The machine may be slow now and then, but not most of the time.
    assert!(returns[5] < Duration::from_millis(200), "{returns:?}");
}

#[tokio::test]
async fn waiters_of_a_server_that_shuts_down_do_not_return_in_step() {
    assert_spread_over_100_ms(false).await;
}

#[tokio::test]
async fn holders_who_lost_their_locks_and_begin_anew_do_not_return_in_step() {
    assert_spread_over_100_ms(true).await;
}
