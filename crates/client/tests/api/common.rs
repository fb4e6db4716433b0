//! What the tests share.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_client::{Client, Config, boottime_ns};
use protocol::{Token, acquired};

/// Nothing here waits longer than this: a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Long enough that no loaded machine loses a claim of it.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Kept by heartbeats also on a loaded machine, and short enough to wait for several.
pub(crate) const KEPT: Duration = Duration::from_secs(1);

/// Short enough to wait for its end.
pub(crate) const SHORT: Duration = Duration::from_millis(500);

pub(crate) const TOKEN: Token = Token(9);

pub(crate) fn client(address: impl Into<String>) -> Client {
    Client::new(Config::new(address))
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this ends soon")
}

/// Blocks the thread, as a SIGSTOP would, until this much of CLOCK_BOOTTIME has passed.
pub(crate) fn stand_still(duration: Duration) {
    let until_ns = boottime_ns() + u64::try_from(duration.as_nanos()).unwrap();
    while let left_ns @ 1.. = until_ns.saturating_sub(boottime_ns()) {
        thread::sleep(Duration::from_nanos(left_ns));
    }
}

/// Raised once.
#[derive(Clone, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Raised when what is returned is dropped.
    pub(crate) fn raised_by_drop(&self) -> impl Drop + use<> {
        struct Raiser(Flag);
        impl Drop for Raiser {
            fn drop(&mut self) {
                self.0.raise();
            }
        }
        Raiser(self.clone())
    }
}

/// A server that runs `script` on its one connection, once it has read the ACQUIRE for a name of one byte.
pub(crate) fn serve<T: Send + 'static>(
    script: impl FnOnce(&mut TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address, thread::spawn(move || script(&mut accept(&listener))))
}

/// A connection whose ACQUIRE is read.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 9]).unwrap();
    stream
}

/// Grants the lock, and answers nothing more until the client closes the connection.
pub(crate) fn grant_and_fall_silent(stream: &mut TcpStream) {
    stream.write_all(&acquired(TOKEN)).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}
