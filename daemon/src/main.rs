//! The `monolock` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    monolock_daemon::main(std::env::args_os())
}
