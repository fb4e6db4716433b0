//! Which host, which boot of it, which process: what a node is told apart by.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Text that is no 128-bit id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id has 32 hexadecimal digits, with dashes or without")]
pub struct BadId;

macro_rules! id {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u128);

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
                if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(BadId);
                }
                u128::from_str_radix(&digits, 16).map(Self).map_err(|_| BadId)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;

            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

id!(HostId, "A host: random, made once with the state directory, and bound to its machine-id.");
id!(BootId, "A boot of a host: `/proc/sys/kernel/random/boot_id`. Boot ids have no order.");

/// One life of a server's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// The boot on which it runs.
    pub boot: BootId,
    /// When it started: CLOCK_BOOTTIME, ns.
    pub started_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_as_the_kernel_writes_it() {
        let boot: BootId = "3a0f4b2e-7d1c-4c57-9b62-0d4d0c1f7a11\n".parse().unwrap();
        assert_eq!(boot.to_string(), "3a0f4b2e7d1c4c579b620d4d0c1f7a11");
        assert_eq!(boot.to_string().parse(), Ok(boot));
        assert!("3a0f".parse::<BootId>().is_err());
    }
}
