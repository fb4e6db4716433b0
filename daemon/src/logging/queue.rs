//! A bounded queue of lines before a writer that may block or fail.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use super::escape;
use crate::threads;

/// Lines that wait for the writer. A second of a busy log; at the usual 200 bytes a line, 800 KB at most.
const LINES_MAX: usize = 4_096;

/// How long the end of the process waits for queued lines: well under the second that the ops server outlives the rest.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(500);

/// How often a flush looks for room in a full queue.
const FLUSH_RETRY: Duration = Duration::from_millis(5);

enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it has been written.
    Flush(SyncSender<()>),
}

/// The entrance of the queue: takes one whole line with each write, and never blocks or fails.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    queue: SyncSender<Message>,
    lost: LinesLost,
}

/// How many lines were dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct LinesLost(Arc<AtomicU64>);

/// Waits, when dropped, until what was queued is written, but not forever.
#[derive(Debug, Clone)]
pub(crate) struct Flush {
    queue: SyncSender<Message>,
}

/// Starts the thread that writes to `writer`.
pub(crate) fn start(writer: impl Write + Send + 'static) -> io::Result<(Lines, Flush)> {
    let (queue, take) = mpsc::sync_channel(LINES_MAX);
    threads::start("log", move || write_lines(&take, writer))?;
    Ok((Lines { queue: queue.clone(), lost: LinesLost::default() }, Flush { queue }))
}

fn write_lines(take: &Receiver<Message>, mut writer: impl Write) {
    for message in take {
        match message {
            // There is no place left to report that standard error is gone.
            Message::Line(line) => {
                let _ = writer.write_all(&line);
            }
            // Whoever asked may have stopped waiting.
            Message::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

impl Lines {
    pub(super) fn lost(&self) -> LinesLost {
        self.lost.clone()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Message::Line(escape::line(bytes))).is_err() {
            self.lost.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl LinesLost {
    /// Lines dropped since the start.
    pub(super) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Flush {
    /// Waits until everything queued so far is written, at most for `time_max`; whether it is.
    pub(super) fn wait(&self, time_max: Duration) -> bool {
        let deadline = Instant::now() + time_max;
        let (done, is_done) = mpsc::sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(message) {
            if Instant::now() >= deadline {
                return false;
            }
            message = back;
            thread::sleep(FLUSH_RETRY);
        }
        is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        // Late or failed, the process ends all the same.
        self.wait(FLUSH_TIME_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any machine keeps a thread from running.
    const TEST_TIME_MAX: Duration = Duration::from_secs(60);

    /// Blocks until the other end of the channel is dropped, then fails.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_is_stuck_costs_lines_and_blocks_nobody_and_one_that_fails_harms_nobody() {
        let (release, stuck) = mpsc::sync_channel(0);
        let (mut lines, flush) = start(Stuck(stuck)).unwrap();
        let extra = 10;
        for _ in 0..LINES_MAX + extra {
            lines.write_all(b"line\n").unwrap();
        }
        // One line, if the thread was quick, is in the writer's hands and not in the queue.
        let lost = lines.lost().total();
        assert!((extra as u64 - 1..=extra as u64).contains(&lost), "{lost} lines lost");
        drop(release);
        assert!(flush.wait(TEST_TIME_MAX));
        lines.write_all(b"line\n").unwrap();
        assert_eq!(lines.lost().total(), lost);
    }

    #[test]
    fn a_flush_gives_up_on_a_writer_that_is_stuck() {
        let (_release, stuck) = mpsc::sync_channel(0);
        let (mut lines, flush) = start(Stuck(stuck)).unwrap();
        lines.write_all(b"line\n").unwrap();
        assert!(!flush.wait(FLUSH_RETRY));
    }
}
