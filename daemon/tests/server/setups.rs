//! Connections that never become sessions: bounded in number, and in nobody's way.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Closed, Peer, Server, field, wait_for};
use crate::secured::{Secured, client};
use testkit::certificates::Says;

const LEASE: Duration = Duration::from_secs(60);

/// As many connections may be in set-up at once.
const PENDING_MAX: usize = 4096;

/// How many lines of a kind were logged or left out.
fn told(server: &Server, kind: &str) -> usize {
    let lines = server.log().into_iter().filter(|line| line.contains(kind));
    let left_out = |line: &str| field(line, "left_out").map_or(1, |number| number.parse().unwrap());
    lines.map(|line| left_out(&line)).sum()
}

fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    assert!(maximum.is_none_or(|maximum| maximum > 10_000), "too few open files are allowed for this test");
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn thousands_of_silent_connections_keep_no_client_out_and_the_oldest_of_them_go() {
    const MORE: usize = 100;
    raise_descriptor_limit();
    let server = Server::with(&["-io-timeout", "10m", "-shards", "1", "-log-level", "debug"]);
    let (mut session, token) = server.hold("held", LEASE);
    let mut silent: Vec<Peer> = (0..PENDING_MAX + MORE).map(|_| server.connect()).collect();
    let (_, new) = server.hold("new", LEASE);
    assert!(new > token);
    session.heartbeat();
    assert_eq!(session.acquired(), token);
    for gone in &mut silent[..MORE] {
        assert_eq!(gone.closed(), Closed::Fin);
    }
    // The log blames nobody else.
    wait_for("the log to say why", || {
        let says_why = |line: &&String| line.contains("made room");
        (server.log().iter().filter(says_why).count() >= MORE).then_some(())
    });
    let kept = silent.last_mut().unwrap();
    kept.send(&crate::harness::acquire("kept", LEASE));
    kept.acquired();
    assert_eq!(server.metric("monolock_accept_errors_total"), 0.0);
}

#[test]
fn thousands_of_failed_handshakes_are_counted_and_not_all_logged() {
    const FAILED: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|file| folder.path().join(file));
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&cert, own.cert.pem()).unwrap();
    fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let server = Server::with(&["-tls-cert", cert.to_str().unwrap(), "-tls-key", key.to_str().unwrap()]);
    for _ in 0..FAILED {
        server.connect().send(b"no TLS");
    }
    server.wait_for_metric("monolock_tls_handshake_errors_total", FAILED as f64);
    let lines = server.log().into_iter().filter(|line| line.contains("handshake failed")).count();
    // Two a second, one of them a number, and a busy machine may take some.
    assert!((1..FAILED / 10).contains(&lines), "{lines} lines");
    wait_for("all to be logged or told by number", || {
        (told(&server, "TLS handshake failed") == FAILED).then_some(())
    });
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn hundreds_of_refusals_of_one_client_are_told_by_number_and_do_not_hide_another_kind_and_the_end_loses_none()
{
    const REFUSED: usize = 200;
    let mut secured = Secured::start(r#"{"rules":[{"identity":"worker","locks":["mine"]}]}"#, &[]);
    secured.files.issue("worker", Says { subject: "/CN=worker", ..client() });
    let client = secured.client("ca", "worker");
    for _ in 0..REFUSED {
        assert!(client.acquire("not-mine", LEASE).is_err());
    }
    secured.server.wait_for_metric("monolock_acl_denials_total", REFUSED as f64);
    secured.server.connect().send(b"no TLS");
    secured.server.log_line("TLS handshake failed");
    secured.server.signal(rustix::process::Signal::TERM);
    secured.server.exit();
    wait_for("the end of the log", || (told(&secured.server, "denied by the ACL") == REFUSED).then_some(()));
    let lines = secured.server.log().into_iter().filter(|line| line.contains("denied by the ACL")).count();
    assert!((2..REFUSED / 10).contains(&lines), "{lines} lines");
}
