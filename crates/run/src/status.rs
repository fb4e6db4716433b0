//! The exit statuses of `monolock run`, besides those of its command: as sysexits.h and the shells have them.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use client::{Error, Loss};
use protocol::Class;
use rustix::process::Signal;

/// The claim was lost while the command ran; the command was stopped, as far as it can be.
pub(crate) use cli::exit::IO_ERROR as LOST;
/// The server refused the claim by a client error, such as a missing authorization, or TLS the other side.
pub(crate) use cli::exit::NO_PERMISSION as REFUSED;
/// The guardian ended before its work was done.
pub(crate) use cli::exit::SOFTWARE as UNGUARDED;
/// The lock was not free in time, an administrator ended the wait, or the server would not serve and there
/// was no time or wish for another attempt. One may succeed, as lockf(1) has it.
pub(crate) use cli::exit::TEMPORARY as NOT_ACQUIRED;
/// No connection to the server, with no time or no wish for another attempt.
pub(crate) use cli::exit::UNAVAILABLE as UNREACHABLE;
use cli::exit::{NOT_EXECUTABLE, NOT_FOUND, SIGNAL_BASE};
pub(crate) use cli::exit::{OS_ERROR, PROTOCOL, USAGE};

/// The statuses, for the help text.
pub(crate) const HELP: &str = "\
Exit status: that of CMD (128 + n if signal n ended it), or
   64  an argument or a variable is invalid
   69  the server cannot be reached: once (--try), or at the end of --wait
   70  the guardian process was killed; CMD was stopped
   71  the operating system refused something, a process or a thread for one
   74  the claim was lost while CMD ran, by a restart of the server for one;
       CMD was stopped, except for what a line names
   75  not acquired: another client holds the lock (--try) or held it until the
       end of --wait: -E changes this status; or an administrator ended the
       wait; or the server does not serve (shutting down, standby)
   76  the server broke the protocol
   77  the server refused the claim (not authorized, for one), or one side does
       not accept the other's certificate, or only one side speaks TLS
  126  CMD cannot be run
  127  CMD was not found
  128+n  signal n came while waiting";

/// For an error before the command was started.
pub(crate) fn of_error(error: &Error) -> u8 {
    match error {
        // One side's certificates are not what the other side accepts.
        Error::Dial { source, .. } if source.kind() == io::ErrorKind::InvalidData => REFUSED,
        Error::Dial { .. } => UNREACHABLE,
        Error::Local { .. } => OS_ERROR,
        Error::Lost(loss) => of_loss_while_waiting(loss),
        Error::InvalidName(_) | Error::InvalidLease => USAGE,
    }
}

/// For a claim that was lost before the command was started.
pub(crate) fn of_loss_while_waiting(loss: &Loss) -> u8 {
    match loss {
        Loss::ConnectionClosed(_) if !loss.is_temporary() => REFUSED,
        Loss::ConnectionClosed(_) | Loss::HeartbeatTimeout => UNREACHABLE,
        Loss::ProtocolViolation(_) => PROTOCOL,
        Loss::Server { code, .. } => match code.class() {
            Class::ServerCondition => NOT_ACQUIRED,
            Class::ClientError => REFUSED,
        },
    }
}

/// For a signal that ended the wait.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    signal_status(signal.as_raw())
}

/// For a command that could not be started.
pub(crate) fn of_spawn_error(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// For a command that ended.
pub(crate) fn of_command(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).expect("an exit status has eight bits"),
        (None, Some(signal)) => signal_status(signal),
        (None, None) => unreachable!("a process that was waited for has exited or was killed"),
    }
}

fn signal_status(signal: i32) -> u8 {
    let signal = u8::try_from(signal).expect("signals go from 1 to 64");
    SIGNAL_BASE + signal
}

#[cfg(test)]
mod tests {
    use super::*;

    use client::{Closed, Violation};
    use protocol::ErrorCode;

    #[test]
    fn the_status_is_that_of_the_command_and_128_more_than_its_signal() {
        assert_eq!(of_command(ExitStatus::from_raw(0)), 0);
        assert_eq!(of_command(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(of_command(ExitStatus::from_raw(15)), 143);
        // With a core dump.
        assert_eq!(of_command(ExitStatus::from_raw(0x80 | 6)), 134);
        assert_eq!(of_signal(Signal::INT), 130);
    }

    #[test]
    fn each_way_not_to_get_the_lock_has_its_status() {
        let server = |code| Loss::Server { code, reason: String::new() };
        assert_eq!(of_loss_while_waiting(&server(ErrorCode::STANDBY)), 75);
        assert_eq!(of_loss_while_waiting(&server(ErrorCode(0x0f))), 75);
        assert_eq!(of_loss_while_waiting(&server(ErrorCode(0x10))), 77);
        assert_eq!(of_loss_while_waiting(&server(ErrorCode::NOT_AUTHORIZED)), 77);
        assert_eq!(of_loss_while_waiting(&Loss::ConnectionClosed(Closed::ByServer)), 69);
        let refused = Closed::Refused(client::Alert(116));
        assert_eq!(of_loss_while_waiting(&Loss::ConnectionClosed(refused)), 77);
        assert_eq!(of_loss_while_waiting(&Loss::ConnectionClosed(Closed::SpeaksTls)), 77);
        assert_eq!(of_loss_while_waiting(&Loss::HeartbeatTimeout), 69);
        assert_eq!(of_loss_while_waiting(&Loss::ProtocolViolation(Violation::Unasked)), 76);
        assert_eq!(of_error(&Error::InvalidLease), 64);
        let source = io::ErrorKind::ConnectionRefused.into();
        assert_eq!(of_error(&Error::Dial { address: String::new(), source }), 69);
        let source = io::ErrorKind::InvalidData.into();
        assert_eq!(of_error(&Error::Dial { address: String::new(), source }), 77);
        let source = io::ErrorKind::WouldBlock.into();
        assert_eq!(of_error(&Error::Local { address: String::new(), source }), 71);
    }

    #[test]
    fn a_missing_command_is_127_and_any_other_that_does_not_start_126() {
        assert_eq!(of_spawn_error(&io::ErrorKind::NotFound.into()), 127);
        assert_eq!(of_spawn_error(&io::ErrorKind::PermissionDenied.into()), 126);
    }
}
