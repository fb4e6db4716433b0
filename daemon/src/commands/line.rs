//! The command line: which command, with which settings.

use std::ffi::{CStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use run::{GuardianArgs, RunArgs, RunSettings, StarterArgs};

use super::health::HealthArgs;
use super::operator;
use crate::settings::{AgentArgs, AgentSettings, Reading, ServeArgs, ServeSettings, Table};

const HELP: &str = "\
{about}

Usage: monolock [serve] [FLAGS]      the server
       monolock COMMAND --help       another command

Commands:
{subcommands}

Flags of the server; a flag beats its variable, which beats the default:{after-help}
-h, --help     print this
-V, --version  print the version

-flag and --flag are the same.
";

const SERVE_HELP: &str = "\
{about}

Usage: monolock [serve] [FLAGS]{after-help}";

const CHECK_CONFIG_HELP: &str = "\
{about}

Usage: monolock check-config [FLAGS]

It reads flags and variables as the server does, and the files that they name, and says what a server would use. Addresses
are bound for a moment and a ring is opened and closed; nothing is created or listened on. Each mistake is a line on standard
error. Run it as the user of the server. Exit status: 0, or 78 after a mistake.{after-help}";

/// A lock server: named locks with leases, FIFO queues and fencing tokens.
#[derive(Debug, Parser)]
#[command(
    name = "monolock",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MONOLOCK_COMMIT"), ")"),
    args_conflicts_with_subcommands = true,
    // As with Go's flags, the last one counts: wrappers and unit drop-ins append theirs.
    args_override_self = true,
    disable_help_subcommand = true,
    help_template = HELP,
    after_help = Table.to_string(),
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves locks.
    #[command(args_override_self = true, help_template = SERVE_HELP, after_help = Table.to_string())]
    Serve(ServeArgs),
    /// Checks the settings and files of a server, and opens nothing.
    #[command(args_override_self = true, help_template = CHECK_CONFIG_HELP, after_help = Table.to_string())]
    CheckConfig(ServeArgs),
    #[command(args_override_self = true)]
    Check(HealthArgs),
    Run(RunArgs),
    /// Watches the server of this node, and says for certain when it is gone.
    ///
    /// The server connects to it. It keeps the health file for as long as the server runs, beats and is
    /// ready, and passes the other node's questions to it. A server that does not close when the other
    /// node is promoted is killed; `gone` is said only when its process has ended, nobody listens on its
    /// port, its state lock is free, and the other node's term is stored as promised. The service manager
    /// ends and starts both for themselves. An agent that ends takes the health file with it: on the
    /// active node the address moves.
    ///
    /// It takes the server's variables too, so that one file of them is for both. Signals: HUP reads the
    /// certificates again; TERM and INT end it, after up to 5 s in which it still answers the other node.
    #[command(args_override_self = true)]
    HaAgent(AgentArgs),
    #[command(flatten)]
    Operator(operator::Command),
    #[command(hide = true)]
    RunKeeper(RunArgs),
    #[command(hide = true)]
    RunStarter(StarterArgs),
    #[command(hide = true)]
    RunGuardian(GuardianArgs),
}

/// What the process is asked to be.
#[derive(Debug)]
pub(crate) enum Invocation {
    Serve(ServeSettings),
    CheckConfig(Reading),
    Health(HealthArgs),
    Run(Box<RunSettings>),
    Operator(operator::Command),
    HaAgent(Box<AgentSettings>),
    /// A helper of `monolock run`.
    RunKeeper(Box<RunSettings>),
    /// A helper of `monolock run`.
    RunStarter(StarterArgs),
    /// A helper of `monolock run`.
    RunGuardian(GuardianArgs),
}

impl Invocation {
    /// What ps and pkill(1) call it, where it is no server: `pkill -HUP -x monolock` is for servers, and
    /// would end a run. Who signals all of monolock (`pkill monolock`) means the front and not the keeper.
    pub(crate) fn process_name(&self) -> Option<&'static CStr> {
        match self {
            Self::Serve(_) => None,
            Self::CheckConfig(_) | Self::Health(_) | Self::Operator(_) => Some(c"monolock-cli"),
            Self::HaAgent(_) => Some(c"monolock-agent"),
            Self::Run(_) | Self::RunStarter(_) => Some(c"monolock-run"),
            Self::RunKeeper(_) => Some(c"lock-keeper"),
            Self::RunGuardian(_) => Some(c"monolock-guard"),
        }
    }
}

