//! Brings to the queue what happens, and does what it says.

use std::pin::Pin;
use std::time::SystemTime;

use client::{Alarm, Config, Connection, Error, Event, boottime_ns, draw_pause};
use protocol::{Acquire, Token};

use super::members;
use super::queue::{Queue, Step, Word};
use super::signals::{Children, Signals};
use super::status;
use super::voice::Voice;
use super::words::Subject;

/// What a wait listens to.
pub(crate) struct Senses<'a> {
    pub signals: &'a mut Signals,
    pub children: &'a mut Children,
    pub alarm: &'a mut Alarm,
}

/// The way to the server.
enum Link {
    Down,
    Dialling(Pin<Box<dyn Future<Output = Result<Connection, Error>>>>),
    Up(Box<Connection>),
}

/// Waits until the lock is held.
///
/// # Errors
///
/// The exit status of a wait that ended otherwise; all is said.
pub(crate) async fn acquire(
    config: &Config,
    acquire: &Acquire,
    mut queue: Queue,
    senses: Senses<'_>,
    (voice, subject): (&Voice, &Subject<'_>),
) -> Result<(Connection, Token), u8> {
    let mut link = Link::Down;
    let mut step = queue.alarm(boottime_ns());
    loop {
        let passes_on = matches!(step, Step::Run(_)) && senses.signals.is_job_stopped();
        while let Some(word) = queue.next_word() {
            // What is given back at once was not acquired.
            if passes_on && matches!(word, Word::Acquired { .. }) {
                continue;
            }
            voice.say(format_args!("{}", subject.tell(&word, SystemTime::now())));
        }
        match (step, link) {
            (Step::Wait, same) => link = same,
            (Step::Dial(attempt), _) => link = Link::dial(config, acquire, attempt),
            (Step::HangUp, _) => link = Link::Down,
            // A command would run, or stand still with the lock, where its user believes that all is stopped.
            (Step::Run(_), Link::Up(connection)) if passes_on => {
                drop(connection);
                voice.say(format_args!("{}", subject.passed_on()));
                senses.signals.job_goes_on().await.map_err(status::of_signal)?;
                link = Link::Down;
                step = queue.again(boottime_ns());
                continue;
            }
            (Step::Run(token), Link::Up(connection)) => return Ok((*connection, token)),
            (Step::Run(_), Link::Down | Link::Dialling(_)) => unreachable!("a grant comes over a connection"),
            (Step::Finish(code), _) => return Err(code),
        }
        let wake_ns = queue.wake_ns();
        step = tokio::select! {
            biased;
            happened = link.next() => match happened {
                Ok(event) => queue.event(boottime_ns(), event, link.is_held(), draw_pause),
                Err(error) => queue.failed(boottime_ns(), &error, draw_pause),
            },
            () = senses.alarm.wait_until(wake_ns.unwrap_or(u64::MAX)), if wake_ns.is_some() => {
                queue.alarm(boottime_ns())
            }
            () = senses.children.changed() => {
                // None is ours: the first process of a container gets all orphans.
                while let Some(orphan) = members::ended_child() {
                    members::reap(orphan);
                }
                Step::Wait
            }
            signal = senses.signals.next() => return Err(status::of_signal(signal)),
        };
    }
}

impl Link {
    fn dial(config: &Config, acquire: &Acquire, attempt: usize) -> Self {
        let (config, acquire) = (config.clone(), acquire.clone());
        Self::Dialling(Box::pin(async move { Connection::open_with(&config, acquire, attempt).await }))
    }

    /// What happens to the claim, or how the dial failed. May be dropped and called again at any time.
    async fn next(&mut self) -> Result<Event, Error> {
        if let Self::Dialling(dial) = self {
            *self = Self::Up(Box::new(dial.await?));
        }
        match self {
            Self::Up(connection) => Ok(connection.next_event().await),
            Self::Down | Self::Dialling(_) => std::future::pending().await,
        }
    }

    fn is_held(&self) -> bool {
        matches!(self, Self::Up(connection) if connection.is_held())
    }
}
