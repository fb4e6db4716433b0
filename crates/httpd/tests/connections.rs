//! Which connections go when there are too many.

use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use httpd::{Listener, Service, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

const CONNECTIONS_MAX: usize = 4;

/// Longer than any machine keeps a task from running, and a test fails before.
const TIME_MAX: Duration = Duration::from_secs(60);

/// More than the kernel keeps for a client that does not read.
const LONG: usize = 64 << 20;

/// A server of `/slow`, which is answered when it is told so, and `/long`.
async fn start() -> (SocketAddr, Arc<Notify>, Arc<Notify>) {
    let (asked, may_answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (asked, may_answer) = (Arc::clone(&asked), Arc::clone(&may_answer));
        async move || {
            asked.notify_one();
            may_answer.notified().await;
            "slow"
        }
    };
    let router = Router::new().route("/slow", get(slow)).route("/long", get(async || vec![b'x'; LONG]));
    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let service =
        Service { name: "test", router, connections_max: CONNECTIONS_MAX, connection_time_max: TIME_MAX };
    tokio::spawn(run(vec![Listener::Tcp(listener)], service));
    (address, asked, may_answer)
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    timeout(TIME_MAX, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    answer
}

#[tokio::test]
async fn many_that_do_not_ask_close_no_connection_that_is_owed_its_answer() {
    let (address, asked, may_answer) = start().await;
    let scrape = ask(address, "/slow").await;
    asked.notified().await;
    let mut silent = Vec::new();
    for _ in 0..3 * CONNECTIONS_MAX {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut rest = Vec::new();
    // The oldest went; so the server has seen enough of them to close the one that asked before.
    for mut stream in silent.drain(..2 * CONNECTIONS_MAX) {
        timeout(TIME_MAX, stream.read_to_end(&mut rest)).await.expect("in time").unwrap();
    }
    may_answer.notify_one();
    assert!(answer(scrape).await.ends_with("slow"));
}

#[tokio::test]
async fn those_that_do_not_take_their_answers_keep_nobody_out() {
    let (address, _, may_answer) = start().await;
    let mut deaf = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        deaf.push(ask(address, "/long").await);
    }
    may_answer.notify_one();
    assert!(answer(ask(address, "/slow").await).await.ends_with("slow"));
}

#[tokio::test]
async fn while_all_are_owed_their_answers_one_more_waits_and_gets_its_own() {
    let (address, asked, may_answer) = start().await;
    let mut scrapes = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        scrapes.push(ask(address, "/slow").await);
        asked.notified().await;
    }
    scrapes.push(ask(address, "/slow").await);
    for scrape in scrapes {
        may_answer.notify_one();
        assert!(answer(scrape).await.ends_with("slow"));
    }
}
