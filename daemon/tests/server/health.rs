//! Readiness of the real process when parts of it hang or run out, as probes and `monolock check` see it.

use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::harness::{MONOLOCK, Peer, Server, wait_for};

const LEASE: Duration = Duration::from_secs(60);

/// What the shortest stall that can be asked for, the look at it and this machine's load come to.
const SHOWN_WITHIN: Duration = Duration::from_millis(2500);

/// How `monolock check` ended.
struct Checked {
    code: Option<i32>,
    out: String,
    err: String,
    took: Duration,
}

fn check(server: &Server, flags: &[&str]) -> Checked {
    let url = format!("http://{}", server.ops.unwrap());
    let started = Instant::now();
    let output = Command::new(&*MONOLOCK)
        .args(["check", "--url", &url])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let status: ExitStatus = output.status;
    Checked {
        code: status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        took: started.elapsed(),
    }
}

fn until_ready(server: &Server) {
    wait_for("readiness", || (server.get("/readyz").0 == 200).then_some(()));
}

/// Waits until the server is not ready, and says why.
fn until_not_ready(server: &Server) -> String {
    wait_for("readiness to fail", || {
        let (status, body) = server.get("/readyz");
        (status == 503).then_some(body)
    })
}

/// One thread that is stopped, and nothing else is, until this is dropped: a process whose thread is traced
/// could not be waited for.
struct Stopped(nix::unistd::Pid);

