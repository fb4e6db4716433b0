//! The declaration of a setting, and the arguments of a command made from declarations.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// A flag, and the variable that stands for it on a whole machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag {
    /// As it is documented: `-listen`, `--address`. Both ways to write it are taken.
    pub name: &'static str,
    /// Of the environment.
    pub variable: &'static str,
    /// As a user would write it; empty for none.
    pub default: &'static str,
    /// What stands for its value in the help; empty for a switch, which is on where it is given without one.
    pub value: &'static str,
    /// For the help.
    pub meaning: &'static str,
    /// Names of the flags without which this one means nothing.
    pub needs: &'static [&'static str],
}

impl Flag {
    fn long(&self) -> &'static str {
        self.name.trim_start_matches('-')
    }
}

/// A flag, and how its text is understood.
#[derive(Debug)]
pub struct Setting<T: 'static> {
    /// The flag.
    pub flag: Flag,
    /// What a text means, or what is wrong with it, without the text itself.
    pub parse: fn(&str) -> Result<T, String>,
}

/// The flags of one command.
pub trait FlagSet {
    /// In the order of the help.
    const FLAGS: &'static [&'static Flag];
}

/// The flags of a command as they were given: for `#[command(flatten)]`.
///
/// What follows a flag is its value, also when it begins with a dash: so a mistake in it is reported under
/// the flag's name.
pub struct Flags<S> {
    given: HashMap<&'static str, String>,
    _set: PhantomData<S>,
}

impl<S: FlagSet> Flags<S> {
    /// The text of a flag, if it was given.
    ///
    /// # Panics
    ///
    /// When the command has no such flag.
    pub fn get(&self, flag: &Flag) -> Option<&String> {
        assert!(S::FLAGS.contains(&flag), "{} is a flag of the command", flag.name);
        self.given.get(flag.name)
    }

    /// With one flag more.
    #[must_use]
    pub fn with(mut self, flag: &'static Flag, text: &str) -> Self {
        self.given.insert(flag.name, text.to_owned());
        self
    }
}

impl<S> Default for Flags<S> {
    fn default() -> Self {
        Self { given: HashMap::new(), _set: PhantomData }
    }
}

impl<S> Clone for Flags<S> {
    fn clone(&self) -> Self {
        Self { given: self.given.clone(), _set: PhantomData }
    }
}

impl<S> fmt::Debug for Flags<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.given.fmt(f)
    }
}

impl<S: FlagSet> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for flag in S::FLAGS {
            let text = matches.get_one::<String>(flag.long());
            self.given.extend(text.map(|text| (flag.name, text.clone())));
        }
        Ok(())
    }
}

impl<S: FlagSet> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        command.args(S::FLAGS.iter().map(|flag| argument(flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(flag: &Flag) -> Arg {
    let mut help = format!("{} [env: {}]", flag.meaning, flag.variable);
    if !flag.default.is_empty() {
        help += &format!(" [default: {}]", flag.default);
    }
    let argument = Arg::new(flag.long()).long(flag.long()).help(help);
    if flag.value.is_empty() {
        argument.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        argument.value_name(flag.value).allow_hyphen_values(true)
    }
}
