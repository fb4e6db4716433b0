//! TLS on the protocol port, with the real openssl as client.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use protocol::{HEARTBEAT, ServerFrame, Token, decode_server_frame};
use rustix::process::Signal;

use crate::admin::Api;
use crate::harness::{Closed, Peer, Server, acquire, wait_for};
use testkit::certificates::{Certificates, EXPIRED, FUTURE, Key, Says};

const LEASE: Duration = Duration::from_secs(60);

const HANDSHAKE_ERRORS: &str = "monolock_tls_handshake_errors_total";

fn certificates() -> Certificates {
    let files = Certificates::new();
    files.issue("server", Says::default());
    files.issue("client", Says { extensions: "subjectAltName=URI:spiffe://test/client", ..Says::default() });
    files
}

/// A server with TLS; with mutual TLS if `mutual`.
fn server(files: &Certificates, mutual: bool) -> Server {
    server_with(files, mutual, &[])
}

/// A server with TLS and more flags.
fn server_with(files: &Certificates, mutual: bool, more: &[&str]) -> Server {
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|file| files.path(file));
    let mut flags = vec!["-tls-cert", cert.to_str().unwrap(), "-tls-key", key.to_str().unwrap()];
    if mutual {
        flags.extend(["-tls-client-ca", ca.to_str().unwrap()]);
    }
    flags.extend(more);
    Server::with(&flags)
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn an_alert_is_readable_although_60_kb_came_after_what_is_no_tls() {
    let server = server(&certificates(), false);
    let mut peer = server.connect();
    peer.send(&acquire("lock", LEASE));
    // Some of it comes when the alert is on its way.
    for _ in 0..60 {
        if peer.stream.write_all(&[2; 1024]).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    peer.stream.read_to_end(&mut answer).expect("the alert, then FIN and no RST");
    // A fatal alert in the clear.
    assert_eq!(answer[..6], [21, 3, 3, 0, 2, 2]);
}

/// `openssl s_client` with a connection to the server.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    /// What the server sent, and what openssl says about it.
    output: Collected,
    log: Collected,
    /// How much of `output` was looked at.
    done: usize,
}

impl Client {
    fn start(server: &Server, files: &Certificates, flags: &[&str]) -> Self {
        let address = server.address.to_string();
        let mut child = Command::new("openssl")
            .args(["s_client", "-CAfile", "ca.pem", "-verify_return_error", "-connect", &address])
            .args(flags)
            .current_dir(files.directory())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl is there");
        let output = collect(child.stdout.take().unwrap());
        let log = collect(child.stderr.take().unwrap());
        Self { input: child.stdin.take(), child, output, log, done: 0 }
    }

    /// One that says nothing but frames on its output.
    fn brief(server: &Server, files: &Certificates, flags: &[&str]) -> Self {
        Self::start(server, files, &[&["-brief"], flags].concat())
    }

    /// One that holds a lock.
    fn hold(server: &Server, files: &Certificates, flags: &[&str], name: &str) -> (Self, Token) {
        let mut client = Self::brief(server, files, flags);
        client.send(&acquire(name, LEASE));
        let token = client.acquired();
        (client, token)
    }

    /// One that waits for a lock.
    fn wait_in_line(server: &Server, files: &Certificates, flags: &[&str], name: &str) -> Self {
        let mut client = Self::brief(server, files, flags);
        client.send(&acquire(name, LEASE));
        assert_eq!(client.frame(), ServerFrame::Waiting);
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("still open");
        // Where openssl has ended, what it said before is looked at.
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    fn frame(&mut self) -> ServerFrame {
        let (frame, len) = wait_for("a frame", || {
            decode_server_frame(&self.output.bytes.lock().unwrap()[self.done..])
                .expect("a frame of the protocol")
        });
        self.done += len;
        frame
    }

    fn acquired(&mut self) -> Token {
        match self.frame() {
            ServerFrame::Acquired(token) => token,
            other => panic!("ACQUIRED expected, got {other:?}"),
        }
    }

    fn heartbeat(&mut self, token: Token) {
        self.send(&HEARTBEAT);
        assert_eq!(self.acquired(), token);
    }

    /// Waits until openssl ends, and returns what it said.
    fn ended(&mut self) -> String {
        wait_for("openssl to end", || self.child.try_wait().unwrap());
        wait_for("the end of its output", || (self.output.is_all() && self.log.is_all()).then_some(()));
        self.said("")
    }

    /// Waits until openssl says `text`, and returns all that it said.
    fn said(&self, text: &str) -> String {
        wait_for(&format!("{text:?} of openssl"), || {
            let said = [&self.output, &self.log].map(|said| said.bytes.lock().unwrap().clone()).concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            said.contains(text).then_some(said)
        })
    }

    /// Closes in order: close_notify, then FIN.
    fn close(mut self) {
        self.input = None;
        self.ended();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a pipe brought.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collected {
    /// Whether the pipe's end was reached.
    fn is_all(&self) -> bool {
        self.reader.is_finished()
    }
}

fn collect(mut from: impl Read + Send + 'static) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let writer = Arc::clone(&bytes);
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            writer.lock().unwrap().extend_from_slice(&buffer[..len]);
        }
    });
    Collected { bytes, reader }
}

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

