//! Golden transcripts: scenarios of the protocol that read like its documentation.
//!
//! In `transcripts/*.txt`, a line that starts with `>` is an event and the lines below it are what the table
//! does; the rest is prose. `LOCKS_BLESS=1` writes what the table does into the files. The clock stands still
//! except for `> pass`, and begins at 1 s after the epoch, where tokens are 1048576 = 2²⁰.
//!
//! | event | |
//! | --- | --- |
//! | `a: ACQUIRE jobs 10s` | a new connection, its first frame |
//! | `a: HEARTBEAT ×3` | as many heartbeats, glued |
//! | `a: gone graceful` | `end`, with its reason |
//! | `a: silent address_lost` | `silence`, with its reason |
//! | `a: suspect`, `a: alive`, `a: kick` | |
//! | `pass 10s` | time passes |
//! | `wall 1s` | the wall clock is set back or forward to this time |
//! | `gate standby` | `open`, `open 2` (the second opening), `standby`, `shutting-down` |
//! | `ceiling 2000000` | tokens up to this one are put aside; without a first `ceiling` there is none |
//! | `leases unread a b` | who is overdue is expired, except those with unread input |
//! | `force-release jobs`, `close 2 shutdown`, `show jobs` | |

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use locks::{Answer, Effect, Gate, LOOK_AGAIN_NS, Opening, Reason, SessionId, State, TokenSource, Turn};
use protocol::Token;

use crate::checked::{Checked, Effects};

const BLESS_VARIABLE: &str = "LOCKS_BLESS";
const START_NS: u64 = 1_000_000_000;

#[test]
fn the_table_does_what_the_transcripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/table/transcripts");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let golden = std::fs::read_to_string(&file).unwrap();
        println!("{}", file.display());
        let played = play(&golden);
        if std::env::var_os(BLESS_VARIABLE).is_some() {
            std::fs::write(&file, played).unwrap();
        } else {
            assert_eq!(golden, played, "{} tells another story", file.display());
        }
    }
}

/// The transcript with what really happens below each event.
fn play(golden: &str) -> String {
    let mut scene = Scene::new();
    let mut played = String::new();
    let mut after_event = false;
    for line in golden.lines() {
        if let Some(event) = line.strip_prefix("> ") {
            writeln!(played, "{line}").unwrap();
            scene.out.clear();
            scene.event(&event.split_whitespace().collect::<Vec<_>>());
            played.push_str(&scene.out);
            after_event = true;
        } else if line.is_empty() || !after_event {
            writeln!(played, "{line}").unwrap();
            after_event = false;
        }
    }
    played
}

struct Scene {
    turn: Turn,
    tokens: Option<Arc<TokenSource>>,
    checked: Checked,
    names: Vec<String>,
    ids: BTreeMap<String, SessionId>,
    out: String,
}

impl Scene {
    fn new() -> Self {
        Self {
            turn: Turn { now_ns: START_NS, unix_ns: START_NS, gate: Gate::Open(Opening::FIRST) },
            tokens: None,
            checked: Checked::new(),
            names: Vec::new(),
            ids: BTreeMap::new(),
            out: String::new(),
        }
    }

    fn event(&mut self, words: &[&str]) {
        if let Some(name) = words[0].strip_suffix(':') {
            return self.session_event(name, &words[1..]);
        }
        match *words {
            ["pass", time] => {
                self.turn.now_ns += ns(time);
                self.turn.unix_ns += ns(time);
            }
            ["wall", time] => self.turn.unix_ns = ns(time),
            ["gate", ref gate @ ..] => self.turn.gate = self::gate(gate),
            ["ceiling", token] => self.ceiling(Token(token.parse().unwrap())),
            ["leases"] => self.leases(&[]),
            ["leases", "unread", ref unread @ ..] => self.leases(unread),
            ["force-release", lock] => {
                let (done, effects) = self.checked.force_release(&self.turn, lock);
                self.say_unless(done, "nobody holds it");
                self.show_effects(&effects);
            }
            ["close", max, why] => {
                let (more, effects) = self.checked.close_some(&self.turn, max.parse().unwrap(), reason(why));
                self.show_effects(&effects);
                self.say_unless(!more, "more to close");
            }
            ["show", lock] => self.show(lock),
            _ => panic!("no such event: {words:?}"),
        }
    }

    fn ceiling(&mut self, to: Token) {
        match &self.tokens {
            Some(tokens) => tokens.raise_ceiling(to),
            None => {
                let tokens = Arc::new(TokenSource::with_ceiling(to));
                self.checked = Checked::with_tokens(Arc::clone(&tokens));
                self.tokens = Some(tokens);
            }
        }
        let (_, effects) = self.checked.grant_starved(&self.turn, usize::MAX);
        self.show_effects(&effects);
    }

