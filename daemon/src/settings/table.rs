//! The declaration of every setting of the server.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use cli::values::{optional, optional_path, optional_path_or_dash, positive_duration, switch};
use cli::{AdminAddress, Flag, FlagSet, HostName, ListenAddress, Setting, parse_duration};
use ha::fence::Levels;
use ha::term::NodeId;
use logging::{LogFormat, LogLevel};

use super::values::{
    PeerAddress, levels, log_format, log_level, names, node_id, peer, shard_count, stall_max,
};
use crate::checks::Limits;

pub(crate) const LISTEN: Setting<ListenAddress> = Setting {
    flag: Flag {
        name: "-listen",
        variable: "MONOLOCK_LISTEN_ADDRESS",
        default: "0.0.0.0:7070",
        value: "ADDRESS",
        meaning: "address of the lock protocol",
        needs: &[],
    },
    parse: str::parse,
};
pub(crate) const OPS_LISTEN: Setting<Option<ListenAddress>> = Setting {
    flag: Flag {
        name: "-ops-listen",
        variable: "MONOLOCK_OPS_LISTEN_ADDRESS",
        default: "",
        value: "ADDRESS",
        meaning: "/metrics, /readyz, …; empty = off",
        needs: &[],
    },
    parse: optional,
};
pub(crate) const ADMIN_LISTEN: Setting<Option<AdminAddress>> = Setting {
    flag: Flag {
        name: "-admin-listen",
        variable: "MONOLOCK_ADMIN_LISTEN_ADDRESS",
        default: "",
        value: "ADDRESS",
        meaning: "admin API, or unix:/path; empty = off",
        needs: &[],
    },
    parse: optional,
};
pub(crate) const ADMIN_HOST: Setting<Vec<HostName>> = Setting {
    flag: Flag {
        name: "-admin-host",
        variable: "MONOLOCK_ADMIN_HOST",
        default: "",
        value: "NAMES",
        meaning: "more host names of the admin API: a,b",
        needs: &["-admin-listen"],
    },
    parse: HostName::list,
};
pub(crate) const TLS_CERT: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-tls-cert",
        variable: "MONOLOCK_TLS_CERT",
        default: "",
        value: "FILE",
        meaning: "certificate chain, PEM; empty = no TLS",
        needs: &["-tls-key"],
    },
    parse: optional_path,
};
pub(crate) const TLS_KEY: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-tls-key",
        variable: "MONOLOCK_TLS_KEY",
        default: "",
        value: "FILE",
        meaning: "its private key, PEM",
        needs: &["-tls-cert"],
    },
    parse: optional_path,
};
pub(crate) const TLS_CLIENT_CA: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-tls-client-ca",
        variable: "MONOLOCK_TLS_CLIENT_CA",
        default: "",
        value: "FILE",
        meaning: "who vouches for clients, PEM: mutual TLS",
        needs: &["-tls-cert", "-tls-key"],
    },
    parse: optional_path,
};
pub(crate) const ACL_FILE: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-acl-file",
        variable: "MONOLOCK_ACL_FILE",
        default: "",
        value: "FILE",
        meaning: "which client may ask for which locks",
        needs: &["-tls-client-ca"],
    },
    parse: optional_path,
};
pub(crate) const AUDIT_LOG: Setting<Option<String>> = Setting {
    flag: Flag {
        name: "-audit-log",
        variable: "MONOLOCK_AUDIT_LOG",
        default: "",
        value: "FILE",
        meaning: "path, or - for standard output",
        needs: &[],
    },
    parse: optional_path_or_dash,
};
pub(crate) const TOKEN_FILE: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-token-file",
        variable: "MONOLOCK_TOKEN_FILE",
        default: "",
        value: "FILE",
        meaning: "keeps tokens rising over restarts",
        needs: &[],
    },
    parse: optional_path,
};
pub(crate) const IO_TIMEOUT: Setting<Duration> = Setting {
    flag: Flag {
        name: "-io-timeout",
        variable: "MONOLOCK_IO_TIMEOUT",
        default: "5s",
        value: "DURATION",
        meaning: "limit of a read, write, the first frame",
        needs: &[],
    },
    parse: positive_duration,
};
pub(crate) const LOG_LEVEL: Setting<LogLevel> = Setting {
    flag: Flag {
        name: "-log-level",
        variable: "MONOLOCK_LOG_LEVEL",
        default: "info",
        value: "LEVEL",
        meaning: "debug, info, warn or error",
        needs: &[],
    },
    parse: log_level,
};
pub(crate) const LOG_FORMAT: Setting<LogFormat> = Setting {
    flag: Flag {
        name: "-log-format",
        variable: "MONOLOCK_LOG_FORMAT",
        default: "text",
        value: "FORMAT",
        meaning: "text or json, on standard error",
        needs: &[],
    },
    parse: log_format,
};
pub(crate) const SHARDS: Setting<Option<NonZeroUsize>> = Setting {
    flag: Flag {
        name: "-shards",
        variable: "MONOLOCK_SHARDS",
        default: "",
        value: "COUNT",
        meaning: "session threads; empty: one a usable CPU",
        needs: &[],
    },
    parse: shard_count,
};
pub(crate) const STANDBY: Setting<bool> = Setting {
    flag: Flag {
        name: "-standby",
        variable: "MONOLOCK_STANDBY",
        default: "",
        value: "",
        meaning: "grants nothing until it is promoted",
        needs: &["-node-id", "-peer", "-ha-state", "-ha-cert", "-ha-key", "-ha-ca"],
    },
    parse: switch,
};
pub(crate) const NODE_ID: Setting<Option<NodeId>> = Setting {
    flag: Flag {
        name: "-node-id",
        variable: "MONOLOCK_NODE_ID",
        default: "",
        value: "ID",
        meaning: "name of this node",
        needs: &["-standby"],
    },
    parse: node_id,
};
pub(crate) const PEER: Setting<Option<PeerAddress>> = Setting {
    flag: Flag {
        name: "-peer",
        variable: "MONOLOCK_PEER",
        default: "",
        value: "ID=ADDRESSES",
        meaning: "the other node: id=host:port[,host:port]",
        needs: &["-standby"],
    },
    parse: peer,
};
pub(crate) const HA_STATE: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-ha-state",
        variable: "MONOLOCK_HA_STATE",
        default: "",
        value: "DIR",
        meaning: "what this node must not forget",
        needs: &["-standby"],
    },
    parse: optional_path,
};
pub(crate) const HA_LISTEN: Setting<Option<ListenAddress>> = Setting {
    flag: Flag {
        name: "-ha-listen",
        variable: "MONOLOCK_HA_LISTEN_ADDRESS",
        default: "",
        value: "ADDRESS",
        meaning: "where the peer asks (the agent, if any)",
        needs: &["-standby"],
    },
    parse: optional,
};
pub(crate) const HA_AGENT: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-ha-agent",
        variable: "MONOLOCK_HA_AGENT",
        default: "",
        value: "PATH",
        meaning: "socket of `monolock ha-agent`",
        needs: &["-standby"],
    },
    parse: optional_path,
};
pub(crate) const HA_CERT: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-ha-cert",
        variable: "MONOLOCK_HA_CERT",
        default: "",
        value: "FILE",
        meaning: "what the peer is shown, PEM",
        needs: &["-standby", "-ha-key", "-ha-ca"],
    },
    parse: optional_path,
};
pub(crate) const HA_KEY: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-ha-key",
        variable: "MONOLOCK_HA_KEY",
        default: "",
        value: "FILE",
        meaning: "its private key, PEM",
        needs: &["-standby", "-ha-cert"],
    },
    parse: optional_path,
};
pub(crate) const HA_CA: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-ha-ca",
        variable: "MONOLOCK_HA_CA",
        default: "",
        value: "FILE",
        meaning: "who vouches for the peer, PEM",
        needs: &["-standby", "-ha-cert"],
    },
    parse: optional_path,
};
pub(crate) const HA_ALLOW: Setting<Vec<String>> = Setting {
    flag: Flag {
        name: "-ha-allow",
        variable: "MONOLOCK_HA_ALLOW",
        default: "",
        value: "NAMES",
        meaning: "identities of the peer; empty = its id",
        needs: &["-standby"],
    },
    parse: names,
};
pub(crate) const FENCER: Setting<Levels> = Setting {
    flag: Flag {
        name: "-fencer",
        variable: "MONOLOCK_FENCER",
        default: "peer",
        value: "LEVELS",
        meaning: "how the peer is stopped: peer,exec:PATH",
        needs: &["-standby"],
    },
    parse: levels,
};
pub(crate) const FENCE_TIMEOUT: Setting<Duration> = Setting {
    flag: Flag {
        name: "-fence-timeout",
        variable: "MONOLOCK_FENCE_TIMEOUT",
        default: "30s",
        value: "DURATION",
        meaning: "limit of one exec: fencer",
        needs: &["-standby"],
    },
    parse: positive_duration,
};
pub(crate) const FENCE_DELAY: Setting<Duration> = Setting {
    flag: Flag {
        name: "-fence-delay",
        variable: "MONOLOCK_FENCE_DELAY",
        default: "0s",
        value: "DURATION",
        meaning: "before exec: fencers; differs by node",
        needs: &["-standby"],
    },
    parse: parse_duration,
};

