//! The administrator: takes locks from their holders and removes waiters, through the server's admin API.

use std::path::PathBuf;
use std::time::Duration;

use admin_api::{Client, Error, Kicked, Released, Waiter};
use anyhow::Result;
use cli::AdminAddress;
use protocol::{LockName, Token};
use soak::logs::entry::{Act, Answer};
use soak::logs::names::lock_name;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::acts::Acts;

/// How long a deed may take. An answer takes a turn of a shard or two; the rest is a machine that is busy
/// with clients. The API's client would wait for longer.
const DEED_MAX: Duration = Duration::from_secs(5);

/// Somebody who may do anything to locks.
pub(super) struct Administrator {
    api: Client,
}

impl Administrator {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { api: Client::new(AdminAddress::Unix(socket)) }
    }

    /// Takes a lock from its holder, if it has one.
    pub(super) fn force_release(&self, lock: u32, acts: &Acts) -> Result<()> {
        acts.note(Act::ForceRelease { lock })?;
        acts.note(Act::Answered(answer(self.release(lock))?))
    }

    /// Removes one of a lock's waiters, if it has any.
    pub(super) fn kick(&self, lock: u32, pick: usize, acts: &Acts) -> Result<()> {
        acts.note(Act::Kick { lock })?;
        acts.note(Act::Answered(answer(self.kick_one(lock, pick))?))
    }

    async fn release(&self, lock: u32) -> Result<Answer, Error> {
        let Released { released, .. } = self.api.release(&name(lock), None).await?;
        Ok(Answer::Released(Token(released.token)))
    }

    async fn kick_one(&self, lock: u32, pick: usize) -> Result<Answer, Error> {
        let waiters = self.api.lock(&name(lock)).await?.waiters;
        let Some(place) = pick.checked_rem(waiters.len()) else { return Ok(Answer::Nobody) };
        let Ok(waiter) = waiters[place].remote_addr.parse() else { return Ok(no_address(&waiters[place])) };
        let Kicked { kicked, .. } = self.api.kick(&name(lock), waiter).await?;
        Ok(kicked.remote_addr.parse().map_or_else(|_| no_address(&kicked), Answer::Kicked))
    }
}

/// What came of a deed. Its connections end with it.
fn answer(deed: impl Future<Output = Result<Answer, Error>>) -> Result<Answer> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(match runtime.block_on(async { timeout(DEED_MAX, deed).await }) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Error::NotFound(_))) => Answer::Nobody,
        Ok(Err(problem)) => Answer::Failed(problem.to_string()),
        Err(_) => Answer::Failed(format!("no answer within {} s", DEED_MAX.as_secs())),
    })
}

fn name(lock: u32) -> LockName {
    LockName::new(&lock_name(lock)).expect("a soak's names are short")
}

fn no_address(waiter: &Waiter) -> Answer {
    Answer::Failed(format!("{:?} is no waiter's address", waiter.remote_addr))
}