    fn session_event(&mut self, name: &str, words: &[&str]) {
        if let ["ACQUIRE", lock, lease] = *words {
            return self.acquire(name, lock, lease);
        }
        let (id, turn) = (self.ids[name], self.turn);
        let effects = match *words {
            ["HEARTBEAT"] => return self.heartbeats(name, 1),
            ["HEARTBEAT", times] => {
                return self.heartbeats(name, times.trim_start_matches('×').parse().unwrap());
            }
            ["gone", why] => self.checked.end(&turn, id, reason(why)),
            ["silent", why] => self.checked.silence(&turn, id, reason(why)),
            ["suspect"] => self.checked.suspect(&turn, id),
            ["alive"] => self.checked.alive(&turn, id),
            ["kick"] => {
                let (done, effects) = self.checked.kick(&turn, id);
                self.say_unless(done, "not a waiter");
                effects
            }
            _ => panic!("no such event: {words:?}"),
        };
        self.show_effects(&effects);
    }

    fn acquire(&mut self, name: &str, lock: &str, lease: &str) {
        let conn = u32::try_from(self.names.len()).unwrap();
        self.names.push(name.into());
        let lease_ms = u32::try_from(ns(lease) / 1_000_000).unwrap();
        match self.checked.acquire(&self.turn, conn, lock, lease_ms) {
            (Ok(id), effects) => {
                self.ids.insert(name.into(), id);
                self.show_effects(&effects);
            }
            (Err(code), _) => writeln!(self.out, "{name}: ERROR {code}").unwrap(),
        }
    }

    fn heartbeats(&mut self, name: &str, times: usize) {
        for _ in 0..times {
            let (answer, effects) = self.checked.heartbeat(&self.turn, self.ids[name]);
            match answer {
                None => writeln!(self.out, "{name}: no answer"),
                Some(Answer::Waiting) => writeln!(self.out, "{name}: answer WAITING"),
                Some(Answer::Acquired(token)) => writeln!(self.out, "{name}: answer ACQUIRED {token}"),
            }
            .unwrap();
            self.show_effects(&effects);
        }
    }

    fn leases(&mut self, unread: &[&str]) {
        let now_ns = self.turn.now_ns;
        while let Some(id) = self.checked.table.next_overdue(now_ns) {
            let conn = self.checked.table.session(id).unwrap().conn;
            let name = self.names[conn as usize].clone();
            if unread.contains(&&*name) {
                writeln!(self.out, "{name}: overdue, but has unread input").unwrap();
                self.checked.table.look_again(now_ns, id, LOOK_AGAIN_NS);
            } else {
                writeln!(self.out, "{name}: overdue").unwrap();
                let effects = self.checked.expire(&self.turn, id);
                self.show_effects(&effects);
            }
        }
    }

    fn show(&mut self, lock: &str) {
        let table = &self.checked.table;
        if !table.contains(lock) {
            writeln!(self.out, "no such lock").unwrap();
            return;
        }
        let shown = |id| {
            let session = table.session(id).unwrap();
            let mark = match session.state {
                State::Reserved { .. } => " (reserved)",
                _ if session.suspect => " (suspect)",
                _ => "",
            };
            format!("{}{mark}", self.names[session.conn as usize])
        };
        let holder = table.holder(lock).map_or("nobody".into(), shown);
        let waiters: Vec<String> = table.waiters(lock).map(shown).collect();
        let waiters = if waiters.is_empty() { "none".into() } else { waiters.join(", ") };
        writeln!(self.out, "holder: {holder}; waiters: {waiters}").unwrap();
    }

    fn show_effects(&mut self, effects: &Effects) {
        for effect in effects {
            let (Effect::Queued { conn, .. }
            | Effect::Granted { conn, .. }
            | Effect::Released { conn, .. }
            | Effect::End { conn, .. }) = effect;
            let name = &self.names[*conn as usize];
            match effect {
                Effect::Queued { .. } => writeln!(self.out, "{name}: WAITING"),
                Effect::Granted { lock, token, wait_ns, .. } => {
                    writeln!(self.out, "{name}: ACQUIRED {token} ({lock}, waited {})", time(*wait_ns))
                }
                Effect::Released { lock, token, held_ns, reason, .. } => {
                    let (why, held) = (reason.as_str(), time(*held_ns));
                    writeln!(self.out, "{name}: released {token} ({lock}, {why}, held {held})")
                }
                Effect::End { error: Some(code), .. } => writeln!(self.out, "{name}: ERROR {code}, end"),
                Effect::End { error: None, .. } => writeln!(self.out, "{name}: end"),
            }
            .unwrap();
        }
    }

    fn say_unless(&mut self, done: bool, what: &str) {
        if !done {
            writeln!(self.out, "{what}").unwrap();
        }
    }
}

fn ns(time: &str) -> u64 {
    let digits = time.find(|c: char| !c.is_ascii_digit()).expect("a time has a unit");
    let unit = match &time[digits..] {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        unit => panic!("no such unit: {unit}"),
    };
    time[..digits].parse::<u64>().unwrap() * unit
}

fn time(ns: u64) -> String {
    format!("{:?}", Duration::from_nanos(ns))
}

fn gate(words: &[&str]) -> Gate {
    match *words {
        ["open"] => Gate::Open(Opening::FIRST),
        ["open", opening] => Gate::Open(Opening(opening.parse().unwrap())),
        ["standby"] => Gate::Standby,
        ["shutting-down"] => Gate::ShuttingDown,
        _ => panic!("no such gate: {words:?}"),
    }
}

fn reason(name: &str) -> Reason {
    Reason::ALL.into_iter().find(|reason| reason.as_str() == name).expect("a reason of the audit log")
}
