//! The server's settings: each one a flag with an environment variable. Flag beats variable beats default.

mod table;
mod values;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cli::values::{empty_or, path, path_or_dash, positive_duration};
use cli::{AdminAddress, Given, HostName, ListenAddress, Mistake, Reader, Setting};
use logging::{LogFormat, LogLevel};
use tls::FileOf;

#[cfg(test)]
pub(crate) use table::SETTINGS;
pub(crate) use table::{
    ACL_FILE, ADMIN_HOST, ADMIN_LISTEN, AUDIT_LOG, IO_TIMEOUT, LISTEN, LOG_FORMAT, LOG_LEVEL, OPS_LISTEN,
    SHARDS, TLS_CERT, TLS_CLIENT_CA, TLS_KEY, Table,
};
use values::{log_format, log_level, shard_count};

/// Every setting that has a variable: the server's and those of `monolock run`.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> + Clone {
    table::SETTINGS.iter().chain(&run::SETTINGS).copied()
}

/// The flag that names a file of TLS.
pub(crate) fn tls_flag(file: FileOf) -> &'static str {
    match file {
        FileOf::Certificate => TLS_CERT.flag,
        FileOf::Key => TLS_KEY.flag,
        FileOf::ClientCa => TLS_CLIENT_CA.flag,
    }
}

/// What the server is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServeSettings {
    /// The protocol's address.
    pub(crate) listen: ListenAddress,
    /// The address of `/metrics`, `/healthz` and `/readyz`; none when off.
    pub(crate) ops_listen: Option<ListenAddress>,
    /// The admin API; none when off.
    pub(crate) admin: Option<AdminSettings>,
    /// TLS on the protocol's port; plain when `None`.
    pub(crate) tls: Option<TlsSettings>,
    /// The path of the audit log, or `-` for standard output; none when off.
    pub(crate) audit_log: Option<String>,
    /// The limit for one read of a started frame, for one write, and for the first frame after accept. Positive.
    pub(crate) io_timeout: Duration,
    pub(crate) log_level: LogLevel,
    pub(crate) log_format: LogFormat,
    /// Shard threads; one for each CPU that this process may run on when `None`.
    pub(crate) shards: Option<NonZeroUsize>,
}

/// How the admin API is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    pub(crate) listen: AdminAddress,
    /// What a request's `Host` may name besides IP addresses and `localhost`.
    pub(crate) hosts: Vec<HostName>,
}

/// The files of TLS, all of them PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// Makes it mutual TLS.
    pub(crate) client_ca: Option<ClientCaSettings>,
}

/// Who clients are, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCaSettings {
    /// The authorities that vouch for clients.
    pub(crate) file: PathBuf,
    /// Without it, every client may ask for every lock.
    pub(crate) acl_file: Option<PathBuf>,
}

/// The server's flags, as given. What follows a flag is its value, also when it begins with a dash: so a mistake in it is
/// reported under the flag's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct ServeArgs {
    #[arg(long, allow_hyphen_values = true, value_name = "ADDRESS", help = LISTEN.meaning)]
    listen: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "ADDRESS", help = OPS_LISTEN.meaning)]
    ops_listen: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "ADDRESS", help = ADMIN_LISTEN.meaning)]
    admin_listen: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "NAMES", help = ADMIN_HOST.meaning)]
    admin_host: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FILE", help = TLS_CERT.meaning)]
    tls_cert: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FILE", help = TLS_KEY.meaning)]
    tls_key: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FILE", help = TLS_CLIENT_CA.meaning)]
    tls_client_ca: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FILE", help = ACL_FILE.meaning)]
    acl_file: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FILE", help = AUDIT_LOG.meaning)]
    audit_log: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "DURATION", help = IO_TIMEOUT.meaning)]
    io_timeout: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "LEVEL", help = LOG_LEVEL.meaning)]
    log_level: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FORMAT", help = LOG_FORMAT.meaning)]
    log_format: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "COUNT", help = SHARDS.meaning)]
    shards: Option<String>,
}

/// The settings as they were read, and everything that is wrong with them.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Every setting, in the order of the help's table.
    pub(crate) given: Vec<Given>,
    pub(crate) mistakes: Vec<Mistake>,
    /// With defaults in place of mistakes.
    settings: ServeSettings,
}

impl Reading {
    /// Reads flags, and variables as `variable` knows them.
    pub(crate) fn new(args: &ServeArgs, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut reader = Reader::new(variable);
        let settings = ServeSettings::read(args, &mut reader);
        reader.check_needs(&table::NEEDS);
        Self { given: reader.given, mistakes: reader.mistakes, settings }
    }