impl Stopped {
    fn new(server: &Server, name: &str) -> Self {
        let thread = server.thread(name);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        let stopped = Self(thread);
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

#[test]
fn a_server_in_health_is_served_and_its_ready_checks_are_fine() {
    let server = Server::start();
    until_ready(&server);
    let Checked { code, out, err, .. } = check(&server, &["--timeout", "10s"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("ok\n"), "{out}");
    assert!(out.lines().skip(1).all(|line| line.starts_with("warning: clock")), "{out}");
    assert_eq!(server.metric("monolock_ready"), 1.0);
    for check in ["serving", "shards", "ceiling", "agent", "fence", "p99", "descriptors", "isolated", "audit"]
    {
        assert_eq!(server.metric(&format!("monolock_ready_failing_seconds{{check=\"{check}\"}}")), 0.0);
    }
    assert_eq!(server.get("/active"), (200, "active\n".to_owned()));
}

#[test]
fn a_shard_that_is_stopped_shows_within_its_limit() {
    let server = Server::with(&["-shards", "2", "-ready-max-stall", "500ms"]);
    until_ready(&server);
    let at = Instant::now();
    let shard = Stopped::new(&server, "shard-1");
    let why = until_not_ready(&server);
    assert!(at.elapsed() < SHOWN_WITHIN, "{:?}", at.elapsed());
    assert!(why.starts_with("shard 1: no turn for ") && !why.contains("shard 0"), "{why}");
    let Checked { code, err, .. } = check(&server, &["--timeout", "10s"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.starts_with("monolock: shard 1: no turn for "), "{err}");
    assert_eq!(server.metric("monolock_ready"), 0.0);
    assert!(server.metric("monolock_ready_failing_seconds{check=\"shards\"}") > 0.0);
    assert!(server.metric("monolock_shard_stall_seconds{shard=\"1\"}") > 0.5);
    assert_eq!(server.get("/healthz").0, 200, "alive it is");
    drop(shard);
    until_ready(&server);
    assert_eq!(server.metric("monolock_ready_failing_seconds{check=\"shards\"}"), 0.0);
}

/// Two bytes that x86 runs for ever: a jump to itself. Some are in every program of size, as parts of others.
#[cfg(target_arch = "x86_64")]
fn endless_loop(server: &Server) -> u64 {
    use std::os::unix::fs::FileExt;
    let process = format!("/proc/{}", server.pid().as_raw_nonzero());
    let maps = std::fs::read_to_string(format!("{process}/maps")).unwrap();
    let memory = std::fs::File::open(format!("{process}/mem")).unwrap();
    let executable = maps.lines().filter(|line| line.contains(" r-xp "));
    let found = executable.filter(|line| !line.contains('[')).find_map(|line| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let mut bytes = vec![0; usize::try_from(to - from).ok()?];
        memory.read_exact_at(&mut bytes, from).ok()?;
        Some(from + bytes.windows(2).position(|two| two == [0xeb, 0xfe])? as u64)
    });
    found.expect("a jump to itself somewhere in the program")
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_shard_in_an_endless_loop_shows_within_its_limit() {
    let server = Server::with(&["-shards", "2", "-ready-max-stall", "500ms"]);
    until_ready(&server);
    let at = Instant::now();
    let stopped = Stopped::new(&server, "shard-0");
    let shard = stopped.0;
    let mut registers = ptrace::getregs(shard).unwrap();
    registers.rip = endless_loop(&server);
    // Not in a system call any more, which the kernel would begin anew.
    registers.orig_rax = u64::MAX;
    ptrace::setregs(shard, registers).unwrap();
    drop(stopped);
    let why = until_not_ready(&server);
    assert!(at.elapsed() < SHOWN_WITHIN, "{:?}", at.elapsed());
    assert!(why.starts_with("shard 0: no turn for "), "{why}");
    let stat = || {
        let path = format!("/proc/{}/task/{shard}/stat", server.pid().as_raw_nonzero());
        let stat = std::fs::read_to_string(path).unwrap();
        let fields: Vec<String> = stat.rsplit(") ").next().unwrap().split(' ').map(str::to_owned).collect();
        fields[11].parse::<u64>().unwrap()
    };
    let before = stat();
    wait_for("CPU time of a loop", || (stat() > before + 10).then_some(()));
    assert_eq!(server.get("/readyz").0, 503);
    assert_eq!(check(&server, &["--timeout", "10s"]).code, Some(1));
}

#[test]
fn full_places_are_a_warning_and_a_failure_where_asked_for() {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -n 160; exec \"$0\" \"$@\"", &MONOLOCK, "-shards", "1"]);
    command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0"]);
    let server = Server::spawn(command);
    until_ready(&server);
    let places = server.metric("monolock_connection_places") as usize;
    let mut sessions: Vec<Peer> = (0..places).map(|at| server.hold(&format!("lock-{at}"), LEASE).0).collect();
    let (status, body) = server.get("/readyz");
    assert_eq!(status, 200);
    let line = format!("\nwarning: descriptors: all {places} places for connections are taken\n");
    assert!(body.contains(&line), "{body}");
    assert_eq!(server.metric("monolock_connection_places_taken") as usize, places);
    let Checked { code, out, .. } = check(&server, &["--timeout", "10s"]);
    assert_eq!(code, Some(0));
    assert!(out.contains(&line), "{out}");
    let Checked { code, err, .. } = check(&server, &["--timeout", "10s", "--fail-on", "descriptors"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("monolock: descriptors: for "), "{err}");
    assert_eq!(check(&server, &["--timeout", "10s", "--fail-on", "descriptors:1h"]).code, Some(0));

    sessions.pop().unwrap().close();
    wait_for("a free place", || (!server.get("/readyz").1.contains("descriptors")).then_some(()));
    assert_eq!(server.metric("monolock_ready_failing_seconds{check=\"descriptors\"}"), 0.0);
}

#[test]
fn a_descriptor_table_that_is_full_fails_where_asked_for() {
    let server = Server::with(&["-ready-fail-on", "descriptors", "-shards", "1"]);
    until_ready(&server);
    let is_open =
        |fd: &u64| std::fs::exists(format!("/proc/{}/fd/{fd}", server.pid().as_raw_nonzero())).unwrap();
    let before = getrlimit(Resource::Nofile);
    let limit = |current| {
        let limit = Rlimit { current: Some(current), maximum: before.maximum };
        prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
    };
    // As many as there are, and the one that a probe's connection takes.
    let (last, why) = wait_for("readiness to fail", || {
        let last = (0..).filter(|fd| !is_open(fd)).nth(1).unwrap();
        limit(last);
        let (status, why) = server.get("/readyz");
        (status == 503).then_some((last, why))
    });
    assert!(why.starts_with("descriptors: the process has as many open files as it may\n"), "{why}");
    // Without that one nobody gets an answer any more.
    limit(last - 1);
    let Checked { code, err, .. } = check(&server, &["--timeout", "300ms"]);
    assert_eq!(code, Some(2), "{err}");
    limit(before.maximum.unwrap());
    until_ready(&server);
}

#[test]
fn a_process_that_is_stopped_as_a_whole_gives_no_yes_in_time() {
    let server = Server::start();
    until_ready(&server);
    server.signal(Signal::STOP);
    let Checked { code, err, took, .. } = check(&server, &["--timeout", "300ms"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.ends_with("no whole answer within 300ms\n"), "{err}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    server.signal(Signal::CONT);
    assert_eq!(check(&server, &["--timeout", "10s"]).code, Some(0));
}

#[test]
fn a_process_that_was_stopped_as_a_whole_is_ready_when_it_wakes() {
    let server = Server::with(&["-ready-max-stall", "500ms"]);
    until_ready(&server);
    server.signal(Signal::STOP);
    // Longer than a shard may stall, and it has to be so long.
    std::thread::sleep(Duration::from_millis(900));
    // Asked while it is stopped: what waits is answered first.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| server.get("/readyz").0)).collect();
        std::thread::sleep(Duration::from_millis(100));
        server.signal(Signal::CONT);
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 4]);
}

#[test]
fn a_server_that_shuts_down_says_so_until_its_end() {
    let mut server = Server::start();
    until_ready(&server);
    server.signal(Signal::TERM);
    let why = until_not_ready(&server);
    assert_eq!(why, "shutting down\n");
    assert_eq!(server.get("/active"), (503, "shutting down\n".to_owned()));
    let Checked { code, err, .. } = check(&server, &["--timeout", "500ms"]);
    assert_eq!((code, err.as_str()), (Some(1), "monolock: shutting down\n"));
    assert!(server.exit().success());
    assert_eq!(check(&server, &[]).code, Some(2), "a closed port is no answer");
}

#[test]
fn a_full_disk_under_the_audit_log_is_a_warning_and_a_failure_where_asked_for() {
    let server = Server::with(&["-audit-log", "/dev/full", "-ready-fail-on", "audit:500ms"]);
    until_ready(&server);
    assert_eq!(server.metric("monolock_audit_write_failing"), 0.0);
    let _held = server.hold("lock", LEASE);
    let why = until_not_ready(&server);
    assert!(why.starts_with("audit log: it cannot be written\n"), "{why}");
    assert_eq!(server.metric("monolock_audit_write_failing"), 1.0);
    assert!(server.metric("monolock_ready_failing_seconds{check=\"audit\"}") >= 0.5);
}

#[test]
fn p99_of_the_last_ten_seconds_is_exported_and_held_against_its_limit() {
    let server = Server::with(&["-ready-fail-on", "p99=1ns"]);
    until_ready(&server);
    let (mut holder, _) = server.hold("lock", LEASE);
    assert_eq!(server.metric("monolock_heartbeat_service_p99_limit_seconds"), 1e-9);
    for _ in 0..200 {
        holder.heartbeat();
        holder.acquired();
    }
    let why = until_not_ready(&server);
    assert!(why.starts_with("p99 of heartbeats: "), "{why}");
    let p99 = server.metric("monolock_heartbeat_service_p99_seconds");
    assert!(p99 > 0.0 && p99 < 1.0, "{p99}");
}
