//! What a service manager is told (sd_notify(3)); without one, nothing.
//!
//! A thread of its own tells it: a manager that hangs takes no messages, and must not hold up signals and
//! health checks.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{self, SyncSender};

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

/// Messages that wait for the manager to take them: those of the start, of a few reloads, and of the end.
const WAITING_MAX: usize = 16;

/// The way to the service manager, where there is one.
#[derive(Debug, Clone)]
pub struct Manager(Option<SyncSender<String>>);

impl Manager {
    /// Starts the thread that tells it.
    ///
    /// # Errors
    ///
    /// As [`threads::start`].
    pub fn start() -> io::Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self(None));
        };
        if std::env::var_os("WATCHDOG_USEC").is_some() {
            warn!(
                "the service manager waits for signs of life, which monolock does not give: unset WatchdogSec="
            );
        }
        let address = match address(&name) {
            Ok(address) => address,
            Err(problem) => {
                warn!("NOTIFY_SOCKET={}: {problem}: the service manager is told nothing", name.display());
                return Ok(Self(None));
            }
        };
        let (tell, told) = mpsc::sync_channel::<String>(WAITING_MAX);
        threads::start("notify", move || {
            for message in told {
                if let Err(error) = send(&address, &message) {
                    warn!(%error, "the service manager cannot be told");
                }
            }
        })?;
        Ok(Self(Some(tell)))
    }

    /// The port is open, or a reload is done.
    pub fn ready(&self) {
        self.tell("READY=1\n".into());
    }

    /// A reload begins.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
    }

    /// Shutdown has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n".into());
    }

    fn tell(&self, message: String) {
        if let Some(tell) = &self.0
            && tell.try_send(message).is_err()
        {
            warn!("the service manager takes no messages: it is not told any more until it does");
        }
    }
}

/// The socket of a name: `/path`, or `@` and the name of an abstract one.
fn address(name: &OsStr) -> Result<SocketAddr, String> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name).map_err(|error| error.to_string()),
        [b'@', name @ ..] if !name.is_empty() => {
            SocketAddr::from_abstract_name(name).map_err(|error| error.to_string())
        }
        _ => {
            Err("neither a path from the root nor @ and a name, and other kinds of sockets are not supported"
                .into())
        }
    }
}

fn send(address: &SocketAddr, message: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), address)?;
    Ok(())
}
