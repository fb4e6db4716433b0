use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::io::ioctl_fionbio;

use super::*;
use logging::{LogFormat, LogLevel, Logging};

/// Longer than any machine keeps a process from running.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says to a process of this test that it is the one that panics, and where.
const PANICS: &str = "PANICS_IN";

/// Another process of the test of this name, which panics in a way.
fn panicking(test: &str, way: &str, stderr: PipeWriter) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Without --nocapture the log would stay in the test's own memory.
    command.args(["--exact", "--nocapture", &format!("vital::tests::{test}")]).env(PANICS, way);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
}

/// What such a process does: what a server does before and around its threads.
fn panic_here(way: &str) -> ! {
    install_hook();
    let _logging = Logging::start(LogLevel::Info, LogFormat::Text).unwrap();
    let _bomb = this_thread();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match way {
        "a vital thread" => drop(start("shard-0".into(), || panic!("on purpose"))),
        "this thread" => runtime.block_on(async {
            // A runtime that is dropped waits for its threads.
            drop(tokio::task::spawn_blocking(thread::park));
            panic!("on purpose")
        }),
        "a task" => drop(runtime.block_on(runtime.spawn(async { panic!("on purpose") }))),
        "another thread" => drop(threads::start("log", || panic!("on purpose")).unwrap().join()),
        _ => unreachable!(),
    }
    error!("still here");
    thread::sleep(PATIENCE);
    unreachable!("the parent ends this")
}

fn fill(pipe: &mut PipeWriter) {
    ioctl_fionbio(&*pipe, true).unwrap();
    let error = loop {
        if let Err(error) = pipe.write(&[b'.'; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    ioctl_fionbio(&*pipe, false).unwrap();
}

fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE / 2;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            panic!("it hangs: {}", child.wait().unwrap());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads until a line has come with this text in it.
fn line_with(reader: &mut PipeReader, text: &str) -> String {
    let mut seen = Vec::new();
    loop {
        let mut byte = [0];
        assert_eq!(
            reader.read(&mut byte).unwrap(),
            1,
            "{text:?} is missing in {:?}",
            String::from_utf8(seen)
        );
        seen.push(byte[0]);
        if byte == *b"\n" {
            let line = String::from_utf8(std::mem::take(&mut seen)).unwrap();
            if line.contains(text) {
                return line;
            }
        }
    }
}

#[test]
fn a_panic_that_nobody_reads_of_ends_the_process_with_70_at_once() {
    if let Ok(way) = std::env::var(PANICS) {
        panic_here(&way);
    }
    for (way, is_closed) in [("a vital thread", false), ("this thread", false), ("this thread", true)] {
        let (unread, mut stderr) = pipe().unwrap();
        fill(&mut stderr);
        let _unread = (!is_closed).then_some(unread);
        let started = Instant::now();
        let status = ended(&mut panicking(
            "a_panic_that_nobody_reads_of_ends_the_process_with_70_at_once",
            way,
            stderr,
        ));
        assert_eq!(status.code(), Some(70), "{way}");
        assert!(started.elapsed() < PATIENCE / 4, "{way}: {:?}", started.elapsed());
    }
}

#[test]
fn a_panic_is_a_line_of_the_log_and_one_of_a_task_or_of_another_thread_ends_no_process() {
    if let Ok(way) = std::env::var(PANICS) {
        panic_here(&way);
    }
    let ways = [("a vital thread", "shard-0", true), ("a task", "", false), ("another thread", "log", false)];
    for (way, name, is_vital) in ways {
        let (mut reader, stderr) = pipe().unwrap();
        let test = "a_panic_is_a_line_of_the_log_and_one_of_a_task_or_of_another_thread_ends_no_process";
        let mut child = panicking(test, way, stderr);
        let line = line_with(&mut reader, "on purpose");
        assert!(line.contains("ERROR") && line.contains(&format!("thread=\"{name}")), "{way}: {line}");
        assert!(line.contains("place=daemon/src/vital/tests.rs:"), "{way}: {line}");
        if is_vital {
            assert_eq!(ended(&mut child).code(), Some(70), "{way}");
        } else {
            line_with(&mut reader, "still here");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
