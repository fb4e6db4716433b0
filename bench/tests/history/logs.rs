//! Logs made by hand, and what the check says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const TOOL: &str = env!("CARGO_BIN_EXE_monolock-bench");

/// Logs of a real soak: 8 clients, 2 locks, both restarts.
pub(crate) const SOAKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soaked");

/// What the check says: its exit status and its output.
pub(crate) fn check(dir: &Path) -> (i32, String) {
    let output = Command::new(TOOL).arg("check-history").arg(dir).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

pub(crate) fn assert_clean(dir: &Path) -> String {
    let (status, text) = check(dir);
    assert_eq!(status, 0, "{text}");
    text
}

#[track_caller]
pub(crate) fn assert_broken(dir: &Path, how: &str) {
    let (status, text) = check(dir);
    assert_eq!(status, 1, "{text}");
    let found = text.lines().any(|line| line.starts_with("BROKEN") && line.contains(how));
    assert!(found, "{how:?} is not in {text}");
}

/// Logs made by hand: times in milliseconds, `12ms` for those within a line.
pub(crate) struct Logs(TempDir);

impl Logs {
    /// One server; three clients that come in turn and hold lock 0 in turn.
    pub(crate) fn in_order() -> Self {
        let logs = Self(tempfile::tempdir().unwrap());
        logs.write("acts", &["0 server-start", "5 server-listening"]);
        logs.write("client-0.0", &[&HOLDER[..], &["400 0 released 259ms"]].concat());
        logs.write(
            "client-1.0",
            &[&waiter_1()[..], &["401 0 acquired 200 269ms", "500 0 released 269ms"]].concat(),
        );
        logs.write(
            "client-2.0",
            &[&waiter_2()[..], &["501 0 acquired 300 280ms", "600 0 released 280ms"]].concat(),
        );
        logs.write("register-0", &["15ms 0.0 0 100", "16ms 0.0 0 100"]);
        logs
    }

    pub(crate) fn write(&self, name: &str, lines: &[&str]) -> &Self {
        let ns = |ms: &str| ms.parse::<u64>().unwrap() * 1_000_000;
        let mut text = String::new();
        for line in lines {
            let (first, rest) = line.split_once(' ').unwrap();
            text.push_str(&ns(first.trim_end_matches("ms")).to_string());
            for word in rest.split(' ') {
                text.push(' ');
                text.push_str(&word.strip_suffix("ms").map_or(word.to_owned(), |ms| ns(ms).to_string()));
            }
            text.push('\n');
        }
        fs::write(self.file(name), text).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.log"))
    }

    pub(crate) fn assert_broken(&self, how: &str) {
        assert_broken(self.0.path(), how);
    }

    pub(crate) fn assert_clean(&self) -> String {
        assert_clean(self.0.path())
    }
}

pub(crate) const HOLDER: [&str; 6] = [
    "10 0 opening 0 1000",
    "11 0 acquire",
    "12 0 acquired 100 11ms",
    "15 0 write 100",
    "16 0 write 100",
    "260 0 confirmed 259ms",
];

pub(crate) fn waiter_1() -> [&'static str; 4] {
    ["20 0 opening 0 1000", "21 0 acquire", "22 0 waiting 21ms", "270 0 confirmed 269ms"]
}

pub(crate) fn waiter_2() -> [&'static str; 4] {
    ["30 0 opening 0 1000", "31 0 acquire", "32 0 waiting 31ms", "281 0 confirmed 280ms"]
}
