//! The heartbeat path allocates nothing: the whole server runs in this process, under an allocator that
//! counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::{ACQUIRED_BYTES, Acquire, HEARTBEAT, Lease, LockName};

/// Calls of the allocator by thread id, modulo the length.
static CALLS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

struct Counting;

fn count() {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs() as usize;
    CALLS[thread % CALLS.len()].fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; counting touches no memory of the
// heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SHARDS: usize = 2;
const SESSIONS: usize = 400;
const ROUNDS: usize = 100;

/// Calls of the allocator so far, by all shard threads.
fn calls_of_shards() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    let shards: Vec<usize> = tasks
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("shard-"))
        })
        .map(|task| task.file_name().to_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(shards.len(), SHARDS, "the shards' threads are named");
    shards.iter().map(|thread| CALLS[thread % CALLS.len()].load(Ordering::Relaxed)).sum()
}

/// One heartbeat of each session, and its answer.
fn beat(sessions: &mut [TcpStream]) {
    for session in sessions.iter_mut() {
        session.write_all(&HEARTBEAT).unwrap();
    }
    for session in sessions {
        session.read_exact(&mut [0; ACQUIRED_BYTES]).unwrap();
    }
}

#[test]
fn no_shard_allocates_for_heartbeats_in_steady_state() {
    // Free a moment ago; nothing else in this process takes ports.
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let flags = ["monolock", "-listen", &address.to_string(), "-shards", &SHARDS.to_string()].map(Into::into);
    thread::spawn(move || monolock_daemon::main(flags));

    let connect = || {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match TcpStream::connect(address) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    };
    let mut sessions: Vec<TcpStream> = (0..SESSIONS)
        .map(|index| {
            let name = LockName::new(&format!("lock-{index}")).unwrap();
            let acquire = Acquire { name, lease: Lease::from_ms(3_600_000).unwrap() };
            let mut session = connect();
            session.write_all(&acquire.encode()).unwrap();
            session.read_exact(&mut [0; ACQUIRED_BYTES]).unwrap();
            session
        })
        .collect();

    (0..ROUNDS).for_each(|_| beat(&mut sessions));
    let before = calls_of_shards();
    assert!(before > 0, "the allocator counts");
    (0..ROUNDS).for_each(|_| beat(&mut sessions));
    let during = calls_of_shards() - before;
    assert_eq!(during, 0, "calls of the allocator during {} heartbeats", ROUNDS * SESSIONS);
}
