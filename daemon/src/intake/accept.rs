//! Accepting: one loop a listener, which never spins and never ends while the server runs.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::pending::PendingList;
use super::socket::Socket;
use super::stream::Stream;
use super::{Context, Listeners, setup};
use crate::capacity::Place;
use audit::Peer;

/// How long accepting waits for descriptors or memory to come free before it tries again. Connections wait in
/// the kernel's queue meanwhile.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Connections accepted from one listener before other tasks of the thread get their turn.
const ACCEPTS_IN_A_ROW_MAX: usize = 64;

/// Accepts from all listeners until `stopped`, then waits for the connections that are still in set-up.
pub(super) async fn run(listeners: Listeners, context: Context, stopped: watch::Receiver<bool>) {
    let pending = PendingList::new(context.pending_max);
    let context = Rc::new(context);
    // Every set-up holds a sender; when the last one is gone, all are done.
    let (alive, mut all_done) = mpsc::channel::<()>(1);
    let mut loops = JoinSet::new();
    for listener in listeners.iter() {
        // An own descriptor a thread: a poll in flight must not outlive the listener.
        let listener = listener.as_fd().try_clone_to_owned().expect("descriptors are reserved for the start");
        let listener = Socket::new(listener);
        let (pending, context) = (Rc::clone(&pending), Rc::clone(&context));
        loops.spawn_local(accept_loop(listener, pending, context, stopped.clone(), alive.clone()));
    }
    drop((alive, listeners));
    while let Some(ended) = loops.join_next().await {
        ended.expect("an accept loop does not panic");
    }
    let nothing_is_sent = all_done.recv().await;
    debug_assert!(nothing_is_sent.is_none());
}

async fn accept_loop(
    listener: Socket,
    pending: Rc<PendingList>,
    context: Rc<Context>,
    mut stopped: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            readable = listener.readable() => {
                if let Err(error) = readable {
                    if context.lines.accepting_waits.may_log() {
                        warn!(%error, "cannot wait for connections");
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
        for _ in 0..ACCEPTS_IN_A_ROW_MAX {
            if !pending.make_room() {
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                    () = pending.one_left() => {}
                }
                break;
            }
            // Before it is accepted: so each departure of its address comes after this look.
            let accepted = context.addresses.departures();
            match accept(&listener, &context) {
                Ok((socket, peer, place)) => {
                    context.counters.accepted();
                    let admission = context.admission();
                    let stream = Stream::new(socket, admission.tls.as_ref());
                    let entry = pending.enter(stream.downgrade());
                    let (context, stopped, alive) = (Rc::clone(&context), stopped.clone(), alive.clone());
                    tokio_uring::spawn(async move {
                        let arrived = setup::Arrived { place, peer, accepted, admission };
                        setup::run(arrived, stream, entry, context, stopped).await;
                        drop(alive);
                    });
                }
                Err(Failure::NothingThere) => break,
                // Its peer's doing: accepting works.
                Err(Failure::Connection) => debug!("a connection was gone before it was accepted"),
                Err(Failure::Later(why)) => {
                    context.counters.accept_failed();
                    if context.lines.accepting_waits.may_log() {
                        warn!(places = context.capacity.places(), "accepting waits: {why}");
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                    break;
                }
            }
        }
    }
}

/// Why no connection was accepted.
enum Failure {
    /// Nobody waits.
    NothingThere,
    /// The connection that waited is gone.
    Connection,
    /// It keeps waiting in the kernel's queue until this passes.
    Later(Why),
}

/// What keeps a connection that waits from being accepted.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("all descriptors are in use (RLIMIT_NOFILE)")]
    NoPlace,
    #[error(transparent)]
    System(#[from] Errno),
}

fn accept(listener: &Socket, context: &Context) -> Result<(Socket, Peer, Place), Failure> {
    // Asked first, since a connection that was accepted cannot be put back.
    let Some(place) = context.capacity.take() else {
        let is_full = listener.is_readable();
        return Err(if is_full { Failure::Later(Why::NoPlace) } else { Failure::NothingThere });
    };
    loop {
        return match acceptfrom_with(listener, SocketFlags::CLOEXEC) {
            Ok((fd, peer)) => {
                let peer =
                    peer.and_then(|peer| SocketAddr::try_from(peer).ok()).ok_or(Failure::Connection)?;
                Ok((Socket::new(fd), peer.into(), place))
            }
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Err(Failure::NothingThere),
            // accept(2): errors that are the new connection's own, which is taken off the queue.
            Err(
                Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::TIMEDOUT,
            ) => Err(Failure::Connection),
            // No descriptors or memory, and whatever a security policy says: the connection stays in the
            // queue.
            Err(errno) => Err(Failure::Later(errno.into())),
        };
    }
}
