//! What a service manager is told, and that one that hangs holds up nothing.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{MONOLOCK, PATIENCE, Server};

fn under(manager: &Path) -> Server {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", manager);
    Server::spawn(command)
}

#[test]
fn a_manager_is_told_of_the_start_each_reload_and_the_end_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut message = [0; 256];
        let len = manager.recv(&mut message).expect("a message");
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    let mut server = under(&path);
    assert_eq!(told(), "READY=1\n");
    for _ in 0..3 {
        server.signal(Signal::HUP);
        let reloading = told();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(told(), "READY=1\n");
    }
    server.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.exit().code(), Some(0));
}

#[test]
fn a_manager_that_takes_no_messages_holds_up_neither_health_checks_nor_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let other = UnixDatagram::unbound().unwrap();
    other.connect(&path).unwrap();
    other.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = other.send(b"STATUS=\n") {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);

    let mut server = under(&path);
    assert_eq!(server.get("/healthz").0, 200);
    for _ in 0..100 {
        server.signal(Signal::HUP);
        assert_eq!(server.get("/healthz").0, 200);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
}