/// Why the process ends without doing anything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// This was asked for: it goes to standard output, exit status 0.
    Information(String),
    /// One line for standard error, exit status 64.
    Usage(String),
}

/// Understands the command line, and the variables for what it leaves open.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Invocation, Ending> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = Cli::try_parse_from(normalised(&arguments)).map_err(|error| ending(&error, &arguments))?;
    let serve = match cli.command {
        Some(Command::Run(args)) => return Ok(Invocation::Run(run_settings(args, variable)?)),
        Some(Command::Check(args)) => return Ok(Invocation::Health(args)),
        Some(Command::HaAgent(args)) => {
            let settings = AgentSettings::read(&args, variable).map_err(Ending::Usage)?;
            return Ok(Invocation::HaAgent(Box::new(settings)));
        }
        Some(Command::Operator(command)) => return Ok(Invocation::Operator(command)),
        Some(Command::RunKeeper(args)) => return Ok(Invocation::RunKeeper(run_settings(args, variable)?)),
        Some(Command::RunStarter(args)) => return Ok(Invocation::RunStarter(args)),
        Some(Command::RunGuardian(args)) => return Ok(Invocation::RunGuardian(args)),
        Some(Command::CheckConfig(args)) => {
            return Ok(Invocation::CheckConfig(Reading::new(&args, variable)));
        }
        Some(Command::Serve(args)) => args,
        None => cli.serve,
    };
    let settings = Reading::new(&serve, variable).settings();
    settings.map(Invocation::Serve).map_err(|mistake| Ending::Usage(mistake.to_string()))
}

fn run_settings(
    args: RunArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Box<RunSettings>, Ending> {
    RunSettings::read(args, variable).map(Box::new).map_err(Ending::Usage)
}

/// The arguments with each long flag of Go's style, `-flag` or `-flag=value`, in GNU style; only before a
/// `--`.
fn normalised(arguments: &[OsString]) -> Vec<OsString> {
    let mut cli = Cli::command();
    // Adds what clap makes itself: help and version.
    cli.build();
    let names: Vec<&str> = std::iter::once(&cli)
        .chain(cli.get_subcommands())
        .flat_map(|command| command.get_arguments())
        .filter_map(|argument| argument.get_long())
        .collect();
    let flags_end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (flags, rest) = arguments.split_at(flags_end);
    let flags = flags.iter().map(|argument| {
        let name = argument.to_str().and_then(|text| text.strip_prefix('-')?.split('=').next());
        match name {
            Some(name) if names.contains(&name) => {
                let mut gnu = OsString::from("-");
                gnu.push(argument);
                gnu
            }
            _ => argument.clone(),
        }
    });
    flags.chain(rest.iter().cloned()).collect()
}

fn ending(error: &clap::Error, arguments: &[OsString]) -> Ending {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ending::Information(error.to_string()),
        ErrorKind::UnknownArgument => Ending::Usage(unknown_argument(error, arguments)),
        ErrorKind::InvalidSubcommand => Ending::Usage(unknown_command(error)),
        _ => Ending::Usage(one_line(&error.to_string())),
    }
}

/// Names the argument as it was given: clap takes `-abc` for the short flag `-a`.
fn unknown_argument(error: &clap::Error, arguments: &[OsString]) -> String {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return one_line(&error.to_string());
    };
    let given = || arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    let in_cluster = |argument: &str| match (argument.strip_prefix('-'), unknown.strip_prefix('-')) {
        (Some(letters), Some(letter)) => !letters.starts_with('-') && letters.contains(letter),
        _ => false,
    };
    let given = given()
        .find(|argument| argument.starts_with(unknown.as_str()))
        .or_else(|| given().find(|argument| in_cluster(argument)));
    let given = given.as_deref().unwrap_or(unknown);
    let kind = if given.starts_with('-') { "flag" } else { "argument" };
    let cli = Cli::command();
    let command = arguments.get(1).and_then(|first| cli.find_subcommand(first));
    match command.map(clap::Command::get_name) {
        Some("run") if kind == "argument" => {
            format!("unknown argument {given:?}: write -- before the command, as in monolock run NAME -- CMD")
        }
        Some(command) => format!("unknown {kind} {given:?}; monolock {command} --help lists what there is"),
        None => format!("unknown {kind} {given:?}; monolock --help lists what there is"),
    }
}

