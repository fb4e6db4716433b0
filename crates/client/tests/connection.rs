//! A connection against a scripted server on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_client::{Alarm, Closed, Connection, Error, Event, Loss, Violation, request};
use protocol::{ErrorCode, ErrorFrame, HEARTBEAT, Token, UnknownFrame, WAITING, acquired};

/// Nothing here waits longer than this: a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(10);

const TOKEN: Token = Token(9);

/// A server that runs `script` on its one connection, once it has read the ACQUIRE for "a".
fn serve<T: Send + 'static>(
    script: impl FnOnce(&mut TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut acquire = [0; 9];
        stream.read_exact(&mut acquire).unwrap();
        assert_eq!((acquire[0], acquire[8]), (1, b'a'));
        script(&mut stream)
    });
    (address, server)
}

fn hear_heartbeat(stream: &mut TcpStream) {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(byte, HEARTBEAT);
}

async fn open(address: &str, lease_ms: u64) -> Connection {
    let acquire = request("a", Duration::from_millis(lease_ms)).unwrap();
    Connection::open(address, acquire).await.unwrap()
}

async fn next(connection: &mut Connection) -> Event {
    tokio::time::timeout(PATIENCE, connection.next_event()).await.expect("an event")
}

#[tokio::test]
async fn a_waiter_is_promoted_and_its_heartbeats_go_on() {
    let (address, server) = serve(|stream| {
        stream.write_all(&WAITING).unwrap();
        hear_heartbeat(stream);
        // The answer, then the push, in pieces.
        stream.write_all(&WAITING).unwrap();
        let push = acquired(TOKEN);
        stream.write_all(&push[..4]).unwrap();
        stream.write_all(&push[4..]).unwrap();
        for _ in 0..3 {
            hear_heartbeat(stream);
            stream.write_all(&push).unwrap();
        }
        stream.write_all(&ErrorFrame::with_reason(ErrorCode::SHUTTING_DOWN, "bye")).unwrap();
    });
    let mut connection = open(&address, 2000).await;
    assert_eq!(next(&mut connection).await, Event::Waiting);
    assert!(!connection.is_held());
    assert_eq!(next(&mut connection).await, Event::Acquired(TOKEN));
    assert!(connection.is_held());
    let loss = Loss::Server { code: ErrorCode::SHUTTING_DOWN, reason: "bye".to_owned() };
    assert_eq!(next(&mut connection).await, Event::Lost(loss));
    assert!(!connection.is_held());
    server.join().unwrap();
}

#[tokio::test]
async fn dropping_the_connection_closes_it() {
    let (address, server) = serve(|stream| {
        stream.write_all(&acquired(TOKEN)).unwrap();
        stream.read(&mut [0]).unwrap()
    });
    let mut connection = open(&address, 10_000).await;
    assert_eq!(next(&mut connection).await, Event::Acquired(TOKEN));
    drop(connection);
    assert_eq!(server.join().unwrap(), 0, "end of stream");
}

#[tokio::test]
async fn a_server_that_closes_ends_the_claim() {
    let (address, server) = serve(|_| ());
    let mut connection = open(&address, 10_000).await;
    assert_eq!(next(&mut connection).await, Event::Lost(Loss::ConnectionClosed(Closed::ByServer)));
    server.join().unwrap();
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_its_connection_stays_open_until_it_is_dropped() {
    let (address, server) = serve(|stream| {
        stream.write_all(&acquired(TOKEN)).unwrap();
        let mut heartbeats = Vec::new();
        stream.read_to_end(&mut heartbeats).unwrap();
        heartbeats
    });
    let mut connection = open(&address, 200).await;
    assert_eq!(next(&mut connection).await, Event::Acquired(TOKEN));
    let granted_ns = connection.confirmed_ns();
    assert_eq!(next(&mut connection).await, Event::Lost(Loss::HeartbeatTimeout));
    assert_eq!(connection.confirmed_ns(), granted_ns);
    assert!(monolock_client::boottime_ns() >= granted_ns + 160_000_000);
    assert!(!server.is_finished(), "the server has seen no end of stream");
    drop(connection);
    assert_eq!(server.join().unwrap(), HEARTBEAT, "one heartbeat, and nothing after the loss");
}

#[tokio::test]
async fn an_unknown_frame_is_a_violation() {
    let (address, server) = serve(|stream| stream.write_all(&[0x7f]).unwrap());
    let mut connection = open(&address, 10_000).await;
    let violation = Violation::UnknownFrame(UnknownFrame(0x7f));
    assert_eq!(next(&mut connection).await, Event::Lost(Loss::ProtocolViolation(violation)));
    server.join().unwrap();
}

#[tokio::test]
async fn an_error_is_read_even_when_the_reset_after_it_already_breaks_the_writing() {
    let (go_on, gate) = mpsc::channel();
    let (address, server) = serve(move |stream| {
        stream.write_all(&acquired(TOKEN)).unwrap();
        gate.recv_timeout(PATIENCE).unwrap();
        stream.write_all(&ErrorFrame::with_reason(ErrorCode::STANDBY, "")).unwrap();
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    });
    let mut connection = open(&address, 2000).await;
    assert_eq!(next(&mut connection).await, Event::Acquired(TOKEN));
    go_on.send(()).unwrap();
    server.join().unwrap();
    let heartbeat_due_ns = connection.confirmed_ns() + 500_000_000;
    Alarm::new().unwrap().wait_until(heartbeat_due_ns).await;
    let loss = Loss::Server { code: ErrorCode::STANDBY, reason: String::new() };
    assert_eq!(next(&mut connection).await, Event::Lost(loss));
}

#[tokio::test]
async fn a_wait_for_an_event_can_be_dropped_and_taken_up_again() {
    let (address, server) = serve(|stream| {
        stream.write_all(&WAITING).unwrap();
        for _ in 0..4 {
            hear_heartbeat(stream);
            stream.write_all(&WAITING).unwrap();
        }
        stream.write_all(&acquired(TOKEN)).unwrap();
        stream.read(&mut [0]).unwrap()
    });
    let mut connection = open(&address, 1000).await;
    assert_eq!(next(&mut connection).await, Event::Waiting);
    let start = std::time::Instant::now();
    let event = loop {
        let short = Duration::from_millis(1);
        match tokio::time::timeout(short, connection.next_event()).await {
            Ok(event) => break event,
            Err(_) => assert!(start.elapsed() < PATIENCE),
        }
    };
    assert_eq!(event, Event::Acquired(TOKEN));
    drop(connection);
    server.join().unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_dial_error_with_its_address() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let acquire = request("a", Duration::from_secs(1)).unwrap();
    match Connection::open(&address, acquire).await {
        Err(Error::Dial { address: named, .. }) => assert_eq!(named, address),
        other => panic!("{other:?}"),
    }
}
