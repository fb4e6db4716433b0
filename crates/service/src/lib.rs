//! What a process says to a service manager (sd_notify(3)), and the signals by which it is told to end.
//!
//! It decides which signal counts as the second one. What is ended, and when it is ready, its user knows.
//!
//! ```
//! # let runtime = threads::runtime::current_thread()?;
//! # let _context = runtime.enter();
//! let mut signals = service::Signals::new()?;
//! let manager = service::Manager::start()?;
//! manager.ready();
//! let mut ending = std::pin::pin!(signals.next_to_end());
//! # let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
//! assert!(std::future::Future::poll(ending.as_mut(), &mut nobody).is_pending());
//! # std::io::Result::Ok(())
//! ```
#![forbid(unsafe_code)]

mod manager;
mod signals;

pub use manager::Manager;
pub use signals::Signals;
