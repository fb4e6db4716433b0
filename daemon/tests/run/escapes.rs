//! Who leaves the command's group, or cannot be signalled: stopped all the same, or named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{MONOLOCK, Server, wait_for};
use crate::loss::{LEASE, LOST};
use crate::runs::{
    AT_ONCE, ATTEMPTS, LONG, LONG_LEASE, Run, monolock_run, only_line, run_to_end, wait_until_stopped,
};

/// Two that left the group and do not hear SIGTERM, one of them without a parent; the command goes on until
/// its input ends.
const ESCAPED: &str = "
    exec 4<&0
    (setsid sh -c 'trap \"\" TERM HUP; echo ready; cat <&4' &)
    timeout 600 sh -c 'trap \"\" TERM HUP; echo ready; cat <&4' &
    trap 'exit 3' TERM
    cat <&4 >/dev/null & wait $!; exit 3";

fn escaped(server: &Server, lease: &str, name: &str) -> Run {
    let mut run = Run::script(server, lease, name, ESCAPED);
    assert_eq!([run.line(), run.line()], ["ready", "ready"]);
    run
}

#[test]
fn who_left_the_group_is_dead_before_the_next_one_has_the_lock() {
    let server = Server::start();
    let script = "exec 4</dev/null 5<&0
        (setsid sh -c 'trap \"\" TERM HUP; echo ready; cat <&5' &)
        timeout 600 sh -c 'trap \"\" TERM HUP; echo ready; cat <&5' &
        exec 5<&-
        sleep 0.3; exit 3";
    let mut run = Run::script(&server, LONG, "lock", script);
    assert_eq!([run.line(), run.line()], ["ready", "ready"]);
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    next.acquired();
    // Itself and its guardian may still be on their way out.
    let others = || run.descendants().len() <= 2;
    assert!(others(), "somebody lives under another one's lock: {:?}", run.descendants());
    run.report_end();
    let ended = run.ended();
    assert_eq!((ended.code, &*ended.stderr), (Some(3), ""));
    run.nothing_is_left();
}

#[test]
fn who_left_the_group_is_dead_in_time_when_the_claim_is_lost() {
    let attempt = |_| {
        let server = Server::start();
        let mut run = escaped(&server, "2s", "lock");
        server.signal(Signal::KILL);
        let killed = Instant::now();
        let dead = run.report_end_after_all();
        let ended = run.ended();
        assert_eq!(ended.code, LOST, "{ended:?}");
        // The shell says something too.
        assert!(!ended.stderr.contains("may go on"), "{ended:?}");
        run.nothing_is_left();
        dead.saturating_duration_since(killed)
    };
    assert!((0..ATTEMPTS).map(attempt).any(|lived| lived <= LEASE * 9 / 10));
}

#[test]
fn the_guardian_stops_who_left_the_group_of_a_stopped_and_of_a_killed_run() {
    let server = Server::start();
    let mut run = escaped(&server, "2s", "stopped");
    run.signal(Signal::STOP);
    wait_until_stopped(run.pid());
    run.report_end_after_all();
    run.signal(Signal::CONT);
    assert_eq!(run.ended().code, LOST);
    run.nothing_is_left();

    let attempt = |attempt| {
        let mut run = escaped(&server, LONG, &format!("killed-{attempt}"));
        run.signal(Signal::KILL);
        let killed = Instant::now();
        let dead = run.report_end_after_all();
        run.nothing_is_left();
        dead.saturating_duration_since(killed)
    };
    let fastest = (0..ATTEMPTS).map(attempt).min().unwrap();
    assert!(fastest <= AT_ONCE, "{fastest:?}");
}

#[test]
fn who_left_the_group_is_asked_once_before_it_is_killed() {
    let server = Server::start();
    for leave in ["(setsid", "(timeout 600"] {
        let script = format!(
            "{leave} bash -c 'n=0; trap \"echo asked-\\$((n += 1))\" TERM; echo ready; while :; do sleep 0.02; done' &)
            read -r _; exit 3"
        );
        let mut run = Run::script(&server, LONG, "lock", &script);
        assert_eq!(run.line(), "ready");
        run.end_input();
        assert_eq!(run.line(), "asked-1", "{leave}");
        // Killed a second later, in silence.
        run.report_end();
        let ended = run.ended();
        assert_eq!(ended.code, Some(3), "{leave}: {ended:?}");
    }
}

#[test]
fn orphans_of_the_command_are_reaped_while_it_runs() {
    let server = Server::start();
    let script =
        "for i in 1 2 3 4 5; do (sh -c 'echo orphan; exec sleep 0.1' &); done; echo ready; read -r _; exit 0";
    let mut run = Run::script(&server, LONG, "lock", script);
    for _ in 0..6 {
        run.line();
    }
    let parent = run.pid().as_raw_pid();
    wait_for("only the command and the guardian", || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        (children.split_ascii_whitespace().count() == 2).then_some(())
    });
    run.end_input();
    assert_eq!(run.ended().code, Some(0));
}

