//! Limits: descriptors that run out, garbage, floods. Other sessions and the process live on.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, prlimit};

use crate::harness::{MONOLOCK, Peer, Server, acquire, field};

const LEASE: Duration = Duration::from_secs(60);

/// How late a well-behaved session's answer may be here. The measuring tool prints the strict figures.
const PROMPT: Duration = Duration::from_millis(1000);

/// Attempts at that.
const ATTEMPTS: usize = 3;

/// A server that may open `limit` descriptors.
fn with_descriptors(limit: usize, flags: &[&str]) -> Server {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\""), &MONOLOCK]);
    command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0", "-shards", "1"]).args(flags);
    Server::spawn(command)
}

/// What was logged, without what is this machine's own matter.
fn lines_but_of_the_clock(server: &Server) -> Vec<String> {
    server.log().into_iter().filter(|line| !line.contains("clock is not synchronised")).collect()
}

fn cpu_time(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid().as_raw_nonzero())).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn exhausted_descriptors_break_no_session_spin_nothing_and_heal() {
    let server = with_descriptors(160, &[]);
    let mut sessions: Vec<Peer> = Vec::new();
    // Connections beyond the capacity wait in the kernel's queue.
    for index in 0..100 {
        sessions.push(server.claim(&format!("lock-{index}"), LEASE));
    }
    crate::harness::wait_for("a failed accept", || {
        (server.metric("monolock_accept_errors_total") > 0.0).then_some(())
    });
    assert_eq!(
        (server.get("/healthz").0, server.get("/readyz").0),
        (200, 200),
        "the ops endpoints have room"
    );

    let accepted = server.metric("monolock_connections_accepted_total") as usize;
    assert!((50..=90).contains(&accepted), "the limit leaves room for {accepted}");
    let (served, waiting) = sessions.split_at_mut(accepted);
    for peer in served.iter_mut() {
        peer.acquired();
        peer.heartbeat();
        peer.acquired();
    }
    let before = cpu_time(&server);
    assert!(waiting[0].is_silent_for(Duration::from_secs(1)));
    let spent = cpu_time(&server) - before;
    assert!(spent < Duration::from_millis(500), "{spent:?} of CPU in a second of waiting");

    // Descriptors come free: those who waited are served, in the kernel's order.
    let waiting = waiting.len();
    let mut served = sessions;
    let mut late = served.split_off(accepted);
    served.truncate(accepted - waiting);
    for peer in &mut late {
        peer.acquired();
    }
    for peer in served.iter_mut().chain(&mut late) {
        peer.heartbeat();
        peer.acquired();
    }
}

#[test]
fn an_accept_that_the_system_refuses_is_tried_again_until_it_works() {
    let server = with_descriptors(500, &[]);
    let (mut session, token) = server.hold("lock", LEASE);
    let is_open =
        |fd: &u64| std::fs::exists(format!("/proc/{}/fd/{fd}", server.pid().as_raw_nonzero())).unwrap();
    let next = (0..).find(|fd| !is_open(fd)).expect("some descriptor is free");
    let limit = |current| {
        let limit = Rlimit { current: Some(current), maximum: Some(500) };
        prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    };
    // The server thinks that there is room, and the kernel says EMFILE.
    limit(next);
    let mut waiting = server.claim("other", LEASE);
    assert!(waiting.is_silent_for(Duration::from_millis(300)));
    session.heartbeat();
    assert_eq!(session.acquired(), token);
    limit(500);
    waiting.acquired();
    server.wait_for_metric("monolock_connections_accepted_total", 2.0);
    assert!(server.metric("monolock_accept_errors_total") >= 1.0);
}

#[test]
fn a_full_server_at_which_nobody_waits_reports_no_failed_accept() {
    let server = with_descriptors(160, &[]);
    let places: usize = field(&server.log()[0], "connections_max").unwrap().parse().unwrap();
    let mut sessions: Vec<Peer> =
        (0..places).map(|index| server.hold(&format!("lock-{index}"), LEASE).0).collect();
    for peer in &mut sessions {
        peer.heartbeat();
        peer.acquired();
    }
    assert_eq!(server.metric("monolock_accept_errors_total"), 0.0);
    assert_eq!(lines_but_of_the_clock(&server).len(), 1, "{:?}", server.log());
}

