//! `monolock serve`: the server.

use std::process::ExitCode;

use cli::exit;
use logging::Logging;
use tracing::{error, warn};

use super::ending::{fail, unknown_variables};
use crate::boot::{Control, Shutdown};
use crate::settings::ServeSettings;
use crate::vital;

/// Serves until a signal ends it.
pub(super) fn serve(settings: &ServeSettings) -> ExitCode {
    vital::install_hook();
    let control = match Control::new() {
        Ok(control) => control,
        Err(error) => return fail(error.exit_status(), &error.to_string()),
    };
    let _logging = match Logging::start(settings.log_level, settings.log_format) {
        Ok(logging) => logging,
        Err(error) => return fail(exit::OS_ERROR, &format!("cannot start the log's thread: {error}")),
    };
    for name in unknown_variables() {
        warn!(name, "a variable that is none of monolock's: mistyped? monolock --help lists what there is");
    }
    match control.serve(settings) {
        Ok(Shutdown::InOrder) => ExitCode::SUCCESS,
        Ok(Shutdown::AtOnce) => ExitCode::from(exit::INTERRUPTED),
        Err(error) => {
            error!("{error}");
            ExitCode::from(error.exit_status())
        }
    }
}
