//! The exit status: the command's own, or a documented one.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use protocol::{ErrorCode, ErrorFrame, Token, WAITING, acquired, decode_acquire};
use rustix::process::Signal;

use crate::harness::Server;
use crate::runs::{LONG, locked, monolock_run, only_line, run_to_end, wait_until_stopped};

/// A free address where nobody listens; nobody else gets it while the socket lives.
pub(crate) fn deserted() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().expect("an IP address");
    (socket, address)
}

/// A server of one connection, which reads the request, answers this and closes.
fn answering(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut byte = [0];
        while decode_acquire(&request).expect("a request").is_none() && stream.read(&mut byte).unwrap() == 1 {
            request.push(byte[0]);
        }
        stream.write_all(&answer).unwrap();
    });
    address
}

#[test]
fn the_status_is_that_of_the_command() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap();
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["sh", "-c", "kill -ABRT $$"], 128 + 6),
    ] {
        let ended = run_to_end(locked(server.address, LONG, "lock", command));
        assert_eq!(ended.code, Some(code), "{command:?}");
        assert_eq!((&*ended.stdout, &*ended.stderr), (&b""[..], ""), "{command:?}");
    }
    for (command, code) in [
        (&["/nonexistent/command"][..], 127),
        (&["monolock-test-no-such-command"], 127),
        (&[plain], 126),
        (&["/"], 126),
    ] {
        let ended = run_to_end(locked(server.address, LONG, "lock", command));
        assert_eq!(ended.code, Some(code), "{command:?}");
        assert!(only_line(&ended).contains(command[0]), "{ended:?}");
    }
}

/// One answer is wanted, and this is the way to the server.
fn once(address: SocketAddr, lease: &str) -> std::process::Command {
    monolock_run(&[
        "--try",
        "--address",
        &address.to_string(),
        "--lease",
        lease,
        "lock",
        "--",
        "echo",
        "it ran",
    ])
}

#[test]
fn a_server_that_cannot_be_reached_is_69_and_named() {
    let (_socket, address) = deserted();
    let ended = run_to_end(once(address, LONG));
    assert_eq!(ended.code, Some(69));
    assert!(only_line(&ended).contains(&address.to_string()), "{ended:?}");
}

#[test]
fn a_name_that_is_none_is_64_and_never_reaches_the_server() {
    // Nobody answers there: a request that went out would be 69.
    let (_socket, address) = deserted();
    for name in ["", &"x".repeat(256), &"ü".repeat(128)] {
        let ended = run_to_end(locked(address, LONG, name, &["echo", "it ran"]));
        assert_eq!(ended.code, Some(64), "{name:?}");
        assert!(only_line(&ended).contains("name"), "{ended:?}");
    }
}

#[test]
fn each_first_answer_that_is_no_lock_has_its_status() {
    let error = |code| ErrorFrame::new(code).to_vec();
    for (answer, code) in [
        (error(ErrorCode::NOT_AUTHORIZED), 77),
        (error(ErrorCode::SHUTTING_DOWN), 75),
        (error(ErrorCode::CLOSED_BY_ADMINISTRATOR), 75),
        (error(ErrorCode::STANDBY), 75),
        (vec![0x7f], 76),
        (Vec::new(), 69),
        (acquired(Token(1))[..5].to_vec(), 69),
    ] {
        let ended = run_to_end(once(answering(answer.clone()), LONG));
        assert_eq!(ended.code, Some(code), "{answer:02x?}: {}", ended.stderr);
        assert!(only_line(&ended).contains("lock"), "{ended:?}");
    }
}

#[test]
fn a_wait_that_no_new_attempt_can_help_ends_with_its_own_status() {
    let error = |code| ErrorFrame::new(code).to_vec();
    for (answer, code) in [
        (error(ErrorCode::NOT_AUTHORIZED), 77),
        (error(ErrorCode(0x10)), 77),
        ([&WAITING[..], &error(ErrorCode::NOT_AUTHORIZED)].concat(), 77),
        ([&WAITING[..], &error(ErrorCode::CLOSED_BY_ADMINISTRATOR)].concat(), 75),
        ([&WAITING[..], &WAITING].concat(), 76),
    ] {
        let ended = run_to_end(locked(answering(answer.clone()), LONG, "lock", &["echo", "it ran"]));
        assert_eq!(ended.code, Some(code), "{answer:02x?}: {}", ended.stderr);
        assert!(only_line(&ended).contains("lock"), "{ended:?}");
    }
}

#[test]
fn a_server_that_hangs_is_69_after_eight_tenths_of_the_lease_for_whoever_wants_one_answer() {
    const LEASE: Duration = Duration::from_millis(500);
    let server = Server::start();
    server.signal(Signal::STOP);
    wait_until_stopped(server.pid());
    // The kernel still takes connections for it.
    let dialling = Instant::now();
    let ended = run_to_end(once(server.address, "500ms"));
    assert!(dialling.elapsed() >= LEASE * 8 / 10, "{ended:?}");
    assert_eq!(ended.code, Some(69));
    assert!(only_line(&ended).contains("did not confirm"), "{ended:?}");
}
