//! The log over real files, pipes and devices.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use audit::{Log, Recorder, Target};
use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;
use testkit::audit_lines::{events, line, lines, lost};
use testkit::patience::wait_for;

use crate::event;

/// Longer than any machine keeps a thread from running.
const TEST_TIME_MAX: Duration = Duration::from_secs(60);

/// Events that are recorded and not yet written, at most.
const EVENTS_MAX: u64 = 65_536;

/// As long as a finish that must fail is waited for.
const SHORT: Duration = Duration::from_millis(50);

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn fifo(&self) -> PathBuf {
        let path = self.path("fifo");
        rustix::fs::mkfifoat(CWD, &path, 0o600.into()).unwrap();
        path
    }
}

fn start(path: &Path) -> Result<(Log, Recorder), String> {
    audit::start(&Target::File(path.into())).map_err(|error| error.to_string())
}

fn finish(log: Log, time_max: Duration) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(log.finish(time_max))
}

fn finish_all(log: Log) {
    assert_eq!(finish(log, TEST_TIME_MAX), 0);
}

/// A reader of a FIFO, opened whether or not anybody writes to it.
fn reader(fifo: &Path) -> File {
    let file = rustix::fs::open(fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    file.into()
}

#[test]
fn finish_writes_all_that_was_recorded() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    let (log, mut recorder) = start(&path).unwrap();
    for number in 0..10_000 {
        recorder.record(event("a", number));
    }
    finish_all(log);
    assert_eq!(lines(&fs::read(&path).unwrap()), events(0..10_000));
}

#[test]
fn a_log_is_created_for_its_owner_and_group_and_an_old_one_is_continued() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    for number in 0..2 {
        let (log, mut recorder) = start(&path).unwrap();
        recorder.record(event("a", number));
        finish_all(log);
    }
    assert_eq!(lines(&fs::read(&path).unwrap()), events(0..2));
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode & !0o640, 0, "{mode:o}");
    assert_eq!(mode & 0o600, 0o600, "{mode:o}");
}

#[test]
fn half_a_line_of_a_process_that_died_stays_apart() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    fs::write(&path, "{\"time\":\"20").unwrap();
    let (log, mut recorder) = start(&path).unwrap();
    recorder.record(event("a", 0));
    finish_all(log);
    let text = fs::read_to_string(&path).unwrap();
    let (half, whole) = text.split_once('\n').unwrap();
    assert_eq!(half, "{\"time\":\"20");
    assert_eq!(lines(whole.as_bytes()), events([0]));
}

#[test]
fn a_file_that_is_truncated_before_its_first_line_has_no_empty_one() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    fs::write(&path, "{\"time\":\"20").unwrap();
    let (log, mut recorder) = start(&path).unwrap();
    File::create(&path).unwrap();
    recorder.record(event("a", 0));
    finish_all(log);
    assert_eq!(lines(&fs::read(&path).unwrap()), events([0]));
}

#[test]
fn a_target_that_cannot_be_written_is_an_error_at_once() {
    let folder = Folder::new();
    let folder_path = folder.0.path().to_owned();
    fs::write(folder.path("file"), "").unwrap();
    for (path, problem) in [
        (folder_path, "Is a directory (os error 21)"),
        (folder.path("missing/audit.log"), "No such file or directory (os error 2)"),
        (folder.path("file/audit.log"), "Not a directory (os error 20)"),
        (folder.fifo(), "nothing reads from it: start the reader of the FIFO first"),
    ] {
        let error = start(&path).err().unwrap();
        assert_eq!(error, format!("{}: {problem}", path.display()));
    }
}

#[test]
fn a_dash_is_standard_output_which_a_reopen_leaves_alone() {
    assert_eq!(Target::from("-"), Target::Stdout);
    assert_eq!(Target::from("/var/log/a"), Target::File("/var/log/a".into()));
    let (log, _recorder) = audit::start(&Target::Stdout).unwrap();
    assert_eq!(log.reopen(), Ok(()));
    finish_all(log);
}

