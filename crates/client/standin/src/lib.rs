//! A small server in the test's own process: the real lock table behind plain threads.
//!
//! For tests and documentation of clients. It has none of the daemon's bounds.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use locks::{Answer, Effect, Reason, SessionId, Table, TokenSource, Turn};
pub use locks::{Counts, Gate, Opening};
use protocol::{ErrorCode, ErrorFrame, WAITING, acquired, decode_acquire, decode_session};

/// How often leases are looked at: much shorter than the shortest lease of a test.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// [`Server::wait_for`] waits no longer: a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server on a port of its own; it stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    begun: Instant,
    stops: AtomicBool,
    mute: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    table: Table<usize>,
    gate: Gate,
    /// The sending sides.
    conns: HashMap<usize, TcpStream>,
    accepted: usize,
}

impl Server {
    /// A server on a free port of the loopback interface.
    ///
    /// # Panics
    ///
    /// The system refuses a socket or a thread.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let state = State {
            table: Table::new(Arc::new(TokenSource::new())),
            gate: Gate::Open(Opening::FIRST),
            conns: HashMap::new(),
            accepted: 0,
        };
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            stops: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            state: Mutex::new(state),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        let looking = Arc::clone(&shared);
        thread::spawn(move || looking.look_at_leases());
        Self { address, shared }
    }

    /// Where it listens, as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Opens or closes the gate: behind a closed one every new claim is refused.
    pub fn set_gate(&self, gate: Gate) {
        self.shared.lock().gate = gate;
    }

    /// Takes a lock from its holder. False if nobody holds it.
    pub fn force_release(&self, name: &str) -> bool {
        let mut effects = Vec::new();
        let mut state = self.shared.lock();
        let turn = self.shared.turn(&state);
        let released = state.table.force_release(&turn, name, &mut effects);
        state.carry_out(effects);
        released
    }

    /// Whether heartbeats are left unanswered and unheard.
    pub fn set_mute(&self, mute: bool) {
        self.shared.mute.store(mute, Ordering::SeqCst);
    }

    /// How many connections have come so far.
    pub fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// Waits until the table is as wanted.
    ///
    /// # Panics
    ///
    /// It is not within ten seconds.
    pub fn wait_for(&self, wanted: impl Fn(Counts) -> bool) {
        let begun = Instant::now();
        loop {
            let counts = self.shared.lock().table.counts();
            if wanted(counts) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the table stays at {counts:?}");
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        for conn in self.shared.lock().conns.values() {
            let _ = conn.shutdown(Shutdown::Both);
        }
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of the server panics")
    }

    fn turn(&self, state: &State) -> Turn {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).expect("fewer than 2⁶⁴ ns");
        let since_epoch = UNIX_EPOCH.elapsed().expect("the clock is past 1970");
        Turn { now_ns: ns(self.begun.elapsed()), unix_ns: ns(since_epoch), gate: state.gate }
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stops.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let shared = Arc::clone(&self);
            thread::spawn(move || shared.serve(stream));
        }
    }

    fn look_at_leases(&self) {
        while !self.stops.load(Ordering::SeqCst) {
            thread::sleep(LOOK_EVERY);
            let mut state = self.lock();
            let turn = self.turn(&state);
            while let Some(session) = state.table.next_overdue(turn.now_ns) {
                let mut effects = Vec::new();
                state.table.expire(&turn, session, &mut effects);
                state.carry_out(effects);
            }
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let Ok(sending) = stream.set_nodelay(true).and_then(|()| stream.try_clone()) else { return };
        let conn = {
            let mut state = self.lock();
            state.accepted += 1;
            let conn = state.accepted;
            state.conns.insert(conn, sending);
            conn
        };
        let session = self.converse(conn, &mut stream);
        let mut state = self.lock();
        if let Some(session) = session {
            let (turn, mut effects) = (self.turn(&state), Vec::new());
            state.table.end(&turn, session, Reason::Graceful, &mut effects);
            state.carry_out(effects);
        }
        state.conns.remove(&conn);
    }

    /// Until the connection is gone. Returns its session, if it came to one.
    fn converse(&self, conn: usize, stream: &mut TcpStream) -> Option<SessionId> {
        let (mut received, mut buffer, mut session) = (Vec::new(), [0; 512], None);
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return session,
                Ok(read) => &buffer[..read],
            };
            received.extend_from_slice(read);
            let mut state = self.lock();
            let (turn, mut effects) = (self.turn(&state), Vec::new());
            if session.is_none() {
                let decoded =
                    decode_acquire(&received).map(|whole| whole.map(|(a, rest)| (a, rest.to_vec())));
                let (acquire, rest) = match decoded {
                    Ok(Some(whole)) => whole,
                    Ok(None) => continue,
                    Err(code) => {
                        state.refuse(conn, code);
                        drop(state);
                        return drain(stream);
                    }
                };
                session = match state.table.acquire(&turn, conn, acquire, &mut effects) {
                    Ok(session) => Some(session),
                    Err(code) => {
                        state.refuse(conn, code);
                        drop(state);
                        return drain(stream);
                    }
                };
                received = rest;
                state.carry_out(std::mem::take(&mut effects));
            }
            let heartbeats = decode_session(&std::mem::take(&mut received)).heartbeats;
            if self.mute.load(Ordering::SeqCst) {
                continue;
            }
            for _ in 0..heartbeats {
                let session = session.expect("made above");
                match state.table.heartbeat(&turn, session, &mut effects) {
                    None => {}
                    Some(Answer::Waiting) => state.send(conn, &WAITING),
                    Some(Answer::Acquired(token)) => state.send(conn, &acquired(token)),
                }
                state.carry_out(std::mem::take(&mut effects));
            }
        }
    }
}

impl State {
    fn carry_out(&mut self, effects: Vec<Effect<usize>>) {
        for effect in effects {
            match effect {
                Effect::Queued { conn, .. } => self.send(conn, &WAITING),
                Effect::Granted { conn, token, .. } => self.send(conn, &acquired(token)),
                Effect::Released { .. } => {}
                Effect::End { conn, error: Some(code), .. } => self.refuse(conn, code),
                Effect::End { conn, error: None, .. } => {
                    let _ = self.conns[&conn].shutdown(Shutdown::Both);
                }
            }
        }
    }

    /// A connection that breaks is found by its reading side.
    fn send(&self, conn: usize, frame: &[u8]) {
        let _ = (&self.conns[&conn]).write_all(frame);
    }

    fn refuse(&self, conn: usize, code: ErrorCode) {
        self.send(conn, &ErrorFrame::new(code));
        let _ = self.conns[&conn].shutdown(Shutdown::Write);
    }
}

/// Reads until the client has closed: closing first, with unread input, could destroy the ERROR on its way.
fn drain(stream: &mut TcpStream) -> Option<SessionId> {
    let _ = io::copy(stream, &mut io::sink());
    None
}
