//! TLS to the server: certificates made by openssl, and socat in front of the real server.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::harness::{Server, wait_for};
use crate::runs::{LONG, monolock_run, only_line, run_to_end};

/// An authority, and certificates of a server and of a client that it vouches for.
fn certificates() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
        set -e
        new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -subj "/CN=$1" "${@:2}" 2>/dev/null; }
        new ca -x509 -days 2 -out ca.pem
        new other-ca -x509 -days 2 -out other-ca.pem
        for side in server client; do
            new "$side" -out "$side.csr"
            openssl x509 -req -in "$side.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out "$side.pem" \
                -extfile <(printf 'subjectAltName=IP:127.0.0.1,DNS:%s.test' "$side") 2>/dev/null
        done"#;
    let made = Command::new("bash").args(["-c", script]).current_dir(&directory).status();
    assert!(made.is_ok_and(|status| status.success()), "openssl made the certificates");
    directory
}

/// A TLS listener in front of a server; asks for a client's certificate.
struct Front {
    socat: Child,
    address: SocketAddr,
}

impl Front {
    fn start(server: &Server, directory: &Path) -> Self {
        // Free a moment ago; socat says which port it takes to nobody.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = format!(
            "OPENSSL-LISTEN:{},bind=127.0.0.1,reuseaddr,fork,cert=server.pem,key=server.key,cafile=ca.pem,verify=1",
            address.port()
        );
        let socat = Command::new("socat")
            .args([listen, format!("TCP:{}", server.address)])
            .current_dir(directory)
            .stderr(Stdio::null())
            .spawn()
            .expect("socat is there");
        let front = Self { socat, address };
        wait_for("the TLS port", || TcpStream::connect(address).ok());
        front
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.socat.kill();
        let _ = self.socat.wait();
    }
}

#[test]
#[ignore = "needs openssl and socat; .ci/run installs them before it runs this"]
fn a_command_runs_under_a_lock_of_a_server_behind_tls_and_only_with_the_right_certificates() {
    let server = Server::start();
    let directory = certificates();
    let front = Front::start(&server, directory.path());
    let run = |flags: &[&str]| {
        let address = front.address.to_string();
        let flags =
            [&["--address", &address, "--lease", LONG], flags, &["lock", "--", "echo", "done"]].concat();
        let mut command = monolock_run(&flags);
        command.current_dir(&directory);
        run_to_end(command)
    };
    let identity = ["--tls-cert", "client.pem", "--tls-key", "client.key"];
    let with = |flags: &[&'static str]| [flags, &identity].concat();

    let ended = run(&with(&["--tls-ca", "ca.pem"]));
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), &b"done\n"[..], ""));
    let ended = run(&with(&["-tls-ca=ca.pem", "-tls-server-name", "server.test"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");

    for (what, flags) in [
        ("another authority", with(&["--tls-ca", "other-ca.pem"])),
        ("another name", with(&["--tls-ca", "ca.pem", "--tls-server-name", "elsewhere.test"])),
        ("no certificate of ours", vec!["--tls-ca", "ca.pem"]),
    ] {
        let ended = run(&flags);
        assert_eq!(ended.code, Some(77), "{what}: {ended:?}");
        only_line(&ended);
    }
    assert_eq!(server.metric("monolock_acquires_total"), 2.0);
}

#[test]
fn a_tls_flag_that_cannot_be_used_is_64_and_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("empty.pem"), "").unwrap();
    for (flags, named) in [
        (&["--tls-ca", "missing.pem"][..], "missing.pem"),
        (&["--tls-ca", "empty.pem"], "--tls-ca"),
        (&["--tls-cert", "empty.pem"], "--tls-"),
        (&["--tls-server-name", "x"], "--tls-ca"),
    ] {
        let mut command = monolock_run(&[flags, &["lock", "--", "true"]].concat());
        command.current_dir(&directory);
        let ended = run_to_end(command);
        assert_eq!(ended.code, Some(64), "{flags:?}: {ended:?}");
        assert!(only_line(&ended).contains(named), "{flags:?}: {ended:?}");
    }
}
