//! The way of an event from the thread that decides to the writer: bounded, and never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::{Event, NodeEvent};

/// What the writer gets.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Event(Event),
    Node(NodeEvent),
    /// Stands where events are missing.
    Lost(Run),
}

/// A contiguous run of lost events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The time of the first.
    pub(super) time_unix_ns: u64,
    pub(super) count: u64,
}

impl Run {
    /// Lengthens a run, or begins one.
    pub(super) fn extend(run: &mut Option<Self>, time_unix_ns: u64, count: u64) {
        run.get_or_insert(Self { time_unix_ns, count: 0 }).count += count;
    }
}

/// What all producers and the writer count together. The queue itself has no bound, so that a lost record
/// always finds room: there is one for each time that a producer met the bound.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Events recorded and not yet written, those in the writer's hands included.
    unwritten: AtomicU64,
    unwritten_max: u64,
    dropped: AtomicU64,
    written: AtomicU64,
    /// The last write failed.
    fails: AtomicBool,
}

impl Backlog {
    /// Whether one more event may be recorded. A producer that is losing events resumes only when half of the
    /// room is free: so losses are few long runs and not many short ones.
    fn admit(&self, losing: bool) -> bool {
        let limit = if losing { self.unwritten_max / 2 } else { self.unwritten_max };
        let admitted = self.unwritten.fetch_add(1, Ordering::Relaxed) < limit;
        if !admitted {
            self.unwritten.fetch_sub(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Events that were recorded are in the log.
    pub(super) fn written(&self, events: u64) {
        self.unwritten.fetch_sub(events, Ordering::Relaxed);
        self.written.fetch_add(events, Ordering::Relaxed);
    }

    /// Events that were recorded will not be in the log.
    pub(super) fn refused(&self, events: u64) {
        self.unwritten.fetch_sub(events, Ordering::Relaxed);
        self.dropped.fetch_add(events, Ordering::Relaxed);
    }

    /// Whether the last write failed.
    pub(super) fn set_fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Nobody waits for the writer any more: what it still has counts as dropped. How many events that is.
    pub(super) fn give_up(&self) -> u64 {
        let events = self.unwritten.load(Ordering::Relaxed);
        self.dropped.fetch_add(events, Ordering::Relaxed);
        events
    }
}

/// How the log stands, for whoever watches it.
#[derive(Debug, Clone)]
pub struct Standing(pub(super) Arc<Backlog>);

impl Standing {
    /// How many events are not in the log, since the start.
    pub fn dropped_total(&self) -> u64 {
        self.0.dropped()
    }

    /// How many events are in the log, since the start.
    pub fn written_total(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Events that wait to be written.
    pub fn unwritten(&self) -> u64 {
        self.0.unwritten.load(Ordering::Relaxed)
    }

    /// Whether the last write failed. A write that does not return has not failed: then nothing is written.
    pub fn fails(&self) -> bool {
        self.0.fails.load(Ordering::Relaxed)
    }
}

/// One producer's entrance to the log. Its events stay in order. A clone is another producer.
#[derive(Debug)]
pub struct Recorder {
    queue: UnboundedSender<Entry>,
    backlog: Arc<Backlog>,
    /// The events lost since the last one that was recorded.
    run: Option<Run>,
}

/// A first producer, and the ends that the writer has.
pub(super) fn new(events_max: u64) -> (Recorder, UnboundedReceiver<Entry>, Arc<Backlog>) {
    let (queue, take) = mpsc::unbounded_channel();
    let backlog = Arc::new(Backlog {
        unwritten: AtomicU64::new(0),
        unwritten_max: events_max,
        dropped: AtomicU64::new(0),
        written: AtomicU64::new(0),
        fails: AtomicBool::new(false),
    });
    (Recorder { queue, backlog: Arc::clone(&backlog), run: None }, take, backlog)
}

impl Recorder {
    /// Hands an event to the writer, or counts it as lost. Never waits.
    pub fn record(&mut self, event: Event) {
        let time_unix_ns = event.time_unix_ns;
        self.take(time_unix_ns, Entry::Event(event));
    }

    /// The same for an event of the node.
    pub fn record_node(&mut self, event: NodeEvent) {
        let time_unix_ns = event.time_unix_ns;
        self.take(time_unix_ns, Entry::Node(event));
    }

    fn take(&mut self, time_unix_ns: u64, entry: Entry) {
        if !self.backlog.admit(self.run.is_some()) {
            self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
            return Run::extend(&mut self.run, time_unix_ns, 1);
        }
        self.write_run();
        if self.queue.send(entry).is_err() {
            // The log is finished.
            self.backlog.refused(1);
            Run::extend(&mut self.run, time_unix_ns, 1);
        }
    }

    /// Puts the lost record in place of the run.
    fn write_run(&mut self) {
        if let Some(run) = self.run.take() {
            // To a log that is finished nothing is added; the count of dropped events has them.
            let _ = self.queue.send(Entry::Lost(run));
        }
    }
}

impl Clone for Recorder {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), backlog: Arc::clone(&self.backlog), run: None }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.write_run();
    }
}
