//! SIGHUP: each file on its own, for connections that come afterwards, and never for the worse.

use std::fs;

use client::blocking::Guard;
use rustix::process::Signal;

use crate::harness::wait_for;
use crate::secured::{EVERYBODY, LEASE, Secured, client};
use testkit::certificates::{EXPIRED, FUTURE, Key, Says};

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn certificates_are_rotated_under_load_without_losing_a_session() {
    const SESSIONS: usize = 40;
    let mut secured = Secured::start(EVERYBODY, &[]);
    secured.files.issue("alice", client());
    secured.files.authority("ca2");
    for (name, key) in
        [("next-p256", Key::P256), ("next-rsa", Key::Rsa(2048)), ("next-ed25519", Key::Ed25519)]
    {
        secured.files.issue(name, Says { key, by: "ca2", ..Says::default() });
    }
    let client = secured.client("ca", "alice");
    let sessions: Vec<Guard> =
        (0..SESSIONS).map(|lock| client.acquire(&format!("lock-{lock}"), LEASE).unwrap()).collect();
    assert!(secured.acquire("ca2", "alice", "new").is_err());
    for next in ["next-p256", "next-rsa", "next-ed25519"] {
        for kind in ["pem", "key"] {
            let (from, to) = (format!("{next}.{kind}"), format!("used-server.{kind}"));
            fs::copy(secured.files.path(&from), secured.files.path(&to)).unwrap();
        }
        assert_eq!(secured.reload(), [""; 0]);
        assert!(secured.acquire("ca2", "alice", "new").unwrap().is_held(), "{next}");
        assert!(secured.acquire("ca", "alice", "new").is_err(), "the old certificate is no longer shown");
    }
    // Longer than a lease after the first rotation: each has been confirmed since.
    let heartbeats = secured.server.metric("monolock_heartbeats_total");
    wait_for("some more heartbeats of all", || {
        (secured.server.metric("monolock_heartbeats_total") >= heartbeats + 4.0 * SESSIONS as f64)
            .then_some(())
    });
    assert!(sessions.iter().all(Guard::is_held));
    let expired = secured.server.metric("monolock_releases_total{reason=\"expired\"}");
    assert_eq!(expired, 0.0);
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_broken_rotation_leaves_everything_as_it_was() {
    let mut secured = Secured::start(EVERYBODY, &[]);
    secured.files.issue("alice", client());
    secured.files.issue("other", Says::default());
    secured.files.issue("expired", Says { valid: EXPIRED, ..Says::default() });
    secured.files.issue("for-clients", client());
    secured.files.issue("future", Says { valid: FUTURE, ..Says::default() });
    let held = secured.acquire("ca", "alice", "held").unwrap();
    let copy = |from: &str, to: &str| fs::copy(secured.files.path(from), secured.files.path(to)).unwrap();
    let break_by: [&dyn Fn(); 6] = [
        &|| {
            copy("for-clients.pem", "used-server.pem");
            copy("for-clients.key", "used-server.key");
        },
        &|| {
            copy("other.pem", "used-server.pem");
        },
        &|| fs::write(secured.files.path("used-server.pem"), "no PEM").unwrap(),
        &|| fs::remove_file(secured.files.path("used-server.pem")).unwrap(),
        &|| {
            copy("expired.pem", "used-server.pem");
            copy("expired.key", "used-server.key");
        },
        &|| {
            copy("future.pem", "used-server.pem");
            copy("future.key", "used-server.key");
        },
    ];
    let count = break_by.len();
    for (step, broken) in break_by.iter().enumerate() {
        broken();
        secured.server.signal(Signal::HUP);
        secured.server.wait_for_metric(
            "monolock_reloads_total{part=\"certificate\",result=\"failure\"}",
            (step + 1) as f64,
        );
        assert!(secured.acquire("ca", "alice", "new").unwrap().is_held(), "step {step}");
    }
    // The other parts were taken each time.
    secured.server.wait_for_metric("monolock_reloads_total{part=\"acl\",result=\"success\"}", count as f64);
    let errors = secured.server.log().into_iter().filter(|line| line.contains("not reloaded"));
    assert_eq!(errors.inspect(|line| assert!(line.contains("-tls-"), "{line}")).count(), count);
    secured.reloads = count as f64;
    for kind in ["pem", "key"] {
        let (from, to) = (format!("server.{kind}"), format!("used-server.{kind}"));
        fs::copy(secured.files.path(&from), secured.files.path(&to)).unwrap();
    }
    fs::write(secured.files.path("used-ca.pem"), "").unwrap();
    fs::write(secured.files.path("acl.json"), "{").unwrap();
    assert_eq!(secured.reload(), ["client_ca", "acl"]);
    assert!(secured.acquire("ca", "alice", "new").unwrap().is_held());
    assert!(held.is_held());
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_removed_authority_is_no_longer_trusted_and_its_open_sessions_stay() {
    let mut secured = Secured::start(EVERYBODY, &[]);
    secured.files.authority("ca2");
    secured.files.issue("alice", client());
    secured.files.issue("bob", Says { by: "ca2", ..client() });
    let held = secured.client("ca", "alice").acquire("held", 4 * LEASE).unwrap();
    assert!(secured.acquire("ca", "bob", "new").is_err());
    fs::copy(secured.files.path("ca2.pem"), secured.files.path("used-ca.pem")).unwrap();
    assert_eq!(secured.reload(), [""; 0]);
    assert!(secured.acquire("ca", "bob", "new").unwrap().is_held());
    assert!(secured.acquire("ca", "alice", "new").is_err());
    let errors = || secured.server.metric("monolock_tls_handshake_errors_total");
    wait_for("both refusals to be counted", || (errors() >= 2.0).then_some(()));
    let heartbeats = || secured.server.metric("monolock_heartbeats_total");
    let before = heartbeats();
    wait_for("a heartbeat of the session that is left", || (heartbeats() > before).then_some(()));
    assert!(held.is_held());
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_bundle_is_reloaded_with_all_its_authorities_or_not_at_all() {
    let mut secured = Secured::start(EVERYBODY, &[]);
    secured.files.authority("ca2");
    secured.files.issue("alice", client());
    secured.files.issue("bob", Says { by: "ca2", ..client() });
    let [ca, ca2] = ["ca.pem", "ca2.pem"].map(|file| fs::read_to_string(secured.files.path(file)).unwrap());
    // An editor's byte order mark once hid the first one, and nobody was told.
    fs::write(secured.files.path("used-ca.pem"), format!("\u{feff}{ca2}{ca}")).unwrap();
    assert_eq!(secured.reload(), [""; 0]);
    for who in ["alice", "bob"] {
        assert!(secured.acquire("ca", who, "new").unwrap().is_held(), "{who}");
    }
    let trusted = secured.files.openssl(&["x509", "-in", "ca2.pem", "-trustout"]);
    fs::write(secured.files.path("used-ca.pem"), [ca.as_bytes(), &trusted].concat()).unwrap();
    assert_eq!(secured.reload(), ["client_ca"]);
    let line = ca.lines().count() + 1;
    secured.server.log_line(&format!("line {line}: TRUSTED CERTIFICATE cannot be used here"));
    assert!(secured.acquire("ca", "bob", "new").unwrap().is_held(), "the previous state stays");
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_new_acl_holds_for_the_connections_after_it() {
    let mut secured = Secured::start(r#"{"rules":[{"identity":"alice","locks":["a/*"]}]}"#, &[]);
    secured.files.issue("alice", Says { subject: "/CN=alice", ..client() });
    let held = secured.acquire("ca", "alice", "a/1").unwrap();
    assert!(secured.is_refused_by_the_acl("alice", "b/1"));
    secured.server.wait_for_metric("monolock_acl_denials_total", 1.0);
    secured.server.wait_for_metric("monolock_protocol_errors_total{code=\"0x18\"}", 1.0);
    fs::write(secured.files.path("acl.json"), r#"{"rules":[{"identity":"alice","locks":["b/?"]}]}"#).unwrap();
    assert_eq!(secured.reload(), [""; 0]);
    assert!(secured.acquire("ca", "alice", "b/1").unwrap().is_held());
    assert!(secured.is_refused_by_the_acl("alice", "a/2"));
    assert!(held.is_held(), "it keeps what it was given");
}