    /// What a setting was given as.
    pub(crate) fn given(&self, setting: &Setting) -> &Given {
        self.given.iter().find(|given| given.setting == setting).expect("every setting is read")
    }

    /// The settings.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub(crate) fn settings(self) -> Result<ServeSettings, Mistake> {
        match self.mistakes.into_iter().next() {
            None => Ok(self.settings),
            Some(first) => Err(first),
        }
    }
}

impl ServeSettings {
    /// In the order of the table, so that mistakes are told in it.
    fn read(args: &ServeArgs, reader: &mut Reader<impl Fn(&str) -> Option<String>>) -> Self {
        let listen = reader.read(&LISTEN, args.listen.as_ref(), str::parse);
        let ops_listen = reader.read(&OPS_LISTEN, args.ops_listen.as_ref(), empty_or(str::parse));
        let admin_listen = reader.read(&ADMIN_LISTEN, args.admin_listen.as_ref(), empty_or(str::parse));
        let hosts = reader.read(&ADMIN_HOST, args.admin_host.as_ref(), HostName::list);
        let cert = reader.read(&TLS_CERT, args.tls_cert.as_ref(), empty_or(path));
        let key = reader.read(&TLS_KEY, args.tls_key.as_ref(), empty_or(path));
        let client_ca = reader.read(&TLS_CLIENT_CA, args.tls_client_ca.as_ref(), empty_or(path));
        let acl_file = reader.read(&ACL_FILE, args.acl_file.as_ref(), empty_or(path));
        let client_ca = client_ca.map(|file| ClientCaSettings { file, acl_file });
        Self {
            listen,
            ops_listen,
            admin: admin_listen.map(|listen| AdminSettings { listen, hosts }),
            tls: cert.zip(key).map(|(cert, key)| TlsSettings { cert, key, client_ca }),
            audit_log: reader.read(&AUDIT_LOG, args.audit_log.as_ref(), empty_or(path_or_dash)),
            io_timeout: reader.read(&IO_TIMEOUT, args.io_timeout.as_ref(), positive_duration),
            log_level: reader.read(&LOG_LEVEL, args.log_level.as_ref(), log_level),
            log_format: reader.read(&LOG_FORMAT, args.log_format.as_ref(), log_format),
            shards: reader.read(&SHARDS, args.shards.as_ref(), empty_or(shard_count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(args: ServeArgs, variables: &[(&str, &str)]) -> Result<ServeSettings, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Reading::new(&args, variable).settings().map_err(|mistake| mistake.to_string())
    }

    fn some(text: &str) -> Option<String> {
        Some(text.into())
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let settings = resolve(ServeArgs::default(), &[]).unwrap();
        let expected = ServeSettings {
            listen: ":7070".parse().unwrap(),
            ops_listen: None,
            admin: None,
            tls: None,
            audit_log: None,
            io_timeout: Duration::from_secs(5),
            log_level: LogLevel::Info,
            log_format: LogFormat::Text,
            shards: None,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_flag_beats_a_variable_and_a_variable_beats_the_default() {
        let variables = [("MONOLOCK_IO_TIMEOUT", "250ms"), ("MONOLOCK_SHARDS", "3")];
        let args = ServeArgs { io_timeout: some("1m30s"), ..Default::default() };
        let settings = resolve(args, &variables).unwrap();
        assert_eq!(settings.io_timeout, Duration::from_secs(90));
        assert_eq!(settings.shards.map(NonZeroUsize::get), Some(3));
    }

    #[test]
    fn an_empty_variable_is_unset_and_an_empty_flag_turns_off_what_can_be_off() {
        let empty = SETTINGS.map(|setting| (setting.variable, ""));
        assert_eq!(resolve(ServeArgs::default(), &empty), resolve(ServeArgs::default(), &[]));

        let args = ServeArgs { ops_listen: some(""), ..Default::default() };
        let settings = resolve(args, &[("MONOLOCK_OPS_LISTEN_ADDRESS", ":9090")]).unwrap();
        assert_eq!(settings.ops_listen, None);
        let args = ServeArgs { listen: some(""), ..Default::default() };
        assert!(resolve(args, &[]).unwrap_err().starts_with("-listen: invalid value \"\": "));
    }

    #[test]
    fn an_invalid_value_is_reported_under_the_name_it_was_given() {
        let args = ServeArgs { io_timeout: some("0"), ..Default::default() };
        let error = "-io-timeout: invalid value \"0\": the duration must be positive";
        assert_eq!(resolve(args, &[]), Err(error.into()));
        for (variable, value) in [
            ("MONOLOCK_LISTEN_ADDRESS", "7070"),
            ("MONOLOCK_OPS_LISTEN_ADDRESS", "localhost"),
            ("MONOLOCK_ADMIN_LISTEN_ADDRESS", "unix:relative"),
            ("MONOLOCK_ADMIN_HOST", "a:80"),
            ("MONOLOCK_TLS_CERT", "not\u{fffd}utf-8"),
            ("MONOLOCK_AUDIT_LOG", "not\u{fffd}utf-8"),
            ("MONOLOCK_IO_TIMEOUT", "5"),
            ("MONOLOCK_LOG_LEVEL", "INFO"),
            ("MONOLOCK_LOG_FORMAT", "xml"),
            ("MONOLOCK_SHARDS", "0"),
            ("MONOLOCK_SHARDS", "1025"),
        ] {
            let error = resolve(ServeArgs::default(), &[(variable, value)]).unwrap_err();
            assert!(error.starts_with(&format!("{variable} (-")), "{error}");
            assert!(error.contains(&format!("): invalid value {value:?}: ")), "{error}");
        }
    }

    #[test]
    fn settings_that_belong_together_come_together() {
        let all = ServeArgs {
            admin_listen: some("unix:/run/admin.sock"),
            admin_host: some("Locks.Example"),
            tls_cert: some("cert"),
            tls_key: some("key"),
            tls_client_ca: some("ca"),
            acl_file: some("acl"),
            audit_log: some("-"),
            ..Default::default()
        };
        let settings = resolve(all.clone(), &[]).unwrap();
        let hosts = vec!["locks.example".parse().unwrap()];
        let listen = AdminAddress::Unix("/run/admin.sock".into());
        assert_eq!(settings.admin, Some(AdminSettings { listen, hosts }));
        let client_ca = Some(ClientCaSettings { file: "ca".into(), acl_file: Some("acl".into()) });
        let tls = TlsSettings { cert: "cert".into(), key: "key".into(), client_ca };
        assert_eq!(settings.tls, Some(tls));
        assert_eq!(settings.audit_log.as_deref(), Some("-"));

        let plain = ServeArgs { tls_client_ca: None, acl_file: None, ..all };
        assert_eq!(resolve(plain, &[]).unwrap().tls.unwrap().client_ca, None);
    }

    #[test]
    fn a_setting_without_what_it_needs_is_one_line_that_names_both() {
        for (variables, line) in [
            (&[("MONOLOCK_TLS_CERT", "c")][..], "MONOLOCK_TLS_CERT (-tls-cert) needs -tls-key as well"),
            (&[("MONOLOCK_TLS_KEY", "k")], "MONOLOCK_TLS_KEY (-tls-key) needs -tls-cert as well"),
            (
                &[("MONOLOCK_TLS_CLIENT_CA", "a")],
                "MONOLOCK_TLS_CLIENT_CA (-tls-client-ca) needs -tls-cert and -tls-key as well",
            ),
            (
                &[("MONOLOCK_TLS_CERT", "c"), ("MONOLOCK_TLS_KEY", "k"), ("MONOLOCK_ACL_FILE", "l")],
                "MONOLOCK_ACL_FILE (-acl-file) needs -tls-client-ca as well",
            ),
            (
                &[("MONOLOCK_ADMIN_HOST", "h")],
                "MONOLOCK_ADMIN_HOST (-admin-host) needs -admin-listen as well",
            ),
        ] {
            assert_eq!(resolve(ServeArgs::default(), variables), Err(line.to_owned()));
        }
        let args = ServeArgs { acl_file: some("acl"), ..Default::default() };
        assert_eq!(resolve(args, &[]), Err("-acl-file needs -tls-client-ca as well".to_owned()));
        // An empty flag unsets its variable.
        let args = ServeArgs { tls_key: some(""), ..Default::default() };
        let both = [("MONOLOCK_TLS_CERT", "c"), ("MONOLOCK_TLS_KEY", "k")];
        assert_eq!(
            resolve(args, &both),
            Err("MONOLOCK_TLS_CERT (-tls-cert) needs -tls-key as well".to_owned())
        );
    }

    #[test]
    fn every_mistake_is_found_once() {
        let args = ServeArgs {
            listen: some("nowhere"),
            tls_cert: some("\u{fffd}"),
            tls_key: some("key"),
            acl_file: some("acl"),
            shards: some("0"),
            ..Default::default()
        };
        let mistakes = Reading::new(&args, |_| None).mistakes;
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        let starts = ["-listen: ", "-tls-cert: ", "-shards: ", "-acl-file needs"];
        assert_eq!(lines.len(), starts.len(), "{lines:#?}");
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:#?}");
    }

    #[test]
    fn a_control_character_in_a_value_does_not_break_the_line() {
        let error = resolve(ServeArgs::default(), &[("MONOLOCK_LOG_LEVEL", "a\nb\u{1b}")]).unwrap_err();
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}
