//! The server's settings: each one a flag with an environment variable. Flag beats variable beats default.

mod agent;
mod pair;
mod table;
mod values;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use cli::{AdminAddress, Flag, FlagSet, Flags, Given, HostName, ListenAddress, Mistake, Reader};
use logging::{LogFormat, LogLevel};
use tls::FileOf;

use crate::checks::Limits;
pub(crate) use agent::{AgentArgs, AgentSettings};
pub(crate) use pair::{Ear, PairSettings};
pub(crate) use table::{
    ACL_FILE, ADMIN_HOST, ADMIN_LISTEN, AUDIT_LOG, HA_CA, HA_CERT, HA_KEY, HA_LISTEN, HA_STATE, IO_TIMEOUT,
    LISTEN, LOG_FORMAT, LOG_LEVEL, OPS_LISTEN, READY_FAIL_ON, READY_MAX_STALL, SHARDS, Server, TLS_CERT,
    TLS_CLIENT_CA, TLS_KEY, TOKEN_FILE, Table,
};

/// Every setting that has a variable: those of the server, of `monolock run` and of `monolock ha-agent`.
pub(crate) fn all() -> impl Iterator<Item = &'static Flag> + Clone {
    let of_agent = self::agent::HaAgent::FLAGS.iter().filter(|flag| !Server::FLAGS.contains(flag));
    Server::FLAGS.iter().chain(run::Run::FLAGS).chain(of_agent).copied()
}

/// The flag that names a file of TLS.
pub(crate) fn tls_flag(file: FileOf) -> &'static str {
    match file {
        FileOf::Certificate => TLS_CERT.flag.name,
        FileOf::Key => TLS_KEY.flag.name,
        FileOf::ClientCa => TLS_CLIENT_CA.flag.name,
    }
}

/// What the server is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServeSettings {
    /// The protocol's address.
    pub(crate) listen: ListenAddress,
    /// The address of `/metrics`, `/healthz`, `/readyz` and `/active`; none when off.
    pub(crate) ops_listen: Option<ListenAddress>,
    /// The admin API; none when off.
    pub(crate) admin: Option<AdminSettings>,
    /// TLS on the protocol's port; plain when `None`.
    pub(crate) tls: Option<TlsSettings>,
    /// The path of the audit log, or `-` for standard output; none when off.
    pub(crate) audit_log: Option<String>,
    /// Where tokens are put aside; without it, only this process and its clock keep them rising.
    pub(crate) token_file: Option<PathBuf>,
    /// The limit for one read of a started frame, for one write, and for the first frame after accept.
    /// Positive.
    pub(crate) io_timeout: Duration,
    pub(crate) log_level: LogLevel,
    pub(crate) log_format: LogFormat,
    /// Shard threads; one for each CPU that this process may run on when `None`.
    pub(crate) shards: Option<NonZeroUsize>,
    /// One of two nodes; the only one when `None`.
    pub(crate) pair: Option<PairSettings>,
    pub(crate) ready: ReadySettings,
}

/// When this instance should receive no traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadySettings {
    /// How long a shard's loop may go without a turn.
    pub(crate) stall_max: Duration,
    /// Which warnings fail.
    pub(crate) limits: Limits,
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