const CLIENT: [&str; 4] = ["-cert", "client.pem", "-key", "client.key"];

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn locks_move_between_clients_over_tls() {
    let files = certificates();
    for mutual in [false, true] {
        let server = server(&files, mutual);
        for version in VERSIONS {
            let flags = [&[version], &CLIENT[..]].concat();
            let (mut holder, first) = Client::hold(&server, &files, &flags, version);
            let mut waiter = Client::wait_in_line(&server, &files, &flags, version);
            holder.heartbeat(first);
            holder.close();
            let second = waiter.acquired();
            assert!(second > first);
            waiter.heartbeat(second);
        }
        assert_eq!(server.metric(HANDSHAKE_ERRORS), 0.0);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_that_ends_without_a_close_notify_is_gone_too() {
    let files = certificates();
    let server = server(&files, false);
    let (mut holder, _) = Client::hold(&server, &files, &[], "lock");
    let mut waiter = Client::wait_in_line(&server, &files, &[], "lock");
    holder.child.kill().unwrap();
    waiter.acquired();
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_without_tls_gets_an_alert_and_no_lock() {
    let files = certificates();
    let server = server(&files, false);
    let mut peer = server.claim("lock", LEASE);
    let mut received = Vec::new();
    peer.stream.read_to_end(&mut received).expect("FIN, no reset");
    assert_eq!(received[..3], [21, 3, 3], "an alert");
    server.wait_for_metric(HANDSHAKE_ERRORS, 1.0);
    assert_eq!(server.metric("monolock_acquires_total"), 0.0);
    drop(peer);
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_handshake_that_stops_half_way_is_given_up_after_the_io_timeout_and_counted() {
    let files = certificates();
    let [cert, key] = ["server.pem", "server.key"].map(|file| files.path(file));
    let flags = ["-tls-cert", cert.to_str().unwrap(), "-tls-key", key.to_str().unwrap()];
    let mut server = Server::with(&[&flags[..], &["-io-timeout", "300ms"]].concat());
    let mut peer = server.connect();
    let started = Instant::now();
    // The header of a record, and nothing of the ClientHello in it.
    peer.send(&[22, 3, 1, 2, 0]);
    assert_eq!(peer.closed(), Closed::Fin);
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
    server.wait_for_metric(HANDSHAKE_ERRORS, 1.0);
    assert!(server.log_line("TLS handshake failed").contains("io-timeout"));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_probe_that_never_sends_a_byte_has_failed_nothing_however_it_ends() {
    const ROUND: usize = 20;
    let files = certificates();
    let server = server_with(&files, true, &["-io-timeout", "300ms"]);
    let before = open_files(&server);
    let all_accepted = |round: usize| {
        server.wait_for_metric("monolock_connections_accepted_total", (round * ROUND) as f64);
    };
    let all_gone = |round, what: &str| {
        all_accepted(round);
        wait_for("all sockets to be closed", || (open_files(&server) == before).then_some(()));
        let [failed, refused] =
            [HANDSHAKE_ERRORS, "monolock_accept_errors_total"].map(|name| server.metric(name));
        assert_eq!((failed, refused), (0.0, 0.0), "{what}");
    };
    (0..ROUND).for_each(|_| server.connect().close());
    all_gone(1, "FIN");
    let probes: Vec<_> = (0..ROUND).map(|_| server.connect()).collect();
    all_accepted(2);
    probes.into_iter().for_each(Peer::reset);
    all_gone(2, "RST once it is accepted");
    server.signal(Signal::STOP);
    (0..ROUND).for_each(|_| server.connect().reset());
    server.signal(Signal::CONT);
    all_gone(3, "RST before it is accepted");
    let probes: Vec<_> = (0..ROUND).map(|_| server.connect()).collect();
    all_gone(4, "silence until the timeout");
    drop(probes);
    // One byte is enough to have begun.
    for end in [Peer::close, Peer::reset] {
        let failed = server.metric(HANDSHAKE_ERRORS);
        let mut peer = server.connect();
        peer.send(&[22]);
        // Read by the server: a reset would take it back.
        wait_for("the byte to be read", || is_drained(&peer).then_some(()));
        end(peer);
        server.wait_for_metric(HANDSHAKE_ERRORS, failed + 1.0);
    }
}

fn open_files(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid().as_raw_nonzero())).unwrap().count()
}

/// Whether the other end has read all that was sent.
fn is_drained(peer: &Peer) -> bool {
    let mine = peer.stream.local_addr().unwrap().port();
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    // The server's end of it: the number of bytes that nobody has read yet is behind the colon.
    let theirs = sockets.lines().find(|line| {
        line.split_whitespace().nth(2).is_some_and(|remote| remote.ends_with(&format!(":{mine:04X}")))
    });
    theirs.and_then(|line| line.split_whitespace().nth(4)).is_some_and(|queues| queues.ends_with(":00000000"))
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_with_too_long_a_chain_of_certificates_is_told_by_an_alert() {
    let files = certificates();
    let extensions = format!("nsComment={}\nsubjectAltName=DNS:long.test", "x".repeat(22_000));
    files.issue("long", Says { extensions: &extensions, ..Says::default() });
    let mut server = server(&files, true);
    for version in VERSIONS {
        let mut client = Client::brief(&server, &files, &[version, "-cert", "long.pem", "-key", "long.key"]);
        client.send(&acquire("lock", LEASE));
        let said = client.ended();
        assert!(said.contains("decode error"), "{version}: {said}");
    }
    assert!(server.log_line("TLS handshake failed").contains("its chain of certificates is too long"));
    server.wait_for_metric(HANDSHAKE_ERRORS, 2.0);
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_with_a_key_that_is_not_accepted_here_is_told_and_logged_in_words() {
    let files = certificates();
    for (name, key, expected) in [
        // openssl sees that there is no signature in common, and shows none.
        ("p521", Key::P521, "the client sent no certificate"),
        ("ed448", Key::Ed448, "the client sent no certificate"),
        ("rsa1024", Key::Rsa(1024), "a key in the chain is RSA of less than 2048 bits"),
    ] {
        files.issue(name, Says { key, ..Says::default() });
        let mut server = server(&files, true);
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let flags = ["-cert", &cert, "-key", &key, "-cipher", "DEFAULT@SECLEVEL=0"];
        let mut client = Client::brief(&server, &files, &flags);
        client.send(&acquire("lock", LEASE));
        let said = client.ended();
        assert!(said.contains("alert"), "{name}: {said}");
        let line = server.log_line("TLS handshake failed");
        assert!(line.contains(expected), "{name}: {line}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_server_says_in_its_log_which_side_of_a_connection_lacks_tls() {
    let files = certificates();
    let mut plain = Server::start();
    let mut client = Client::brief(&plain, &files, &[]);
    assert!(client.ended().contains("wrong version number"));
    plain.log_line("the client speaks TLS, and this port does not: set -tls-cert and -tls-key");
    let mut server = server(&files, false);
    let mut peer = server.connect();
    peer.send(b"GET / HTTP/1.1\r\n\r\n");
    let reason = "the client speaks no TLS, and this port does: monolock run needs --tls-ca";
    assert!(server.log_line("TLS handshake failed").contains(reason));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn only_clients_with_a_certificate_that_holds_get_in() {
    let files = certificates();
    files.authority("other-ca");
    files.issue("expired", Says { valid: EXPIRED, ..Says::default() });
    files.issue("future", Says { valid: FUTURE, ..Says::default() });
    files.issue("stranger", Says { by: "other-ca", ..Says::default() });
    files.issue("for-servers", Says { extensions: "extendedKeyUsage=serverAuth", ..Says::default() });
    files.issue("v1", Says { extensions: "", ..Says::default() });
    let server = server(&files, true);
    let mut refused = 0.0;
    for version in VERSIONS {
        for name in ["", "expired", "future", "stranger", "for-servers", "v1"] {
            let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
            let mut flags = vec![version];
            if !name.is_empty() {
                flags.extend(["-cert", &cert, "-key", &key]);
            }
            let mut client = Client::brief(&server, &files, &flags);
            client.send(&acquire("lock", LEASE));
            let said = client.ended();
            assert!(said.contains("alert"), "{version} {name}: {said}");
            refused += 1.0;
            server.wait_for_metric(HANDSHAKE_ERRORS, refused);
        }
    }
    assert_eq!(server.metric("monolock_acquires_total"), 0.0);
    Client::hold(&server, &files, &CLIENT, "lock");
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_whose_certificate_gives_no_identity_is_told_that_it_may_not() {
    let files = certificates();
    // Longer than the longest SPIFFE ID.
    let long = format!("subjectAltName=URI:spiffe://test/{}", "x".repeat(2100));
    files.issue("long", Says { extensions: &long, ..Says::default() });
    let server = server(&files, true);
    let mut client = Client::brief(&server, &files, &["-cert", "long.pem", "-key", "long.key"]);
    client.send(&acquire("lock", LEASE));
    match client.frame() {
        ServerFrame::Error { code, .. } => assert_eq!(code, protocol::ErrorCode::NOT_AUTHORIZED),
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn tls_1_1_is_refused() {
    let files = certificates();
    let server = server(&files, false);
    let mut client = Client::brief(&server, &files, &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]);
    let said = client.ended();
    assert!(said.contains("alert"), "{said}");
    server.wait_for_metric(HANDSHAKE_ERRORS, 1.0);
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn keys_may_be_updated_while_a_lock_is_held() {
    let files = certificates();
    let server = server(&files, false);
    let (mut holder, token) = Client::hold(&server, &files, &["-tls1_3"], "lock");
    // `K` asks for new keys of ours too, `k` does not.
    for (command, count) in [("K\n", 1), ("k\n", 2), ("K\n", 3)] {
        holder.send(command.as_bytes());
        // openssl takes all that it reads with a command for the command.
        wait_for("a key update", || (holder.said("").matches("KEYUPDATE").count() == count).then_some(()));
        holder.heartbeat(token);
        holder.heartbeat(token);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn renegotiation_is_declined_and_what_openssl_gives_up_then_is_free() {
    let files = certificates();
    let server = server(&files, false);
    let (mut holder, _) = Client::hold(&server, &files, &["-tls1_2"], "lock");
    let mut waiter = Client::wait_in_line(&server, &files, &[], "lock");
    holder.send(b"R\n");
    assert!(holder.ended().contains("no renegotiation"));
    waiter.acquired();
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_reload_ends_resumption_and_no_session() {
    let files = certificates();
    let server = server(&files, true);
    let (mut holder, token) = Client::hold(&server, &files, &CLIENT, "held");
    for version in VERSIONS {
        let kind = |session: &[&str]| {
            let flags = [&[version], &CLIENT[..], session].concat();
            let mut client = Client::start(&server, &files, &flags);
            client.send(&acquire(version, LEASE));
            // Behind the handshake's report: whatever version openssl speaks, the ticket is there before the
            // answer.
            wait_for("ACQUIRED", || client.output.bytes.lock().unwrap().contains(&0x12).then_some(()));
            let said = client.said("Verify return code: 0");
            client.close();
            said.lines()
                .find(|line| line.starts_with("New, ") || line.starts_with("Reused, "))
                .unwrap()
                .to_owned()
        };
        assert!(kind(&["-sess_out", "session"]).starts_with("New, "), "{version}");
        assert!(fs::metadata(files.path("session")).is_ok_and(|session| session.len() > 0), "{version}");
        assert!(kind(&["-sess_in", "session"]).starts_with("Reused, "), "{version}");
        let reloads = r#"monolock_reloads_total{part="certificate",result="success"}"#;
        let before = server.metric(reloads);
        server.signal(Signal::HUP);
        server.wait_for_metric(reloads, before + 1.0);
        // Counted, and a moment later in force.
        wait_for("a full handshake", || kind(&["-sess_in", "session"]).starts_with("New, ").then_some(()));
        holder.heartbeat(token);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn the_admin_api_shows_who_holds_and_who_waits() {
    let files = certificates();
    files.issue("other", Says { extensions: "subjectAltName=DNS:other.example", ..Says::default() });
    let mut server = server_with(&files, true, &["-admin-listen", "127.0.0.1:0"]);
    let api = Api::of(&mut server);
    let (_holder, token) = Client::hold(&server, &files, &CLIENT, "lock");
    let other = ["-cert", "other.pem", "-key", "other.key"];
    let mut waiter = Client::wait_in_line(&server, &files, &other, "lock");
    let lock = api.lock("lock");
    assert_eq!(lock["holder"]["identity"], "spiffe://test/client");
    assert_eq!(lock["waiters"][0]["identity"], "other.example");
    let released = api.release("lock").ok();
    assert_eq!(released["released"]["identity"], "spiffe://test/client");
    assert!(waiter.acquired() > token);
    assert_eq!(api.lock("lock")["holder"]["identity"], "other.example");
}
