//! Claims over TLS, against a scripted server with certificates made for the test.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_client::{Alert, Client, Closed, Config, Error, ErrorCode, Identity, Loss, Tls, TlsError};
use protocol::{ErrorFrame, HEARTBEAT, Token, acquired};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// Nothing here waits longer than this: a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(30);
/// Heartbeats each 100 ms.
const SHORT: Duration = Duration::from_millis(800);
const TOKEN: Token = Token(9);
/// Heartbeats that a server answers before it says goodbye.
const HEARTBEATS: usize = 3;

type Server = StreamOwned<ServerConnection, TcpStream>;

/// An authority that signs for one side.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn signs(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Signed {
    fn identity(&self) -> Identity<'_> {
        Identity { certificates_pem: self.certificate.as_bytes(), key_pem: self.key.as_bytes() }
    }
}

/// The server's configuration; it asks for a certificate of `clients` if there is that.
fn config(signed: &Signed, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
    Arc::new(builder.with_single_cert(vec![certificate], key).unwrap())
}

/// A server that runs `script` on its one connection, which may fail at any time.
fn serve<T: Send + 'static>(
    config: Arc<ServerConfig>,
    script: impl FnOnce(&mut Server) -> io::Result<T> + Send + 'static,
) -> (String, JoinHandle<io::Result<T>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut server = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let outcome = script(&mut server);
        // Closing with unread input could destroy an alert on its way.
        io::copy(&mut server.sock, &mut io::sink())?;
        outcome
    });
    (address, server)
}

/// Grants the lock, answers some heartbeats in pieces, and shuts down.
fn grant(server: &mut Server) -> io::Result<()> {
    server.read_exact(&mut [0; 9])?;
    for _ in 0..=HEARTBEATS {
        let frame = acquired(TOKEN);
        server.write_all(&frame[..4])?;
        server.flush()?;
        server.write_all(&frame[4..])?;
        server.flush()?;
        let mut heartbeat = [0];
        server.read_exact(&mut heartbeat)?;
        assert_eq!(heartbeat, HEARTBEAT);
    }
    server.write_all(&ErrorFrame::with_reason(ErrorCode::SHUTTING_DOWN, "bye"))?;
    server.conn.send_close_notify();
    server.flush()
}

fn client(address: &str, tls: Tls) -> Client {
    Client::new(Config::new(address).with_tls(tls))
}

fn trusting(authority: &Authority) -> Tls {
    Tls::new(authority.pem().as_bytes(), None).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this ends soon")
}

async fn acquire_fails(address: &str, tls: Tls) -> Error {
    soon(client(address, tls).acquire("a", LONG)).await.unwrap_err()
}

fn assert_refused(error: &Error, because: &str) {
    match error {
        Error::Dial { source, .. } => assert!(source.to_string().contains(because), "{source}"),
        other => panic!("{other:?}"),
    }
    assert!(!error.is_temporary(), "certificates do not mend themselves");
}

async fn holds_and_is_told(address: &str, tls: Tls) {
    let guard = soon(client(address, tls).acquire("a", SHORT)).await.unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.token(), TOKEN);
    let shutting_down = Loss::Server { code: ErrorCode::SHUTTING_DOWN, reason: "bye".into() };
    assert_eq!(soon(guard.lost()).await, shutting_down);
}

#[tokio::test]
async fn a_claim_is_granted_kept_and_ended_over_tls() {
    let authority = Authority::new();
    let (address, server) = serve(config(&authority.signs("127.0.0.1"), None), grant);
    holds_and_is_told(&address, trusting(&authority)).await;
    server.join().unwrap().unwrap();
}

