//! Accepting: one loop a listener, which never spins and never ends while the server runs.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::socket::Socket;
use super::{Context, setup};
use crate::capacity::Place;
use crate::peer::Peer;

/// How long accepting waits for descriptors or memory to come free before it tries again. Connections wait in the
/// kernel's queue meanwhile.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// How often it is logged that accepting waits. A server at its limit accepts, and waits again, with every session that leaves.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Connections accepted from one listener before other tasks of the thread get their turn.
const ACCEPTS_IN_A_ROW_MAX: usize = 64;

/// Accepts from all listeners until `stopped`, then waits for the connections that are still in set-up.
pub(super) async fn run(listeners: &Arc<[TcpListener]>, context: Context, stopped: watch::Receiver<bool>) {
    let context = Rc::new(context);
    // Every task holds a sender; when the last one is gone, all are done.
    let (alive, mut all_done) = mpsc::channel::<()>(1);
    for listener in listeners.iter() {
        // An own descriptor a thread: a poll in flight must not outlive the listener.
        let listener = listener.as_fd().try_clone_to_owned().expect("descriptors are reserved for the start");
        let listener = Socket::new(listener);
        tokio_uring::spawn(accept_loop(listener, Rc::clone(&context), stopped.clone(), alive.clone()));
    }
    drop(alive);
    let nothing_is_sent = all_done.recv().await;
    debug_assert!(nothing_is_sent.is_none());
}

async fn accept_loop(
    listener: Socket,
    context: Rc<Context>,
    mut stopped: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    let mut warned_at: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            readable = listener.readable() => {
                if let Err(error) = readable {
                    warn!(%error, "cannot wait for connections");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
        for _ in 0..ACCEPTS_IN_A_ROW_MAX {
            match accept(&listener, &context) {
                Ok((socket, peer, place)) => {
                    context.counters.accepted();
                    let (context, stopped, alive) = (Rc::clone(&context), stopped.clone(), alive.clone());
                    tokio_uring::spawn(async move {
                        setup::run(socket, peer, place, context, stopped).await;
                        drop(alive);
                    });
                }
                Err(Failure::NothingThere) => break,
                Err(Failure::Connection) => context.counters.accept_failed(),
                Err(Failure::Exhausted(what)) => {
                    context.counters.accept_failed();
                    if warned_at.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
                        warned_at = Some(Instant::now());
                        warn!(places = context.capacity.places(), "accepting waits: {what}");
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
    /// The system or the limit has no room for it now; it keeps waiting in the kernel's queue.
    Exhausted(String),
}

fn accept(listener: &Socket, context: &Context) -> Result<(Socket, Peer, Place), Failure> {
    // Asked first, since a connection that was accepted cannot be put back.
    let Some(place) = context.capacity.take() else {
        return Err(Failure::Exhausted("all descriptors are in use (RLIMIT_NOFILE)".to_owned()));
    };
    match acceptfrom_with(listener, SocketFlags::CLOEXEC) {
        Ok((fd, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).ok_or(Failure::Connection)?;
            Ok((Socket::new(fd), peer.into(), place))
        }
        Err(Errno::AGAIN) => Err(Failure::NothingThere),
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
            Err(Failure::Exhausted(errno.to_string()))
        }
        Err(_) => Err(Failure::Connection),
    }
}
