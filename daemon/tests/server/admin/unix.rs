//! The API on a Unix socket.

use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use protocol::ErrorCode;
use rustix::process::Signal;

use super::{Answer, LEASE};
use crate::harness::{MONOLOCK, PATIENCE, Server, run_to_end};

/// A folder for a socket, the socket's path, and the flag's value.
fn place() -> (tempfile::TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let flag = format!("unix:{}", path.display());
    (folder, path, flag)
}

fn send(path: &PathBuf, request: &str) -> Answer {
    let mut stream = UnixStream::connect(path).expect("the socket is there");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("a whole answer");
    Answer::parse(&answer)
}

#[test]
fn a_socket_is_for_its_owner_whose_uid_is_logged_and_any_host_will_do() {
    let (_folder, path, flag) = place();
    let mut server = Server::with(&["-admin-listen", &flag]);
    assert!(server.log_line("listening").contains(&format!("admin={flag}")));
    let file = std::fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o7777, 0o600);

    let (mut holder, _) = server.hold("jobs", LEASE);
    for host in ["", "Host: \r\n", "Host: monolock\r\n", "Host: evil.example\r\n"] {
        assert_eq!(send(&path, &format!("GET /api/locks/jobs HTTP/1.1\r\n{host}\r\n")).ok()["name"], "jobs");
    }
    let from_page =
        "POST /api/locks/jobs/release HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n";
    send(&path, from_page).error(403);
    send(&path, "POST /api/locks/jobs/release HTTP/1.1\r\nHost: x\r\n\r\n").ok();
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    let uid = rustix::process::getuid().as_raw();
    let line = server.log_line("force-release");
    assert!(line.contains(&format!("by=uid {uid} ")), "{line}");
}

#[test]
fn the_socket_goes_with_its_server_and_a_killed_ones_is_taken_over() {
    let (_folder, path, flag) = place();
    let killed = Server::with(&["-admin-listen", &flag]);
    drop(killed);
    assert!(path.exists(), "a killed server leaves its socket");
    let mut server = Server::with(&["-admin-listen", &flag]);
    send(&path, "GET /api/info HTTP/1.1\r\n\r\n").ok();
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn what_is_in_the_way_is_named_and_left_alone() {
    let (_folder, path, flag) = place();
    let start = || {
        let mut command = Command::new(MONOLOCK);
        let (status, stderr) = run_to_end(command.args(["-listen", "127.0.0.1:0", "-admin-listen", &flag]));
        assert_eq!(status.code(), Some(71), "{stderr}");
        assert!(stderr.contains(&format!("-admin-listen {flag}: ")), "{stderr}");
        stderr
    };
    let live = UnixListener::bind(&path).unwrap();
    assert!(start().contains("a server listens there already"));
    drop(live);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "text").unwrap();
    assert!(start().contains("something else than a socket is there"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
}

#[test]
#[ignore = "needs curl, which .ci/run installs before it runs this"]
fn curl_speaks_to_the_socket() {
    let (_folder, path, flag) = place();
    let server = Server::with(&["-admin-listen", &flag]);
    let _holder = server.hold("nightly/backup", LEASE);
    let mut curl = Command::new("curl");
    curl.arg("--silent").arg("--unix-socket").arg(&path).arg("http://monolock/api/locks/nightly%2Fbackup");
    let output = curl.output().expect("curl is there");
    let lock: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(lock["name"], "nightly/backup");
}
