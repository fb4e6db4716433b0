//! What `monolock ha-agent` is told. Where the server has the same setting, it has the same variable: one
//! file of variables is for both.

use std::path::PathBuf;

use agent::Config;
use cli::values::optional_path;
use cli::{Flag, FlagSet, Flags, Reader, Setting};
use logging::{LogFormat, LogLevel};

use super::table::{
    FENCER, HA_AGENT, HA_ALLOW, HA_CA, HA_CERT, HA_KEY, HA_LISTEN, HA_STATE, LISTEN, LOG_FORMAT, LOG_LEVEL,
    NODE_ID, PEER,
};

/// Where systemd has made a folder for the agent.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

pub(crate) const HEALTH_FILE: Setting<Option<PathBuf>> = Setting {
    flag: Flag {
        name: "-health-file",
        variable: "MONOLOCK_HEALTH_FILE",
        default: "",
        value: "PATH",
        meaning: "It is there, with a 1, while this node is fit to have the address; without it health in \
                  $RUNTIME_DIRECTORY",
        needs: &[],
    },
    parse: optional_path,
};

/// The flags of `monolock ha-agent`.
#[derive(Debug, Clone)]
pub(crate) struct HaAgent;

impl FlagSet for HaAgent {
    const FLAGS: &'static [&'static Flag] = &[
        &NODE_ID.flag,
        &PEER.flag,
        &HA_STATE.flag,
        &HA_LISTEN.flag,
        &HA_CERT.flag,
        &HA_KEY.flag,
        &HA_CA.flag,
        &HA_ALLOW.flag,
        &FENCER.flag,
        &LISTEN.flag,
        &HA_AGENT.flag,
        &HEALTH_FILE.flag,
        &LOG_LEVEL.flag,
        &LOG_FORMAT.flag,
    ];
}

/// The agent's flags, as given.
pub(crate) type AgentArgs = Flags<HaAgent>;

/// All that an agent is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AgentSettings {
    pub(crate) config: Config,
    pub(crate) log_level: LogLevel,
    pub(crate) log_format: LogFormat,
}

impl AgentSettings {
    /// Reads flags, and variables as `variable` knows them.
    ///
    /// # Errors
    ///
    /// The first mistake, in one line that names the flag or the variable.
    pub(crate) fn read(args: &AgentArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let directory = runtime_directory(variable(RUNTIME_DIRECTORY));
        let mut reader = Reader::new(args, variable);
        let (node, peer, state) = (reader.read(&NODE_ID), reader.read(&PEER), reader.read(&HA_STATE));
        let (listen, cert, key) = (reader.read(&HA_LISTEN), reader.read(&HA_CERT), reader.read(&HA_KEY));
        let (authorities, allow) = (reader.read(&HA_CA), reader.read(&HA_ALLOW));
        let (fencers, served) = (reader.read(&FENCER), reader.read(&LISTEN));
        let (socket, health_file) = (reader.read(&HA_AGENT), reader.read(&HEALTH_FILE));
        let (log_level, log_format) = (reader.read(&LOG_LEVEL), reader.read(&LOG_FORMAT));
        let (_, mistakes) = reader.finish();
        if let Some(mistake) = mistakes.first() {
            return Err(mistake.to_string());
        }
        let in_directory = |name: &str| directory.as_ref().map(|directory| directory.join(name));
        let peer = required(peer, &PEER.flag)?.id;
        let config = Config {
            socket: required(socket.or_else(|| in_directory("agent.sock")), &HA_AGENT.flag)?,
            health_file: required(health_file.or_else(|| in_directory("health")), &HEALTH_FILE.flag)?,
            state: required(state, &HA_STATE.flag)?,
            node: required(node, &NODE_ID.flag)?,
            fencers,
            // Of a port that the system chooses only the server knows, and says it.
            ports: Some(served.port()).filter(|&port| port != 0).into_iter().collect(),
            listen: required(listen, &HA_LISTEN.flag)?,
            cert: required(cert, &HA_CERT.flag)?,
            key: required(key, &HA_KEY.flag)?,
            authorities: required(authorities, &HA_CA.flag)?,
            allow: if allow.is_empty() { vec![peer.as_str().to_owned()] } else { allow },
            peer,
        };
        if config.node == config.peer {
            return Err(format!("{} and {} name the same node", NODE_ID.flag.name, PEER.flag.name));
        }
        Ok(Self { config, log_level, log_format })
    }
}

