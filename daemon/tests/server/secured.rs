//! A server with mutual TLS and an ACL, and clients with certificates.

use std::fs;
use std::time::Duration;

use client::blocking::{Client, Guard};
use client::{Config, Error, Identity, Tls};
use rustix::process::Signal;

use crate::harness::{Server, wait_for};
use testkit::certificates::{Certificates, Says};

/// Short: a session that missed a heartbeat around a reload would be lost within a test.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) const EVERYBODY: &str = r#"{"rules":[{"identity":"*","locks":["*"]}]}"#;

/// A server with mutual TLS and an ACL, and the files that it reads.
pub(crate) struct Secured {
    pub(crate) files: Certificates,
    pub(crate) server: Server,
    pub(crate) reloads: f64,
}

impl Secured {
    pub(crate) fn start(acl: &str, more_flags: &[&str]) -> Self {
        let files = Certificates::new();
        files.issue("server", Says::default());
        files.issue("alice", Says { subject: "/CN=alice", extensions: "", ..client() });
        for file in ["server.pem", "server.key"] {
            fs::copy(files.path(file), files.path(&format!("used-{file}"))).unwrap();
        }
        fs::copy(files.path("ca.pem"), files.path("used-ca.pem")).unwrap();
        fs::write(files.path("acl.json"), acl).unwrap();
        let path = |file: &str| files.path(file).to_str().unwrap().to_owned();
        let flags = [
            "-tls-cert",
            &path("used-server.pem"),
            "-tls-key",
            &path("used-server.key"),
            "-tls-client-ca",
            &path("used-ca.pem"),
            "-acl-file",
            &path("acl.json"),
        ];
        let server = Server::with(&[&flags, more_flags].concat());
        Self { files, server, reloads: 0.0 }
    }

    /// Sends SIGHUP, and waits until all is read again; the parts that failed.
    pub(crate) fn reload(&mut self) -> Vec<&'static str> {
        const PARTS: [&str; 3] = ["certificate", "client_ca", "acl"];
        let count = |part: &str, result: &str| {
            self.server.metric(&format!("monolock_reloads_total{{part=\"{part}\",result=\"{result}\"}}"))
        };
        let before = PARTS.map(|part| count(part, "failure"));
        self.server.signal(Signal::HUP);
        self.reloads += 1.0;
        wait_for("the reload", || {
            let done = PARTS.map(|part| count(part, "success") + count(part, "failure"));
            (done == [self.reloads; 3]).then_some(())
        });
        let failed = PARTS.iter().zip(before).filter(|(part, before)| count(part, "failure") > *before);
        failed.map(|(part, _)| *part).collect()
    }

    /// A client that trusts servers of `ca`, and is `who`.
    pub(crate) fn client(&self, ca: &str, who: &str) -> Client {
        let read = |file: String| fs::read(self.files.path(&file)).unwrap();
        let identity =
            Identity { certificates_pem: &read(format!("{who}.pem")), key_pem: &read(format!("{who}.key")) };
        let tls = Tls::new(&read(format!("{ca}.pem")), Some(identity)).unwrap();
        Client::new(Config::new(self.server.address.to_string()).with_tls(tls)).unwrap()
    }

    pub(crate) fn acquire(&self, ca: &str, who: &str, lock: &str) -> Result<Guard, Error> {
        self.client(ca, who).acquire(lock, LEASE)
    }

    pub(crate) fn is_refused_by_the_acl(&self, who: &str, lock: &str) -> bool {
        matches!(self.acquire("ca", who, lock), Err(Error::Lost(client::Loss::Server { code, .. })) if code == protocol::ErrorCode::NOT_AUTHORIZED)
    }
}

/// X.509 v3, as a client's certificate must be.
pub(crate) fn client() -> Says<'static> {
    Says { extensions: "extendedKeyUsage=clientAuth", ..Says::default() }
}
