//! Connection set-up: from accept to the shard, or to an ERROR that the client can read.

use std::net::Shutdown;
use std::rc::Rc;

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

const _: () = assert!(FIRST_READ_BYTES >= protocol::ACQUIRE_BYTES_MAX);

/// Takes one connection from accept to its shard.
///
/// (The place comes first and is therefore given back last, after the socket is closed.)
pub(super) async fn run(
    place: Place,
    socket: Socket,
    peer: Peer,
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
            let socket = socket.into_fd().expect("every operation on the socket has completed");
            context.shards.hand_over(HandOver { socket, peer, place, acquire, rest });
        }
        Err(Refusal::Gone(reason)) => debug!(%peer, reason, "connection ended before its ACQUIRE"),
        Err(Refusal::Code(code)) => {
            debug!(%peer, %code, reason = code.meaning(), "refused");
            refuse(&socket, code, &context, &mut received).await;
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
async fn refuse(socket: &Socket, code: ErrorCode, context: &Context, discarded: &mut [u8]) {
    if socket.send(&ErrorFrame::new(code)).is_err() {
        return;
    }
    context.counters.protocol_error(code);
    socket.shut_down(Shutdown::Write);
    let Ok(_draining) = context.draining.try_acquire() else { return };
    let deadline = Instant::now() + ring::DRAIN_MAX;
    let mut left = ring::DRAIN_BYTES_MAX as usize;
    while let Ok(received @ 1..) = socket.receive(discarded, deadline).await {
        left = left.saturating_sub(received);
        if left == 0 || Instant::now() >= deadline {
            return;
        }
    }
}
