//! Exit statuses, as in sysexits.h.

/// What was asked for is not there.
pub const NOT_THERE: u8 = 1;

/// The lock that was asked for has another holder by now.
pub const ANOTHER_HOLDER: u8 = 2;

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

/// The other side does not speak as expected: EX_PROTOCOL.
pub const PROTOCOL: u8 = 76;

/// A file that a setting names cannot be used: EX_CONFIG.
pub const CONFIG: u8 = 78;

/// Ended at once by a second signal, as a shell reports SIGINT.
pub const INTERRUPTED: u8 = 130;
