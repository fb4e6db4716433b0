//! A terminal and an interactive shell: a command under `monolock run` is a job like any other.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{MONOLOCK, Server, wait_for};
use crate::runs::{AT_ONCE, ATTEMPTS, DEFAULT_SIGNALS, LONG_LEASE};
use crate::terminal::Terminal;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

/// A program with a terminal of its own.
fn at_terminal(program: &[&str], server: &Server) -> Terminal {
    let mut command = Command::new("setsid");
    command.args(["--ctty", "env", "-u", "MONOLOCK_ADDRESS", DEFAULT_SIGNALS]).args(program);
    // `$RUN lock -- …` in what is typed.
    let run = format!("{MONOLOCK} run --address {} --lease 600s --kill-after 1s", server.address);
    command.env("RUN", run).env("PS1", "ready> ").env("INPUTRC", "/dev/null").env("HISTFILE", "/dev/null");
    Terminal::start(command, 60, 200, "xterm")
}

fn shell(server: &Server) -> Terminal {
    let shell = at_terminal(&["bash", "--norc", "--noprofile", "-i"], server);
    shell.has("ready> ");
    shell
}

fn held(server: &Server, locks: f64) {
    server.wait_for_metric("monolock_locks_held", locks);
}

#[test]
fn an_answer_that_is_typed_reaches_the_command_and_the_shell_has_the_terminal_back_then() {
    let server = Server::start();
    let mut shell = shell(&server);
    for (input, question) in [("", ""), ("</dev/null", "</dev/tty")] {
        let ask = format!("printf 'your na''me: '; read -r name {question}; echo \"hello $name\"");
        shell.types(&format!(
            "clear; $RUN lock -- sh -c \"{}\" {input}\n",
            ask.replace('"', "\\\"").replace('$', "\\$")
        ));
        shell.has("your name: ");
        shell.types("tiger\n");
        shell.has("hello tiger");
        shell.types("echo status:$?\n");
        shell.has("status:0");
    }
    held(&server, 0.0);
}

#[test]
fn a_stopped_job_says_that_it_keeps_the_lock_and_goes_on_in_the_foreground() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.types("$RUN lock -- sh -c 'echo be''gan; read -r x; echo \"got $x\"'\n");
    shell.has("began");
    shell.types(CTRL_Z);
    shell.has(&format!(
        "the command is stopped and keeps \"lock\" at {} locked: fg continues it",
        server.address
    ));
    shell.has("Stopped");
    shell.types("echo the shell is $((40 + 2))\n");
    shell.has("the shell is 42");
    held(&server, 1.0);
    shell.types("fg\n");
    shell.types("tiger\n");
    shell.has("got tiger");
    shell.types("echo status:$?\n");
    shell.has("status:0");
    held(&server, 0.0);
}

#[test]
fn a_background_job_that_reads_the_terminal_stops_with_a_word_and_reads_in_the_foreground() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.types("$RUN lock -- sh -c 'read -r x; echo \"got $x\"' &\n");
    shell.has(&format!(
        "the command is stopped and keeps \"lock\" at {} locked: fg continues it",
        server.address
    ));
    held(&server, 1.0);
    shell.types("fg\n");
    shell.has("fg\n$RUN lock");
    shell.types("tiger\n");
    shell.has("got tiger");
    held(&server, 0.0);
}

#[test]
fn a_job_whose_command_alone_is_stopped_gives_the_shell_its_terminal() {
    let server = Server::start();
    let mut shell = shell(&server);
    // By itself, and by a shell within that leaves the job's group.
    for (stop, then) in
        [("sh -c 'kill -STOP $$; echo went o''n; read -r x'", "x\n"), ("bash --norc -i", "exit\n")]
    {
        shell.types(&format!("clear; $RUN lock -- {stop}\n"));
        if stop.starts_with("bash") {
            shell.has("ready> ");
            shell.types("suspend -f\n");
        }
        shell.has("fg continues it");
        shell.has("Stopped");
        shell.types("echo the shell is $((40 + 2))\n");
        shell.has("the shell is 42");
        held(&server, 1.0);
        shell.types("fg\n");
        shell.has("fg\n$RUN lock");
        shell.types(then);
        held(&server, 0.0);
    }
}

#[test]
fn a_background_job_that_may_not_write_stops_with_a_word() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.types("stty tostop; $RUN lock -- sh -c 'echo w''ritten' &\n");
    shell.has("fg continues it");
    assert!(!shell.text().contains("written"));
    shell.types("fg\n");
    shell.has("written");
    held(&server, 0.0);
}

