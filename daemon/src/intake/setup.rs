//! Connection set-up: from accept to the shard, or to an ERROR that the client can read.

use std::rc::Rc;
use std::sync::Arc;

use protocol::{Acquire, ErrorCode, decode_acquire};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info};

use super::pending::Pending;
use super::stream::{Failure, Stream};
use super::{Admission, Context};
use crate::addresses::Departures;
use crate::capacity::Place;
use crate::shard::{HandOver, Secured};
use audit::Peer;

/// What is known of a connection that was accepted.
pub(super) struct Arrived {
    pub(super) place: Place,
    pub(super) peer: Peer,
    /// Looked at right before it was accepted.
    pub(super) accepted: Departures,
    /// What was in force then.
    pub(super) admission: Arc<Admission>,
}

/// Takes one connection from accept to its shard, under what was in force when it was accepted.
///
/// (The place comes first and is therefore given back last, after the socket is closed.)
pub(super) async fn run(
    Arrived { place, peer, accepted, admission }: Arrived,
    mut stream: Stream,
    pending: Pending,
    context: Rc<Context>,
    mut stopped: watch::Receiver<bool>,
) {
    let deadline = Instant::now() + context.io_timeout;
    let claim = tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => Err(Refusal::Code(ErrorCode::SHUTTING_DOWN)),
        claim = first_frame(&mut stream, peer, deadline, &context) => claim,
    };
    let claim = claim.and_then(|claim| admit(claim, peer, &admission, &context));
    let has_made_room = pending.has_made_room();
    drop(pending);
    match claim {
        Ok(Admitted { acquire, rest, identity }) => {
            let (socket, tls) = stream.into_parts();
            let secured = tls.map(|tls| Box::new(Secured { tls: *tls, identity }));
            context.shards.hand_over(HandOver { socket, peer, accepted, place, acquire, rest, secured });
        }
        Err(Refusal::Gone(failure)) => {
            let reason = if has_made_room { &Failure::MadeRoom } else { &failure };
            if stream.is_handshaking() && stream.has_spoken() || matches!(failure, Failure::Tls(_)) {
                context.counters.tls_handshake_failed();
                if context.lines.failed_handshake.may_log() {
                    info!(remote_addr = %peer, %reason, "TLS handshake failed");
                } else {
                    debug!(remote_addr = %peer, %reason, "TLS handshake failed");
                }
                // The alert that says why is on its way.
                stream.shut_down_write();
                drain(&stream, &context).await;
            } else {
                debug!(remote_addr = %peer, %reason, "connection ended before its ACQUIRE");
            }
        }
        Err(Refusal::Code(code)) => refuse(&mut stream, peer, code, &context).await,
    }
}

/// What a connection asks for.
struct Admitted {
    acquire: Acquire,
    /// What came glued to the ACQUIRE.
    rest: Vec<u8>,
    identity: Option<Arc<str>>,
}

/// Why a connection does not become a session.
enum Refusal {
    /// It broke the protocol, or cannot be served: it gets an ERROR.
    Code(ErrorCode),
    /// It closed, failed, or stayed silent: there is nobody to tell.
    Gone(Failure),
}

async fn first_frame(
    stream: &mut Stream,
    peer: Peer,
    deadline: Instant,
    context: &Context,
) -> Result<Admitted, Refusal> {
    let mut received = Vec::new();
    loop {
        stream.receive(&mut received, deadline).await.map_err(Refusal::Gone)?;
        match decode_acquire(&received) {
            Ok(Some((acquire, rest))) => {
                let identity = stream.identity().map_err(|fault| {
                    if context.lines.no_identity.may_log() {
                        info!(remote_addr = %peer, %fault, "the client's certificate gives no identity");
                    } else {
                        debug!(remote_addr = %peer, %fault, "the client's certificate gives no identity");
                    }
                    Refusal::Code(ErrorCode::NOT_AUTHORIZED)
                })?;
                return Ok(Admitted { acquire, rest: rest.to_vec(), identity });
            }
            Ok(None) => {}
            Err(code) => {
                let speaks_tls = stream.is_plain() && received.starts_with(&TLS_HELLO);
                if speaks_tls && context.lines.no_tls_here.may_log() {
                    info!(remote_addr = %peer, "the client speaks TLS, and this port does not: set -tls-cert and -tls-key");
                }
                return Err(Refusal::Code(code));
            }
        }
    }
}

/// How a client of TLS begins: a record of the handshake, in any version (RFC 8446, 5.1).
const TLS_HELLO: [u8; 2] = [22, 3];

/// The last check of an ACQUIRE: whether the client may have this lock.
fn admit(claim: Admitted, peer: Peer, admission: &Admission, context: &Context) -> Result<Admitted, Refusal> {
    let lock = claim.acquire.name.as_str();
    let identity = claim.identity.as_deref().unwrap_or_default();
    if admission.acl.as_ref().is_none_or(|acl| acl.allows(identity, lock)) {
        return Ok(claim);
    }
    context.counters.acl_denied();
    if context.lines.denied.may_log() {
        info!(remote_addr = %peer, identity, lock, "denied by the ACL");
    } else {
        debug!(remote_addr = %peer, identity, lock, "denied by the ACL");
    }
    context.record(audit::Event {
        time_unix_ns: crate::clock::unix_ns(),
        lock: lock.into(),
        identity: claim.identity.clone(),
        peer,
        what: audit::What::Denied,
    });
    Err(Refusal::Code(ErrorCode::NOT_AUTHORIZED))
}

/// Sends the ERROR and closes in such a way that it arrives: a close with unread input makes Linux send RST,
/// which can destroy what is in flight. So: send, shut the write side down, drain, close.
async fn refuse(stream: &mut Stream, peer: Peer, code: ErrorCode, context: &Context) {
    if stream.is_handshaking() {
        return debug!(remote_addr = %peer, %code, "closed in the middle of its TLS handshake");
    }
    debug!(remote_addr = %peer, %code, reason = code.meaning(), "refused");
    if stream.send_error(code).is_err() {
        return;
    }
    context.counters.protocol_error(code);
    drain(stream, context).await;
}

async fn drain(stream: &Stream, context: &Context) {
    let Ok(_draining) = context.draining.try_acquire() else { return };
    stream.drain(reactor::DRAIN_BYTES_MAX as usize, Instant::now() + reactor::DRAIN_MAX).await;
}
