//! What a service manager is told (sd_notify(3)); without one, nothing.
//!
//! A thread of its own tells it: a manager that hangs takes no messages, and must not hold up signals and health checks.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use sd_notify::NotifyState;
use tracing::warn;

/// Messages that wait for the manager to take them: those of the start, of a few reloads, and of the end.
const WAITING_MAX: usize = 16;

type Message = Vec<NotifyState<'static>>;

/// The way to the service manager, where there is one.
#[derive(Debug, Clone)]
pub(crate) struct Manager(Option<SyncSender<Message>>);

impl Manager {
    /// Starts the thread that tells it.
    pub(crate) fn start() -> io::Result<Self> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Self(None));
        }
        let (tell, told) = mpsc::sync_channel::<Message>(WAITING_MAX);
        thread::Builder::new().name("notify".into()).spawn(move || {
            for message in told {
                if let Err(error) = sd_notify::notify(&message) {
                    warn!(%error, "the service manager cannot be told");
                }
            }
        })?;
        Ok(Self(Some(tell)))
    }

    /// The port is open, or a reload is done.
    pub(crate) fn ready(&self) {
        self.tell(vec![NotifyState::Ready]);
    }

    /// A reload begins.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(vec![NotifyState::Reloading, now]),
            Err(error) => warn!(%error, "the service manager is not told of the reload"),
        }
    }

    /// Shutdown has begun.
    pub(crate) fn stopping(&self) {
        self.tell(vec![NotifyState::Stopping]);
    }

    fn tell(&self, message: Message) {
        if let Some(tell) = &self.0
            && tell.try_send(message).is_err()
        {
            warn!("the service manager takes no messages: it is not told any more until it does");
        }
    }
}
