//! The admin API: every call and status, what browsers may not do, names of any kind, walks through many
//! claims.

mod actions;
mod browsers;
mod calls;
mod chromium;
mod many;
mod names;
mod unix;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{PATIENCE, Peer, Server, field};

const LEASE: Duration = Duration::from_secs(60);

/// The admin API of a server, over TCP.
pub(crate) struct Api {
    address: SocketAddr,
}

/// An answer of the API.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    /// Status line and headers, in lower case.
    head: String,
    body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("an answer is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an HTTP status");
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        assert!(self.head.contains("\r\ncontent-type: application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a call that succeeded.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The sentence of a call that did not.
    fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let json = self.json();
        let object = json.as_object().expect("an object");
        assert_eq!(object.len(), 1, "{self:?}");
        object["error"].as_str().expect("a sentence").to_owned()
    }
}

impl Api {
    /// A server with its admin API on a free loopback port.
    pub(crate) fn start(flags: &[&str]) -> (Server, Self) {
        let mut server = Server::with(&[&["-admin-listen", "127.0.0.1:0"], flags].concat());
        let api = Self::of(&mut server);
        (server, api)
    }

    /// The API of a server that has one.
    pub(crate) fn of(server: &mut Server) -> Self {
        let line = server.log_line("listening");
        Self { address: field(&line, "admin").and_then(|a| a.parse().ok()).expect("the line names it") }
    }

    fn send(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("the API's port is open");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("a whole answer");
        Answer::parse(&answer)
    }

    fn request(&self, method: &str, target: &str, headers: &[&str]) -> Answer {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.address);
        headers.iter().for_each(|header| request += &format!("{header}\r\n"));
        self.send(&(request + "\r\n"))
    }

    fn get(&self, target: &str) -> Answer {
        self.request("GET", target, &[])
    }

    pub(crate) fn lock(&self, name: &str) -> Value {
        self.get(&format!("/api/locks/{name}")).ok()
    }

    pub(crate) fn release(&self, name: &str) -> Answer {
        self.request("POST", &format!("/api/locks/{name}/release"), &[])
    }

    fn release_of(&self, name: &str, token: &str) -> Answer {
        self.request("POST", &format!("/api/locks/{name}/release?token={token}"), &[])
    }

    fn kick(&self, name: &str, address: &str) -> Answer {
        self.request("DELETE", &format!("/api/locks/{name}/waiters/{address}"), &[])
    }

    /// The names of one listing, and where it goes on.
    fn list(&self, query: &str) -> (Vec<String>, Option<String>) {
        let listing = self.get(&format!("/api/locks?{query}")).ok();
        let locks = listing["locks"].as_array().expect("a list");
        let names = locks.iter().map(|lock| lock["name"].as_str().unwrap().to_owned()).collect();
        (names, listing.get("next").map(|next| next.as_str().unwrap().to_owned()))
    }
}

/// The address under which the server knows a client.
pub(crate) fn address(peer: &Peer) -> String {
    peer.stream.local_addr().unwrap().to_string()
}

fn addresses(peers: &[Peer]) -> Vec<String> {
    peers.iter().map(address).collect()
}

/// The addresses of a lock's waiters, in the order in which they are shown.
fn queue(lock: &Value) -> Vec<String> {
    let waiters = lock["waiters"].as_array().expect("a list");
    waiters.iter().map(|waiter| waiter["remote_addr"].as_str().unwrap().to_owned()).collect()
}