#[tokio::test]
async fn dropping_a_guard_ends_its_tls_connection() {
    let authority = Authority::new();
    let (address, server) = serve(config(&authority.signs("127.0.0.1"), None), |server| {
        server.read_exact(&mut [0; 9])?;
        server.write_all(&acquired(TOKEN))?;
        server.flush()
    });
    drop(soon(client(&address, trusting(&authority)).acquire("a", LONG)).await.unwrap());
    server.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_another_authority_vouches_for_is_refused() {
    let (authority, another) = (Authority::new(), Authority::new());
    let (address, server) = serve(config(&another.signs("127.0.0.1"), None), grant);
    assert_refused(
        &acquire_fails(&address, trusting(&authority)).await,
        "an authority of the same name has another key",
    );
    server.join().unwrap().unwrap_err();
}

#[tokio::test]
async fn the_certificate_must_name_the_host_of_the_address_or_the_name_that_was_given_instead() {
    let authority = Authority::new();
    let signed = authority.signs("lock.example");
    let (address, server) = serve(config(&signed, None), grant);
    assert_refused(
        &acquire_fails(&address, trusting(&authority)).await,
        "it is not for 127.0.0.1, but for lock.example (--tls-server-name)",
    );
    server.join().unwrap().unwrap_err();

    let (address, server) = serve(config(&signed, None), grant);
    let tls = trusting(&authority).with_server_name("lock.example").unwrap();
    holds_and_is_told(&address, tls).await;
    server.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_the_clients_own() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (address, server) = serve(config(&authority.signs("127.0.0.1"), Some(&clients)), |server| {
        grant(server)?;
        Ok(server.conn.peer_certificates().map(<[_]>::to_vec))
    });
    let own = clients.signs("client.example");
    let tls = Tls::new(authority.pem().as_bytes(), Some(own.identity())).unwrap();
    holds_and_is_told(&address, tls).await;
    let seen = server.join().unwrap().unwrap().expect("the server has seen a certificate");
    assert_eq!(seen, [CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()]);
}

#[tokio::test]
async fn a_client_without_a_certificate_that_is_asked_for_loses_its_claim_for_good() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let strangers = Authority::new().signs("client.example");
    let signed = authority.signs("127.0.0.1");
    let roots = authority.pem();
    for (identity, alert) in [(None, 116), (Some(strangers.identity()), 51)] {
        let (address, server) = serve(config(&signed, Some(&clients)), grant);
        // In TLS 1.3 the client is done before the server has judged its certificate.
        let error = acquire_fails(&address, Tls::new(roots.as_bytes(), identity).unwrap()).await;
        let refused = Loss::ConnectionClosed(Closed::Refused(Alert(alert)));
        assert!(matches!(&error, Error::Lost(loss) if *loss == refused), "{error:?}");
        assert!(!error.is_temporary());
        server.join().unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_or_nothing_at_all_is_a_dial_error() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let plain = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&acquired(TOKEN)).unwrap();
        let (silent, _) = listener.accept().unwrap();
        io::copy(&mut &silent, &mut io::sink()).unwrap();
    });
    assert_refused(&acquire_fails(&address, trusting(&authority)).await, "the server does not speak TLS");
    let config =
        Config::new(&address).with_tls(trusting(&authority)).with_dial_timeout(Duration::from_millis(50));
    match soon(Client::new(config).acquire("a", LONG)).await {
        Err(Error::Dial { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    plain.join().unwrap();
}

#[tokio::test]
async fn a_server_that_speaks_tls_is_told_from_one_that_breaks_the_protocol() {
    // In one piece, and the first byte alone.
    for first in [7, 1] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let tls = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 9]).unwrap();
            // As servers answer what is no TLS: the fatal alert decode_error.
            let alert = [21, 3, 3, 0, 2, 2, 50];
            stream.write_all(&alert[..first]).unwrap();
            io::copy(&mut stream, &mut io::sink()).unwrap();
        });
        let error = soon(Client::new(Config::new(&address)).acquire("a", LONG)).await.unwrap_err();
        assert!(matches!(error, Error::Lost(Loss::ConnectionClosed(Closed::SpeaksTls))), "{error:?}");
        assert!(!error.is_temporary() && error.to_string().contains("use --tls-ca"), "{error}");
        tls.join().unwrap();
    }
}

#[tokio::test]
async fn a_server_that_has_a_problem_of_its_own_is_asked_again_and_one_that_refuses_is_not() {
    // internal_error, handshake_failure
    for (alert, is_temporary) in [(80, true), (40, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.write_all(&[21, 3, 3, 0, 2, 2, alert]).unwrap();
            io::copy(&mut stream, &mut io::sink()).unwrap();
        });
        let error = acquire_fails(&address, trusting(&Authority::new())).await;
        assert_eq!(error.is_temporary(), is_temporary, "{error}");
        assert!(error.to_string().contains("the server refused the TLS connection: it has "), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn a_certificate_that_no_server_accepts_is_refused_early() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &authority.0).unwrap();
        let signed = Signed { certificate: certificate.pem(), key: key.serialize_pem() };
        Tls::new(authority.pem().as_bytes(), Some(signed.identity()))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| ()), Ok(()));
    let said = with(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)).unwrap_err();
    assert!(said.contains("it is an authority's (CA:TRUE)"), "{said}");
    let said =
        with(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]).unwrap_err();
    assert!(said.contains("its extendedKeyUsage has no clientAuth"), "{said}");
    let said = with(|params| {
        let long = |number| format!("{number}{}.example", "x".repeat(50)).try_into().unwrap();
        params.subject_alt_names = (0..400).map(|number| SanType::DnsName(long(number))).collect();
    });
    assert!(said.as_ref().is_err_and(|said| said.contains("16000 is the most that is accepted")), "{said:?}");
}

#[test]
fn a_key_of_another_certificate_and_a_name_that_is_none_are_refused_early() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (one, other) = (clients.signs("one.example"), clients.signs("other.example"));
    let mixed = Identity { certificates_pem: one.certificate.as_bytes(), key_pem: other.key.as_bytes() };
    let roots = authority.pem();
    assert!(matches!(Tls::new(roots.as_bytes(), Some(mixed)), Err(TlsError::Mismatch)));
    let no_key = Identity { key_pem: b"", ..one.identity() };
    assert!(matches!(Tls::new(roots.as_bytes(), Some(no_key)), Err(TlsError::Key(_))));
    let name = trusting(&authority).with_server_name("no name");
    assert!(matches!(name, Err(TlsError::ServerName(_))));
}
