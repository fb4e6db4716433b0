//! Why this system offers no usable io_uring, and what to do about it.

use std::fmt;
use std::io;

/// The set-up step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creating the ring (`io_uring_setup` with SINGLE_ISSUER, DEFER_TASKRUN, TASKRUN_FLAG and SUBMIT_ALL).
    Setup,
    /// Registering the ring of receive buffers (`IORING_REGISTER_PBUF_RING`).
    BufferRing,
    /// Creating the eventfd that other threads wake the reactor with.
    Eventfd,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "io_uring_setup(SINGLE_ISSUER | DEFER_TASKRUN)",
            Self::BufferRing => "io_uring_register(PBUF_RING)",
            Self::Eventfd => "eventfd",
        })
    }
}

/// The system's refusal, with its remedy. None of these passes by itself.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// ENOSYS.
    #[error(
        "{0}: io_uring is not there (ENOSYS): the kernel is built without CONFIG_IO_URING or a seccomp filter hides it; \
         run on Linux 6.1 or later and allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Missing(Step),
    /// EPERM or EACCES.
    #[error(
        "{0}: io_uring is forbidden (EPERM): set the sysctl kernel.io_uring_disabled to 0 (or to 1 with this user in \
         kernel.io_uring_group), or allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile of \
         the container or service"
    )]
    Forbidden(Step),
    /// EINVAL.
    #[error(
        "{0}: the kernel does not know a flag or feature of this call (EINVAL); Linux 6.1 or later is needed"
    )]
    TooOld(Step),
    /// ENOMEM.
    #[error(
        "{0}: no memory that may be locked (ENOMEM): raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) or the memory limit \
         of the control group"
    )]
    Memory(Step),
    /// Anything else, EMFILE for instance.
    #[error("{step}: {source}")]
    Other {
        /// What failed.
        step: Step,
        /// How.
        source: io::Error,
    },
}

impl Unavailable {
    pub(crate) fn new(step: Step, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSYS) => Self::Missing(step),
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden(step),
            Some(libc::EINVAL) => Self::TooOld(step),
            Some(libc::ENOMEM) => Self::Memory(step),
            _ => Self::Other { step, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_remedy() {
        let text = |errno| Unavailable::new(Step::Setup, io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::ENOSYS).contains("CONFIG_IO_URING"));
        assert!(text(libc::EPERM).contains("kernel.io_uring_disabled"));
        assert!(text(libc::EPERM).contains("seccomp"));
        assert!(text(libc::EINVAL).contains("DEFER_TASKRUN"));
        assert!(text(libc::EINVAL).contains("6.1"));
        assert!(text(libc::ENOMEM).contains("RLIMIT_MEMLOCK"));
        assert!(text(libc::EMFILE).contains("open files"));
    }
}
