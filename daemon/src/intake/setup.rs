//! Connection set-up: from accept to the shard, or to an ERROR that the client can read.

use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use protocol::{Acquire, ErrorCode, ErrorFrame, decode_acquire};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

use super::Context;
use super::socket::Socket;
use crate::capacity::Place;
use crate::peer::Peer;
use crate::shard::HandOver;

/// Room for the longest ACQUIRE and for some heartbeats that come glued to it. Part of what a connection in set-up costs, of which
/// there are thousands after a failover.
const FIRST_READ_BYTES: usize = 320;

/// How long a refused connection may take to read its ERROR and close.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(1);

/// How much a refused connection may still send meanwhile. A client that sends more is not listening.
const DRAIN_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(FIRST_READ_BYTES >= protocol::ACQUIRE_BYTES_MAX);

/// Takes one connection from accept to its shard.
pub(super) async fn run(
    socket: Socket,
    peer: Peer,
    place: Place,
    context: Rc<Context>,
    mut stopped: watch::Receiver<bool>,
) {
    let deadline = Instant::now() + context.io_timeout;
    let mut received = [0; FIRST_READ_BYTES];
    let outcome = tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => Err(Refusal::Code(ErrorCode::SHUTTING_DOWN)),
        outcome = first_frame(&socket, &mut received, deadline) => outcome,
    };
    match outcome {
        Ok((acquire, rest)) => {
            let rest = rest.to_vec();
            let Some(socket) = socket.into_fd() else {
                debug_assert!(false, "an operation is still in flight on a socket whose frame is complete");
                return;
            };
            context.shards.hand_over(HandOver { socket, peer, place, acquire, rest });
        }
        Err(Refusal::Gone(reason)) => debug!(%peer, reason, "connection ended before its ACQUIRE"),
        Err(Refusal::Code(code)) => {
            debug!(%peer, %code, "refused");
            context.counters.protocol_error(code);
            refuse(&socket, code, context.io_timeout, &mut received).await;
        }
    }
}

/// Why a connection does not become a session.
enum Refusal {
    /// It broke the protocol, or cannot be served: it gets an ERROR.
    Code(ErrorCode),
    /// It closed, failed, or stayed silent: there is nobody to tell.
    Gone(&'static str),
}

async fn first_frame<'a>(
    socket: &Socket,
    received: &'a mut [u8; FIRST_READ_BYTES],
    deadline: Instant,
) -> Result<(Acquire, &'a [u8]), Refusal> {
    let mut len = 0;
    let (acquire, rest_len) = loop {
        match socket.receive(&mut received[len..], deadline).await {
            Ok(0) => return Err(Refusal::Gone("closed by the client")),
            Ok(more) => len += more,
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                return Err(Refusal::Gone("io-timeout"));
            }
            Err(_) => return Err(Refusal::Gone("connection error")),
        }
        match decode_acquire(&received[..len]) {
            Ok(Some((acquire, rest))) => break (acquire, rest.len()),
            Ok(None) => {}
            Err(code) => return Err(Refusal::Code(code)),
        }
    };
    Ok((acquire, &received[len - rest_len..len]))
}

/// Sends the ERROR and closes in such a way that it arrives: a close with unread input makes Linux send RST, which can
/// destroy the frame in flight. So: send, shut the write side down, drain, close.
async fn refuse(socket: &Socket, code: ErrorCode, io_timeout: Duration, discarded: &mut [u8]) {
    if socket.send(&ErrorFrame::new(code)).is_err() {
        return;
    }
    socket.shut_down(Shutdown::Write);
    let deadline = Instant::now() + DRAIN_MAX.min(io_timeout);
    let mut left = DRAIN_BYTES_MAX;
    while let Ok(received @ 1..) = socket.receive(discarded, deadline).await {
        left = left.saturating_sub(received);
        if left == 0 || Instant::now() >= deadline {
            return;
        }
    }
}
