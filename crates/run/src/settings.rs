//! What `monolock run` is told. A flag that is the same for a whole machine has a variable: flag beats
//! variable beats default.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use cli::Reader;
use protocol::{Acquire, LockName};

use super::args::RunArgs;
use super::flags::{ADDRESS, KILL_AFTER, LEASE};
use super::queue::Talk;
use super::tls::TlsFiles;

/// The shell of `-c` where $SHELL is not set.
const SHELL: &str = "/bin/sh";

/// How long the lock may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Endless,
    For(Duration),
    OneAnswer,
}

/// All that a run is told.
#[derive(Debug, PartialEq, Eq)]
pub struct RunSettings {
    pub(super) acquire: Acquire,
    pub(super) command: Vec<OsString>,
    pub(super) wait: Wait,
    /// The exit status that was chosen for a lock that another client holds.
    pub(super) taken: Option<u8>,
    /// `None`: as standard error is a terminal or not.
    pub(super) talk: Option<Talk>,
    pub(super) kill_after: Option<Duration>,
    pub(super) address: String,
    pub(super) tls: Option<TlsFiles>,
}

/// What every message names: the lock and the server.
impl fmt::Display for RunSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.acquire.name.as_str(), self.address)
    }
}

impl RunSettings {
    /// Reads flags, and variables as `variable` knows them.
    ///
    /// # Errors
    ///
    /// The first mistake, in one line that names the flag or the variable.
    pub fn read(args: RunArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut reader = Reader::new(&args.flags, variable);
        let address = reader.read(&ADDRESS);
        let lease = reader.read(&LEASE);
        let kill_after = reader.read(&KILL_AFTER);
        if let Some(mistake) = reader.mistakes().first() {
            return Err(mistake.to_string());
        }
        let tls = TlsFiles::given(&reader)?;
        let wait = match args.wait {
            None if !args.try_once => Wait::Endless,
            // As flock(1) has it.
            None | Some(Duration::ZERO) => Wait::OneAnswer,
            Some(wait) => Wait::For(wait),
        };
        let talk = match (args.verbose, args.quiet) {
            (true, _) => Some(Talk::All),
            (false, true) => Some(Talk::Faults),
            (false, false) => None,
        };
        let taken = args.conflict_exit_code;
        let (name, command) = name_and_command(args.name, args.script, args.command)?;
        let acquire = Acquire { name, lease };
        Ok(Self { acquire, command, wait, taken, talk, kill_after, address, tls })
    }
}

/// NAME stands before a `--` and CMD after it. Where NAME begins with a dash, it has a `--` before it, too.
fn name_and_command(
    name: Option<String>,
    script: Option<OsString>,
    mut after_dashes: Vec<OsString>,
) -> Result<(LockName, Vec<OsString>), String> {
    let is_named = name.is_some();
    let name = match name {
        Some(name) => name,
        None => name_after_dashes(&mut after_dashes, script.is_some())?,
    };
    let name = LockName::new(&name).map_err(|code| client::Error::InvalidName(code).to_string())?;
    let command = match (script, after_dashes.is_empty()) {
        (None, false) => after_dashes,
        (None, true) => {
            return Err("CMD is missing: monolock run NAME -- CMD, or NAME -c 'SHELL COMMAND'".into());
        }
        (Some(script), true) => vec![shell(env::var_os("SHELL")), "-c".into(), script],
        (Some(_), false) if is_named => return Err("-c and CMD after -- exclude each other".into()),
        (Some(_), false) => return Err("after -c SCRIPT -- there is NAME and nothing else".into()),
    };
    Ok((name, command))
}

fn name_after_dashes(after_dashes: &mut Vec<OsString>, has_script: bool) -> Result<String, String> {
    let missing =
        "NAME is missing: monolock run NAME -- CMD; if NAME begins with a dash: monolock run -- NAME -- CMD";
    let has_dashes = after_dashes.get(1).is_some_and(|word| word == "--");
    if after_dashes.is_empty() || !has_dashes && !has_script {
        return Err(missing.into());
    }
    let name = after_dashes.remove(0);
    if has_dashes {
        after_dashes.remove(0);
    }
    name.into_string().map_err(|_| "invalid lock name: it is not UTF-8".into())
}

