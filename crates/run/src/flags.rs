//! The flags that are the same for a whole machine: each has a variable.

use std::time::Duration;

use cli::{Flag, FlagSet, Setting, parse_duration};
use protocol::Lease;

use super::address;

pub(crate) const ADDRESS: Setting<String> = Setting {
    flag: Flag {
        name: "--address",
        variable: "MONOLOCK_ADDRESS",
        default: "127.0.0.1:7070",
        value: "HOST:PORT",
        meaning: "The server",
        needs: &[],
    },
    parse: address::parse,
};
pub(crate) const LEASE: Setting<Lease> = Setting {
    flag: Flag {
        name: "--lease",
        variable: "MONOLOCK_LEASE",
        default: "10s",
        value: "DURATION",
        meaning: "How long the server keeps the lock for a claim that went silent",
        needs: &[],
    },
    parse: parse_lease,
};
pub(crate) const KILL_AFTER: Setting<Option<Duration>> = Setting {
    flag: Flag {
        name: "--kill-after",
        variable: "MONOLOCK_KILL_AFTER",
        default: "",
        value: "DURATION",
        meaning: "The time from SIGTERM to SIGKILL when the claim is lost; without it what the lease allows, which is the most",
        needs: &[],
    },
    parse: parse_kill_after,
};
pub(crate) const TLS_CA: Flag = Flag {
    name: "--tls-ca",
    variable: "MONOLOCK_TLS_CA",
    default: "",
    value: "FILE",
    meaning: "Speak TLS, to a server that one of the authorities in this PEM file vouches for",
    needs: &[],
};
pub(crate) const TLS_CERT: Flag = Flag {
    name: "--tls-cert",
    variable: "MONOLOCK_TLS_CERT",
    default: "",
    value: "FILE",
    meaning: "Our certificate, for a server that asks for one: PEM, intermediate certificates behind it. The server has a \
              variable of that name too: it counts here only where there is a CA",
    needs: &["--tls-ca", "--tls-key"],
};
pub(crate) const TLS_KEY: Flag = Flag {
    name: "--tls-key",
    variable: "MONOLOCK_TLS_KEY",
    default: "",
    value: "FILE",
    meaning: "The private key of --tls-cert: PEM. The variable counts only where there is a CA",
    needs: &["--tls-ca", "--tls-cert"],
};
pub(crate) const TLS_SERVER_NAME: Flag = Flag {
    name: "--tls-server-name",
    variable: "MONOLOCK_TLS_SERVER_NAME",
    default: "",
    value: "NAME",
    meaning: "The name in the server's certificate, where it is not the host of the address",
    needs: &["--tls-ca"],
};

/// The flags of `monolock run` that have a variable.
#[derive(Debug, Clone)]
pub struct Run;

impl FlagSet for Run {
    const FLAGS: &'static [&'static Flag] =
        &[&LEASE.flag, &KILL_AFTER.flag, &ADDRESS.flag, &TLS_CA, &TLS_CERT, &TLS_KEY, &TLS_SERVER_NAME];
}

fn parse_kill_after(text: &str) -> Result<Option<Duration>, String> {
    if text.is_empty() { Ok(None) } else { parse_duration(text).map(Some) }
}

fn parse_lease(text: &str) -> Result<Lease, String> {
    let lease = Lease::from_duration(parse_duration(text)?);
    lease.ok_or_else(|| client::Error::InvalidLease.to_string())
}
