//! Signals that are ignored: those that a process was started with, and what it passes on.
//!
//! An ignored signal outlives exec: nohup and a shell's background jobs rely on that. Rust's runtime ignores
//! SIGPIPE before `main`, and std gives it back its default in every process that it starts, so neither tells
//! what the parent meant. Here it is looked up before the runtime begins.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The highest signal of Linux.
const LAST: i32 = 64;

static AT_START: AtomicU64 = AtomicU64::new(0);

/// Called by the loader before `main`.
#[used]
// SAFETY: the section holds pointers to functions of this type, which the loader calls once, in the only
// thread.
#[unsafe(link_section = ".init_array")]
static LOOK_UP: extern "C" fn() = look_up;

extern "C" fn look_up() {
    let ignored = (1..=LAST).filter(|&signal| is_ignored(signal));
    AT_START.store(ignored.map(bit).sum(), Ordering::Relaxed);
}

/// A set of signals, all ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ignored(u64);

impl Ignored {
    /// What this process was started with.
    pub fn at_start() -> Self {
        Self(AT_START.load(Ordering::Relaxed))
    }

    /// Signal n as bit n − 1.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The reverse of [`Ignored::bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether this signal is one of them.
    pub fn contains(self, signal: i32) -> bool {
        (1..=LAST).contains(&signal) && self.0 & bit(signal) != 0
    }

    /// Ignores these signals from here on, and gives SIGPIPE its default if it is not one of them: for exec,
    /// which keeps both.
    pub fn apply(self) {
        for signal in (1..=LAST).filter(|&signal| self.contains(signal)) {
            set(signal, libc::SIG_IGN);
        }
        if !self.contains(libc::SIGPIPE) {
            set(libc::SIGPIPE, libc::SIG_DFL);
        }
    }
}

/// Gives SIGCHLD its default, if it is ignored: else the kernel keeps no child for whoever waits for it.
pub fn keep_children() {
    if is_ignored(libc::SIGCHLD) {
        set(libc::SIGCHLD, libc::SIG_DFL);
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set, and `action` has space for what is told. It is written where the call succeeds.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Signals that cannot be set (SIGKILL, the C library's own) stay as they are.
fn set(signal: i32, disposition: libc::sighandler_t) {
    // SAFETY: neither disposition runs code of this process.
    unsafe { libc::signal(signal, disposition) };
}