#[test]
fn ctrl_c_ends_the_command_once_and_the_script_around_it() {
    let server = Server::start();
    let mut shell = shell(&server);
    for around in ["bash", "sh"] {
        let turn = "$RUN lock -- sh -c \"echo turn-$((i + 1)); exec sleep 600\"";
        shell.types(&format!("clear; {around} -c 'for i in 1 2 3; do {turn}; done; echo end-$i'\n"));
        shell.has("turn-2");
        held(&server, 1.0);
        // The terminal drops what was typed and not read.
        shell.types(CTRL_C);
        shell.has("^C\nready> ");
        shell.types("echo status:$?\n");
        shell.has("status:130");
        held(&server, 0.0);
        assert!(!shell.text().contains("turn-3") && !shell.text().contains("end-3"));
    }
    shell.types("clear; $RUN lock -- sleep 600\n");
    held(&server, 1.0);
    shell.types(CTRL_BACKSLASH);
    held(&server, 0.0);
    shell.has("Quit");
    shell.types("echo status:$?\n");
    shell.has("status:131");
}

#[test]
fn a_signal_reaches_the_command_once_whether_it_is_for_the_job_or_for_monolock_run_alone() {
    let server = Server::start();
    let mut shell = shell(&server);
    let count =
        "n=0; trap 'n=$((n + 1)); echo count-$n' INT TERM HUP; echo be''gan; while :; do sleep 0.05; done";
    shell.types(&format!("$RUN lock -- bash -c \"{}\"\n", count.replace('$', "\\$")));
    shell.has("began");
    shell.types(CTRL_C);
    shell.has("count-1");
    shell.types(CTRL_Z);
    shell.has("fg continues it");
    shell.types("bg\n");
    shell.types("kill %1\n");
    shell.has("count-2");
    shell.types("sleep 1; kill -TERM $(jobs -p)\n");
    shell.has("count-3");
    shell.types("kill -HUP %1; sleep 1; echo sle''pt\n");
    shell.has("slept");
    shell.has("count-4");
    assert!(!shell.text().contains("count-5"), "{}", shell.text());
    shell.types("kill -KILL %1\n");
    held(&server, 0.0);
}

#[test]
fn another_program_of_the_pipeline_reads_the_terminal_meanwhile() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.types(
        "$RUN lock -- seq 3 | sh -c 'printf \"next''? \"; read -r x </dev/tty; echo \"$x $(cat | wc -l)\"'\n",
    );
    shell.has("next? ");
    shell.types("tiger\n");
    shell.has("tiger 3");
    held(&server, 0.0);
}

#[test]
fn a_turn_that_comes_while_the_waiting_job_is_stopped_is_passed_on_and_waited_for_again() {
    let server = Server::start();
    let mut shell = shell(&server);
    let (holder, _) = server.hold("lock", LONG_LEASE);
    shell.types("$RUN lock -- echo it r''an\n");
    server.wait_for_metric("monolock_waiters", 1.0);
    // Whoever was told of the wait is told of its end, and this is not its end.
    shell.has("waiting for");
    shell.types(CTRL_Z);
    shell.has("Stopped");
    let mut next = server.wait_in_line("lock", LONG_LEASE);
    holder.close();
    next.acquired();
    shell.has("this job is stopped");
    assert!(!shell.text().contains("acquired"), "{}", shell.text());
    shell.types("fg\n");
    server.wait_for_metric("monolock_waiters", 1.0);
    assert!(!shell.text().contains("it ran"));
    next.close();
    shell.has("it ran");
    held(&server, 0.0);
}

/// Whether there is a front, in its own program.
fn runs_at(server: &Server) -> bool {
    let words = format!("run\0--address\0{}\0", server.address);
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(&words))
}

#[test]
fn ctrl_c_at_any_moment_of_the_start_ends_the_command() {
    let server = Server::start();
    let mut shell = shell(&server);
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for turn in 0..20 {
        shell.types(&format!("clear; echo turn-$((9{turn:02} + 0)); $RUN lock -- sleep 600\n"));
        shell.has(&format!("turn-9{turn:02}"));
        // Before that, the shell itself may miss it.
        wait_for("the front", || runs_at(&server).then_some(()));
        // What is looked for is a race between this and the command's start, which takes some 30 ms.
        std::thread::sleep(Duration::from_micros(random.u64(..60_000)));
        shell.types(CTRL_C);
        shell.has("^C\nready> ");
        held(&server, 0.0);
        assert!(!shell.text().contains("monolock run:"), "{}", shell.text());
    }
}

#[test]
fn ctrl_c_ends_a_wait() {
    let server = Server::start();
    let mut shell = shell(&server);
    let _holder = server.hold("lock", LONG_LEASE);
    shell.types("$RUN lock -- echo it r''an\n");
    server.wait_for_metric("monolock_waiters", 1.0);
    shell.types(CTRL_C);
    server.wait_for_metric("monolock_waiters", 0.0);
    shell.has("^C\nready> ");
    shell.types("echo status:$?\n");
    shell.has("status:130");
}

#[test]
fn nobody_is_left_when_the_front_is_killed_or_the_terminal_is_closed() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.types("$RUN lock -- sh -c 'trap \"\" HUP TERM; echo pid-$$.; cat; sleep 600'\n");
    let command = wait_for("the command", || {
        let text = shell.text();
        let pid = text.split("pid-").filter_map(|rest| rest.split('.').next()?.parse().ok()).next()?;
        Pid::from_raw(pid)
    });
    let parent = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Pid::from_raw(stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?)
    };
    let front = parent(parent(command).unwrap()).unwrap();
    kill_process(front, Signal::KILL).unwrap();
    held(&server, 0.0);
    wait_for("the command's end", || parent(command).is_none().then_some(()));

    shell.types("$RUN lock -- sleep 600\n");
    held(&server, 1.0);
    drop(shell);
    held(&server, 0.0);
}

