//! Where each setting comes from: flag beats variable beats default.

use std::env;

use crate::Setting;

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Flag,
    Variable,
    Default,
}

/// A setting's value as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub setting: &'static Setting,
    pub text: String,
    pub origin: Origin,
    /// The setting takes the value.
    pub is_valid: bool,
}

/// What is wrong with the settings: the operator's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// A value that the setting cannot take.
    #[error("{name}: invalid value {value:?}: {problem}")]
    Value { name: String, value: String, problem: String },
    /// A setting that means nothing without another one.
    #[error("{name} needs {} as well", missing.join(" and "))]
    Alone { name: String, missing: Vec<&'static str> },
}

/// Reads settings one by one, and keeps what was given and what is wrong with it.
pub struct Reader<V> {
    variable: V,
    pub given: Vec<Given>,
    pub mistakes: Vec<Mistake>,
}

impl Given {
    fn new(
        setting: &'static Setting,
        flag: Option<&String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let (text, origin) = match flag {
            Some(text) => (text.clone(), Origin::Flag),
            None => match variable(setting.variable).filter(|text| !text.is_empty()) {
                Some(text) => (text, Origin::Variable),
                None => (setting.default.to_owned(), Origin::Default),
            },
        };
        Self { setting, text, origin, is_valid: true }
    }

    /// The flag that the value came from, or the variable with the flag that it stands for.
    pub fn name(&self) -> String {
        match self.origin {
            Origin::Variable => format!("{} ({})", self.setting.variable, self.setting.flag),
            Origin::Flag | Origin::Default => self.setting.flag.to_owned(),
        }
    }
}

impl<V: Fn(&str) -> Option<String>> Reader<V> {
    pub fn new(variable: V) -> Self {
        Self { variable, given: Vec::new(), mistakes: Vec::new() }
    }

    /// The setting's value; its default after a mistake, so that reading goes on and finds the others.
    pub fn read<T>(
        &mut self,
        setting: &'static Setting,
        flag: Option<&String>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let mut given = Given::new(setting, flag, &self.variable);
        let value = parse(&given.text).unwrap_or_else(|problem| {
            given.is_valid = false;
            self.mistakes.push(Mistake::Value { name: given.name(), value: given.text.clone(), problem });
            parse(setting.default).expect("a default is a valid value")
        });
        self.given.push(given);
        value
    }

    /// What is wrong so far.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// After all have been read: are those there that others need?
    pub fn check_needs(&mut self, needs: &[(&'static Setting, &[&'static Setting])]) {
        let given = |setting: &Setting| {
            self.given.iter().find(|given| given.setting == setting).expect("every setting is read")
        };
        for (setting, needed) in needs {
            let missing: Vec<_> = needed
                .iter()
                .filter(|needed| given(needed).text.is_empty())
                .map(|needed| needed.flag)
                .collect();
            if !given(setting).text.is_empty() && !missing.is_empty() {
                self.mistakes.push(Mistake::Alone { name: given(setting).name(), missing });
            }
        }
    }
}

/// What `monolock run` gives to its command, and what cargo sets when it runs what it has built.
const OTHER_VARIABLES: [&str; 3] = ["MONOLOCK_LOCK", "MONOLOCK_TOKEN", "MONOLOCK_COMMIT"];

/// Variables of the environment that look like ours and are none: most likely mistyped.
pub fn unknown_variables<'s>(known: impl Iterator<Item = &'s Setting> + Clone) -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    unknown_of(names, known)
}

fn unknown_of<'s>(
    names: impl Iterator<Item = String>,
    known: impl Iterator<Item = &'s Setting> + Clone,
) -> Vec<String> {
    let is_known = |name: &String| {
        OTHER_VARIABLES.contains(&name.as_str()) || known.clone().any(|setting| setting.variable == name)
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
        let setting = |variable| Setting { flag: "", variable, default: "", meaning: "" };
        let known = [setting("MONOLOCK_SHARDS"), setting("MONOLOCK_ADDRESS")];
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
