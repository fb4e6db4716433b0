//! Exit statuses, as in sysexits.h.

/// A mistake in flags, variables or arguments: EX_USAGE.
pub(crate) const USAGE: u8 = 64;

/// Something that the system does not offer, io_uring above all: EX_UNAVAILABLE.
pub(crate) const UNAVAILABLE: u8 = 69;

/// An error of the operating system: EX_OSERR.
pub(crate) const OS_ERROR: u8 = 71;

/// A file that a setting names cannot be used: EX_CONFIG.
pub(crate) const CONFIG: u8 = 78;

/// Ended at once by a second signal, as a shell reports SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