#[test]
fn a_lock_moves_on_at_once_when_the_front_is_killed() {
    let server = Server::start();
    let mut shell = shell(&server);
    let attempt = |attempt| {
        let lock = format!("lock-{attempt}");
        shell.types(&format!(
            "clear; $RUN {lock} -- sh -c 'echo front-{attempt}-$(ps -o ppid= $PPID | tr -d \" \").; cat'\n"
        ));
        let front = wait_for("the front", || {
            let text = shell.text();
            let pid = text
                .split(&format!("front-{attempt}-"))
                .filter_map(|rest| rest.split('.').next()?.parse().ok())
                .next()?;
            Pid::from_raw(pid)
        });
        let mut next = server.wait_in_line(&lock, LONG_LEASE);
        let killed = Instant::now();
        kill_process(front, Signal::KILL).unwrap();
        next.acquired();
        let took = killed.elapsed();
        shell.has("Killed");
        took
    };
    let fastest = (0..ATTEMPTS).map(attempt).min().unwrap();
    assert!(fastest <= AT_ONCE, "{fastest:?}");
}

#[test]
fn a_terminal_that_a_killed_command_left_raw_has_its_modes_back() {
    let server = Server::start();
    let mut shell = shell(&server);
    shell.types("$RUN lock -- sh -c 'stty raw -echo; kill -KILL $$'\n");
    held(&server, 0.0);
    shell.types("stty -a | tr ';' '\\n' | grep -o '[-]*icanon' | sed s/^/mode:/\n");
    shell.has("mode:icanon");
}

#[test]
fn a_terminal_that_a_killed_command_took_for_a_group_of_its_own_is_given_back() {
    let server = Server::start();
    let mut shell = shell(&server);
    // As sudo and shells do. The script around goes on when the lock is lost.
    let script = tempfile::NamedTempFile::new().unwrap();
    let text = r#"
        $RUN lock -- bash -c 'trap "" TERM; set -m; sh -c "stty raw -echo; echo began; exec sleep 600"; :'
        stty -a | tr ';' '\n' | grep -o '[-]*icanon' | sed s/^/mode:/
        read -r x; echo "got $x""#;
    std::fs::write(&script, text).unwrap();
    shell.types(&format!("clear; sh {}\n", script.path().display()));
    shell.has("began");
    server.signal(Signal::KILL);
    shell.has("mode:icanon");
    shell.types("tiger\n");
    shell.has("got tiger");
}

#[test]
fn a_command_without_a_shell_around_it_has_the_terminal_too() {
    let server = Server::start();
    let address = server.address.to_string();
    let ask = "printf 'name: '; read -r name; echo \"hello $name\"; sleep 600";
    let mut terminal =
        at_terminal(&[&*MONOLOCK, "run", "--address", &address, "lock", "--", "sh", "-c", ask], &server);
    terminal.has("name: ");
    terminal.types("tiger\n");
    terminal.has("hello tiger");
    // Nobody could continue it: the kernel does not stop it.
    terminal.types(CTRL_Z);
    terminal.types(CTRL_C);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&terminal.exit()), Some(2));
    held(&server, 0.0);
}

#[test]
#[ignore = "needs root, for a namespace; .ci/run runs it"]
fn the_first_process_of_a_container_gives_the_command_its_terminal_and_reaps_orphans() {
    let server = Server::start();
    let address = server.address.to_string();
    let script =
        "for i in 1 2 3; do (sh -c 'sleep 0.1' &); done; echo begun; read -r name; echo \"hello $name\"
        while [ $(grep -l 'State:.Z' /proc/[0-9]*/status | wc -l) != 0 ]; do :; done; echo reaped; sleep 600";
    // The job's group is outside, and has no number within.
    let container = ["unshare", "--pid", "--fork", "--mount-proc", &MONOLOCK, "run", "--address", &address];
    let mut terminal =
        at_terminal(&[&container[..], &["lock", "--", "bash", "-c", script]].concat(), &server);
    terminal.has("begun");
    terminal.types("tiger\n");
    terminal.has("hello tiger");
    terminal.has("reaped");
    terminal.types(CTRL_C);
    terminal.exit();
    held(&server, 0.0);
}

#[test]
fn children_that_a_script_leaves_to_the_run_are_not_the_commands() {
    let server = Server::start();
    let address = server.address.to_string();
    let script = format!(
        "(sleep 1; echo the child ended) & exec {MONOLOCK} run --address {address} lock -- sh -c 'echo the command ended'"
    );
    let mut command = Command::new("setsid");
    let output = command.args(["bash", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "the command ended\nthe child ended\n");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}
