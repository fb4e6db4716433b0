//! `monolock ha-agent`: the process that outlives the server.

use std::process::ExitCode;

use agent::{Agent, Ended};
use cli::exit;
use logging::Logging;
use tracing::{error, warn};

use super::ending::{fail, unknown_variables};
use crate::settings::{AgentSettings, HA_LISTEN};
use crate::{listener, vital};

/// Watches until a signal ends it.
pub(super) fn watch(settings: &AgentSettings) -> ExitCode {
    vital::install_hook();
    let agent = match Agent::new() {
        Ok(agent) => agent,
        Err(error) => return fail(error.exit_status(), &error.to_string()),
    };
    let _logging = match Logging::start(settings.log_level, settings.log_format) {
        Ok(logging) => logging,
        Err(error) => return fail(exit::OS_ERROR, &format!("cannot start the log's thread: {error}")),
    };
    for name in unknown_variables() {
        warn!(name, "a variable that is none of monolock's: mistyped? monolock --help lists what there is");
    }
    let _ends_the_process = vital::this_thread();
    match agent.run(&settings.config, async |address| listener::bind_all(address, HA_LISTEN.flag.name).await)
    {
        Ok(Ended::InOrder) => ExitCode::SUCCESS,
        Ok(Ended::AtOnce) => ExitCode::from(exit::INTERRUPTED),
        Err(error) => {
            error!("{error}");
            ExitCode::from(error.exit_status())
        }
    }
}
