//! Waking a reactor from any thread: one atomic, and an eventfd only for a reactor that sleeps.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::unavailable::{Step, Unavailable};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const CALLED: u8 = 2;

struct Shared {
    state: AtomicU8,
    /// Only ever written: its poll is edge-triggered, and the counter needs 2⁶⁴ calls to fill.
    eventfd: OwnedFd,
}

/// Wakes one reactor; cheap to clone.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    pub(crate) fn new() -> Result<Self, Unavailable> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Unavailable::new(Step::Eventfd, io::Error::from(errno)))?;
        Ok(Self(Arc::new(Shared { state: AtomicU8::new(AWAKE), eventfd })))
    }

    /// Makes the reactor report [`Event::Woken`](crate::Event::Woken), after which everything that was
    /// written before this call is visible to its thread. Calls before the report count as one.
    ///
    /// A system call only if the reactor sleeps and nobody has called yet.
    pub fn wake(&self) {
        // AcqRel: the reactor's swap in `collect` synchronises with every call before it, also those that
        // found the state CALLED already.
        if self.0.state.swap(CALLED, Ordering::AcqRel) == ASLEEP {
            // Fails only if the counter is full, and then the reactor has been told.
            let _ = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// The reactor is about to sleep; false if somebody called since the last [`Waker::collect`].
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.0.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The reactor is awake; true if somebody called since the last time.
    pub(crate) fn collect(&self) -> bool {
        // A plain load first: an uncalled turn that did not sleep leaves the cache line shared.
        self.0.state.load(Ordering::Relaxed) != AWAKE && self.0.state.swap(AWAKE, Ordering::AcqRel) == CALLED
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waker").field(&self.raw_fd()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(waker: &Waker) -> u64 {
        let mut bytes = [0; 8];
        match rustix::io::read(&waker.0.eventfd, &mut bytes) {
            Ok(_) => u64::from_ne_bytes(bytes),
            Err(_) => 0,
        }
    }

    #[test]
    fn only_the_first_call_to_a_sleeping_reactor_makes_a_system_call() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert_eq!(counter(&waker), 0, "awake: the flag is enough");
        assert!(!waker.prepare_sleep(), "called before it slept");
        assert!(waker.collect());
        assert!(!waker.collect());

        assert!(waker.prepare_sleep());
        waker.wake();
        waker.wake();
        assert_eq!(counter(&waker), 1);
        assert!(waker.collect());
    }
}
