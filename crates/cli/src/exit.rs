//! Every exit status of the programs here: those of sysexits.h, and those of the shells.

/// Done.
pub const SUCCESS: u8 = 0;

/// What was asked for is not there.
pub const NOT_THERE: u8 = 1;

/// The lock that was asked for has another holder by now.
pub const ANOTHER_HOLDER: u8 = 2;

/// Nobody knows whether a node is active, or what came of a command to it.
pub const UNKNOWN: u8 = 2;

/// Clients should not be sent to the server.
pub const DO_NOT_SERVE: u8 = 1;

/// Whether clients should be sent to the server could not be told.
pub const COULD_NOT_TELL: u8 = 2;

/// A mistake in flags, variables or arguments: EX_USAGE.
pub const USAGE: u8 = 64;

/// Something that the system does not offer, io_uring above all: EX_UNAVAILABLE.
pub const UNAVAILABLE: u8 = 69;

/// An error in monolock itself: EX_SOFTWARE.
pub const SOFTWARE: u8 = 70;

/// An error of the operating system: EX_OSERR.
pub const OS_ERROR: u8 = 71;

/// What was said cannot be written: EX_IOERR.
pub const IO_ERROR: u8 = 74;

/// One more attempt may succeed: EX_TEMPFAIL.
pub const TEMPORARY: u8 = 75;

/// The other side does not speak as expected: EX_PROTOCOL.
pub const PROTOCOL: u8 = 76;

/// The other side does not let us, or we not it: EX_NOPERM.
pub const NO_PERMISSION: u8 = 77;

/// A file that a setting names cannot be used: EX_CONFIG.
pub const CONFIG: u8 = 78;

/// A command was found and cannot be run, as the shells have it.
pub const NOT_EXECUTABLE: u8 = 126;

/// A command was not found, as the shells have it.
pub const NOT_FOUND: u8 = 127;

/// Added to the number of the signal that ended something, as the shells have it.
pub const SIGNAL_BASE: u8 = 128;

/// Ended at once by a second signal, as a shell reports SIGINT.
pub const INTERRUPTED: u8 = SIGNAL_BASE + 2;