/// The server's flags, as given.
pub(crate) type ServeArgs = Flags<Server>;

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
        let mut reader = Reader::new(args, variable);
        let settings = ServeSettings::read(&mut reader);
        let (given, mistakes) = reader.finish();
        Self { given, mistakes, settings }
    }

    /// What a setting was given as.
    pub(crate) fn given(&self, flag: &Flag) -> &Given {
        self.given.iter().find(|given| given.flag == flag).expect("every setting is read")
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
    fn read(reader: &mut Reader<'_, Server, impl Fn(&str) -> Option<String>>) -> Self {
        let listen = reader.read(&LISTEN);
        let ops_listen = reader.read(&OPS_LISTEN);
        let admin_listen = reader.read(&ADMIN_LISTEN);
        let hosts = reader.read(&ADMIN_HOST);
        let cert = reader.read(&TLS_CERT);
        let key = reader.read(&TLS_KEY);
        let client_ca = reader.read(&TLS_CLIENT_CA);
        let acl_file = reader.read(&ACL_FILE);
        let audit_log = reader.read(&AUDIT_LOG);
        let token_file = reader.read(&TOKEN_FILE);
        let (io_timeout, shards) = (reader.read(&IO_TIMEOUT), reader.read(&SHARDS));
        let (log_level, log_format) = (reader.read(&LOG_LEVEL), reader.read(&LOG_FORMAT));
        let (stall_max, limits) = (reader.read(&READY_MAX_STALL), reader.read(&READY_FAIL_ON));
        let ready = ReadySettings { stall_max, limits };
        let pair = PairSettings::read(reader);
        if token_file.is_some() && pair.is_some() {
            reader.mistake(Mistake::Both {
                name: reader.given(&TOKEN_FILE.flag).name(),
                other: HA_STATE.flag.name,
                problem: "the state directory keeps tokens rising",
            });
        }
        let client_ca = client_ca.map(|file| ClientCaSettings { file, acl_file });
        Self {
            listen,
            ops_listen,
            admin: admin_listen.map(|listen| AdminSettings { listen, hosts }),
            tls: cert.zip(key).map(|(cert, key)| TlsSettings { cert, key, client_ca }),
            audit_log,
            token_file,
            io_timeout,
            log_level,
            log_format,
            shards,
            pair,
            ready,
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

    /// Flags as they may be given.
    fn given(flags: &[(&'static Flag, &str)]) -> ServeArgs {
        flags.iter().fold(ServeArgs::default(), |args, (flag, text)| args.with(flag, text))
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
            token_file: None,
            io_timeout: Duration::from_secs(5),
            log_level: LogLevel::Info,
            log_format: LogFormat::Text,
            shards: None,
            pair: None,
            ready: ReadySettings { stall_max: Duration::from_secs(1), limits: Limits::default() },
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_flag_beats_a_variable_and_a_variable_beats_the_default() {
        let variables = [("MONOLOCK_IO_TIMEOUT", "250ms"), ("MONOLOCK_SHARDS", "3")];
        let args = given(&[(&IO_TIMEOUT.flag, "1m30s")]);
        let settings = resolve(args, &variables).unwrap();
        assert_eq!(settings.io_timeout, Duration::from_secs(90));
        assert_eq!(settings.shards.map(NonZeroUsize::get), Some(3));
    }

    #[test]
    fn an_empty_variable_is_unset_and_an_empty_flag_turns_off_what_can_be_off() {
        let empty: Vec<_> = Server::FLAGS.iter().map(|flag| (flag.variable, "")).collect();
        assert_eq!(resolve(ServeArgs::default(), &empty), resolve(ServeArgs::default(), &[]));

        let args = given(&[(&OPS_LISTEN.flag, "")]);
        let settings = resolve(args, &[("MONOLOCK_OPS_LISTEN_ADDRESS", ":9090")]).unwrap();
        assert_eq!(settings.ops_listen, None);
        let args = given(&[(&LISTEN.flag, "")]);
        assert!(resolve(args, &[]).unwrap_err().starts_with("-listen: invalid value \"\": "));
    }

    #[test]
    fn an_invalid_value_is_reported_under_the_name_it_was_given() {
        let args = given(&[(&IO_TIMEOUT.flag, "0")]);
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
            ("MONOLOCK_READY_MAX_STALL", "499ms"),
            ("MONOLOCK_READY_FAIL_ON", "p98"),
        ] {
            let error = resolve(ServeArgs::default(), &[(variable, value)]).unwrap_err();
            assert!(error.starts_with(&format!("{variable} (-")), "{error}");
            assert!(error.contains(&format!("): invalid value {value:?}: ")), "{error}");
        }
    }

    #[test]
    fn settings_that_belong_together_come_together() {
        let all = given(&[
            (&ADMIN_LISTEN.flag, "unix:/run/admin.sock"),
            (&ADMIN_HOST.flag, "Locks.Example"),
            (&TLS_CERT.flag, "cert"),
            (&TLS_KEY.flag, "key"),
            (&TLS_CLIENT_CA.flag, "ca"),
            (&ACL_FILE.flag, "acl"),
            (&AUDIT_LOG.flag, "-"),
        ]);
        let settings = resolve(all.clone(), &[]).unwrap();
        let hosts = vec!["locks.example".parse().unwrap()];
        let listen = AdminAddress::Unix("/run/admin.sock".into());
        assert_eq!(settings.admin, Some(AdminSettings { listen, hosts }));
        let client_ca = Some(ClientCaSettings { file: "ca".into(), acl_file: Some("acl".into()) });
        let tls = TlsSettings { cert: "cert".into(), key: "key".into(), client_ca };
        assert_eq!(settings.tls, Some(tls));
        assert_eq!(settings.audit_log.as_deref(), Some("-"));

        let plain = all.with(&TLS_CLIENT_CA.flag, "").with(&ACL_FILE.flag, "");
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
        let args = given(&[(&ACL_FILE.flag, "acl")]);
        assert_eq!(resolve(args, &[]), Err("-acl-file needs -tls-client-ca as well".to_owned()));
        // An empty flag unsets its variable.
        let args = given(&[(&TLS_KEY.flag, "")]);
        let both = [("MONOLOCK_TLS_CERT", "c"), ("MONOLOCK_TLS_KEY", "k")];
        assert_eq!(
            resolve(args, &both),
            Err("MONOLOCK_TLS_CERT (-tls-cert) needs -tls-key as well".to_owned())
        );
    }

    #[test]
    fn every_mistake_is_found_once() {
        let args = given(&[
            (&LISTEN.flag, "nowhere"),
            (&TLS_CERT.flag, "\u{fffd}"),
            (&TLS_KEY.flag, "key"),
            (&ACL_FILE.flag, "acl"),
            (&SHARDS.flag, "0"),
        ]);
        let mistakes = Reading::new(&args, |_| None).mistakes;
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        let starts = ["-listen: ", "-tls-cert: ", "-shards: ", "-acl-file needs"];
        assert_eq!(lines.len(), starts.len(), "{lines:#?}");
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:#?}");
    }

    /// The cells of README's tables that begin with a flag.
    fn documented() -> Vec<Vec<String>> {
        let readme = include_str!("../../../README.md");
        let rows = readme.lines().filter(|line| line.starts_with("| `-") && line.contains("MONOLOCK_"));
        rows.map(|row| row.split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
    }

    #[test]
    fn readme_has_each_flag_with_its_variable_and_its_default_and_no_other() {
        let documented = documented();
        let words = |cell: &str| cell.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let rows: Vec<(String, String, String)> = documented
            .iter()
            .flat_map(|row| {
                let (flags, variables) = (words(&row[1]), words(&row[2]));
                assert_eq!(flags.len(), variables.len(), "{row:?}");
                flags.into_iter().zip(variables).map(|(flag, variable)| (flag, variable, row[3].clone()))
            })
            .collect();
        for flag in all() {
            let row = rows.iter().find(|(name, variable, _)| name == flag.name && variable == flag.variable);
            let (_, _, default) = row.unwrap_or_else(|| panic!("README has no row for {}", flag.name));
            if !flag.default.is_empty() {
                assert_eq!(default, flag.default, "{}", flag.name);
            }
        }
        assert_eq!(rows.len(), all().count(), "{rows:#?}");
    }

    #[test]
    fn a_control_character_in_a_value_does_not_break_the_line() {
        let error = resolve(ServeArgs::default(), &[("MONOLOCK_LOG_LEVEL", "a\nb\u{1b}")]).unwrap_err();
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}