/// As flock(1) has it: the user's own shell.
fn shell(of_user: Option<OsString>) -> OsString {
    of_user.filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    use clap::Parser;
    use cli::FlagSet;

    use crate::flags::Run;

    #[derive(Debug, Parser)]
    #[command(args_override_self = true)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn read(words: &[&str], variables: &[(&str, &str)]) -> Result<RunSettings, String> {
        let line = Line::try_parse_from(["run"].iter().chain(words)).expect("clap takes it");
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        RunSettings::read(line.run, variable)
    }

    fn run(variables: &[(&str, &str)]) -> RunSettings {
        read(&["x", "--", "true"], variables).unwrap()
    }

    fn words(command: &[OsString]) -> Vec<&str> {
        command.iter().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn each_flag_of_a_machine_has_a_variable_that_it_beats_and_an_empty_one_is_unset() {
        let variables = [
            ("MONOLOCK_LEASE", "20s"),
            ("MONOLOCK_KILL_AFTER", "2s"),
            ("MONOLOCK_ADDRESS", "b:2"),
            ("MONOLOCK_TLS_CA", "ca"),
            ("MONOLOCK_TLS_CERT", "cert"),
            ("MONOLOCK_TLS_KEY", "key"),
            ("MONOLOCK_TLS_SERVER_NAME", "name"),
        ];
        assert!(variables.iter().map(|(name, _)| *name).eq(Run::FLAGS.iter().map(|flag| flag.variable)));
        let by_variables = run(&variables);
        let given: Vec<&str> =
            Run::FLAGS.iter().zip(&variables).flat_map(|(flag, (_, value))| [flag.name, value]).collect();
        // A variable that a flag beats may say anything.
        let wrong = variables.map(|(name, _)| (name, "\u{fffd} :"));
        let by_flags = read(&[&given[..], &["x", "--", "true"]].concat(), &wrong).unwrap();
        for settings in [&by_variables, &by_flags] {
            assert_eq!(settings.address, "b:2");
            assert_eq!(settings.acquire.lease.as_ms(), 20_000);
            assert_eq!(settings.kill_after, Some(Duration::from_secs(2)));
            assert!(settings.tls.is_some());
        }
        let empty = run(&variables.map(|(name, _)| (name, "")));
        assert_eq!((empty.address.as_str(), empty.acquire.lease.as_ms()), ("127.0.0.1:7070", 10_000));
        assert_eq!((empty.kill_after, &empty.tls), (None, &None));
        assert_eq!(empty, run(&[]));
    }

    #[test]
    fn a_bad_value_is_reported_under_the_name_that_it_came_by() {
        for (flag, variable, value) in [
            ("--address", "MONOLOCK_ADDRESS", "b"),
            ("--lease", "MONOLOCK_LEASE", "5"),
            ("--lease", "MONOLOCK_LEASE", "0"),
            ("--lease", "MONOLOCK_LEASE", "1200h"),
            ("--kill-after", "MONOLOCK_KILL_AFTER", "soon"),
        ] {
            let problem = read(&["x", "--", "true"], &[(variable, value)]).unwrap_err();
            assert!(
                problem.starts_with(&format!("{variable} ({flag}): invalid value {value:?}: ")),
                "{problem}"
            );
            let problem = read(&[flag, value, "x", "--", "true"], &[]).unwrap_err();
            assert!(problem.starts_with(&format!("{flag}: invalid value {value:?}: ")), "{problem}");
        }
        assert!(read(&["--lease", "", "x", "--", "true"], &[]).is_err());
        // An empty flag unsets its variable, where the setting may be unset.
        let unset = read(&["--kill-after", "", "x", "--", "true"], &[("MONOLOCK_KILL_AFTER", "2s")]);
        assert_eq!(unset.unwrap().kill_after, None);
    }

    #[test]
    fn the_servers_own_certificate_in_the_environment_is_not_taken_for_ours() {
        let of_server =
            [("MONOLOCK_TLS_CERT", "cert"), ("MONOLOCK_TLS_KEY", "key"), ("MONOLOCK_TLS_CLIENT_CA", "ca")];
        assert_eq!(run(&of_server).tls, None);
        // Beside a CA of our own it is ours, unless the flags take it away.
        let with_ca = |flags: &[&str]| {
            read(&[&["--tls-ca", "ca"], flags, &["x", "--", "true"]].concat(), &of_server)
                .unwrap()
                .tls
                .unwrap()
        };
        assert!(with_ca(&[]).has_identity());
        assert!(!with_ca(&["--tls-cert", "", "--tls-key", ""]).has_identity());
    }

    #[test]
    fn a_tls_setting_without_what_it_needs_is_one_line_that_names_both() {
        for (flags, variables, line) in [
            (&["--tls-cert", "c"][..], &[][..], "--tls-cert needs --tls-ca (MONOLOCK_TLS_CA) as well"),
            (&["--tls-key", "k"], &[], "--tls-key needs --tls-ca (MONOLOCK_TLS_CA) as well"),
            (&["--tls-server-name", "n"], &[], "--tls-server-name needs --tls-ca (MONOLOCK_TLS_CA) as well"),
            (
                &["--tls-ca", "a", "--tls-cert", "c"],
                &[],
                "--tls-cert needs --tls-key (MONOLOCK_TLS_KEY) as well",
            ),
            (
                &[],
                &[("MONOLOCK_TLS_CA", "a"), ("MONOLOCK_TLS_KEY", "k")],
                "MONOLOCK_TLS_KEY (--tls-key) needs --tls-cert (MONOLOCK_TLS_CERT) as well",
            ),
            (
                &[],
                &[("MONOLOCK_TLS_SERVER_NAME", "n")],
                "MONOLOCK_TLS_SERVER_NAME (--tls-server-name) needs --tls-ca (MONOLOCK_TLS_CA) as well",
            ),
        ] {
            let problem = read(&[flags, &["x", "--", "true"]].concat(), variables).unwrap_err();
            assert_eq!(problem, line);
        }
    }

    #[test]
    fn a_name_stands_before_the_dashes_of_the_command_and_may_have_dashes_of_its_own() {
        for line in [&["x", "--", "a", "-b", "--"][..], &["--", "x", "--", "a", "-b", "--"]] {
            let settings = read(line, &[]).unwrap();
            assert_eq!(settings.acquire.name.as_str(), "x");
            assert_eq!(words(&settings.command), ["a", "-b", "--"]);
        }
        let settings = read(&["--lease", "2s", "--", "--lease", "--", "--", "a"], &[]).unwrap();
        assert_eq!((settings.acquire.name.as_str(), settings.acquire.lease.as_ms()), ("--lease", 2000));
        assert_eq!(words(&settings.command), ["--", "a"]);
        for line in [&["-c", "s", "--", "-x"][..], &["-c", "s", "--", "-x", "--"]] {
            let settings = read(line, &[]).unwrap();
            assert_eq!(settings.acquire.name.as_str(), "-x");
            assert_eq!(words(&settings.command)[1..], ["-c", "s"]);
        }
    }

    #[test]
    fn a_line_without_name_or_command_or_with_two_says_so() {
        for (line, names) in [
            (&[][..], "NAME is missing"),
            (&["--"], "NAME is missing"),
            (&["--", "true"], "NAME is missing"),
            // Not a name with an option behind it: nobody wants to run `--all`.
            (&["--", "backup", "--all"], "NAME is missing"),
            (&["-c", "s"], "NAME is missing"),
            (&["x"], "CMD is missing"),
            (&["x", "--"], "CMD is missing"),
            (&["--", "-x", "--"], "CMD is missing"),
            (&["x", "-c", "s", "--", "true"], "exclude each other"),
            (&["-c", "s", "--", "x", "true"], "NAME and nothing else"),
            (&["--", "", "--", "true"], "invalid lock name"),
        ] {
            let problem = read(line, &[]).unwrap_err();
            assert!(problem.contains(names), "{line:?}: {problem}");
        }
    }

    #[test]
    fn a_script_is_for_the_users_shell_or_for_sh() {
        assert_eq!(shell(Some("/bin/bash".into())), "/bin/bash");
        assert_eq!(shell(Some("".into())), "/bin/sh");
        assert_eq!(shell(None), "/bin/sh");
        let settings = read(&["x", "-c", "a && b"], &[]).unwrap();
        assert_eq!(words(&settings.command)[1..], ["-c", "a && b"]);
        assert_eq!(words(&read(&["x", "-c", "-l"], &[]).unwrap().command)[1..], ["-c", "-l"]);
    }

    #[test]
    fn how_long_is_waited_and_how_much_is_said_is_chosen_by_flags() {
        let with = |flags: &[&str]| read(&[flags, &["x", "--", "true"]].concat(), &[]).unwrap();
        assert_eq!(with(&[]).wait, Wait::Endless);
        for once in [&["--try"][..], &["-n"], &["--wait", "0"], &["-w0s"]] {
            assert_eq!(with(once).wait, Wait::OneAnswer, "{once:?}");
        }
        assert_eq!(with(&["-w", "5s"]).wait, Wait::For(Duration::from_secs(5)));
        assert_eq!(
            (with(&[]).talk, with(&["-q"]).talk, with(&["-v"]).talk),
            (None, Some(Talk::Faults), Some(Talk::All))
        );
        assert_eq!((with(&[]).taken, with(&["-E", "0"]).taken), (None, Some(0)));
    }
}