pub(crate) const READY_MAX_STALL: Setting<Duration> = Setting {
    flag: Flag {
        name: "-ready-max-stall",
        variable: "MONOLOCK_READY_MAX_STALL",
        default: "1s",
        value: "DURATION",
        meaning: "/readyz fails when a shard hangs so long",
        needs: &[],
    },
    parse: stall_max,
};
pub(crate) const READY_FAIL_ON: Setting<Limits> = Setting {
    flag: Flag {
        name: "-ready-fail-on",
        variable: "MONOLOCK_READY_FAIL_ON",
        default: "",
        value: "LIST",
        meaning: "warnings that fail: p99=5ms:10s,clock:1m",
        needs: &[],
    },
    parse: Limits::parse,
};

/// The server's flags.
#[derive(Debug, Clone)]
pub(crate) struct Server;

impl FlagSet for Server {
    const FLAGS: &'static [&'static Flag] = &[
        &LISTEN.flag,
        &OPS_LISTEN.flag,
        &ADMIN_LISTEN.flag,
        &ADMIN_HOST.flag,
        &TLS_CERT.flag,
        &TLS_KEY.flag,
        &TLS_CLIENT_CA.flag,
        &ACL_FILE.flag,
        &AUDIT_LOG.flag,
        &TOKEN_FILE.flag,
        &IO_TIMEOUT.flag,
        &LOG_LEVEL.flag,
        &LOG_FORMAT.flag,
        &SHARDS.flag,
        &STANDBY.flag,
        &NODE_ID.flag,
        &PEER.flag,
        &HA_STATE.flag,
        &HA_LISTEN.flag,
        &HA_AGENT.flag,
        &HA_CERT.flag,
        &HA_KEY.flag,
        &HA_CA.flag,
        &HA_ALLOW.flag,
        &FENCER.flag,
        &FENCE_TIMEOUT.flag,
        &FENCE_DELAY.flag,
        &READY_MAX_STALL.flag,
        &READY_FAIL_ON.flag,
    ];
}

/// All settings, as the help shows them.
pub(crate) struct Table;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:<29} {:<12} MEANING", "FLAG", "VARIABLE", "DEFAULT")?;
        for Flag { name, variable, default, meaning, .. } in Server::FLAGS {
            writeln!(f, "{name:<16} {variable:<29} {default:<12} {meaning}")?;
        }
        Ok(())
    }
}
