//! Two nodes over real sockets: who is let in, and what counts as an answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use peer::{Allowed, Credentials, NoAnswer, Peer, serve};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};
use tempfile::TempDir;
use tls::Mutual;
use tokio::task::JoinHandle;

/// More than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// What a node with this identity shows, which trusts `authority`.
    fn node(&self, dir: &Path, name: &str, authority: &Self) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        let file = |suffix: &str, text: String| {
            let path = dir.join(format!("{name}{suffix}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let cert = file(".pem", cert.pem());
        let key = file(".key", key.serialize_pem());
        let authorities = file(".ca", authority.0.pem());
        Credentials::new(Mutual::load(&cert, &key, &authorities).unwrap())
    }
}

fn allowed(names: &[&str]) -> Allowed {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// An endpoint that answers with the double.
fn endpoint(credentials: Credentials, of: &[&str]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |number: u64| std::future::ready(Ok(2 * number));
    (address, tokio::spawn(serve(vec![listener], credentials, allowed(of), answer)))
}

fn peer(addresses: &[SocketAddr], credentials: Credentials, of: &[&str]) -> Peer {
    let addresses = addresses.iter().map(|address| address.to_string().parse().unwrap()).collect();
    Peer::new(addresses, credentials, allowed(of))
}

async fn double(peer: &Peer, number: u64, time_max: Duration) -> Result<u64, NoAnswer> {
    peer.ask(&number, time_max, |_| Ok(())).await
}

#[tokio::test]
async fn nodes_know_each_other_by_authority_and_identity() {
    let dir = TempDir::new().unwrap();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = || ours.node(dir.path(), "b", &ours);
    let (address, _endpoint) = endpoint(server(), &["a"]);
    let client = || ours.node(dir.path(), "a", &ours);
    assert_eq!(double(&peer(&[address], client(), &["b"]), 21, PATIENCE).await, Ok(42));

    let other = peer(&[address], ours.node(dir.path(), "c", &ours), &["b"]);
    assert!(double(&other, 1, PATIENCE).await.is_err(), "an identity that is not on the list");
    let stranger = peer(&[address], theirs.node(dir.path(), "a", &ours), &["b"]);
    assert!(double(&stranger, 1, PATIENCE).await.is_err(), "a certificate of another authority");
    let distrustful = peer(&[address], ours.node(dir.path(), "a", &theirs), &["b"]);
    let problem = double(&distrustful, 1, PATIENCE).await.unwrap_err().to_string();
    assert!(problem.starts_with(&address.to_string()), "{problem}");
    let elsewhere = peer(&[address], client(), &["z"]);
    let problem = double(&elsewhere, 1, PATIENCE).await.unwrap_err().to_string();
    assert!(problem.contains("\"b\" is not on the list of -ha-allow"), "{problem}");
}

#[tokio::test]
async fn one_of_several_addresses_is_enough_and_the_answer_has_to_count() {
    let dir = TempDir::new().unwrap();
    let ours = Authority::new();
    let (good, _endpoint) = endpoint(ours.node(dir.path(), "b", &ours), &["a"]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    let client = ours.node(dir.path(), "a", &ours);
    let all = peer(&[closed, silent_address, good], client.clone(), &["b"]);
    let started = Instant::now();
    assert_eq!(double(&all, 4, PATIENCE).await, Ok(8));
    assert!(started.elapsed() < PATIENCE / 2, "it does not wait for the silent one");

    let refused = all.ask(&4_u64, Duration::from_millis(300), |_: &u64| Err("the address is our own".into()));
    let problem = refused.await.unwrap_err().to_string();
    for part in ["refused", "no answer within 300ms", "the address is our own"] {
        assert!(problem.contains(part), "{problem}");
    }
}

#[tokio::test]
async fn visitors_that_say_nothing_keep_nobody_out() {
    let dir = TempDir::new().unwrap();
    let ours = Authority::new();
    let (address, _endpoint) = endpoint(ours.node(dir.path(), "b", &ours), &["a"]);
    let peer = peer(&[address], ours.node(dir.path(), "a", &ours), &["b"]);
    let idle: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(double(&peer, 1, PATIENCE).await, Ok(2));
    drop(idle);
}

#[tokio::test]
async fn what_is_no_tls_or_no_question_is_turned_away() {
    let dir = TempDir::new().unwrap();
    let ours = Authority::new();
    let (address, _endpoint) = endpoint(ours.node(dir.path(), "b", &ours), &["a"]);
    let plain = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"POST /peer HTTP/1.1\r\nHost: b\r\nContent-Length: 1\r\n\r\n1").unwrap();
        let mut answer = Vec::new();
        // Closed or reset: in both cases without an answer in the clear.
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    let answer = plain.await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    let peer = peer(&[address], ours.node(dir.path(), "a", &ours), &["b"]);
    let problem = peer.ask(&"a text", PATIENCE, |_: &u64| Ok(())).await.unwrap_err().to_string();
    assert!(problem.contains("status 400"), "{problem}");
    let problem = peer.ask(&"x".repeat(1 << 17), PATIENCE, |_: &u64| Ok(())).await.unwrap_err().to_string();
    assert!(problem.contains("413") || problem.contains("closed"), "{problem}");
}

#[tokio::test]
async fn files_that_were_replaced_count_from_the_next_connection_on() {
    let dir = TempDir::new().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let server = old.node(dir.path(), "b", &old);
    let (address, _endpoint) = endpoint(server.clone(), &["a"]);
    let client = peer(&[address], new.node(dir.path(), "a", &new), &["b"]);
    assert!(double(&client, 1, PATIENCE).await.is_err());
    let cert = |suffix: &str| dir.path().join(format!("b{suffix}"));
    let _ = new.node(dir.path(), "b", &new);
    server.replace(Mutual::load(&cert(".pem"), &cert(".key"), &cert(".ca")).unwrap());
    assert_eq!(double(&client, 1, PATIENCE).await, Ok(2));
}

#[tokio::test]
async fn an_endpoint_that_has_no_answer_gives_none() {
    let dir = TempDir::new().unwrap();
    let ours = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let nothing = |_: u64| std::future::ready(Err::<u64, _>("the disk hangs".to_owned()));
    tokio::spawn(serve(vec![listener], ours.node(dir.path(), "b", &ours), allowed(&["a"]), nothing));
    let peer = peer(&[address], ours.node(dir.path(), "a", &ours), &["b"]);
    let problem = double(&peer, 1, PATIENCE).await.unwrap_err().to_string();
    assert!(problem.contains("no answer: the disk hangs"), "{problem}");
}
