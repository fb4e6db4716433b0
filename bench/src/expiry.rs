//! How late a silent holder's lock moves on; it must never be early.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use protocol::{Lease, LockName};

use crate::claim::Claim;
use crate::clock::now_ns;
use crate::server::{Server, Start};
use crate::stats::Latencies;
use crate::{LEASE_LONG_MS, Verdict};

/// Lateness of the waiter's ACQUIRED after a silent holder's lease.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The holder's lease.
    #[arg(long, default_value = "200ms", value_parser = crate::clock::parse_duration)]
    lease: Duration,
    /// Rounds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Shards of the server.
    #[arg(long, default_value_t = 1)]
    shards: usize,
}

/// Measures and prints.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    let Some(lease) = Lease::from_duration(options.lease) else { bail!("--lease 0ms is no lease") };
    let mut server = Server::start(&Start::new(program, options.shards))?;
    println!(
        "{} rounds with a lease of {lease}, counted from the send of the holder's last heartbeat",
        options.rounds
    );
    let mut lateness = Latencies::new();
    let mut early = 0_u32;
    for round in 0..options.rounds {
        let took_ns = one_round(server.address(), lease, round).with_context(|| format!("round {round}"))?;
        match took_ns.checked_sub(lease.as_ns()) {
            Some(late_ns) => lateness.record(late_ns),
            None => early += 1,
        }
        server.check_alive()?;
    }
    println!("lateness {lateness}, early {early}");
    Ok(match early {
        0 => Verdict::Met,
        _ => Verdict::Missed(format!("{early} grants before the holder's lease was over")),
    })
}

/// Nanoseconds from the send of the holder's last heartbeat to the waiter's ACQUIRED. The server heard the heartbeat
/// a moment after its send, so the real lateness is that moment smaller, and an early grant is early beyond doubt.
fn one_round(server: SocketAddr, lease: Lease, round: u32) -> Result<u64> {
    let name = LockName::new(&format!("expiry-{round}")).expect("a short name");
    let patient = Lease::from_ms(LEASE_LONG_MS).expect("a positive constant");
    let mut holder = Claim::hold(server, name.clone(), lease)?;
    let mut waiter = Claim::queue(server, name, patient)?;
    let sent_ns = now_ns();
    holder.send_heartbeat()?;
    holder.expect_acquired()?;
    waiter.wait_at_most(Duration::from_nanos(lease.as_ns()) + crate::load::ANSWER_MAX)?;
    waiter.expect_acquired()?;
    Ok(now_ns() - sent_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use protocol::{Token, WAITING, acquired};

    fn answer(socket: &mut TcpStream, answer: &[u8]) {
        let len = socket.read(&mut [0; 512]).unwrap();
        assert!(len > 0, "the client left");
        socket.write_all(answer).unwrap();
    }

    #[test]
    fn a_server_that_grants_at_once_is_early() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut holder, _) = listener.accept().unwrap();
            answer(&mut holder, &acquired(Token(1)));
            let (mut waiter, _) = listener.accept().unwrap();
            answer(&mut waiter, &WAITING);
            answer(&mut holder, &acquired(Token(1)));
            waiter.write_all(&acquired(Token(2))).unwrap();
        });
        // So long that no machine is slow enough to make the grant look late.
        let lease = Lease::from_ms(LEASE_LONG_MS).unwrap();
        let took_ns = one_round(address, lease, 0).unwrap();
        server.join().unwrap();
        assert!(took_ns < lease.as_ns());
    }
}
