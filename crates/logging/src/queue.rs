//! A bounded queue of lines before a writer that may block or fail.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use super::escape;

/// Lines that wait for the writer. A second of a busy log; at the usual 200 bytes a line, 800 KB at most.
const LINES_MAX: usize = 4_096;

/// How long the end of the process waits for queued lines: well under the second that the ops server outlives
/// the rest.
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
pub struct Lines {
    queue: SyncSender<Message>,
    lost: LinesLost,
}

/// How many lines were dropped: the queue was full, or they could not be written.
#[derive(Debug, Clone, Default)]
pub(super) struct LinesLost(Arc<AtomicU64>);

/// Waits, when dropped, until what was queued is written, but not forever.
#[derive(Debug, Clone)]
pub struct Flush {
    queue: SyncSender<Message>,
}

/// Starts the thread that writes to `writer`. When writing works again and the queue is empty, `tell` gets to
/// know how many lines were lost.
pub fn start(
    writer: impl Write + Send + 'static,
    tell: impl Fn(u64) + Send + 'static,
) -> io::Result<(Lines, Flush)> {
    let (queue, take) = mpsc::sync_channel(LINES_MAX);
    let lost = LinesLost::default();
    let output = Output { writer, torn: false, lost: lost.clone(), lost_told: 0 };
    threads::start("log", move || write_lines(&take, output, tell))?;
    Ok((Lines { queue: queue.clone(), lost }, Flush { queue }))
}

fn write_lines<W: Write>(take: &Receiver<Message>, mut output: Output<W>, tell: impl Fn(u64)) {
    let mut works = false;
    loop {
        let message = match take.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                if works && let Some(lost) = output.lost_untold() {
                    tell(lost);
                }
                match take.recv() {
                    Ok(message) => message,
                    Err(_) => return,
                }
            }
        };
        match message {
            Message::Line(line) => works = output.write(&line),
            // Whoever asked may have stopped waiting.
            Message::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

/// Where lines go, and what is lost on the way.
struct Output<W> {
    writer: W,
    /// It ends within a line, since the rest of that could not be written.
    torn: bool,
    lost: LinesLost,
    lost_told: u64,
}

impl<W: Write> Output<W> {
    /// Whether the line is written.
    fn write(&mut self, line: &[u8]) -> bool {
        let is_written = self.try_write(line).is_ok();
        if !is_written {
            self.lost.count();
        }
        is_written
    }

    fn try_write(&mut self, mut line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.writer.write_all(b"\n")?;
            self.torn = false;
        }
        while !line.is_empty() {
            match self.writer.write(line) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    line = &line[written..];
                    self.torn = !line.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many lines were lost and not yet told of.
    fn lost_untold(&mut self) -> Option<u64> {
        let total = self.lost.total();
        let untold = total - self.lost_told;
        self.lost_told = total;
        (untold > 0).then_some(untold)
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
            self.lost.count();
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
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

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
    use std::sync::Mutex;

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

    /// Blocks until the other end of the channel is dropped, and takes all.
    struct Slow(Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_is_stuck_costs_lines_and_blocks_nobody_and_one_that_fails_harms_nobody() {
        let (release, stuck) = mpsc::sync_channel(0);
        let (mut lines, flush) = start(Stuck(stuck), |_| ()).unwrap();
        let extra = 10;
        for _ in 0..LINES_MAX + extra {
            lines.write_all(b"line\n").unwrap();
        }
        // One line, if the thread was quick, is in the writer's hands and not in the queue.
        let lost = lines.lost().total();
        assert!((extra as u64 - 1..=extra as u64).contains(&lost), "{lost} lines lost");
        drop(release);
        assert!(flush.wait(TEST_TIME_MAX));
        assert_eq!(lines.lost().total(), (LINES_MAX + extra) as u64, "none was written");
    }

    /// Fails, or takes as many bytes as there is room for.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Disk {
        fn set_room(&self, room: usize) {
            self.0.lock().unwrap().0 = room;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().1.clone()).unwrap()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (room, taken) = &mut *self.0.lock().unwrap();
            let fits = bytes.len().min(*room);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= fits;
            taken.extend(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted_and_told_when_the_log_works_again_and_a_torn_one_stays_apart()
     {
        let disk = Disk::default();
        let (tell, told) = mpsc::channel();
        let (mut lines, flush) = start(disk.clone(), move |lost| tell.send(lost).unwrap()).unwrap();
        let mut say = |line: &[u8]| {
            lines.write_all(line).unwrap();
            assert!(flush.wait(TEST_TIME_MAX));
            lines.lost().total()
        };
        disk.set_room(10);
        assert_eq!(say(b"first\n"), 0);
        assert_eq!(say(b"torn by a full disk\n"), 1);
        assert_eq!(say(b"lost\n"), 2);
        assert!(told.try_recv().is_err(), "nobody is told while nothing can be written");
        disk.set_room(usize::MAX);
        assert_eq!(say(b"second\n"), 2);
        assert_eq!(told.recv_timeout(TEST_TIME_MAX), Ok(2));
        assert_eq!(say(b"third\n"), 2);
        drop((lines, flush));
        assert!(told.recv_timeout(TEST_TIME_MAX).is_err(), "once");
        assert_eq!(disk.text(), "first\ntorn\nsecond\nthird\n");
    }

    #[test]
    fn lines_that_found_the_queue_full_are_told_when_there_is_room_again() {
        let (release, stuck) = mpsc::sync_channel(0);
        let (tell, told) = mpsc::channel();
        let (mut lines, flush) = start(Slow(stuck), move |lost| tell.send(lost).unwrap()).unwrap();
        for _ in 0..2 * LINES_MAX {
            lines.write_all(b"line\n").unwrap();
        }
        let lost = lines.lost().total();
        drop(release);
        assert!(flush.wait(TEST_TIME_MAX));
        assert_eq!(told.recv_timeout(TEST_TIME_MAX), Ok(lost));
        drop((lines, flush));
        assert!(told.recv_timeout(TEST_TIME_MAX).is_err(), "once");
    }

    #[test]
    fn a_flush_gives_up_on_a_writer_that_is_stuck() {
        let (_release, stuck) = mpsc::sync_channel(0);
        let (mut lines, flush) = start(Stuck(stuck), |_| ()).unwrap();
        lines.write_all(b"line\n").unwrap();
        assert!(!flush.wait(FLUSH_RETRY));
    }
}
