//! The server's settings: each one a flag with an environment variable. Flag beats variable beats default.

mod address;
mod command;

use std::env;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

pub(crate) use address::ListenAddress;
pub(crate) use command::{Ending, Invocation, parse};

use crate::duration::parse_duration;
use crate::logging::{LogFormat, LogLevel};

/// The most shards: as many CPUs as the kernel's affinity sets of usual size hold.
const SHARDS_MAX: usize = 1024;

/// What the server is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServeSettings {
    /// The protocol's address.
    pub(crate) listen: ListenAddress,
    /// The address of `/metrics`, `/healthz` and `/readyz`; none when off.
    pub(crate) ops_listen: Option<ListenAddress>,
    /// The limit for one read of a started frame, for one write, and for the first frame after accept. Positive.
    pub(crate) io_timeout: Duration,
    pub(crate) log_level: LogLevel,
    pub(crate) log_format: LogFormat,
    /// Shard threads; one for each CPU that this process may run on when `None`.
    pub(crate) shards: Option<NonZeroUsize>,
}

/// A setting as the user sees it.
struct Setting {
    flag: &'static str,
    variable: &'static str,
    default: &'static str,
    meaning: &'static str,
}

const LISTEN: Setting = Setting {
    flag: "-listen",
    variable: "MONOLOCK_LISTEN_ADDRESS",
    default: "0.0.0.0:7070",
    meaning: "address of the lock protocol",
};
const OPS_LISTEN: Setting = Setting {
    flag: "-ops-listen",
    variable: "MONOLOCK_OPS_LISTEN_ADDRESS",
    default: "",
    meaning: "/metrics, /healthz, /readyz; empty = off",
};
const IO_TIMEOUT: Setting = Setting {
    flag: "-io-timeout",
    variable: "MONOLOCK_IO_TIMEOUT",
    default: "5s",
    meaning: "limit of one read, one write, first frame",
};
const LOG_LEVEL: Setting = Setting {
    flag: "-log-level",
    variable: "MONOLOCK_LOG_LEVEL",
    default: "info",
    meaning: "debug, info, warn or error",
};
const LOG_FORMAT: Setting = Setting {
    flag: "-log-format",
    variable: "MONOLOCK_LOG_FORMAT",
    default: "text",
    meaning: "text or json, on standard error",
};
const SHARDS: Setting = Setting {
    flag: "-shards",
    variable: "MONOLOCK_SHARDS",
    default: "",
    meaning: "session threads; empty = one a usable CPU",
};

/// In the order of the help's table.
const SETTINGS: [&Setting; 6] = [&LISTEN, &OPS_LISTEN, &IO_TIMEOUT, &LOG_LEVEL, &LOG_FORMAT, &SHARDS];

/// The server's flags, as given. What follows a flag is its value, also when it begins with a dash: so a mistake in it is
/// reported under the flag's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct ServeArgs {
    #[arg(long, allow_hyphen_values = true, value_name = "ADDRESS", help = LISTEN.meaning)]
    listen: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "ADDRESS", help = OPS_LISTEN.meaning)]
    ops_listen: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "DURATION", help = IO_TIMEOUT.meaning)]
    io_timeout: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "LEVEL", help = LOG_LEVEL.meaning)]
    log_level: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "FORMAT", help = LOG_FORMAT.meaning)]
    log_format: Option<String>,
    #[arg(long, allow_hyphen_values = true, value_name = "COUNT", help = SHARDS.meaning)]
    shards: Option<String>,
}

/// A value that a setting cannot take.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: invalid value {value:?}: {problem}")]
pub(crate) struct InvalidSetting {
    /// The flag that the value came from, or the variable with the flag that it stands for.
    source_name: String,
    value: String,
    problem: String,
}

impl ServeSettings {
    /// The settings of flags, and of variables as `variable` knows them.
    pub(crate) fn resolve(
        args: &ServeArgs,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidSetting> {
        Ok(Self {
            listen: LISTEN.parse(&args.listen, &variable, str::parse)?,
            ops_listen: OPS_LISTEN.parse(&args.ops_listen, &variable, empty_or(str::parse))?,
            io_timeout: IO_TIMEOUT.parse(&args.io_timeout, &variable, positive_duration)?,
            log_level: LOG_LEVEL.parse(&args.log_level, &variable, log_level)?,
            log_format: LOG_FORMAT.parse(&args.log_format, &variable, log_format)?,
            shards: SHARDS.parse(&args.shards, &variable, empty_or(shard_count))?,
        })
    }
}

impl Setting {
    fn parse<T>(
        &self,
        flag: &Option<String>,
        variable: impl Fn(&str) -> Option<String>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, InvalidSetting> {
        let (source_name, value) = match flag {
            Some(value) => (self.flag.to_owned(), value.clone()),
            None => match variable(self.variable).filter(|value| !value.is_empty()) {
                Some(value) => (format!("{} ({})", self.variable, self.flag), value),
                None => (self.flag.to_owned(), self.default.to_owned()),
            },
        };
        parse(&value).map_err(|problem| InvalidSetting { source_name, value, problem })
    }
}

/// A variable of this process's environment. What is not Unicode comes out with replacement characters, which
/// no setting takes.
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn empty_or<T>(parse: impl Fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err("the duration must be positive".into()) } else { Ok(duration) }
}

fn log_level(text: &str) -> Result<LogLevel, String> {
    match text {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        "error" => Ok(LogLevel::Error),
        _ => Err("one of debug, info, warn, error is expected".into()),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("one of text, json is expected".into()),
    }
}

fn shard_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= SHARDS_MAX);
    count.ok_or_else(|| format!("a number from 1 to {SHARDS_MAX} is expected"))
}

/// All settings, as the help shows them.
struct Table;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<13} {:<28} {:<13} MEANING", "FLAG", "VARIABLE", "DEFAULT")?;
        for Setting { flag, variable, default, meaning } in SETTINGS {
            writeln!(f, "{flag:<13} {variable:<28} {default:<13} {meaning}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(args: ServeArgs, variables: &[(&str, &str)]) -> Result<ServeSettings, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        ServeSettings::resolve(&args, variable).map_err(|error| error.to_string())
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
    fn a_control_character_in_a_value_does_not_break_the_line() {
        let error = resolve(ServeArgs::default(), &[("MONOLOCK_LOG_LEVEL", "a\nb\u{1b}")]).unwrap_err();
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}
