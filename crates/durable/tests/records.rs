//! Records and locks in real files.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use durable::{Lock, Problem, Record};
use tempfile::{TempDir, tempdir};

const KIND: &str = "token-ceiling";

fn record(dir: &TempDir) -> Record<u64> {
    Record::new(dir.path().join("ceiling"), KIND)
}

#[test]
fn what_was_written_is_read_and_the_last_one_counts() {
    let dir = tempdir().unwrap();
    assert_eq!(record(&dir).read().unwrap(), None);
    for value in [0, 7, u64::MAX, 1] {
        record(&dir).write(&value).unwrap();
        assert_eq!(record(&dir).read().unwrap(), Some(value));
    }
    let names: Vec<_> = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ceiling"], "nothing is left beside it");
}

#[test]
fn a_record_that_is_cut_anywhere_or_has_another_byte_anywhere_is_refused() {
    let dir = tempdir().unwrap();
    let record = record(&dir);
    record.write(&1_048_576).unwrap();
    let whole = fs::read(record.path()).unwrap();
    for len in 0..whole.len() {
        fs::write(record.path(), &whole[..len]).unwrap();
        assert!(record.read().is_err(), "{len} bytes");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(record.path(), &changed).unwrap();
        assert!(record.read().is_err(), "byte {at}");
    }
    let longer = [&whole[..], b"x"].concat();
    fs::write(record.path(), longer).unwrap();
    assert!(record.read().is_err());
}

#[test]
fn a_foreign_file_is_named_and_shown_and_not_touched() {
    let dir = tempdir().unwrap();
    let record = record(&dir);
    fs::write(record.path(), "root:x:0:0:\u{1b}[2J\nmore").unwrap();
    let problem = record.read().unwrap_err().to_string();
    let expected = format!(
        "{}: not a token-ceiling file of monolock: it begins with \"root:x:0:0:\\u{{1b}}[2J\"",
        record.path().display()
    );
    assert_eq!(problem, expected);
    fs::write(record.path(), "").unwrap();
    assert!(record.read().unwrap_err().to_string().ends_with("it is empty"));
    let other: Record<u64> = Record::new(record.path(), "state");
    other.write(&1).unwrap();
    assert!(matches!(record.read().unwrap_err().problem, Problem::Foreign { .. }));
}

#[test]
fn a_write_that_fails_leaves_the_old_value() {
    let dir = tempdir().unwrap();
    let record = record(&dir);
    record.write(&1).unwrap();
    fs::create_dir(dir.path().join("ceiling.new")).unwrap();
    assert!(record.write(&2).is_err());
    assert_eq!(record.read().unwrap(), Some(1));
    let nowhere: Record<u64> = Record::new(dir.path().join("no/such/dir/ceiling"), KIND);
    assert!(nowhere.write(&1).unwrap_err().to_string().contains("cannot open it: "));
}

#[test]
fn what_a_power_cut_left_half_written_is_ignored() {
    let dir = tempdir().unwrap();
    let record = record(&dir);
    record.write(&1).unwrap();
    fs::write(dir.path().join("ceiling.new"), "monolock token-ceil").unwrap();
    assert_eq!(record.read().unwrap(), Some(1));
    record.write(&2).unwrap();
    assert_eq!(record.read().unwrap(), Some(2));
}

#[test]
fn a_link_stays_a_link_to_the_record() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("disk")).unwrap();
    let real: Record<u64> = Record::new(dir.path().join("disk/ceiling"), KIND);
    real.write(&1).unwrap();
    std::os::unix::fs::symlink("disk/ceiling", record(&dir).path()).unwrap();
    record(&dir).write(&2).unwrap();
    assert_eq!(real.read().unwrap(), Some(2));
    assert!(fs::symlink_metadata(record(&dir).path()).unwrap().is_symlink());
}

#[test]
fn one_process_has_the_lock_and_the_next_waits_for_it_or_is_told_who_has_it() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("lock");
    let lock = Lock::take(&path, Duration::ZERO).unwrap();
    let refused = Lock::take(&path, Duration::from_millis(30)).unwrap_err().to_string();
    let expected = format!("{}: in use by another process ({})", path.display(), std::process::id());
    assert_eq!(refused, expected);
    let waits = std::thread::spawn({
        let path = path.clone();
        move || Lock::take(&path, Duration::from_secs(60))
    });
    drop(lock);
    waits.join().unwrap().unwrap();
}

#[test]
fn a_child_does_not_inherit_the_lock() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("lock");
    let lock = Lock::take(&path, Duration::ZERO).unwrap();
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    drop(lock);
    Lock::take(&path, Duration::ZERO).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
}
