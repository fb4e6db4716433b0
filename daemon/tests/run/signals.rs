//! Signals: they end a wait, and belong to the command once it runs.

use std::process::Command;

use rustix::process::{Pid, Signal};

use crate::harness::Server;
use crate::runs::{
    DEFAULT_SIGNALS, LONG, LONG_LEASE, Run, locked, monolock_run, reporting, run_to_end, wait_until_stopped,
};

/// Reports each signal by its name until its input ends.
const LISTENING: &str = "
    exec 4<&0
    trap '' HUP INT QUIT TERM USR1 USR2 ALRM
    cat <&4 &
    for name in HUP INT QUIT TERM USR1 USR2 ALRM; do trap \"echo $name\" $name; done
    echo ready
    while kill -0 $!; do wait $!; done 2>/dev/null
    exit 9";

const FORWARDED: [(Signal, &str); 7] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::TERM, "TERM"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
    (Signal::ALARM, "ALRM"),
];

#[test]
fn a_signal_ends_the_wait_and_leaves_the_queue_at_once() {
    let server = Server::start();
    let (mut holder, token) = server.hold("lock", LONG_LEASE);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut run = Run::start(locked(server.address, LONG, "lock", &["echo", "it ran"]));
        server.wait_for_metric("monolock_waiters", 1.0);
        run.signal(signal);
        let ended = run.ended();
        server.wait_for_metric("monolock_waiters", 0.0);
        assert_eq!(ended.code, Some(128 + signal.as_raw()));
        assert_eq!((&*ended.stdout, &*ended.stderr), (&b""[..], ""));
    }
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);
}

#[test]
fn a_running_command_gets_the_signals_and_goes_on_under_the_lock() {
    let server = Server::start();
    let mut run = Run::script(&server, LONG, "lock", LISTENING);
    assert_eq!(run.line(), "ready");
    for (signal, name) in FORWARDED {
        run.signal(signal);
        assert_eq!(run.line(), name);
    }
    let waiter = server.wait_in_line("lock", LONG_LEASE);
    drop(waiter);
    run.end_input();
    run.report_end();
    let ended = run.ended();
    assert_eq!((ended.code, &*ended.stderr), (Some(9), ""));
}

#[test]
fn a_stopped_command_hears_a_signal_that_ends_it() {
    let server = Server::start();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        // What the terminal does to a command in the background that reads from it.
        let mut run = Run::script(&server, LONG, "lock", "echo $$; kill -STOP $$; read -r _");
        let command = Pid::from_raw(run.line().parse().unwrap()).unwrap();
        wait_until_stopped(command);
        run.signal(signal);
        run.report_end();
        assert_eq!(run.ended().code, Some(128 + signal.as_raw()));
        server.wait_for_metric("monolock_locks_held", 0.0);
    }
}

#[test]
fn a_forwarded_signal_that_ends_the_command_is_its_status() {
    let server = Server::start();
    for (signal, _) in FORWARDED {
        let mut run = Run::holding(&server, LONG, "lock");
        run.signal(signal);
        run.report_end();
        let ended = run.ended();
        assert_eq!((ended.code, &*ended.stderr), (Some(128 + signal.as_raw()), ""));
    }
    server.wait_for_metric("monolock_locks_held", 0.0);
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let server = Server::start();
    let inner = reporting("echo ready; read -r _; exit 9");
    let run = locked(server.address, LONG, "lock", &["sh", "-c", &inner]);
    let mut env = Command::new("env");
    env.args(["--default-signal=TERM", "--ignore-signal=HUP"]).args(run.get_args().skip(2));
    let mut run = Run::start(env);
    run.line();
    run.signal(Signal::HUP);
    // A signal is forwarded before a later one of a higher number is: had HUP come through, it had been
    // first.
    run.signal(Signal::TERM);
    run.report_end();
    assert_eq!(run.ended().code, Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn the_stop_of_a_terminal_stops_nothing() {
    let server = Server::start();
    let mut run = Run::script(&server, LONG, "lock", LISTENING);
    run.line();
    run.signal(Signal::TSTP);
    run.signal(Signal::USR1);
    assert_eq!(run.line(), "USR1");
    run.end_input();
    run.report_end();
    assert_eq!(run.ended().code, Some(9));
}

#[test]
fn the_command_starts_with_the_signals_that_any_command_has() {
    let server = Server::start();
    let look = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let alone = Command::new("env").arg(DEFAULT_SIGNALS).args(look).output().unwrap();
    let mut command = monolock_run(&["--address", &server.address.to_string(), "lock", "--"]);
    let locked = command.args(look).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&locked.stdout), String::from_utf8_lossy(&alone.stdout));
}

/// `monolock run` of a command after env(1) has changed what it is started with.
fn under(server: &Server, changes: &[&str], command: &[&str]) -> Command {
    let run = locked(server.address, LONG, "lock", command);
    let mut env = Command::new("env");
    env.arg(DEFAULT_SIGNALS).args(changes).args(run.get_args().skip(2));
    env
}

#[test]
fn a_run_whose_parent_blocked_or_ignored_signals_ends_with_its_command_and_can_be_stopped() {
    let server = Server::start();
    for change in ["--block-signal=CHLD", "--ignore-signal=CHLD", "--block-signal"] {
        let ended = run_to_end(under(&server, &[change], &["sh", "-c", "exit 7"]));
        assert_eq!((ended.code, &*ended.stderr), (Some(7), ""), "{change}");
        server.wait_for_metric("monolock_locks_held", 0.0);
    }
    let (_holder, _) = server.hold("lock", LONG_LEASE);
    let mut waiting = Run::start(under(&server, &["--block-signal=TERM"], &["echo", "it ran"]));
    server.wait_for_metric("monolock_waiters", 1.0);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.ended().code, Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn a_guardian_stops_the_command_whatever_signals_the_parent_blocked() {
    let server = Server::start();
    let script = reporting("echo ready; exec cat");
    let mut run =
        Run::start(under(&server, &["--block-signal", "--ignore-signal=CHLD"], &["sh", "-c", &script]));
    run.line();
    run.signal(Signal::KILL);
    run.report_end();
    run.nothing_is_left();
}

#[test]
fn the_command_has_the_signal_mask_and_the_ignored_signals_that_it_would_have_had_alone() {
    let server = Server::start();
    let look = ["grep", "Sig[BI]", "/proc/self/status"];
    for changes in [
        &["--default-signal"][..],
        &["--ignore-signal=PIPE"],
        &["--ignore-signal=CHLD", "--block-signal=CHLD,TERM,USR2"],
        &["--ignore-signal=HUP,INT,QUIT,TSTP,TTIN,TTOU,WINCH,PIPE", "--block-signal"],
        &["--ignore-signal", "--block-signal=PIPE"],
    ] {
        let mut alone = Command::new("env");
        alone.arg(DEFAULT_SIGNALS).args(changes).args(look);
        let alone = String::from_utf8(alone.output().unwrap().stdout).unwrap();
        assert_eq!(alone.lines().count(), 2, "{alone}");
        let ended = run_to_end(under(&server, changes, &look));
        assert_eq!(String::from_utf8(ended.stdout).unwrap(), alone, "{changes:?}");
    }
}
