//! TLS to the server: certificates made by openssl, and socat in front of the real server.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::harness::{Server, wait_for};
use crate::runs::{LONG, monolock_run, only_line, run_to_end};
use testkit::certificates::{Certificates, EXPIRED, FUTURE, Key, Says};

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

/// A server of TLS; of mutual TLS if `mutual`.
fn server(files: &Certificates, name: &str, mutual: bool) -> Server {
    let [cert, key, ca] =
        [&format!("{name}.pem"), &format!("{name}.key"), "ca.pem"].map(|file| files.path(file));
    let mut flags = vec!["-tls-cert", cert.to_str().unwrap(), "-tls-key", key.to_str().unwrap()];
    if mutual {
        flags.extend(["-tls-client-ca", ca.to_str().unwrap()]);
    }
    Server::with(&flags)
}

/// The status and the one line of `monolock run` with these flags.
fn run(files: &Certificates, address: SocketAddr, flags: &[&str]) -> (i32, String) {
    let address = address.to_string();
    let mut command = monolock_run(&[&["--address", &address], flags, &["lock", "--", "true"]].concat());
    command.current_dir(files.directory());
    let ended = run_to_end(command);
    (ended.code.unwrap(), only_line(&ended).to_owned())
}

#[test]
#[ignore = "needs openssl; .ci/run installs it before it runs this"]
fn one_side_without_tls_is_77_and_told_what_to_do() {
    let files = Certificates::new();
    files.issue("server", Says::default());
    let plain = Server::start();
    let (code, line) = run(&files, plain.address, &["--tls-ca", "ca.pem"]);
    assert_eq!(code, 77, "{line}");
    assert!(line.contains("the server does not speak TLS: leave --tls-ca out, or mind the port"), "{line}");
    assert!(line.contains(&plain.address.to_string()), "{line}");
    let tls = server(&files, "server", false);
    let (code, line) = run(&files, tls.address, &[]);
    assert_eq!(code, 77, "{line}");
    assert!(line.contains("the server speaks TLS, and this client does not: use --tls-ca"), "{line}");
}

#[test]
#[ignore = "needs openssl; .ci/run installs it before it runs this"]
fn a_file_that_is_no_good_is_64_and_told_by_flag_file_and_remedy() {
    let files = Certificates::new();
    let client = Says { extensions: "extendedKeyUsage=clientAuth", ..Says::default() };
    files.issue("client", client);
    for (name, key) in [("p521", Key::P521), ("ed448", Key::Ed448), ("rsa1024", Key::Rsa(1024))] {
        files.issue(name, Says { key, ..client });
    }
    files.authority_with("ca-p521", Key::P521);
    files.issue("authority", Says { extensions: "basicConstraints=CA:true", ..client });
    files.issue("other", Says { extensions: "extendedKeyUsage=serverAuth", ..client });
    let long = format!("nsComment={}", "x".repeat(22_000));
    files.issue("long", Says { extensions: &long, ..client });
    files.openssl(&[
        "pkey",
        "-in",
        "client.key",
        "-aes256",
        "-passout",
        "pass:secret",
        "-out",
        "encrypted.key",
    ]);
    let ca = fs::read_to_string(files.path("ca.pem")).unwrap();
    fs::write(files.path("glued.pem"), format!("{}{ca}", ca.trim_end())).unwrap();
    // Nobody listens: what is wrong is told before.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cannot = |kind: &str| format!("TLS cannot be spoken here with this private key ({kind}): take RSA");
    for (ca, name, key, expected) in [
        ("glued.pem", "client", "client.key", "--tls-ca glued.pem: line ".to_owned()),
        (
            "client.key",
            "client",
            "client.key",
            "--tls-ca client.key: line 1: PRIVATE KEY cannot be".to_owned(),
        ),
        (
            "ca-p521.pem",
            "client",
            "client.key",
            "--tls-ca ca-p521.pem: line 1: this authority's signatures cannot be checked here, its key is ECDSA P-521: "
                .to_owned(),
        ),
        (
            "ca.pem",
            "client",
            "encrypted.key",
            "--tls-key encrypted.key: line 1: the private key is encrypted; decrypt".to_owned(),
        ),
        (
            "ca.pem",
            "client",
            "other.key",
            "--tls-key other.key: the client's private key does not belong".to_owned(),
        ),
        ("ca.pem", "p521", "p521.key", format!("--tls-key p521.key: {}", cannot("ECDSA P-521"))),
        ("ca.pem", "ed448", "ed448.key", format!("--tls-key ed448.key: {}", cannot("Ed448"))),
        ("ca.pem", "rsa1024", "rsa1024.key", format!("--tls-key rsa1024.key: {}", cannot("RSA 1024"))),
        (
            "ca.pem",
            "authority",
            "authority.key",
            "--tls-cert authority.pem: unusable certificate: it is an authority's".to_owned(),
        ),
        (
            "ca.pem",
            "other",
            "other.key",
            "--tls-cert other.pem: unusable certificate: its extendedKeyUsage has no clientAuth".to_owned(),
        ),
        ("ca.pem", "long", "long.key", "--tls-cert long.pem: its certificates are 22".to_owned()),
    ] {
        let cert = format!("{name}.pem");
        let (code, line) = run(&files, address, &["--tls-ca", ca, "--tls-cert", &cert, "--tls-key", key]);
        assert_eq!(code, 64, "{line}");
        assert!(line.contains(&expected), "{line}");
    }
}

