//! A held lock: what keeps it, and what the guarded work is told.

use std::sync::Arc;

use protocol::Token;
use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::claim::Event;
use crate::clock::boottime_ns;
use crate::driver::Connection;
use crate::error::Loss;
use crate::standing::Standing;

/// A held lock. Dropping it releases the lock at once.
///
/// A task of the runtime keeps the claim alive. A claim that is lost stays silent but connected until the
/// guard is dropped: where the server has not noticed the loss itself, the lock then moves only after its
/// lease. So stop the work first, and then drop the guard.
///
/// `std::mem::forget` of a guard holds the lock for as long as the runtime lives.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock"]
pub struct Guard {
    grant: Grant,
    lost: watch::Receiver<Option<Loss>>,
    socket: Arc<TcpStream>,
    heartbeats: AbortHandle,
}

impl Guard {
    /// Takes over a connection whose claim was just granted. Cancels `stop` when the claim is over.
    pub(crate) fn new(connection: Connection, token: Token, stop: CancellationToken) -> Self {
        let grant = Grant { token, standing: Arc::clone(connection.standing()), stop: stop.clone() };
        let socket = Arc::clone(connection.socket());
        let (tell, lost) = watch::channel(None);
        let heartbeats = tokio::spawn(keep(connection, tell, stop)).abort_handle();
        Self { grant, lost, socket, heartbeats }
    }

    /// The fencing token: larger than that of every earlier holder. Hand it to whatever the lock guards.
    pub fn token(&self) -> Token {
        self.grant.token
    }

    /// True only while now < confirmed + 0.8 × lease, by CLOCK_BOOTTIME, and nothing has ended the claim. The
    /// clock is read in this call: after a suspend or a SIGSTOP the answer is right at once.
    pub fn is_held(&self) -> bool {
        self.grant.is_held()
    }

    /// Resolves when the claim is lost, with the cause. It may be dropped and called again; a lost claim
    /// answers at once.
    ///
    /// A runtime that shuts down takes the heartbeats with it; that is a [`Loss::HeartbeatTimeout`].
    pub async fn lost(&self) -> Loss {
        let mut lost = self.lost.clone();
        let _ = lost.wait_for(Option::is_some).await;
        self.cause()
    }

    /// What the work is told.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Why the claim is not held any more, as far as it is known: time passes also before anybody says so.
    pub(crate) fn cause(&self) -> Loss {
        self.lost.borrow().clone().unwrap_or(Loss::HeartbeatTimeout)
    }

    pub(crate) fn stopped_by_ns(&self, now_ns: u64) -> u64 {
        self.grant.standing.stopped_by_ns(now_ns)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.grant.standing.lose();
        self.heartbeats.abort();
        // The runtime may get to the aborted task late, or never. A failure means that the connection is gone
        // already.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// Keeps a claim until it is lost. The guard shares the socket, so the connection outlives this.
async fn keep(mut connection: Connection, tell: watch::Sender<Option<Loss>>, stop: CancellationToken) {
    let _stop = stop.drop_guard();
    loop {
        if let Event::Lost(loss) = connection.next_event().await {
            tell.send_replace(Some(loss));
            return;
        }
    }
}

/// What guarded work knows of its lock. Clones may go anywhere; none of them keeps the lock.
#[derive(Debug, Clone)]
pub struct Grant {
    token: Token,
    standing: Arc<Standing>,
    stop: CancellationToken,
}

impl Grant {
    /// The fencing token: larger than that of every earlier holder. Hand it to whatever the lock guards.
    pub fn token(&self) -> Token {
        self.token
    }

    /// As [`Guard::is_held`]. Look before each step that must not be made without the lock.
    pub fn is_held(&self) -> bool {
        self.standing.is_confirmed(boottime_ns())
    }

    /// Cancelled when the work is to stop: the claim is lost, or the caller asked for it. [`Grant::is_held`]
    /// tells which.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
