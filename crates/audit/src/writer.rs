//! The thread that formats and writes. It alone waits for a slow disk, a full disk, or a reader.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use super::batch::Batch;
use super::destination::{Destination, Output};
use super::recorder::{Backlog, Entry};
use super::trouble::{Notice, Trouble};

/// Entries that go into one write: 50 KB at the usual 200 bytes each, where a system call costs next to
/// nothing a line.
const ENTRIES_A_WRITE_MAX: usize = 256;

/// How long the writer lets entries gather after a write. A producer pays for waking it at most once in that
/// time; a single event is written at once.
const GATHER: Duration = Duration::from_millis(10);

/// When a failed write is tried again: soon after there is room on the disk, and seldom enough to cost
/// nothing.
const RETRY: Duration = Duration::from_millis(200);

/// What the control thread wants of the writer. When it cannot want anything any more, the writer stops.
#[derive(Debug)]
pub(super) enum Order<W> {
    /// Say so, and go on in the target as it was opened anew; not if nobody waits for it any more.
    Reopen(Destination<W>, SyncSender<()>),
    /// Write what is recorded, say so, and end.
    Finish(oneshot::Sender<()>),
}

/// The writer's side of the log.
#[derive(Debug)]
pub(super) struct Writer<W> {
    /// The target, for the diagnostic log.
    name: String,
    destination: Destination<W>,
    queue: UnboundedReceiver<Entry>,
    orders: Receiver<Order<W>>,
    backlog: Arc<Backlog>,
    batch: Batch,
    trouble: Trouble,
    /// Nothing is taken from the queue before.
    resting_until: Option<Instant>,
    /// Nothing will come from the queue any more.
    drained: bool,
    finishing: Option<oneshot::Sender<()>>,
}

impl<W: Output> Writer<W> {
    pub(super) fn new(
        name: String,
        destination: Destination<W>,
        queue: UnboundedReceiver<Entry>,
        orders: Receiver<Order<W>>,
        backlog: Arc<Backlog>,
    ) -> Self {
        Self {
            name,
            destination,
            queue,
            orders,
            backlog,
            batch: Batch::default(),
            trouble: Trouble::default(),
            resting_until: None,
            drained: false,
            finishing: None,
        }
    }

    /// Writes until the log is finished, or nobody waits for it any more.
    pub(super) async fn run(mut self) {
        loop {
            let resting_until = self.resting_until;
            select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(Order::Reopen(destination, taken)) => {
                        if taken.try_send(()).is_ok() {
                            self.reopen(destination);
                        }
                    }
                    Some(Order::Finish(done)) => self.finish(done),
                    None => return,
                },
                () = sleep_until(resting_until.unwrap_or_else(Instant::now)), if resting_until.is_some() => {
                    self.resting_until = None;
                }
                taken = self.queue.recv_many(self.batch.entries_mut(), ENTRIES_A_WRITE_MAX),
                    if resting_until.is_none() && !self.drained => self.take(taken),
            }
            self.write();
            if self.drained
                && self.batch.unwritten().is_empty()
                && let Some(done) = self.finishing.take()
            {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
                return;
            }
        }
    }

    fn take(&mut self, taken: usize) {
        self.drained = taken == 0;
        self.batch.format();
        if taken < ENTRIES_A_WRITE_MAX && self.finishing.is_none() {
            self.rest(GATHER);
        }
    }

    /// A line torn by a full disk is completed where its beginning is, and else written anew.
    fn reopen(&mut self, destination: Destination<W>) {
        // The next write tells, and where all is written there may be none for long.
        self.backlog.set_fails(false);
        if !destination.is_same(&self.destination) {
            self.destination = destination;
            self.batch.rewind();
        }
        self.batch.format();
        self.resting_until = None;
    }

    fn finish(&mut self, done: oneshot::Sender<()>) {
        self.queue.close();
        self.finishing = Some(done);
        self.resting_until = None;
    }

    /// Writes what is formatted. What is left is tried again after a rest, before anything else is taken.
    fn write(&mut self) {
        if self.batch.unwritten().is_empty() {
            return;
        }
        while !self.batch.unwritten().is_empty() {
            if !self.destination.look() {
                self.batch.rewind();
            }
            match self.destination.write(self.batch.unwritten()) {
                Ok(0) => return self.failed(&ErrorKind::WriteZero.into()),
                Ok(bytes) => self.backlog.written(self.batch.advance(bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A standard output that somebody else made non-blocking is slow, not broken.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.rest(GATHER),
                Err(error) => return self.failed(&error),
            }
        }
        self.backlog.set_fails(false);
        let notice = self.trouble.worked(Instant::now(), self.backlog.dropped());
        self.say(notice, None);
    }

    fn failed(&mut self, error: &io::Error) {
        if error.kind() == ErrorKind::BrokenPipe {
            // The reader is gone. For the next one, if there ever is one, nothing is kept.
            if self.batch.is_torn() {
                self.destination.leave_torn();
                // Otherwise whole, it is not lost: what comes next brings the newline.
                if self.batch.unwritten().starts_with(b"\n") {
                    self.backlog.written(self.batch.advance(1));
                }
            }
            self.backlog.refused(self.batch.refuse());
        } else {
            self.rest(RETRY);
        }
        self.backlog.set_fails(true);
        let notice = self.trouble.failed(Instant::now(), self.backlog.dropped());
        self.say(notice, Some(error));
    }

    fn rest(&mut self, time: Duration) {
        self.resting_until = Some(Instant::now() + time);
    }

    fn say(&self, notice: Option<Notice>, error: Option<&io::Error>) {
        let (path, error) = (&self.name, error.map(tracing::field::display));
        match notice {
            None => {}
            Some(Notice::Fails { lost }) => error!(path, error, lost, "the audit log cannot be written"),
            Some(Notice::WorksAgain { lost }) => info!(path, lost, "the audit log is written again"),
            Some(Notice::Behind { lost }) => {
                warn!(path, lost, "audit events were lost: the log was written too slowly");
            }
        }
    }
}
