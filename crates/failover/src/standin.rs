//! Keeps a node's health file where the program has no agent: it is there while the server runs and is ready.
//! It kills nobody and answers nobody, so a server that hangs needs another fence.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::net::{Net, Place};

/// How long a server may be silent, as the agent has it.
const SILENCE_MAX: Duration = Duration::from_millis(300);

/// The thread that keeps the file.
pub(crate) struct StandIn {
    /// The server's process; 0 for none.
    pub(crate) server: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Starts it on a node.
    pub(crate) fn start(net: &Arc<Net>, node: usize, file: PathBuf) -> Self {
        let (server, ends) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (net, pid, over) = (Arc::clone(net), Arc::clone(&server), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            net.enter(Place::Host(node)).expect("the host's namespace");
            let (mut was_fit, mut asked) = (false, None::<Instant>);
            while !over.load(Ordering::Relaxed) {
                let runs = runs(pid.load(Ordering::Relaxed));
                let is_due = asked.is_none_or(|asked| asked.elapsed() > Duration::from_millis(50));
                let is_fit = if runs && (is_due || !was_fit) { is_ready() } else { runs && was_fit };
                if is_due {
                    asked = Some(Instant::now());
                }
                if is_fit && !was_fit {
                    let _ = fs::write(&file, "1\n");
                } else if was_fit && !is_fit {
                    let _ = fs::remove_file(&file);
                }
                was_fit = is_fit;
                thread::sleep(Duration::from_millis(5));
            }
            let _ = fs::remove_file(&file);
        });
        Self { server, ends, thread: Some(thread) }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    pid != 0 && state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn is_ready() -> bool {
    let ask = || {
        let address = SocketAddr::from(([127, 0, 0, 1], 9090));
        let mut stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok::<bool, std::io::Error>(head.ends_with(b"200"))
    };
    ask().unwrap_or(false)
}
