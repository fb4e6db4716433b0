//! The guardian: the command is stopped also where `monolock run` cannot do it, and nobody is left behind.

use std::fs;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getpgid, kill_process};

use crate::harness::{MONOLOCK, Server, wait_for};
use crate::loss::{LEASE, LOST, stubborn};
use crate::runs::{
    AT_ONCE, ATTEMPTS, LONG, LONG_LEASE, Run, locked, only_line, reporting, run_to_end, wait_until_stopped,
};

/// The documented status of a run whose guardian was killed.
const UNGUARDED: Option<i32> = Some(70);

/// Whether a process is there and no zombie.
fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn wait_until_dead(pid: Pid) {
    wait_for("the end of a process", || (!lives(pid)).then_some(()));
}

#[test]
fn a_stubborn_group_of_a_stopped_run_is_dead_in_time_while_it_is_stopped() {
    let attempt = |_| {
        let server = Server::start();
        let mut run = stubborn(&server);
        let guardian = run.guardian();
        let heartbeats = || server.metric("monolock_heartbeats_total");
        let before = heartbeats();
        wait_for("a heartbeat", || (heartbeats() > before).then_some(()));
        let stopping = Instant::now();
        run.signal(Signal::STOP);
        wait_until_stopped(run.pid());
        let stopped = Instant::now();

        let (line, terminated) = run.line_at();
        assert_eq!(line, "terminated");
        let dead = run.report_end();
        let earliest = stopping + LEASE * 8 / 10 - LEASE / 4;
        assert!(terminated >= earliest, "SIGTERM {:?} too early", earliest - terminated);
        assert!(dead >= earliest, "SIGKILL {:?} too early", earliest - dead);
        wait_until_dead(guardian);
        wait_until_stopped(run.pid());

        run.signal(Signal::CONT);
        let ended = run.ended();
        assert_eq!(ended.code, LOST, "{ended:?}");
        only_line(&ended);
        run.nothing_is_left();
        dead - stopped
    };
    let in_time = (0..ATTEMPTS).map(attempt).any(|lived| lived <= LEASE * 95 / 100);
    assert!(in_time, "late {ATTEMPTS} times");
}

#[test]
fn a_run_that_is_stopped_for_less_than_its_time_goes_on() {
    let server = Server::start();
    let goes_on = |attempt| {
        let name = format!("lock-{attempt}");
        let mut run = Run::holding(&server, "2s", &name);
        run.signal(Signal::STOP);
        wait_until_stopped(run.pid());
        // A quarter of the lease may have passed before.
        assert!(run.is_silent_for(Duration::from_millis(700)));
        run.signal(Signal::CONT);
        let lives = run.is_silent_for(LEASE);
        run.end_input();
        lives && run.ended().code == Some(0)
    };
    assert!((0..ATTEMPTS).any(goes_on));
}

#[test]
fn a_stubborn_group_of_a_killed_run_is_dead_at_once() {
    let attempt = |_| {
        let server = Server::start();
        let mut run = stubborn(&server);
        let killed = Instant::now();
        run.signal(Signal::KILL);
        let dead = run.report_end();
        run.nothing_is_left();
        dead.saturating_duration_since(killed)
    };
    let fastest = (0..ATTEMPTS).map(attempt).min().unwrap();
    assert!(fastest <= AT_ONCE, "{fastest:?}");
}

#[test]
fn the_lock_of_a_killed_run_moves_only_when_its_command_is_dead() {
    let server = Server::start();
    // Several times: what is looked for is a race.
    for attempt in 0..20 {
        let name = format!("lock-{attempt}");
        let script = "trap '' HUP TERM; echo $$; (cat <&3) 3<&0; echo ended";
        let mut run = Run::script(&server, LONG, &name, script);
        let command = Pid::from_raw(run.line().parse().unwrap()).unwrap();
        let mut waiter = server.wait_in_line(&name, LONG_LEASE);
        run.signal(Signal::KILL);
        waiter.acquired();
        assert!(!lives(command), "two under one lock");
    }
}

