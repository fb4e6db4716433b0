//! `monolock top`, over a pipe and on a terminal; and tables on a terminal.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{MONOLOCK, Server, wait_for};
use crate::operator::{LEASE, Site, address, cells, ended, monolock};
use crate::terminal::Terminal;

/// Killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_frame_has_totals_and_the_locks_with_the_longest_queues_first() {
    let site = Site::start();
    let (_old, _) = site.server.hold("old", LEASE);
    let (_a, _) = site.server.hold("a", LEASE);
    let (busy, _) = site.server.hold("busy", LEASE);
    let _waiters: Vec<_> = (0..2).map(|_| site.server.wait_in_line("busy", LEASE)).collect();
    let frame = site.says(&["top", "-once"]);
    let rows = cells(&frame);
    assert_eq!(rows[0][..4], ["monolock", env!("CARGO_PKG_VERSION"), "at", &site.admin]);
    assert_eq!(rows[1], ["sessions", "5", "locks", "3", "held", "3", "waiters", "2"]);
    assert_eq!(rows[2], [""; 0]);
    assert_eq!(rows[3][0], "NAME");
    assert_eq!(rows[4][..2], ["busy", &address(&busy)]);
    let names = |arguments: &[&str]| -> Vec<String> {
        let frame = site.says(&[&["top", "--once"], arguments].concat());
        cells(&frame)[4..].iter().map(|row| row[0].to_owned()).collect()
    };
    assert_eq!(names(&[]), ["busy", "old", "a"]);
    assert_eq!(names(&["-sort", "held"]), ["old", "a", "busy"]);
    assert_eq!(names(&["-sort", "name", "-rows=2"]), ["a", "busy"]);
}

#[test]
fn a_pipe_shows_twenty_locks_a_frame_and_one_frame_after_the_other() {
    let site = Site::start();
    let _held: Vec<_> = (0..30).map(|n| site.server.hold(&format!("lock-{n}"), LEASE)).collect();
    let mut command = site.command(&["top", "-interval", "100ms"]);
    let mut top = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(top.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    for _ in 0..3 {
        let frame: Vec<String> = lines.by_ref().take(25).collect();
        assert!(frame[0].starts_with("monolock "), "{frame:#?}");
        assert_eq!(frame[1], "sessions 30  locks 30  held 30  waiters 0");
        assert!(frame[3].starts_with("NAME"));
        assert!(frame[4..24].iter().all(|line| line.starts_with("lock-")), "{frame:#?}");
        assert_eq!(frame[24], "");
        assert!(frame.iter().all(|line| !line.contains(char::is_control)));
    }
    // The reader leaves.
    drop(lines);
    let status = wait_for("the end", || top.0.try_wait().unwrap());
    let mut stderr = String::new();
    top.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_terminal_is_redrawn_in_place_within_its_size() {
    let site = Site::start();
    let mut held: Vec<_> = (0..30).map(|n| site.server.hold(&format!("lock-{n:02}"), LEASE)).collect();
    let name = "日本語".repeat(20);
    let long = site.server.hold(&name, LEASE);
    let waits = site.server.wait_in_line(&name, LEASE);
    let command = site.command(&["top", "-interval", "100ms", "-rows", "1000"]);
    let terminal = Terminal::start(command, 12, 80, "xterm");
    // The cursor is below it: nothing was scrolled.
    let is_whole = |text: &str| text.lines().count() == 12 - 1 && text.ends_with(" 0");
    let text = terminal.shows("a frame that fills it", is_whole);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("monolock ") && lines[3].starts_with("NAME"), "{text}");
    assert!(lines[4].contains("日本…") || lines[4].contains("語…") || lines[4].contains("本…"), "{text}");
    assert!(lines[4].ends_with(" 1") && lines[4].contains("127.0.0.1:"), "{text}");
    // What is gone leaves nothing behind, neither below nor to the right.
    held.drain(2..);
    drop(waits);
    drop(long);
    let is_less = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        let starts = [
            "monolock ",
            "sessions 2  locks 2  held 2  waiters 0",
            "",
            "NAME     HOLDER ",
            "lock-00  ",
            "lock-01  ",
        ];
        lines.len() == starts.len()
            && lines.iter().zip(starts).all(|(line, start)| line.starts_with(start))
            && lines[3].matches("WAITERS").count() == 1
    };
    terminal.shows("two locks alone", is_less);
}

#[test]
fn a_server_that_goes_away_is_said_so_in_place_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("admin.sock").display());
    let flags = ["-admin-listen", &*socket];
    let terminal = Terminal::start(monolock(&["top", "-interval=100ms", "-admin", &socket]), 24, 80, "xterm");
    let is_away = |text: &str| text.contains("cannot connect") && text.contains("trying again");
    terminal.shows("that nobody is there", is_away);
    for name in ["first", "second"] {
        let server = Server::with(&flags);
        let held = server.hold(name, LEASE);
        terminal.shows("the lock", |text| text.contains(name) && !text.contains("trying again"));
        drop(server);
        let is_in_place =
            |text: &str| is_away(text) && text.starts_with("monolock at ") && !text.contains(name);
        terminal.shows("that the server is away", is_in_place);
        drop(held);
    }
}

#[test]
fn a_terminal_that_understands_text_alone_gets_one_frame_after_the_other() {
    let site = Site::start();
    let _held = site.server.hold("jobs", LEASE);
    let terminal = Terminal::start(site.command(&["top", "-interval=100ms"]), 40, 80, "dumb");
    // It scrolls.
    terminal.shows("three frames", |text| text.matches("NAME ").count() >= 3);
}

#[test]
fn an_interrupt_ends_it_as_a_shell_expects() {
    let site = Site::start();
    // Who runs the tests in the background may have it ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", &MONOLOCK, "top", "--admin", &site.admin]);
    let mut terminal = Terminal::start(command, 24, 80, "xterm");
    terminal.shows("a frame", |text| text.contains("NAME"));
    kill_process(Pid::from_child(&terminal.child), Signal::INT).unwrap();
    let status = terminal.exit();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
}

#[test]
fn a_table_is_cut_to_the_terminals_width_and_whole_in_a_pipe() {
    let site = Site::start();
    let name = "long-".repeat(51);
    let (_holder, token) = site.server.hold(&name, Duration::from_secs(90));
    let _waits = site.server.wait_in_line(&name, LEASE);
    assert!(ended(&mut site.command(&["locks"])).ok().contains(&format!("{name}  127.0.0.1:")));
    for columns in [80, 120] {
        let terminal = Terminal::start(site.command(&["locks"]), 24, columns, "xterm");
        let text = terminal.shows("the row", |text| text.lines().count() == 2);
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row.chars().count(), usize::from(columns), "{text}");
        assert!(row.contains("…  ") && row.ends_with(&format!("  1m30s  {}        1", token.0)), "{text}");
    }
}