fn unknown_command(error: &clap::Error) -> String {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(unknown)) => {
            format!("unknown command {unknown:?}; monolock --help lists what there is")
        }
        _ => one_line(&error.to_string()),
    }
}

/// The first paragraph of a message of clap's.
fn one_line(message: &str) -> String {
    let lines = message.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty());
    lines.map(|line| line.trim().replace(char::is_control, "\u{fffd}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn os(words: &[&str]) -> Vec<OsString> {
        ["monolock"].iter().chain(words).map(OsString::from).collect()
    }

    fn parsed(words: &[&str]) -> Result<Invocation, Ending> {
        parse(os(words), |_| None)
    }

    fn served(words: &[&str]) -> ServeSettings {
        match parsed(words) {
            Ok(Invocation::Serve(settings)) => settings,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn usage(words: &[&str]) -> String {
        match parsed(words) {
            Err(Ending::Usage(line)) => line,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn flags_are_taken_in_the_style_of_go_and_in_that_of_gnu_with_and_without_serve() {
        for words in [
            ["-io-timeout=250ms", "-listen", ":7071"],
            ["--io-timeout=250ms", "--listen", ":7071"],
            ["-listen=:7071", "-io-timeout", "250ms"],
        ] {
            for settings in [served(&words), served(&[&["serve"], &words[..]].concat())] {
                assert_eq!(settings.listen.to_string(), ":7071");
                assert_eq!(settings.io_timeout, Duration::from_millis(250));
            }
        }
    }

    #[test]
    fn nothing_after_two_dashes_is_touched() {
        let words = os(&["run", "-listen", "name", "--", "cmd", "-listen", "--", "-help"]);
        let mut expected = words.clone();
        expected[2] = "--listen".into();
        assert_eq!(normalised(&words), expected);
    }

    #[test]
    fn only_known_long_flags_are_made_gnu_style() {
        let words = os(&["-h", "-V", "-lis", "-listenx", "-", "---listen", "-=x", "listen"]);
        assert_eq!(normalised(&words), words);
        assert_eq!(normalised(&os(&["-help", "-version"])), os(&["--help", "--version"]));
    }

    #[test]
    fn a_mistake_is_one_line_that_names_what_was_given() {
        for (words, name) in [
            (&["-lisen", ":1"][..], "\"-lisen\""),
            (&["--lisen=:1"], "\"--lisen"),
            (&["-x"], "\"-x\""),
            (&["run", "-name", "--", "true"], "\"-name\""),
            (&["serve", "extra"], "extra"),
            (&["extra"], "extra"),
            (&["-listen"], "--listen"),
            (&["-listen", ":1", "serve"], "serve"),
            (&["-io-timeout", "5x"], "-io-timeout: invalid value \"5x\""),
            (&["-e\nvil"], "\"-e\\nvil\""),
            (&["run"], "NAME is missing"),
        ] {
            let line = usage(words);
            assert!(line.contains(name), "{words:?}: {line}");
            assert!(!line.contains(char::is_control), "{words:?}: {line:?}");
        }
    }

    #[test]
    fn help_shows_each_flag_with_its_variable_and_default() {
        for words in [&["-h"][..], &["-help"], &["--help"], &["serve", "-h"]] {
            let Err(Ending::Information(help)) = parsed(words) else { panic!("{words:?}") };
            let row = help.lines().find(|line| line.starts_with("-listen")).expect("a row for -listen");
            assert!(row.contains("MONOLOCK_LISTEN_ADDRESS") && row.contains("0.0.0.0:7070"), "{row}");
            // Not wrapped: clap wraps at 100 columns.
            assert!(help.contains(&Table.to_string()), "{help}");
        }
        let Err(Ending::Information(version)) = parsed(&["-version"]) else { panic!() };
        assert!(version.starts_with(concat!("monolock ", env!("CARGO_PKG_VERSION"))), "{version}");
    }

    #[test]
    fn the_definitions_agree_with_each_other() {
        Cli::command().debug_assert();
    }
}
