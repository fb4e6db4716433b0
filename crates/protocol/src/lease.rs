//! Leases: how long a claim outlives its last sign of life.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

const NS_PER_MS: u64 = 1_000_000;

/// A claim's lease: 1 to `u32::MAX` milliseconds, chosen by the client and fixed for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(NonZeroU32);

impl Lease {
    /// A lease of `ms` milliseconds; `None` for zero.
    pub fn from_ms(ms: u32) -> Option<Self> {
        NonZeroU32::new(ms).map(Self)
    }

    /// The lease in whole milliseconds, rounded down; `None` if that is zero or above `u32::MAX`.
    pub fn from_duration(duration: Duration) -> Option<Self> {
        u32::try_from(duration.as_millis()).ok().and_then(Self::from_ms)
    }

    /// Milliseconds.
    pub fn as_ms(self) -> u32 {
        self.0.get()
    }

    /// Nanoseconds.
    pub fn as_ns(self) -> u64 {
        u64::from(self.as_ms()) * NS_PER_MS
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
