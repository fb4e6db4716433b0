//! The metrics by name: what each one counts, its labels, and the buckets of the histograms.

use locks::Reason;
use protocol::ErrorCode;

/// How many buckets each histogram has; the last one is without bound.
pub(crate) const BUCKETS: usize = BOUNDS + 1;
const BOUNDS: usize = 15;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// The place of a reason in [`Reason::ALL`].
pub(crate) fn reason_index(reason: Reason) -> usize {
    match reason {
        Reason::Graceful => 0,
        Reason::Expired => 1,
        Reason::IoTimeout => 2,
        Reason::Force => 3,
        Reason::Unreachable => 4,
        Reason::AddressLost => 5,
        Reason::Demoted => 6,
        Reason::Shutdown => 7,
    }
}

/// Every code that this server sends in an ERROR: the values of the label `code`.
pub(crate) const CODES: [ErrorCode; 12] = [
    ErrorCode::SHUTTING_DOWN,
    ErrorCode::CLOSED_BY_ADMINISTRATOR,
    ErrorCode::STANDBY,
    ErrorCode::UNSUPPORTED_VERSION,
    ErrorCode::NOT_ACQUIRE,
    ErrorCode::DUPLICATE_ACQUIRE,
    ErrorCode::UNKNOWN_TYPE,
    ErrorCode::EMPTY_NAME,
    ErrorCode::NAME_TOO_LONG,
    ErrorCode::NAME_NOT_UTF8,
    ErrorCode::LEASE_NOT_POSITIVE,
    ErrorCode::NOT_AUTHORIZED,
];

/// The place of a code in [`CODES`].
///
/// # Panics
///
/// For a code that the server has no name for: it sends none.
pub(crate) fn code_index(code: ErrorCode) -> usize {
    CODES.iter().position(|&known| known == code).expect("the server sends only codes that it knows")
}

/// What there is of a kind at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Connections,
    LocksHeld,
    Waiters,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::Connections, Self::LocksHeld, Self::Waiters];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connections => "monolock_connections_active",
            Self::LocksHeld => "monolock_locks_held",
            Self::Waiters => "monolock_waiters",
        }
    }

    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::Connections => "Open sessions.",
            Self::LocksHeld => "Locks that have a holder.",
            Self::Waiters => "Claims that wait, over all queues.",
        }
    }
}

/// What shards count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Acquires,
    Heartbeats,
}

impl Count {
    pub(crate) const ALL: [Self; 2] = [Self::Acquires, Self::Heartbeats];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Acquires => "monolock_acquires_total",
            Self::Heartbeats => "monolock_heartbeats_total",
        }
    }

    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::Acquires => "Grants, that is tokens issued.",
            Self::Heartbeats => "Heartbeats received.",
        }
    }
}

/// What shards measure, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Wait,
    Hold,
    HeartbeatService,
    Handover,
    LoopLag,
}

/// From a wait that was none to an hour in a queue.
const WAIT_BOUNDS_NS: [u64; BOUNDS] = [
    100 * US,
    MS,
    5 * MS,
    10 * MS,
    50 * MS,
    100 * MS,
    500 * MS,
    S,
    5 * S,
    10 * S,
    30 * S,
    60 * S,
    300 * S,
    900 * S,
    3600 * S,
];

/// From a critical section to a leader that stays for days.
const HOLD_BOUNDS_NS: [u64; BOUNDS] = [
    MS,
    10 * MS,
    100 * MS,
    500 * MS,
    S,
    5 * S,
    10 * S,
    30 * S,
    60 * S,
    300 * S,
    900 * S,
    3600 * S,
    4 * 3600 * S,
    24 * 3600 * S,
    7 * 24 * 3600 * S,
];

/// Work inside one turn: microseconds in health; from a tenth of a second on, short leases are in danger.
const TURN_BOUNDS_NS: [u64; BOUNDS] = [
    5 * US,
    10 * US,
    25 * US,
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    2_500 * US,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    S,
];

impl Quantity {
    pub(crate) const ALL: [Self; 5] =
        [Self::Wait, Self::Hold, Self::HeartbeatService, Self::Handover, Self::LoopLag];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wait => "monolock_wait_seconds",
            Self::Hold => "monolock_hold_seconds",
            Self::HeartbeatService => "monolock_heartbeat_service_seconds",
            Self::Handover => "monolock_handover_seconds",
            Self::LoopLag => "monolock_shard_loop_lag_seconds",
        }
    }

    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::Wait => "Time from ACQUIRE to ACQUIRED.",
            Self::Hold => "Length of ownerships that have ended.",
            Self::HeartbeatService => "Time from a shard's wake-up to the heartbeat's reply submitted.",
            Self::Handover => "Time from a holder's end seen to the next holder's ACQUIRED submitted.",
            Self::LoopLag => "Length of shard turns to which work came: so long further work lay and waited.",
        }
    }

    /// The upper bounds of all buckets but the last, ns; a bound belongs to its bucket.
    pub(crate) const fn bounds_ns(self) -> &'static [u64; BOUNDS] {
        match self {
            Self::Wait => &WAIT_BOUNDS_NS,
            Self::Hold => &HOLD_BOUNDS_NS,
            Self::HeartbeatService | Self::Handover | Self::LoopLag => &TURN_BOUNDS_NS,
        }
    }

    /// Whether the series of the shards are kept apart by the label `shard`.
    pub(crate) fn is_per_shard(self) -> bool {
        self == Self::LoopLag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_value_stands_at_its_own_index() {
        for (index, &reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason_index(reason), index);
        }
        for (index, &code) in CODES.iter().enumerate() {
            assert_eq!(code_index(code), index);
        }
    }

    #[test]
    fn bucket_bounds_ascend() {
        for quantity in Quantity::ALL {
            assert!(quantity.bounds_ns().is_sorted_by(|a, b| a < b), "{quantity:?}");
        }
    }
}
