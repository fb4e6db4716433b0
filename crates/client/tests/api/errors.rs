//! Each way to end without a lock.

use std::io::{self, Write};
use std::net::TcpListener;
use std::time::Duration;

use monolock_client::{Alert, Closed, Error, ErrorCode, Loss, Violation};
use protocol::{ErrorFrame, UnknownFrame};
use standin::{Gate, Server};

use crate::common::{LONG, SHORT, client, serve, soon};

async fn loss_when(script: impl FnOnce(&mut std::net::TcpStream) + Send + 'static) -> Loss {
    let (address, server) = serve(script);
    let outcome = soon(client(address).acquire("a", SHORT)).await;
    server.join().unwrap();
    match outcome {
        Err(Error::Lost(loss)) => loss,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_dial_error_with_its_address() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    match soon(client(&address).acquire("a", LONG)).await {
        Err(error @ Error::Dial { .. }) => {
            assert!(error.is_temporary());
            assert!(error.to_string().contains(&address), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_address_without_a_port_is_a_dial_error_that_no_new_attempt_mends() {
    match soon(client("localhost").acquire("a", LONG)).await {
        Err(error @ Error::Dial { .. }) => assert!(!error.is_temporary(), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_host_name_is_looked_up_and_every_address_of_it_is_tried() {
    let server = Server::start();
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let guard = soon(client(format!("localhost:{port}")).acquire("a", LONG)).await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_bad_name_and_a_bad_lease_are_refused_without_a_server() {
    let client = client("127.0.0.1:1");
    assert!(matches!(client.acquire("", LONG).await, Err(Error::InvalidName(_))));
    assert!(matches!(client.try_acquire(&"x".repeat(256), LONG).await, Err(Error::InvalidName(_))));
    assert!(matches!(client.acquire("a", Duration::ZERO).await, Err(Error::InvalidLease)));
    assert!(matches!(client.acquire("a", Duration::MAX).await, Err(Error::InvalidLease)));
}

#[tokio::test]
async fn a_standby_is_a_temporary_error_with_its_code() {
    let server = Server::start();
    server.set_gate(Gate::Standby);
    match soon(client(server.address()).acquire("a", LONG)).await {
        Err(error @ Error::Lost(Loss::Server { code: ErrorCode::STANDBY, .. })) => {
            assert!(error.is_temporary())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_client_error_keeps_the_servers_words_and_is_not_temporary() {
    let loss = loss_when(|stream| {
        let frame = ErrorFrame::with_reason(ErrorCode::NOT_AUTHORIZED, "not yours");
        stream.write_all(&frame).unwrap();
    });
    let loss = loss.await;
    assert_eq!(loss, Loss::Server { code: ErrorCode::NOT_AUTHORIZED, reason: "not yours".into() });
    assert!(!loss.is_temporary());
}

#[tokio::test]
async fn a_server_that_closes_or_resets_or_stays_silent_or_talks_nonsense_is_told_apart() {
    assert_eq!(loss_when(|_| ()).await, Loss::ConnectionClosed(Closed::ByServer));
    let reset = loss_when(|stream| {
        rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    });
    assert_eq!(reset.await, Loss::ConnectionClosed(Closed::Broken(io::ErrorKind::ConnectionReset)));
    let silent = loss_when(|stream| {
        io::Read::read_to_end(stream, &mut Vec::new()).unwrap();
    });
    assert_eq!(silent.await, Loss::HeartbeatTimeout);
    let nonsense = loss_when(|stream| stream.write_all(&[0x7f]).unwrap());
    let violation = Violation::UnknownFrame(UnknownFrame(0x7f));
    assert_eq!(nonsense.await, Loss::ProtocolViolation(violation));
}

#[test]
fn server_conditions_and_lost_connections_are_temporary_and_client_errors_are_not() {
    let server = |code| Loss::Server { code, reason: String::new() };
    assert!(server(ErrorCode::SHUTTING_DOWN).is_temporary());
    assert!(server(ErrorCode(0x0f)).is_temporary());
    assert!(!server(ErrorCode(0x10)).is_temporary());
    assert!(!server(ErrorCode::NOT_AUTHORIZED).is_temporary());
    assert!(Loss::HeartbeatTimeout.is_temporary());
    assert!(Error::from(Loss::ConnectionClosed(Closed::ByServer)).is_temporary());
    assert!(!Loss::ProtocolViolation(Violation::Unasked).is_temporary());
    assert!(!Error::InvalidLease.is_temporary());
}

#[test]
fn a_wrong_address_and_a_refused_certificate_are_not_temporary() {
    let dial = |kind: io::ErrorKind| Error::Dial { address: String::new(), source: kind.into() };
    assert!(dial(io::ErrorKind::ConnectionRefused).is_temporary());
    assert!(dial(io::ErrorKind::TimedOut).is_temporary());
    assert!(!dial(io::ErrorKind::InvalidInput).is_temporary());
    assert!(!dial(io::ErrorKind::InvalidData).is_temporary());
    let broken = |kind| Loss::ConnectionClosed(Closed::Broken(kind));
    assert!(broken(io::ErrorKind::ConnectionReset).is_temporary());
    assert!(!broken(io::ErrorKind::InvalidData).is_temporary());
    let refused = |alert| Loss::ConnectionClosed(Closed::Refused(Alert(alert)));
    assert!(refused(80).is_temporary() && !refused(116).is_temporary());
}
