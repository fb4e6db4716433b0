//! The heartbeat path allocates nothing: the whole server runs in this process, under an allocator that
//! counts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use protocol::{ACQUIRED_BYTES, Acquire, HEARTBEAT, Lease, LockName};
use testkit::allocations::{CountingAllocator, calls_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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
    shards.iter().map(|&thread| calls_of(thread)).sum()
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