#[test]
fn a_stopped_command_is_told_of_without_a_terminal_too() {
    let server = Server::start();
    let mut run = Run::script(&server, LONG, "lock", "echo $$; kill -STOP $$; read -r _; exit 4");
    let command = Pid::from_raw(run.line().parse().unwrap()).unwrap();
    wait_until_stopped(command);
    server.wait_for_metric("monolock_locks_held", 1.0);
    run.end_input();
    // It hears of the end of its input once it goes on.
    std::thread::sleep(Duration::from_millis(1));
    kill_process(command, Signal::CONT).unwrap();
    let ended = run.ended();
    assert_eq!(ended.code, Some(4));
    let expected =
        format!("keeps \"lock\" at {} locked: SIGCONT to process {command} continues it", server.address);
    assert!(only_line(&ended).contains(&expected), "{ended:?}");
}

/// A user of no privileges.
const NOBODY: &str = "65534";

/// A program that becomes root whoever runs it, and then the command after `--reuid 0`.
fn becomes_root(directory: &Path) -> String {
    let program = directory.join("becomes-root");
    assert!(Command::new("cp").arg("/usr/bin/setpriv").arg(&program).status().unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

/// `monolock run` as somebody who may not signal root's processes, after some preparation of root's.
fn as_nobody(server: &Server, preparation: &str, lease: &str, script: &str) -> Command {
    let run = monolock_run(&[
        "--address",
        &server.address.to_string(),
        "--lease",
        lease,
        "lock",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let mut command = Command::new("unshare");
    let words = "exec setpriv --reuid \"$0\" --regid \"$0\" --clear-groups \"$@\"";
    command.args(["--mount", "sh", "-c", &format!("{preparation}\n{words}"), NOBODY]);
    command.arg(run.get_program()).args(run.get_args());
    command
}

/// The process that a script reported.
fn reported(directory: &Path) -> Pid {
    let number = || fs::read_to_string(directory.join("pid")).ok()?.trim().parse().ok();
    Pid::from_raw(wait_for("a process number", number)).unwrap()
}

#[test]
#[ignore = "needs root, to be another user; .ci/run runs it"]
fn a_command_of_another_user_is_named_when_it_cannot_be_stopped() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let becomes_root = becomes_root(directory.path());
    let pid = directory.path().join("pid");
    let script = format!(
        "exec {becomes_root} --reuid 0 --clear-groups sh -c 'echo $$ >{}; exec sleep 60'",
        pid.display()
    );
    let mut run = Run::start(as_nobody(&server, "", "2s", &script));
    let command = reported(directory.path());
    server.signal(Signal::TERM);
    let ended = run.child_end();
    kill_process(command, Signal::KILL).expect("it lives");
    assert_eq!(ended, LOST);
    let stderr = run.ended().stderr;
    let named = stderr
        .lines()
        .filter(|line| line.contains(&format!("process {command} (sleep) runs as another user")));
    assert_eq!(named.count(), 1, "{stderr}");
}

#[test]
#[ignore = "needs root, to be another user; .ci/run runs it"]
fn a_left_over_that_proc_hides_has_its_grace_and_is_named() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let becomes_root = becomes_root(directory.path());
    let pid = directory.path().join("pid");
    let script = format!(
        "{becomes_root} --reuid 0 --clear-groups setsid sh -c 'echo $$ >{}; exec sleep 60' & sleep 1; exit 3",
        pid.display()
    );
    let hide = "mount -t proc -o hidepid=2 proc /proc";
    let mut run = Run::start(as_nobody(&server, hide, "600s", &script));
    let left_over = reported(directory.path());
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    wait_for("the command's end", || {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.pid())).ok()?;
        children.split_ascii_whitespace().any(|child| child == left_over.to_string()).then_some(())
    });
    let ended = Instant::now();
    next.acquired();
    assert!(ended.elapsed() >= Duration::from_millis(900), "without its grace: {:?}", ended.elapsed());
    let code = run.child_end();
    kill_process(left_over, Signal::KILL).expect("it lives");
    assert_eq!(code, Some(3));
    let stderr = run.ended().stderr;
    assert!(stderr.contains(&format!("process {left_over} (hidden) runs as another user")), "{stderr}");
}

#[test]
#[ignore = "needs root, to mount; .ci/run runs it"]
fn a_system_without_proc_is_told_of() {
    let server = Server::start();
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /proc; exec \"$0\" \"$@\"",
        &MONOLOCK,
        "run",
        "--address",
    ]);
    command.args([&server.address.to_string(), "lock", "--", "true"]);
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(71));
    assert!(only_line(&ended).contains("needs /proc"), "{ended:?}");
}
