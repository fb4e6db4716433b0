//! Logs made by hand, and what the check says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const TOOL: &str = env!("CARGO_BIN_EXE_monolock-soak");

/// Logs of a real soak: 8 clients, 2 locks, both restarts.
pub(crate) const SOAKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soaked");

/// What the check says: its exit status and its output.
pub(crate) fn check(dir: &Path) -> (i32, String) {
    let output = Command::new(TOOL).arg("check").arg(dir).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

#[track_caller]
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
        logs.write("acts", &["0 server-start 0", "5 server-listening"]);
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
        logs.audit(&[held(100, 4000, 11, 400), held(200, 4001, 400, 500), held(300, 4002, 500, 600)]);
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

    pub(crate) fn audit(&self, parts: &[String]) -> &Self {
        fs::write(self.file("audit"), parts.concat()).unwrap();
        self
    }

    /// Replaces what stands once in a log.
    #[track_caller]
    pub(crate) fn edit(&self, name: &str, from: &str, to: &str) -> &Self {
        let text = self.read(name);
        assert_eq!(text.matches(from).count(), 1, "{from:?} in {text}");
        fs::write(self.file(name), text.replace(from, to)).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.log"))
    }

    #[track_caller]
    pub(crate) fn assert_broken(&self, how: &str) {
        assert_broken(self.0.path(), how);
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) -> String {
        assert_clean(self.0.path())
    }
}

/// A line of the audit log about lock 0 and the session of this port.
pub(crate) fn event(at_ms: u64, event: &str, port: u16, more: &str) -> String {
    let (s, us) = (at_ms / 1000, at_ms % 1000 * 1000);
    format!(
        r#"{{"time":"1970-01-01T00:00:{s:02}.{us:06}Z","event":"{event}","lock":"soak-0","identity":"","remote_addr":"127.0.0.1:{port}"{more}}}"#
    ) + "\n"
}

pub(crate) fn granted(at_ms: u64, port: u16, token: u64) -> String {
    event(at_ms, "granted", port, &format!(r#","token":{token},"wait_ms":0"#))
}

pub(crate) fn released(at_ms: u64, port: u16, token: u64, held_ms: u64, reason: &str) -> String {
    let more = format!(r#","token":{token},"held_ms":{held_ms},"reason":"{reason}""#);
    event(at_ms, "released", port, &more)
}

/// The two lines of a grant that ended well.
pub(crate) fn held(token: u64, port: u16, from_ms: u64, to_ms: u64) -> String {
    granted(from_ms, port, token) + &released(to_ms, port, token, to_ms - from_ms, "graceful")
}

pub(crate) const HOLDER: [&str; 6] = [
    "10 0 opening 0 1000",
    "11 0 acquire 127.0.0.1:4000",
    "12 0 acquired 100 11ms",
    "15 0 write 100",
    "16 0 write 100",
    "260 0 confirmed 259ms",
];

pub(crate) fn waiter_1() -> [&'static str; 4] {
    ["20 0 opening 0 1000", "21 0 acquire 127.0.0.1:4001", "22 0 waiting 21ms", "270 0 confirmed 269ms"]
}

pub(crate) fn waiter_2() -> [&'static str; 4] {
    ["30 0 opening 0 1000", "31 0 acquire 127.0.0.1:4002", "32 0 waiting 31ms", "281 0 confirmed 280ms"]
}
