//! The log of a test's thread, to look at.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{self, DefaultGuard, NoSubscriber};

/// What this thread logs, without times, for as long as the value lives.
pub struct Diagnostics {
    log: Arc<Mutex<Vec<u8>>>,
    /// While there is only one subscriber, a log statement that another thread reaches first is turned off
    /// for all.
    _second: Dispatch,
    _guard: DefaultGuard,
}

impl Default for Diagnostics {
    fn default() -> Self {
        Self::new()
    }
}

impl Diagnostics {
    /// Catches what this thread logs from now on.
    pub fn new() -> Self {
        let log = Arc::default();
        let to = Arc::clone(&log);
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_writer(move || Tee(Arc::clone(&to)))
            .finish();
        let second = Dispatch::new(NoSubscriber::new());
        Self { log, _second: second, _guard: subscriber::set_default(subscriber) }
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        std::str::from_utf8(&log).unwrap().lines().map(str::to_owned).collect()
    }
}

struct Tee(Arc<Mutex<Vec<u8>>>);

impl io::Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
