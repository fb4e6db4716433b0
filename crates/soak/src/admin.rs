//! The administrator: takes locks from their holders and removes waiters, through the server's admin API.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use protocol::Token;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::acts::Acts;
use crate::logs::entry::{Act, Answer};
use crate::logs::names::lock_name;

/// How long a call may take. An answer takes a turn of a shard or two; the rest is a machine that is busy with clients.
const CALL_MAX: Duration = Duration::from_secs(5);

const OK: u16 = 200;
const NOT_FOUND: u16 = 404;

/// Somebody who may do anything to locks.
pub(super) struct Administrator {
    socket: PathBuf,
}

/// The answer to a force-release, as far as it is looked at.
#[derive(Deserialize)]
struct Released {
    released: Holder,
}

#[derive(Deserialize)]
struct Holder {
    token: u64,
}

/// The answer about a lock.
#[derive(Deserialize)]
struct Lock {
    waiters: Vec<Waiter>,
}

/// The answer to a kick.
#[derive(Deserialize)]
struct Kicked {
    kicked: Waiter,
}

#[derive(Deserialize)]
struct Waiter {
    remote_addr: SocketAddr,
}

impl Administrator {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Takes a lock from its holder, if it has one.
    pub(super) fn force_release(&self, lock: u32, acts: &Acts) -> Result<()> {
        acts.note(Act::ForceRelease { lock })?;
        let answered = self.call("POST", &format!("/api/locks/{}/release", lock_name(lock)));
        let done = answered.map(|Released { released }| Answer::Released(Token(released.token)));
        acts.note(Act::Answered(done.unwrap_or_else(|answer| answer)))
    }

    /// Removes one of a lock's waiters, if it has any.
    pub(super) fn kick(&self, lock: u32, pick: usize, acts: &Acts) -> Result<()> {
        acts.note(Act::Kick { lock })?;
        let done = self.kick_one(lock, pick).unwrap_or_else(|answer| answer);
        acts.note(Act::Answered(done))
    }

    fn kick_one(&self, lock: u32, pick: usize) -> Result<Answer, Answer> {
        let path = format!("/api/locks/{}", lock_name(lock));
        let Lock { waiters } = self.call("GET", &path)?;
        let place = pick.checked_rem(waiters.len()).ok_or(Answer::Nobody)?;
        let path = format!("{path}/waiters/{}", waiters[place].remote_addr);
        let Kicked { kicked } = self.call("DELETE", &path)?;
        Ok(Answer::Kicked(kicked.remote_addr))
    }

    /// What the server says to a call that succeeds, or what came of it otherwise. A success that says something else
    /// than it should is none.
    fn call<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, Answer> {
        let (status, body) = self.ask(method, path).map_err(|_| Answer::Silent)?;
        match status {
            OK => serde_json::from_slice(&body).map_err(|_| Answer::Refused(status)),
            NOT_FOUND => Err(Answer::Nobody),
            _ => Err(Answer::Refused(status)),
        }
    }

    /// One call on a connection of its own: the answer's status and body.
    fn ask(&self, method: &str, path: &str) -> Result<(u16, Vec<u8>)> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(CALL_MAX))?;
        stream.set_write_timeout(Some(CALL_MAX))?;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let text = str::from_utf8(&answer)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no HTTP")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.as_bytes().to_vec()))
    }
}
