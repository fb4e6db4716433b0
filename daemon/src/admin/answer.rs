//! Answers calls: asks the shards, does what an administrator wants done and logs it, and writes JSON.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use protocol::{LockName, Token};
use serde::{Serialize, Serializer};
use tracing::{Level, warn};

use super::call::{Call, Filter};
use super::gather::Gatherer;
use super::refusal::Refusal;
use crate::settings::ServeSettings;
use crate::shard::Questions;
use crate::shard::seen::{self, NotReleased};
use admin_api::json;
use admin_api::{Config, Info, Kicked, Lock, Released};
use audit::Peer;
use httpd::Remote;
use logging::seldom::Seldom;

/// How long the shards are asked for one call. Measured: a million locks take half a second of table, and as
/// much for their JSON.
const GATHERING_TIME_MAX: Duration = Duration::from_secs(30);

/// How often an action that was not done is logged: a script may try one in a loop.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What calls are answered from.
pub(super) struct Answers {
    config: Config,
    questions: Questions,
    started: Instant,
    /// Actions that were asked for and not done.
    refusals: Seldom,
}

impl Answers {
    pub(super) fn new(settings: &ServeSettings, questions: Questions) -> Self {
        let refusals = Seldom::new("administrators' actions not done", Level::WARN, REFUSAL_LOG_INTERVAL);
        let config = config(settings, questions.shards().len());
        Self { config, questions, started: Instant::now(), refusals }
    }

    /// The body of the answer to a call. Blocks.
    pub(super) fn answer(&self, call: Call, remote: Remote) -> Result<Vec<u8>, Refusal> {
        match call {
            Call::Node(_) => unreachable!("the node is asked without a thread"),
            Call::Info => self.info(),
            Call::List(filter) => self.list(&filter),
            Call::Inspect(name) => self.inspect(&name),
            Call::Release(name, of) => {
                self.logged(remote, "force-release", &name, None, self.release(&name, of))
            }
            Call::Kick(name, peer) => self.logged(remote, "kick", &name, Some(peer), self.kick(&name, peer)),
        }
    }

    fn info(&self) -> Result<Vec<u8>, Refusal> {
        let (mut locks, mut sessions) = (0, 0);
        for shard in self.questions.shards() {
            let counts = self.questions.counts(shard)?;
            locks += counts.locks as u64;
            sessions += counts.sessions as u64;
        }
        let uptime_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(json::line(&Info { version, uptime_ms, config: self.config.clone(), locks, sessions }))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<u8>, Refusal> {
        let page = self.gatherer().locks(filter)?;
        Ok(json::line(&Listing { locks: &page.locks, next: page.next.as_deref() }))
    }

    fn inspect(&self, name: &LockName) -> Result<Vec<u8>, Refusal> {
        let lock = self.gatherer().lock(name.as_str())?;
        let lock = lock.ok_or_else(|| not_found("nobody holds this lock or waits for it"))?;
        Ok(json::line(&Lock::from(&lock)))
    }

    fn release(&self, name: &LockName, of: Option<Token>) -> Result<Vec<u8>, Refusal> {
        let holder = self.questions.force_release(name.as_str(), of)?.map_err(|problem| {
            let status = match problem {
                NotReleased::Idle => StatusCode::NOT_FOUND,
                NotReleased::OtherHolder { .. } => StatusCode::CONFLICT,
            };
            Refusal::new(status, problem.to_string())
        })?;
        Ok(json::line(&Released { name: name.as_str().to_owned(), released: (&holder).into() }))
    }

    fn kick(&self, name: &LockName, peer: Peer) -> Result<Vec<u8>, Refusal> {
        let lock = self.gatherer().lock(name.as_str())?;
        let lock = lock.ok_or_else(|| not_found("nobody holds this lock or waits for it"))?;
        let waiter = lock.waiters.iter().find(|waiter| waiter.who.peer == peer);
        // It may be granted or gone in between.
        let kicked = match waiter {
            Some(waiter) => self.questions.kick(name.as_str(), waiter.session)?,
            None => None,
        };
        let waiter = kicked.ok_or_else(|| not_found(format!("{peer} does not wait for this lock")))?;
        Ok(json::line(&Kicked { name: name.as_str().to_owned(), kicked: (&waiter).into() }))
    }

    /// Logs an action, whatever came of it, with who wanted it.
    fn logged(
        &self,
        by: Remote,
        action: &'static str,
        name: &LockName,
        waiter: Option<Peer>,
        outcome: Result<Vec<u8>, Refusal>,
    ) -> Result<Vec<u8>, Refusal> {
        let result = outcome.as_ref().map_or_else(|refusal| refusal.problem.as_str(), |_| "done");
        let waiter = waiter.map(tracing::field::display);
        // What was done ended a promise to a client: each has its line, at every level but error.
        if outcome.is_ok() || self.refusals.may_log() {
            warn!(%by, lock = name.as_str(), waiter, result, "{action}");
        }
        outcome
    }

    fn gatherer(&self) -> Gatherer<'_> {
        Gatherer { questions: &self.questions, deadline: Instant::now() + GATHERING_TIME_MAX }
    }
}

