//! Every setting, as the user sees it.

use std::fmt;

use cli::Setting;

pub(crate) const LISTEN: Setting = Setting {
    flag: "-listen",
    variable: "MONOLOCK_LISTEN_ADDRESS",
    default: "0.0.0.0:7070",
    meaning: "address of the lock protocol",
};
pub(crate) const OPS_LISTEN: Setting = Setting {
    flag: "-ops-listen",
    variable: "MONOLOCK_OPS_LISTEN_ADDRESS",
    default: "",
    meaning: "/metrics, /healthz, /readyz; empty = off",
};
pub(crate) const ADMIN_LISTEN: Setting = Setting {
    flag: "-admin-listen",
    variable: "MONOLOCK_ADMIN_LISTEN_ADDRESS",
    default: "",
    meaning: "admin API, or unix:/path; empty = off",
};
pub(crate) const ADMIN_HOST: Setting = Setting {
    flag: "-admin-host",
    variable: "MONOLOCK_ADMIN_HOST",
    default: "",
    meaning: "more host names of the admin API: a,b",
};
pub(crate) const TLS_CERT: Setting = Setting {
    flag: "-tls-cert",
    variable: "MONOLOCK_TLS_CERT",
    default: "",
    meaning: "certificate chain, PEM; empty = no TLS",
};
pub(crate) const TLS_KEY: Setting =
    Setting { flag: "-tls-key", variable: "MONOLOCK_TLS_KEY", default: "", meaning: "its private key, PEM" };
pub(crate) const TLS_CLIENT_CA: Setting = Setting {
    flag: "-tls-client-ca",
    variable: "MONOLOCK_TLS_CLIENT_CA",
    default: "",
    meaning: "who vouches for clients, PEM: mutual TLS",
};
pub(crate) const ACL_FILE: Setting = Setting {
    flag: "-acl-file",
    variable: "MONOLOCK_ACL_FILE",
    default: "",
    meaning: "which client may ask for which locks",
};
pub(crate) const AUDIT_LOG: Setting = Setting {
    flag: "-audit-log",
    variable: "MONOLOCK_AUDIT_LOG",
    default: "",
    meaning: "path, or - for standard output",
};
pub(crate) const IO_TIMEOUT: Setting = Setting {
    flag: "-io-timeout",
    variable: "MONOLOCK_IO_TIMEOUT",
    default: "5s",
    meaning: "limit of one read, one write, first frame",
};
pub(crate) const LOG_LEVEL: Setting = Setting {
    flag: "-log-level",
    variable: "MONOLOCK_LOG_LEVEL",
    default: "info",
    meaning: "debug, info, warn or error",
};
pub(crate) const LOG_FORMAT: Setting = Setting {
    flag: "-log-format",
    variable: "MONOLOCK_LOG_FORMAT",
    default: "text",
    meaning: "text or json, on standard error",
};
pub(crate) const SHARDS: Setting = Setting {
    flag: "-shards",
    variable: "MONOLOCK_SHARDS",
    default: "",
    meaning: "session threads; empty = one a usable CPU",
};

/// In the order of the help's table.
pub(crate) const SETTINGS: [&Setting; 13] = [
    &LISTEN,
    &OPS_LISTEN,
    &ADMIN_LISTEN,
    &ADMIN_HOST,
    &TLS_CERT,
    &TLS_KEY,
    &TLS_CLIENT_CA,
    &ACL_FILE,
    &AUDIT_LOG,
    &IO_TIMEOUT,
    &LOG_LEVEL,
    &LOG_FORMAT,
    &SHARDS,
];

/// Settings that mean nothing without others.
pub(super) const NEEDS: [(&Setting, &[&Setting]); 5] = [
    (&ADMIN_HOST, &[&ADMIN_LISTEN]),
    (&TLS_CERT, &[&TLS_KEY]),
    (&TLS_KEY, &[&TLS_CERT]),
    (&TLS_CLIENT_CA, &[&TLS_CERT, &TLS_KEY]),
    (&ACL_FILE, &[&TLS_CLIENT_CA]),
];

/// All settings, as the help shows them.
pub(crate) struct Table;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14} {:<29} {:<12} MEANING", "FLAG", "VARIABLE", "DEFAULT")?;
        for Setting { flag, variable, default, meaning } in SETTINGS {
            writeln!(f, "{flag:<14} {variable:<29} {default:<12} {meaning}")?;
        }
        Ok(())
    }
}
