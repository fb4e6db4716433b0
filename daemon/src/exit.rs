//! Exit statuses, as in sysexits.h.

/// What was asked for is not there.
pub(crate) const NOT_THERE: u8 = 1;

/// The lock that was asked for has another holder by now.
pub(crate) const ANOTHER_HOLDER: u8 = 2;

/// A mistake in flags, variables or arguments: EX_USAGE.
pub(crate) const USAGE: u8 = 64;

/// Something that the system does not offer, io_uring above all: EX_UNAVAILABLE.
pub(crate) const UNAVAILABLE: u8 = 69;

/// An error in monolock itself: EX_SOFTWARE.
pub(crate) const SOFTWARE: u8 = 70;

/// An error of the operating system: EX_OSERR.
pub(crate) const OS_ERROR: u8 = 71;

/// What was said cannot be written: EX_IOERR.
pub(crate) const IO_ERROR: u8 = 74;

/// The other side does not speak as expected: EX_PROTOCOL.
pub(crate) const PROTOCOL: u8 = 76;

/// A file that a setting names cannot be used: EX_CONFIG.
pub(crate) const CONFIG: u8 = 78;

/// Ended at once by a second signal, as a shell reports SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
