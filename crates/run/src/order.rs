//! What `monolock run` tells the guardian, and how.

/// The bytes of one order. A pipe takes them whole or not at all, and gives them so.
pub(crate) const BYTES: usize = 16;

/// Until when the group may go on, in nanoseconds of CLOCK_BOOTTIME.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// The claim is lost then, and the group is to be asked to end; `u64::MAX` once it has been asked.
    pub ask_ns: u64,
    /// SIGKILL is due then.
    pub kill_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// These replace what was told before.
    Watch(Deadlines),
    /// Nothing is left to be guarded.
    Farewell,
}

impl Order {
    pub(crate) fn encode(self) -> [u8; BYTES] {
        let (ask_ns, kill_ns) = match self {
            Self::Watch(Deadlines { ask_ns, kill_ns }) => (ask_ns, kill_ns),
            Self::Farewell => (0, 0),
        };
        let mut bytes = [0; BYTES];
        bytes[..BYTES / 2].copy_from_slice(&ask_ns.to_ne_bytes());
        bytes[BYTES / 2..].copy_from_slice(&kill_ns.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; BYTES]) -> Self {
        let (ask, kill) = bytes.split_at(BYTES / 2);
        let number = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("half of the bytes"));
        match (number(ask), number(kill)) {
            (0, 0) => Self::Farewell,
            (ask_ns, kill_ns) => Self::Watch(Deadlines { ask_ns, kill_ns }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_given() {
        for order in [
            Order::Farewell,
            Order::Watch(Deadlines { ask_ns: 1, kill_ns: 2 }),
            Order::Watch(Deadlines { ask_ns: u64::MAX, kill_ns: 3 }),
        ] {
            assert_eq!(Order::decode(order.encode()), order);
        }
    }
}
