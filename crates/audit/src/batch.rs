//! The entries in the writer's hands: formatted, and written up to some byte.

use super::line;
use super::recorder::{Entry, Run};

/// Entries that are being written, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    entries: Vec<Entry>,
    /// Their lines, one after the other, of as many as are formatted.
    bytes: Vec<u8>,
    /// Where each line ends in `bytes`.
    ends: Vec<usize>,
    bytes_written: usize,
    lines_written: usize,
}

impl Batch {
    /// Takes more entries; they are formatted by [`Batch::format`].
    pub(super) fn entries_mut(&mut self) -> &mut Vec<Entry> {
        &mut self.entries
    }

    /// Makes lines of all entries.
    pub(super) fn format(&mut self) {
        for entry in &self.entries[self.ends.len()..] {
            self.bytes.extend_from_slice(line::format(entry).as_bytes());
            self.ends.push(self.bytes.len());
        }
    }

    /// What is to be written next; empty when all that is formatted is written.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.bytes[self.bytes_written..]
    }
    /// The last line that was written lacks its end.
    pub(super) fn is_torn(&self) -> bool {
        self.bytes_written > self.line_start()
    }

    /// So many more bytes are written. How many events are now whole in the log.
    pub(super) fn advance(&mut self, bytes: usize) -> u64 {
        self.bytes_written += bytes;
        assert!(self.bytes_written <= self.bytes.len(), "no more is written than there is");
        let before = self.lines_written;
        while self.ends.get(self.lines_written).is_some_and(|&end| end <= self.bytes_written) {
            self.lines_written += 1;
        }
        let events = count_events(&self.entries[before..self.lines_written]);
        if self.lines_written == self.entries.len() {
            self.clear();
        }
        events
    }

    /// A torn line is to be written from its start.
    pub(super) fn rewind(&mut self) {
        self.bytes_written = self.line_start();
    }

    /// Gives up what is not written: one lost record takes its place. How many events that were.
    pub(super) fn refuse(&mut self) -> u64 {
        let refused = &self.entries[self.lines_written..];
        let events = count_events(refused);
        let mut run = None;
        for entry in refused {
            match entry {
                Entry::Event(event) => Run::extend(&mut run, event.time_unix_ns, 1),
                Entry::Node(event) => Run::extend(&mut run, event.time_unix_ns, 1),
                Entry::Lost(lost) => Run::extend(&mut run, lost.time_unix_ns, lost.count),
            }
        }
        self.clear();
        self.entries.extend(run.map(Entry::Lost));
        events
    }

    fn line_start(&self) -> usize {
        self.lines_written.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.ends.clear();
        self.bytes_written = 0;
        self.lines_written = 0;
    }
}

fn count_events(entries: &[Entry]) -> u64 {
    entries.iter().filter(|entry| !matches!(entry, Entry::Lost(_))).count() as u64
}