#[test]
fn a_run_that_is_killed_at_any_moment_leaves_nobody_behind() {
    let seed = std::env::var("MONOLOCK_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("MONOLOCK_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = Server::start();
    // The first one runs; the others are killed between nothing and its beginning, and a little later.
    let mut whole = Duration::from_secs(60);
    for attempt in 0..40 {
        let begun = Instant::now();
        let name = format!("lock-{attempt}");
        let mut run =
            Run::script(&server, LONG, &name, "trap '' HUP TERM; echo runs; (cat <&3) 3<&0; echo ended");
        if attempt == 0 {
            run.line();
            whole = begun.elapsed();
        }
        let moment = begun + whole.mul_f64(random.f64() * 1.5);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        run.signal(Signal::KILL);
        run.nothing_is_left();
    }
}

#[test]
fn a_run_whose_guardian_is_killed_stops_the_command_and_the_status_is_70() {
    let server = Server::start();
    let script = "exec 4<&0; cat <&4 & trap 'echo terminated; exit 0' TERM; echo ready; wait";
    let mut run = Run::script(&server, LONG, "lock", script);
    run.line();
    kill_process(run.guardian(), Signal::KILL).unwrap();
    assert_eq!(run.line(), "terminated");
    run.report_end();
    let ended = run.ended();
    assert_eq!(ended.code, UNGUARDED);
    assert!(only_line(&ended).contains("guardian"), "{ended:?}");
    run.nothing_is_left();
}

#[test]
fn a_stubborn_group_whose_guardian_is_killed_is_dead_soon_under_the_lock() {
    let server = Server::start();
    let mut run = stubborn(&server);
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    kill_process(run.guardian(), Signal::KILL).unwrap();
    assert_eq!(run.line(), "terminated");
    run.report_end();
    assert_eq!(run.ended().code, UNGUARDED);
    next.acquired();
}

#[test]
fn when_both_are_killed_in_either_order_the_command_itself_dies_too() {
    let server = Server::start();
    for guardian_first in [true, false] {
        let mut run = Run::holding(&server, LONG, "lock");
        let guardian = run.guardian();
        // Neither sees the end of the other.
        let (first, second) = if guardian_first { (guardian, run.pid()) } else { (run.pid(), guardian) };
        kill_process(second, Signal::STOP).unwrap();
        wait_until_stopped(second);
        kill_process(first, Signal::KILL).unwrap();
        kill_process(second, Signal::KILL).unwrap();
        run.report_end();
        run.nothing_is_left();
    }
}

#[test]
fn nobody_is_left_behind_whatever_the_end() {
    let server = Server::start();
    for command in [&["true"][..], &["false"], &["/nonexistent"], &["sh", "-c", "kill -9 $$"]] {
        let mut run = Run::start(locked(server.address, LONG, "lock", command));
        run.end_input();
        run.ended();
        // At once, not soon.
        assert_eq!(run.descendants(), [], "{command:?}");
    }
    let mut run = Run::holding(&server, LONG, "lock");
    run.signal(Signal::TERM);
    run.ended();
    assert_eq!(run.descendants(), []);
}

#[test]
fn a_guardian_that_is_stopped_keeps_no_run_from_its_end() {
    let server = Server::start();
    let mut run = Run::script(&server, LONG, "lock", "echo ready; read -r _; exit 6");
    run.line();
    let guardian = run.guardian();
    kill_process(guardian, Signal::STOP).unwrap();
    wait_until_stopped(guardian);
    run.end_input();
    let ended = run.ended();
    assert_eq!((ended.code, &*ended.stderr), (Some(6), ""));
    run.nothing_is_left();
}

#[test]
fn a_guardian_hears_no_signal_that_is_meant_for_the_command() {
    let server = Server::start();
    let mut run = Run::script(&server, LONG, "lock", "trap 'echo TERM' TERM; echo ready; exec cat");
    run.line();
    let guardian = run.guardian();
    let groups = [guardian, run.pid()].map(|pid| getpgid(Some(pid)).unwrap());
    assert_eq!(groups[0], guardian, "it is not in the terminal's foreground group");
    assert_ne!(groups[0], groups[1]);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::ALARM] {
        kill_process(guardian, signal).unwrap();
    }
    assert!(run.is_silent_for(AT_ONCE) && lives(guardian), "it died of them");
    // It goes on guarding.
    run.signal(Signal::KILL);
    run.report_end();
    run.nothing_is_left();
}

