//! The audit log of a running server: what is in it, in which order, and that nothing of it holds up a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::ServerFrame;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{MONOLOCK, PATIENCE, Peer, Server, acquire, wait_for};

const LEASE: Duration = Duration::from_secs(60);

fn with_log(log: &Path) -> Server {
    Server::with(&["-audit-log", log.to_str().unwrap()])
}

#[test]
fn standard_output_as_a_file_is_refused_with_the_word_for_it_where_it_is_a_socket() {
    for path in ["/dev/stdout", "/dev/stderr", "/proc/self/fd/1"] {
        // As under systemd.
        let (socket, mut manager) = UnixStream::pair().unwrap();
        let give = || Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", "127.0.0.1:0", "-audit-log", path]).stdout(give()).stderr(give());
        assert_eq!(command.status().unwrap().code(), Some(78), "{path}");
        drop((command, socket));
        let mut text = String::new();
        manager.read_to_string(&mut text).unwrap();
        let problem = format!("-audit-log {path}: it is a socket, which cannot be opened");
        assert!(text.contains(&problem) && text.contains(": - is standard output"), "{text}");
    }
}

/// The records of a file, all of whose lines are whole.
fn records(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "torn: {text:?}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Event, lock and reason of each record.
fn shown(records: &[Value]) -> Vec<String> {
    let show = |record: &Value| {
        let [event, lock, reason] =
            ["event", "lock", "reason"].map(|key| record[key].as_str().unwrap_or_default());
        format!("{event} {lock} {reason}").trim_end().to_owned()
    };
    records.iter().map(show).collect()
}

/// For one lock `granted` and `released` alternate, each pair with one token, and tokens grow.
fn assert_alternating(records: &[Value]) {
    let mut holder: Option<u64> = None;
    let mut last = 0;
    for record in records {
        let token = record["token"].as_u64();
        match record["event"].as_str().unwrap() {
            "granted" => {
                assert_eq!(holder, None, "{record}");
                assert!(token.unwrap() > last, "{record}");
                holder = token;
                last = token.unwrap();
            }
            "released" => assert_eq!(holder.take(), token, "{record}"),
            _ => {}
        }
    }
}

#[test]
fn the_log_and_the_audit_log_have_the_same_keys_and_values_for_the_same_things() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "-log-format", "json", "-log-level", "debug"]);
    let stderr = folder.path().join("stderr");
    command.arg("-audit-log").arg(&log).stderr(File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let diagnostics = || -> Vec<Value> {
        let text = fs::read_to_string(&stderr).unwrap();
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let said =
        |what: &str| wait_for(what, || diagnostics().into_iter().find(|line| line["message"] == *what));
    let listening = said("listening");
    let mut peer = Peer::connect(listening["address"].as_str().unwrap().parse().unwrap());
    peer.send(&acquire("jobs", LEASE));
    peer.acquired();
    peer.close();
    for event in ["granted", "released"] {
        let line = said(event);
        let record = wait_for(event, || records(&log).into_iter().find(|record| record["event"] == event));
        for (key, value) in record.as_object().unwrap() {
            match key.as_str() {
                "time" => assert_eq!(line["time"].as_str().unwrap().len(), value.as_str().unwrap().len()),
                // The log's message is the event; without TLS nobody has an identity.
                "event" | "identity" => {}
                key => assert_eq!(&line[key], value, "{key} of {line}"),
            }
        }
        assert!(line["token"].is_u64(), "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn address(peer: &Peer) -> String {
    peer.stream.local_addr().unwrap().to_string()
}

#[test]
fn every_ownership_is_recorded_with_its_end_and_the_shutdown_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let mut server = with_log(&log);
    let (holder, token) = server.hold("jobs", LEASE);
    let mut waiter = server.wait_in_line("jobs", LEASE);
    let addresses = [address(&holder), address(&waiter)];
    holder.close();
    let next = waiter.acquired();
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
    let records = records(&log);
    assert_eq!(
        shown(&records),
        ["granted jobs", "released jobs graceful", "granted jobs", "released jobs shutdown"]
    );
    assert_alternating(&records);
    for (record, (token, address)) in records.iter().zip([(token, 0), (token, 0), (next, 1), (next, 1)]) {
        assert_eq!(record["token"], token.0);
        assert_eq!(record["remote_addr"], *addresses[address]);
        assert_eq!(record["identity"], "");
    }
    let keys: Vec<&String> = records[1].as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 8, "{keys:?}");
    assert!(records[2]["wait_ms"].is_u64() && records[1]["held_ms"].is_u64());
}

#[test]
fn a_log_that_is_renamed_and_reopened_loses_and_doubles_nothing() {
    const ROTATIONS: usize = 5;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let mut server = with_log(&log);
    let stop = AtomicBool::new(false);
    let grants = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut grants = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut holder = server.claim("jobs", LEASE);
                // Its predecessor's end may not have come yet.
                while holder.frame() == ServerFrame::Waiting {}
                holder.close();
                grants += 1;
            }
            grants
        });
        for rotation in 0..ROTATIONS {
            // Not before the file has something to keep.
            wait_for("records", || fs::metadata(&log).ok().filter(|file| file.len() > 0));
            fs::rename(&log, folder.path().join(format!("audit.{rotation}"))).unwrap();
            server.signal(Signal::HUP);
            server.wait_for_metric(
                "monolock_reloads_total{part=\"audit_log\",result=\"success\"}",
                (rotation + 1) as f64,
            );
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
    let files = (0..ROTATIONS).map(|rotation| format!("audit.{rotation}")).chain(["audit.log".into()]);
    let all: Vec<Value> = files.flat_map(|file| records(&folder.path().join(file))).collect();
    assert_alternating(&all);
    assert_eq!(all.iter().filter(|record| record["event"] == "granted").count(), grants);
    assert_eq!(all.len(), 2 * grants);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), ROTATIONS + 1);
}

