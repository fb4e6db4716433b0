//! The declaration of every setting of the server.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use cli::values::{optional, optional_path, optional_path_or_dash, positive_duration};
use cli::{AdminAddress, Flag, FlagSet, HostName, ListenAddress, Setting};
use logging::{LogFormat, LogLevel};

use super::values::{log_format, log_level, shard_count};

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
        meaning: "/metrics, /healthz, /readyz; empty = off",
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
        meaning: "limit of one read, one write, first frame",
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
        meaning: "session threads; empty = one a usable CPU",
        needs: &[],
    },
    parse: shard_count,
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
    ];
}

/// All settings, as the help shows them.
pub(crate) struct Table;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14} {:<29} {:<12} MEANING", "FLAG", "VARIABLE", "DEFAULT")?;
        for Flag { name, variable, default, meaning, .. } in Server::FLAGS {
            writeln!(f, "{name:<14} {variable:<29} {default:<12} {meaning}")?;
        }
        Ok(())
    }
}