fn not_found(problem: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, problem)
}

fn config(settings: &ServeSettings, shards: usize) -> Config {
    let client_ca = settings.tls.as_ref().and_then(|tls| tls.client_ca.as_ref());
    let acl_file = client_ca.and_then(|client_ca| client_ca.acl_file.as_ref());
    Config {
        listen: settings.listen.to_string(),
        ops_listen: settings.ops_listen.as_ref().map(ToString::to_string).unwrap_or_default(),
        admin_listen: settings.admin.as_ref().map(|admin| admin.listen.to_string()).unwrap_or_default(),
        tls: settings.tls.is_some(),
        mtls: client_ca.is_some(),
        acl_file: acl_file.map(|path| path.display().to_string()).unwrap_or_default(),
        audit_log: settings.audit_log.clone().unwrap_or_default(),
        io_timeout_ms: u64::try_from(settings.io_timeout.as_millis()).unwrap_or(u64::MAX),
        shards: shards as u64,
    }
}

/// `admin_api::Listing` on its way out: each lock takes its final form when it is written, since there may be
/// a million.
#[derive(Serialize)]
struct Listing<'a> {
    #[serde(serialize_with = "each_in_final_form")]
    locks: &'a [seen::SeenLock],
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

fn each_in_final_form<S: Serializer>(locks: &&[seen::SeenLock], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(locks.iter().map(Lock::from))
}

#[cfg(test)]
mod tests {

    use protocol::Lease;

    use super::*;

    fn lock(name: &str, identity: &str) -> seen::SeenLock {
        let peer = "[2001:db8::1]:70".parse::<std::net::SocketAddr>().unwrap().into();
        let session = {
            let mut table = locks::Table::new(Default::default());
            let turn = locks::Turn { now_ns: 0, unix_ns: 0, gate: locks::Gate::Open(locks::Opening::FIRST) };
            let request =
                protocol::Acquire { name: LockName::new("x").unwrap(), lease: Lease::from_ms(1).unwrap() };
            table.acquire(&turn, 0, request, &mut Vec::new()).unwrap()
        };
        let who = seen::Who { identity: Some(identity.into()), peer };
        let holder = seen::SeenHolder {
            session,
            who: who.clone(),
            since_ns: 1_796_000_000_123_456_789,
            lease: Lease::from_ms(10_000).unwrap(),
            token: Token(u64::MAX),
        };
        let waiter = seen::SeenWaiter { session, sequence: 1, who, queued_at_ns: 0 };
        seen::SeenLock { name: name.into(), holder: Some(holder), waiters: vec![waiter] }
    }

    #[test]
    fn what_is_written_is_what_the_command_line_reads() {
        let locks =
            [lock("a\n\0\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{2028}é\"\\", "spiffe://a/\u{202e}b"), lock("b", "")];
        let line = json::line(&Listing { locks: &locks, next: Some("b\u{7f}") });
        let text = std::str::from_utf8(&line).unwrap();
        let (body, newline) = text.split_at(text.len() - 1);
        assert_eq!(newline, "\n");
        assert!(!body.contains(logging::escape::must_be_escaped), "{body:?}");
        let read: admin_api::Listing = serde_json::from_str(text).unwrap();
        assert_eq!(read.next.as_deref(), Some("b\u{7f}"));
        let final_form = |lock: &admin_api::Lock| json::line(lock);
        let expected: Vec<Lock> = locks.iter().map(Lock::from).collect();
        assert_eq!(
            read.locks.iter().map(final_form).collect::<Vec<_>>(),
            expected.iter().map(final_form).collect::<Vec<_>>()
        );
        assert_eq!(read.locks[0].name, &*locks[0].name);
    }

    #[test]
    fn a_lock_reads_as_documented() {
        let line = json::line(&Lock::from(&lock("nightly/backup", "")));
        let expected = r#"{"name":"nightly/backup","holder":{"identity":"","remote_addr":"[2001:db8::1]:70","since":"2026-11-30T00:53:20.123456Z","lease_ms":10000,"token":18446744073709551615},"waiters":[{"identity":"","remote_addr":"[2001:db8::1]:70","queued_at":"1970-01-01T00:00:00.000000Z"}]}"#;
        assert_eq!(std::str::from_utf8(&line).unwrap().trim_end(), expected);
    }
}