#[test]
fn a_reopen_that_fails_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, moved) = (folder.path().join("a"), folder.path().join("b"));
    fs::create_dir(&dir).unwrap();
    let mut server = with_log(&dir.join("audit.log"));
    fs::rename(&dir, &moved).unwrap();
    server.signal(Signal::HUP);
    let line = server.log_line("not reloaded");
    assert!(line.contains("-audit-log") && line.contains("a/audit.log"), "{line}");
    server.wait_for_metric("monolock_reloads_total{part=\"audit_log\",result=\"failure\"}", 1.0);
    server.hold("jobs", LEASE).0.close();
    wait_for("records in the old file", || (records(&moved.join("audit.log")).len() == 2).then_some(()));
}

#[test]
fn reloads_pile_up_no_files_while_the_logs_reader_stands_still() {
    const RELOADS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let open = |options: &mut OpenOptions| options.custom_flags(nonblocking).open(&fifo).unwrap();
    let mut reader = open(File::options().read(true));
    let server = with_log(&fifo);
    let mut filler = open(File::options().write(true));
    // A last single byte, since a larger write wants more room.
    for len in [4096, 1] {
        while filler.write(&vec![b'\n'; len]).is_ok() {}
    }
    server.hold("jobs", LEASE).0.close();

    let reloads =
        |result| server.metric(&format!("monolock_reloads_total{{part=\"audit_log\",result=\"{result}\"}}"));
    let before = server.metric("process_open_fds");
    for reload in 1..=RELOADS {
        server.signal(Signal::HUP);
        wait_for("the reload", || (reloads("success") + reloads("failure") == reload as f64).then_some(()));
    }
    let piled_up = server.metric("process_open_fds") - before;
    assert!(piled_up < RELOADS as f64 / 2.0, "{piled_up} files");
    assert!(reloads("failure") > 0.0, "those that are not heeded are said to fail");

    let (mut text, successes) = (String::new(), reloads("success"));
    wait_for("the log to go on", || {
        // It would block when there is nothing.
        let _ = reader.read_to_string(&mut text);
        server.signal(Signal::HUP);
        (text.contains("\"released\"") && reloads("success") > successes).then_some(())
    });
}

#[test]
fn standard_output_is_the_audit_logs_alone_and_locks_go_on_when_its_reader_has_gone() {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0", "-audit-log", "-"]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdout(Stdio::from(writer));
    let server = Server::spawn_with_stdout(command);
    server.hold("jobs", LEASE).0.close();
    let mut text = String::new();
    let deadline = Instant::now() + PATIENCE;
    while text.lines().count() < 2 && Instant::now() < deadline {
        let mut buffer = [0; 4096];
        let len = reader.read(&mut buffer).unwrap();
        text += std::str::from_utf8(&buffer[..len]).unwrap();
    }
    assert!(text.lines().all(|line| line.starts_with("{\"time\":\"")), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    drop(reader);
    server.hold("other", LEASE).0.close();
    wait_for("the losses to be counted", || {
        (server.metric("monolock_audit_dropped_total") >= 2.0).then_some(())
    });
}

#[test]
fn locks_go_on_while_the_disk_is_full_and_what_was_lost_is_said_at_the_end() {
    let mut server = with_log(Path::new("/dev/full"));
    let (mut holder, token) = server.hold("jobs", LEASE);
    server.log_line("No space left");
    for number in 0..100 {
        holder.heartbeat();
        assert_eq!(holder.acquired(), token);
        server.hold(&format!("lock-{number}"), LEASE).0.close();
    }
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
    server.log_line("not written to its end");
}

#[test]
fn a_log_that_may_not_grow_any_more_is_a_full_disk_and_not_the_servers_end() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let mut command = Command::new("prlimit");
    command.args(["--fsize=4096", &MONOLOCK, "-listen", "127.0.0.1:0", "-audit-log", log.to_str().unwrap()]);
    let mut server = Server::spawn(command);
    let (mut holder, token) = server.hold("jobs", LEASE);
    for number in 0..100 {
        server.hold(&format!("lock-{number}"), LEASE).0.close();
    }
    server.log_line("File too large");
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);
}

#[test]
fn a_log_that_cannot_be_opened_is_one_line_and_no_server() {
    let folder = tempfile::tempdir().unwrap();
    File::create(folder.path().join("file")).unwrap();
    for path in ["missing/audit.log", "file/audit.log", "."] {
        let path = folder.path().join(path);
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", "127.0.0.1:0", "-audit-log", path.to_str().unwrap()]);
        let (status, text) = crate::harness::run_to_end(&mut command);
        assert_eq!(status.code(), Some(78), "{text}");
        assert!(text.lines().count() == 1 && text.contains("-audit-log "), "{text}");
    }
}
