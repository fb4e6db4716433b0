//! Where each setting comes from: flag beats variable beats default.

use std::env;

use crate::{Flag, FlagSet, Flags, Setting};

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Variable,
    /// Its declaration.
    Default,
}

/// A setting's value as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The setting.
    pub flag: &'static Flag,
    /// Its value.
    pub text: String,
    /// From where.
    pub origin: Origin,
    /// The setting takes the value.
    pub is_valid: bool,
}

/// What is wrong with the settings: the operator's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// A value that the setting cannot take.
    #[error("{name}: invalid value {value:?}: {problem}")]
    Value {
        /// The flag or the variable.
        name: String,
        /// As it was given.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Two settings of which a server has one.
    #[error("{name} and {other}: {problem}")]
    Both {
        /// The flag or the variable.
        name: String,
        /// The other one.
        other: &'static str,
        /// Why they do not go together.
        problem: &'static str,
    },
    /// A setting that means nothing without another one.
    #[error("{name} needs {} as well", missing.join(" and "))]
    Alone {
        /// The flag or the variable.
        name: String,
        /// The flags that it needs.
        missing: Vec<&'static str>,
    },
}

/// Reads settings one by one, and keeps what was given and what is wrong with it.
pub struct Reader<'f, S, V> {
    flags: &'f Flags<S>,
    variable: V,
    given: Vec<Given>,
    mistakes: Vec<Mistake>,
}

impl Given {
    /// Something is set by it: an empty text, and a switch that is off, are nothing.
    fn is_on(&self) -> bool {
        let is_switch = self.flag.value.is_empty();
        !(self.text.is_empty() || is_switch && matches!(self.text.as_str(), "false" | "0"))
    }

    /// The flag that the value came from, or the variable with the flag that it stands for.
    pub fn name(&self) -> String {
        match self.origin {
            Origin::Variable => format!("{} ({})", self.flag.variable, self.flag.name),
            Origin::Flag | Origin::Default => self.flag.name.to_owned(),
        }
    }
}

impl<'f, S: FlagSet, V: Fn(&str) -> Option<String>> Reader<'f, S, V> {
    /// Of these flags, and of variables as `variable` knows them.
    pub fn new(flags: &'f Flags<S>, variable: V) -> Self {
        Self { flags, variable, given: Vec::new(), mistakes: Vec::new() }
    }

    /// A setting as it was given.
    pub fn given(&self, flag: &'static Flag) -> Given {
        let variable = || (self.variable)(flag.variable).filter(|text| !text.is_empty());
        let (text, origin) = match self.flags.get(flag) {
            Some(text) => (text.clone(), Origin::Flag),
            None => match variable() {
                Some(text) => (text, Origin::Variable),
                None => (flag.default.to_owned(), Origin::Default),
            },
        };
        Given { flag, text, origin, is_valid: true }
    }

    /// The setting's value; its default after a mistake, so that reading goes on and finds the others.
    pub fn read<T>(&mut self, setting: &'static Setting<T>) -> T {
        let mut given = self.given(&setting.flag);
        let value = (setting.parse)(&given.text).unwrap_or_else(|problem| {
            given.is_valid = false;
            self.mistakes.push(Mistake::Value { name: given.name(), value: given.text.clone(), problem });
            (setting.parse)(setting.flag.default).expect("a default is a valid value")
        });
        self.given.push(given);
        value
    }

    /// Something is wrong with settings that are valid each for itself.
    pub fn mistake(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// What is wrong so far.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// After all have been read: every setting in the order of the help, and what is wrong with them, those
    /// that are there without what they need included.
    ///
    /// # Panics
    ///
    /// When a flag of the command was not read.
    pub fn finish(mut self) -> (Vec<Given>, Vec<Mistake>) {
        let given = |name: &str| {
            let given = self.given.iter().find(|given| given.flag.name == name);
            given.unwrap_or_else(|| panic!("{name} is read"))
        };
        let all: Vec<Given> = S::FLAGS.iter().map(|flag| given(flag.name).clone()).collect();
        let is_given = |given: &&Given| given.origin != Origin::Default && given.is_on();
        let alone = all.iter().filter(is_given).filter_map(|alone| {
            // Another command that shares the setting may do without.
            let is_here = |needed: &&str| S::FLAGS.iter().any(|flag| flag.name == *needed);
            let needs = alone.flag.needs.iter().copied().filter(is_here);
            let missing: Vec<&str> = needs.filter(|needed| !given(needed).is_on()).collect();
            (!missing.is_empty()).then(|| Mistake::Alone { name: alone.name(), missing })
        });
        let alone: Vec<Mistake> = alone.collect();
        self.mistakes.extend(alone);
        (all, self.mistakes)
    }
}

/// What `monolock run` gives to its command, and what cargo sets when it runs what it has built.
const OTHER_VARIABLES: [&str; 3] = ["MONOLOCK_LOCK", "MONOLOCK_TOKEN", "MONOLOCK_COMMIT"];

/// Variables of the environment that look like monolock's and belong to none of these flags: most likely
/// mistyped.
pub fn unknown_variables<'s>(known: impl Iterator<Item = &'s Flag> + Clone) -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    unknown_of(names, known)
}

fn unknown_of<'s>(
    names: impl Iterator<Item = String>,
    known: impl Iterator<Item = &'s Flag> + Clone,
) -> Vec<String> {
    let is_known = |name: &String| {
        OTHER_VARIABLES.contains(&name.as_str()) || known.clone().any(|flag| flag.variable == name)
    };
    let mut unknown: Vec<String> =
        names.filter(|name| name.starts_with("MONOLOCK_") && !is_known(name)).collect();
    unknown.sort();
    unknown
}

/// A variable of this process's environment. What is not Unicode comes out with replacement characters, which
/// no setting takes.
pub fn environment_variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_variable_is_noticed_and_those_of_others_are_not() {
        let flag = |variable| Flag { name: "", variable, default: "", value: "", meaning: "", needs: &[] };
        let known = [flag("MONOLOCK_SHARDS"), flag("MONOLOCK_ADDRESS")];
        let names = [
            "PATH",
            "MONOLOCK_TLS_CLIENTCA",
            "MONOLOCK_TOKEN",
            "MONOLOCK_LISTEN_ADRESS",
            "MONOLOCK_SHARDS",
            "MONOLOCK_ADDRESS",
        ];
        let unknown = unknown_of(names.map(str::to_owned).into_iter(), known.iter());
        assert_eq!(unknown, ["MONOLOCK_LISTEN_ADRESS", "MONOLOCK_TLS_CLIENTCA"]);
    }
}