#[test]
fn whoever_signals_servers_by_their_name_hits_no_run() {
    let server = Server::start();
    let mut run = Run::script(&server, LONG, "lock", "echo ready; read -r _");
    run.line();
    // As `pkill -x monolock` has it.
    let name = |pid: Pid| fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid())).unwrap();
    assert_eq!(name(server.pid()), "monolock\n");
    assert_eq!(name(run.pid()), "monolock-run\n");
    let descendants = run.descendants();
    assert!(descendants.len() >= 3, "{descendants:?}");
    assert!(descendants.into_iter().all(|pid| name(pid) != "monolock\n"));
    run.end_input();
    run.ended();
}

#[test]
fn a_guardian_holds_none_of_the_commands_streams() {
    let server = Server::start();
    // The command closes its own, and the run is gone: who else has them keeps them from ending.
    let script = reporting("exec 5<&0 0</dev/null 2>/dev/null; echo ready; read -r _ <&5");
    let mut run = Run::start(locked(server.address, LONG, "lock", &["sh", "-c", &script]));
    run.line();
    let descriptors = format!("/proc/{}/fd", run.guardian().as_raw_pid());
    let streams: Vec<_> = (0..3)
        .map(|number| fs::read_link(format!("/proc/{}/fd/{number}", run.pid().as_raw_pid())).unwrap())
        .collect();
    wait_for("only descriptors of its own", || {
        let mut links = fs::read_dir(&descriptors).unwrap().map(|entry| fs::read_link(entry.unwrap().path()));
        links.all(|link| link.is_ok_and(|link| !streams.contains(&link))).then_some(())
    });
    run.end_input();
    run.ended();
}

/// A starter of a command that says something, and the line to it.
fn starter() -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let input = fs::File::open("/dev/null").unwrap();
    let descriptors = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&ours, &[IoSlice::new(b"i")], &mut ancillary, SendFlags::empty()).unwrap();
    let mut starter = Command::new(MONOLOCK);
    starter.args(["run-starter", "--", "echo", "it ran"]).stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
    (starter.spawn().unwrap(), ours)
}

#[test]
fn a_command_starts_when_it_is_let_go_and_not_before() {
    let (mut starter, mut line) = starter();
    line.set_read_timeout(Some(AT_ONCE)).unwrap();
    assert_eq!(line.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "it does not wait");
    assert!(starter.try_wait().unwrap().is_none());
    line.write_all(b"g").unwrap();
    assert_eq!(starter.wait_with_output().unwrap().stdout, b"it ran\n");
}

#[test]
fn a_command_that_nobody_can_let_go_any_more_never_starts() {
    let (starter, line) = starter();
    drop(line);
    assert_eq!(starter.wait_with_output().unwrap().stdout, b"");
}

#[test]
fn a_guardian_without_orders_does_nothing() {
    let server = Server::start();
    let mut bystander = Run::holding(&server, LONG, "lock");
    let group = bystander.descendants().into_iter().find(|pid| getpgid(Some(*pid)) == Ok(*pid));
    let group = group.expect("the command leads a group").as_raw_pid().to_string();
    let mut guardian = Command::new(MONOLOCK);
    guardian.args(["run-guardian", &group]).stdin(Stdio::null());
    assert_eq!(guardian.status().unwrap().code(), Some(0));
    bystander.end_input();
    assert_eq!(bystander.ended().code, Some(0));
    let ended = run_to_end(locked(server.address, LONG, "lock", &["true"]));
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_run_within_a_run_that_is_killed_leaves_nobody_behind() {
    let server = Server::start();
    let address = server.address.to_string();
    let script = reporting("trap '' TERM HUP; echo runs; exec cat");
    let inner = [&*MONOLOCK, "run", "--address", &address, "inner", "--", "sh", "-c", &script];
    let mut run = Run::start(locked(server.address, LONG, "outer", &inner));
    assert_eq!(run.line(), "runs");
    run.signal(Signal::KILL);
    run.report_end();
    run.nothing_is_left();
}

#[test]
fn a_run_whose_file_was_removed_while_it_waited_starts_its_command() {
    let server = Server::start();
    let (holder, _) = server.hold("lock", LONG_LEASE);
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("monolock");
    let status = Command::new("cp").arg(MONOLOCK).arg(&copy).status();
    assert!(status.unwrap().success());
    let mut command = Command::new(&copy);
    command.args(["run", "--address", &server.address.to_string(), "lock", "--", "echo", "it ran"]);
    let mut run = Run::start(command);
    server.wait_for_metric("monolock_waiters", 1.0);
    fs::remove_file(&copy).unwrap();
    holder.close();
    let ended = run.ended();
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), &b"it ran\n"[..], ""));
}
