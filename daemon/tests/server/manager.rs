//! What a service manager is told, and that one that hangs holds up nothing.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{MONOLOCK, PATIENCE, Server};

fn under(manager: impl AsRef<OsStr>) -> Server {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", manager);
    Server::spawn(command)
}

/// What the manager is told next.
fn told(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut message = [0; 256];
    let len = manager.recv(&mut message).expect("a message");
    String::from_utf8(message[..len].to_vec()).unwrap()
}

#[test]
fn a_manager_is_told_of_the_start_each_reload_and_the_end_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager");
    let name = format!("monolock-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    let managers = [
        (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
        (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
    ];
    for (manager, address) in managers {
        let mut server = under(address);
        assert_eq!(told(&manager), "READY=1\n");
        for _ in 0..3 {
            server.signal(Signal::HUP);
            let reloading = told(&manager);
            let now_us = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&reloading).trim_end();
            let uptime = fs::read_to_string("/proc/uptime").unwrap();
            assert!(
                now_us.parse::<f64>().unwrap() / 1e6
                    <= uptime.split(' ').next().unwrap().parse::<f64>().unwrap() + 0.1
            );
            assert_eq!(told(&manager), "READY=1\n");
        }
        server.signal(Signal::TERM);
        assert_eq!(told(&manager), "STOPPING=1\n");
        assert_eq!(server.exit().code(), Some(0));
    }
}

#[test]
fn a_manager_that_cannot_be_told_is_one_line_and_no_obstacle() {
    for address in
        ["vsock:2:1234", "vsock-stream:2:1234", "relative/path", "@", &format!("/{}", "x".repeat(200))]
    {
        let server = under(address);
        let lines: Vec<String> =
            server.log().into_iter().filter(|line| line.contains("NOTIFY_SOCKET")).collect();
        assert_eq!(lines.len(), 1, "{address}: {:?}", server.log());
        assert!(lines[0].contains("WARN") && lines[0].contains(address), "{}", lines[0]);
    }
}

#[test]
fn a_manager_that_waits_for_signs_of_life_is_said_to_wait_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "30000000");
    Server::spawn(command).log_line("WatchdogSec=");
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