fn required<T>(value: Option<T>, flag: &Flag) -> Result<T, String> {
    value.ok_or_else(|| missing(flag))
}

fn missing(flag: &Flag) -> String {
    format!("{} ({}) is missing", flag.name, flag.variable)
}

/// Several folders of a unit stand with colons between them.
fn runtime_directory(variable: Option<String>) -> Option<PathBuf> {
    let first = variable?.split(':').next().map(PathBuf::from)?;
    Some(first).filter(|directory| directory.is_absolute())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const ALL: [(&str, &str); 8] = [
        ("MONOLOCK_NODE_ID", "a"),
        ("MONOLOCK_PEER", "b=10.0.0.2:7072,10.1.0.2:7072"),
        ("MONOLOCK_HA_STATE", "/var/lib/monolock"),
        ("MONOLOCK_HA_LISTEN_ADDRESS", "10.0.0.1:7072"),
        ("MONOLOCK_HA_CERT", "/etc/a.pem"),
        ("MONOLOCK_HA_KEY", "/etc/a.key"),
        ("MONOLOCK_HA_CA", "/etc/ca.pem"),
        ("MONOLOCK_HA_ALLOW", "b, b.example"),
    ];

    fn read(variables: &[(&str, &str)]) -> Result<AgentSettings, String> {
        let variable = |name: &str| {
            variables.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        AgentSettings::read(&AgentArgs::default(), variable)
    }

    #[test]
    fn the_servers_variables_are_enough_under_a_unit() {
        let variables = [&ALL[..], &[(RUNTIME_DIRECTORY, "/run/monolock-ha-agent:/run/other")]].concat();
        let config = read(&variables).unwrap().config;
        assert_eq!(config.socket, Path::new("/run/monolock-ha-agent/agent.sock"));
        assert_eq!(config.health_file, Path::new("/run/monolock-ha-agent/health"));
        assert_eq!((config.node.as_str(), config.peer.as_str(), &config.ports[..]), ("a", "b", &[7070][..]));
        assert_eq!(config.allow, ["b", "b.example"]);
        assert!(config.fencers.is_peer_only());
    }

    #[test]
    fn what_is_missing_or_wrong_is_one_line_that_names_it() {
        let paths = [("MONOLOCK_HA_AGENT", "/a.sock"), ("MONOLOCK_HEALTH_FILE", "/health")];
        let whole = [&ALL[..], &paths].concat();
        assert!(read(&whole).is_ok());
        for (index, (variable, _)) in whole.iter().enumerate() {
            // Without it the other node's name counts.
            if *variable == "MONOLOCK_HA_ALLOW" {
                continue;
            }
            let mut some = whole.clone();
            some.remove(index);
            let problem = read(&some).unwrap_err();
            assert!(
                problem.contains(&format!("({variable}) is missing")) || problem.contains(" as well"),
                "{problem}"
            );
        }
        for (variable, value, says) in [
            ("MONOLOCK_NODE_ID", "-a", "is no node id"),
            ("MONOLOCK_PEER", "a=10.0.0.2:7072", "name the same node"),
            ("MONOLOCK_FENCER", "exec:/a", "the first fence level is `peer`"),
            ("MONOLOCK_HA_ALLOW", "b,", "a name is empty"),
        ] {
            let problem = read(&[&whole[..], &[(variable, value)]].concat()).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }
}