#[test]
fn rotation_loses_and_doubles_nothing() {
    const EVENTS: u64 = 20_000;
    const ROTATIONS: u64 = 5;
    let folder = Folder::new();
    let path = folder.path("audit.log");
    let (log, mut recorder) = start(&path).unwrap();
    let producer = thread::spawn(move || {
        for number in 0..EVENTS {
            recorder.record(event("a", number));
            if number.is_multiple_of(500) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    for rotation in 0..ROTATIONS {
        wait_for("a line", || (fs::metadata(&path).unwrap().len() > 0).then_some(()));
        fs::rename(&path, folder.path(&rotation.to_string())).unwrap();
        log.reopen().unwrap();
    }
    producer.join().unwrap();
    finish_all(log);
    let mut all = Vec::new();
    for rotation in 0..ROTATIONS {
        all.extend(lines(&fs::read(folder.path(&rotation.to_string())).unwrap()));
    }
    all.extend(lines(&fs::read(&path).unwrap()));
    assert_eq!(all, events(0..EVENTS));
}

#[test]
fn after_a_reopen_nothing_is_written_to_the_old_file() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    let (log, mut recorder) = start(&path).unwrap();
    let len = |path: &Path| fs::metadata(path).unwrap().len();
    let mut old = Vec::new();
    for rotation in 0..200 {
        for number in 0..100 {
            recorder.record(event("a", number));
        }
        let renamed = folder.path(&rotation.to_string());
        fs::rename(&path, &renamed).unwrap();
        log.reopen().unwrap();
        old.push((len(&renamed), renamed));
    }
    finish_all(log);
    for (len_at_reopen, path) in old {
        assert_eq!(len(&path), len_at_reopen, "{}", path.display());
    }
}

#[test]
fn a_reopen_that_fails_keeps_the_old_file() {
    let folder = Folder::new();
    let (path, old) = (folder.path("audit.log"), folder.path("old"));
    let (log, mut recorder) = start(&path).unwrap();
    recorder.record(event("a", 0));
    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    let error = log.reopen().unwrap_err().to_string();
    assert_eq!(error, format!("{}: Is a directory (os error 21)", path.display()));
    recorder.record(event("a", 1));
    finish_all(log);
    assert_eq!(lines(&fs::read(&old).unwrap()), events(0..2));
}

#[test]
fn finish_gives_up_on_a_disk_that_stays_full_and_counts_what_is_not_written() {
    let (log, mut recorder) = start(Path::new("/dev/full")).unwrap();
    for number in 0..3 {
        recorder.record(event("a", number));
    }
    let standing = log.standing();
    assert_eq!(finish(log, SHORT), 3);
    assert_eq!(standing.dropped_total(), 3);
}

#[test]
fn a_reader_that_does_not_read_blocks_nobody_and_costs_what_does_not_fit() {
    let folder = Folder::new();
    let fifo = folder.fifo();
    let mut reader = reader(&fifo);
    let (log, mut recorder) = start(&fifo).unwrap();
    let standing = log.standing();
    let mut recorded = 0;
    while standing.dropped_total() < 10 {
        recorder.record(event("a", recorded));
        recorded += 1;
    }
    assert!(recorded > EVENTS_MAX);
    drop(recorder);
    let read = thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    });
    finish_all(log);
    let bytes = read.join().unwrap().unwrap();
    assert_eq!(lines(&bytes), [events(0..recorded - 10), lost(10)].concat());
}

#[test]
fn finish_gives_up_on_a_reader_that_does_not_read() {
    let folder = Folder::new();
    let fifo = folder.fifo();
    let mut reader = reader(&fifo);
    let (log, mut recorder) = start(&fifo).unwrap();
    let standing = log.standing();
    let recorded = 10_000;
    for number in 0..recorded {
        recorder.record(event("a", number));
    }
    let unwritten = finish(log, SHORT);
    assert!((1..=recorded).contains(&unwritten), "{unwritten} events");
    assert_eq!(standing.dropped_total(), unwritten);
    // Nobody waits for the writer, which ends after the write that it is in.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
}

#[test]
fn a_reader_that_comes_back_is_told_what_it_missed() {
    let folder = Folder::new();
    let fifo = folder.fifo();
    let first = reader(&fifo);
    let (log, mut recorder) = start(&fifo).unwrap();
    recorder.record(event("a", 0));
    let mut text = String::new();
    let mut first = BufReader::new(first);
    first.read_line(&mut text).unwrap();
    assert_eq!(vec![line(&text)], events([0]));
    drop(first);
    recorder.record(event("a", 1));
    let standing = log.standing();
    wait_for("a lost event", || (standing.dropped_total() == 1).then_some(()));
    let mut second = reader(&fifo);
    log.reopen().unwrap();
    recorder.record(event("a", 2));
    finish_all(log);
    let mut bytes = Vec::new();
    second.read_to_end(&mut bytes).unwrap();
    assert_eq!(lines(&bytes), [lost(1), events([2])].concat());
}
