//! Neighbours who flood a shard: what nobody else may feel.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use protocol::HEARTBEAT;

use crate::harness::{Closed, Server};

const LONG: Duration = Duration::from_secs(60);

/// Clients that send heartbeats without pause and read the answers, on locks of their own.
struct Flood {
    sockets: Vec<TcpStream>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    /// Whoever floods pays with a thread for its reads and one for its writes, so that no queue is ever
    /// empty.
    fn of(server: &Server, sessions: usize, lease: Duration) -> Self {
        let mut flood = Self { sockets: Vec::new(), threads: Vec::new() };
        for n in 0..sessions {
            let (peer, _) = server.hold(&format!("flood-{n}"), lease);
            let mut writer = peer.stream;
            let mut reader = writer.try_clone().unwrap();
            flood.sockets.push(writer.try_clone().unwrap());
            flood
                .threads
                .push(thread::spawn(move || while writer.write_all(&[HEARTBEAT[0]; 4096]).is_ok() {}));
            flood
                .threads
                .push(thread::spawn(move || while reader.read(&mut [0; 65_536]).is_ok_and(|len| len > 0) {}));
        }
        flood
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[test]
fn neighbours_who_flood_a_shard_put_off_nobodys_expiry() {
    let server = Server::with(&["-shards", "1"]);
    let flood = Flood::of(&server, 3, LONG);
    let lease = Duration::from_millis(300);
    let (mut holder, _) = server.hold("lock", lease);
    let mut dead = server.wait_in_line("lock", 4 * lease);
    let mut waiter = server.wait_in_line("lock", LONG);
    dead.acquired();
    waiter.acquired();
    assert_eq!(holder.closed(), Closed::Fin);
    drop(flood);
}

#[test]
fn sessions_that_are_late_themselves_put_off_nobody_elses_expiry() {
    let server = Server::with(&["-shards", "1"]);
    // Their leases are over at each look, and their next heartbeats are always there.
    let flood = Flood::of(&server, 20, Duration::from_millis(20));
    let (mut holder, _) = server.hold("lock", Duration::from_millis(300));
    let mut waiter = server.wait_in_line("lock", LONG);
    waiter.acquired();
    assert_eq!(holder.closed(), Closed::Fin);
    drop(flood);
}
