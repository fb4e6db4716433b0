//! The web server of a page, which also passes calls on to the admin API and writes them down.
//!
//! So one port serves both the page and the API, as a name does that is rebound from the page's server to
//! this machine.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use crate::admin::Answer;
use crate::harness::PATIENCE;

const PAGE: &str = include_str!("page.html");

/// What a page could read, by what it was after.
pub(super) type Seen = BTreeMap<String, Vec<String>>;

/// What a browser asked of the API, and the answer's status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) status: u16,
}

/// A web server on a free loopback port, until the test ends.
pub(super) struct Web {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    pub(super) seen: mpsc::Receiver<Seen>,
}

impl Web {
    pub(super) fn start(api: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (sender, seen) = mpsc::channel();
        let log = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, sender) = (Arc::clone(&log), sender.clone());
                // Browsers open connections that they may need, and drop them.
                thread::spawn(move || answer(stream, api, &log, &sender).ok());
            }
        });
        Self { port, asked, seen }
    }

    /// What the API was asked so far, in a fixed order.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }
}

fn answer(
    mut stream: TcpStream,
    api: SocketAddr,
    log: &Mutex<Vec<Asked>>,
    seen: &mpsc::Sender<Seen>,
) -> io::Result<()> {
    let (head, body) = request(&mut stream)?;
    let mut line = head.split(' ').map(str::to_owned);
    let (method, target) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
    if target.starts_with("/api/") {
        let bytes = pass_on(api, &[head.as_bytes(), &body].concat())?;
        let status = Answer::parse(&bytes).status;
        log.lock().unwrap().push(Asked { method, target, status });
        return stream.write_all(&bytes);
    }
    let headers = match target.split('?').next() {
        Some("/page") => "200 OK\r\nContent-Type: text/html",
        // The document has no origin of its own then: requests say `Origin: null`.
        Some("/sandboxed") => {
            "200 OK\r\nContent-Type: text/html\r\nContent-Security-Policy: sandbox allow-scripts allow-forms allow-popups"
        }
        Some("/seen") => {
            let _ = seen.send(serde_json::from_slice(&body).expect("the page sends JSON"));
            "204 No Content"
        }
        _ => "404 Not Found",
    };
    let body = if headers.starts_with("200") { PAGE } else { "" };
    write!(stream, "HTTP/1.1 {headers}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// One request: its head, as it came, and its body.
fn request(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

/// The API's answer. It serves one request a connection, so that the answer ends with it.
fn pass_on(api: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(api)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