#[test]
fn a_limit_without_room_for_sessions_is_refused_at_the_start() {
    let mut command = Command::new("bash");
    command.args([
        "-c",
        "ulimit -n 40; exec \"$0\" \"$@\"",
        &MONOLOCK,
        "-listen",
        "127.0.0.1:0",
        "-shards",
        "1",
    ]);
    let (status, line) = crate::harness::run_to_end(&mut command);
    assert_eq!(status.code(), Some(71), "{line}");
    assert!(line.contains("open files") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_burst_of_probes_takes_no_more_descriptors_than_are_kept_for_them() {
    const BURST: usize = 150;
    let server = with_descriptors(200, &[]);
    let places: usize = field(&server.log()[0], "connections_max").unwrap().parse().unwrap();
    let _sessions: Vec<Peer> =
        (0..places).map(|index| server.hold(&format!("lock-{index}"), LEASE).0).collect();
    let ops = server.ops.unwrap();
    // Stopped, so that all of them wait when it accepts.
    server.signal(Signal::STOP);
    let _burst: Vec<TcpStream> = (0..BURST).map(|_| TcpStream::connect(ops).unwrap()).collect();
    server.signal(Signal::CONT);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(lines_but_of_the_clock(&server).len(), 1, "{:?}", server.log());
}

/// Heartbeats of a session that behaves, until told to stop; returns the latest answer.
fn behave(mut peer: Peer, stop: &AtomicBool) -> Duration {
    let mut latest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        peer.heartbeat();
        peer.acquired();
        latest = latest.max(sent.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    latest
}

/// Runs `trouble` beside five sessions that behave; asserts that they were served promptly.
fn beside_well_behaved(server: &Server, mut trouble: impl FnMut(usize)) {
    // A machine that is busy is late once, a server that trouble holds up each time.
    let mut latest = (0..ATTEMPTS).map(|attempt| latest_beside(server, attempt, &mut trouble));
    assert!(latest.any(|latest| latest < PROMPT), "an answer was late {ATTEMPTS} times");
}

/// How late an answer to five sessions that behave was.
fn latest_beside(server: &Server, attempt: usize, trouble: impl FnOnce(usize)) -> Duration {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let behaving: Vec<_> = (0..5)
            .map(|index| {
                let (peer, _) = server.hold(&format!("good-{attempt}-{index}"), Duration::from_secs(5));
                scope.spawn(|| behave(peer, &stop))
            })
            .collect();
        trouble(attempt);
        stop.store(true, Ordering::Relaxed);
        behaving.into_iter().map(|thread| thread.join().unwrap()).max().expect("there are five")
    })
}

#[test]
fn two_million_random_bytes_harm_nobody() {
    const BYTES: usize = 2_000_000;
    let seed = std::env::var("TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    eprintln!("TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = Server::start();
    beside_well_behaved(&server, |_| {
        let mut sent = 0;
        while sent < BYTES {
            let Ok(mut stream) = TcpStream::connect(server.address) else { continue };
            let mut garbage = vec![0; random.usize(1..20_000)];
            random.fill(&mut garbage);
            // Half of it behind a good ACQUIRE, so that shards get their share.
            if random.bool() {
                let _ =
                    stream.write_all(&acquire(&format!("junk-{}", random.u8(..)), Duration::from_millis(50)));
            }
            let _ = stream.write_all(&garbage);
            sent += garbage.len();
        }
    });
    assert!(server.is_alive());
    server.hold("afterwards", LEASE);
}

#[test]
fn a_flood_of_heartbeats_delays_no_other_session() {
    let server = Server::with(&["-shards", "1", "-io-timeout", "1s"]);
    beside_well_behaved(&server, |attempt| {
        let until = Instant::now() + Duration::from_secs(3);
        thread::scope(|scope| {
            for index in 0..2 {
                let (peer, _) = server.hold(&format!("flood-{attempt}-{index}"), LEASE);
                scope.spawn(move || {
                    let mut stream = peer.stream;
                    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
                    stream.set_nonblocking(false).unwrap();
                    let mut reader = stream.try_clone().unwrap();
                    if index == 0 {
                        // One flood is read, the other is not.
                        thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
                    }
                    while Instant::now() < until {
                        let _ = stream.write(&[2; 8192]);
                    }
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                });
            }
        });
    });
}