#[test]
#[ignore = "needs openssl; .ci/run installs it before it runs this"]
fn a_certificate_that_the_other_side_does_not_accept_is_77_and_told_in_words() {
    let files = Certificates::new();
    files.authority("other-ca");
    let client = Says { extensions: "extendedKeyUsage=clientAuth", ..Says::default() };
    files.issue("client", client);
    files.issue("future-client", Says { valid: FUTURE, ..client });
    files.issue("stranger", Says { by: "other-ca", ..client });
    let name = "subjectAltName=DNS:elsewhere.test,IP:10.0.0.1";
    for (server_name, says, expected) in [
        (
            "future",
            Says { valid: FUTURE, ..Says::default() },
            "it is not valid before 2098-01-01T00:00:00Z, and the clock here says ",
        ),
        ("expired", Says { valid: EXPIRED, ..Says::default() }, "it expired at 2020-02-01T00:00:00Z"),
        (
            "ca-leaf",
            Says { extensions: "basicConstraints=CA:true\nsubjectAltName=IP:127.0.0.1", ..Says::default() },
            "it is an authority's (CA:TRUE)",
        ),
        (
            "elsewhere",
            Says { extensions: name, ..Says::default() },
            "it is not for 127.0.0.1, but for elsewhere.test, 10.0.0.1 (--tls-server-name)",
        ),
        (
            "of-other",
            Says { by: "other-ca", ..Says::default() },
            "no authority that is trusted here vouches for it (--tls-ca)",
        ),
    ] {
        files.issue(server_name, says);
        let mut server = server(&files, server_name, false);
        let (code, line) = run(&files, server.address, &["--tls-ca", "ca.pem"]);
        assert_eq!(code, 77, "{line}");
        assert!(line.contains(&format!("the server's certificate is not accepted: {expected}")), "{line}");
        assert!(server.log_line("TLS handshake failed").contains("the client ended TLS: "));
    }
    files.issue("server", Says::default());
    for (name, expected, logged) in [
        (
            "",
            "it wants a certificate (alert 116), see --tls-cert and --tls-key",
            "the client sent no certificate",
        ),
        (
            "future-client",
            "our certificate has expired or is not valid yet (alert 45), see --tls-cert",
            "it is not valid before 2098",
        ),
        (
            "stranger",
            "it does not know the authority of our certificate (alert 48), see --tls-cert",
            "no authority for clients vouches for it (-tls-client-ca)",
        ),
    ] {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let identity = ["--tls-cert", &cert, "--tls-key", &key];
        let mut server = server(&files, "server", true);
        let identity = if name.is_empty() { &[][..] } else { &identity[..] };
        let (code, line) = run(&files, server.address, &[&["--tls-ca", "ca.pem"], identity].concat());
        assert_eq!(code, 77, "{line}");
        assert!(line.contains(expected), "{line}");
        server.log_line(logged);
    }
}

/// The real openssl as server, with this certificate.
struct OpensslServer {
    child: Child,
    address: SocketAddr,
    /// Kept open, as long as it may write.
    _output: BufReader<ChildStdout>,
}

impl OpensslServer {
    fn start(files: &Certificates, name: &str) -> Self {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-cert", &cert, "-key", &key])
            .args(["-cipher", "DEFAULT@SECLEVEL=0"])
            .current_dir(files.directory())
            // It ends a connection at the end of its input.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is there");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.strip_prefix("ACCEPT ")?.parse().ok());
        Self { child, address: address.expect("openssl says where it listens"), _output: output }
    }
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs openssl; .ci/run installs it before it runs this"]
fn a_server_with_a_key_that_is_not_accepted_here_is_77_and_told_in_words() {
    let files = Certificates::new();
    for (name, key, expected) in [
        (
            "p521",
            Key::P521,
            "it has nothing in common with this side: version, cipher or kind of key (alert 40)",
        ),
        (
            "ed448",
            Key::Ed448,
            "it has nothing in common with this side: version, cipher or kind of key (alert 40)",
        ),
        ("rsa1024", Key::Rsa(1024), "a signature does not fit: "),
    ] {
        files.issue(name, Says { key, ..Says::default() });
        let server = OpensslServer::start(&files, name);
        let (code, line) = run(&files, server.address, &["--tls-ca", "ca.pem"]);
        assert_eq!(code, 77, "{line}");
        assert!(line.contains(expected), "{line}");
    }
}
