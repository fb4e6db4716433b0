//! What a service manager is told (sd_notify(3)); without one, nothing.

use sd_notify::NotifyState;
use tracing::warn;

/// The port is open, or a reload is done.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload begins.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "the service manager is not told of the reload"),
    }
}

/// Shutdown has begun.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "the service manager cannot be told");
    }
}
