//! A writer over a disk that fails on demand, in virtual time.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::destination::{Destination, Output};
use crate::recorder::{self, Backlog, Recorder};
use crate::writer::{Order, Writer};

/// Longer than the writer rests, whatever happened.
pub(super) const A_WHILE: Duration = Duration::from_secs(1);

/// More orders than any test gives at once.
const ORDERS_MAX: usize = 1024;

/// What a file has taken, and what it does with the next write.
#[derive(Debug)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    /// Bytes that still fit; then there is ENOSPC.
    pub(super) room: usize,
    /// Bytes that one write takes at most.
    pub(super) write_max: usize,
    /// What every write says.
    pub(super) error: Option<Errno>,
    /// Calls of write.
    pub(super) writes: u64,
    /// Where it stood when it last had no reader.
    pub(super) deserted_at: Option<usize>,
}

/// A file that a test and the writer share.
#[derive(Debug, Clone)]
pub(super) struct Disk(Arc<Mutex<File>>);

impl Disk {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(File {
            bytes: Vec::new(),
            room: usize::MAX,
            write_max: usize::MAX,
            error: None,
            writes: 0,
            deserted_at: None,
        })))
    }

    pub(super) fn file(&self) -> MutexGuard<'_, File> {
        self.0.lock().unwrap()
    }

    pub(super) fn destination(&self, inode: u64) -> Destination<Self> {
        Destination::new(self.clone(), Some((1, inode)))
    }

    /// What an operator's `> file` or a rotation by copying does to a file that is being written to.
    pub(super) fn truncate(&self) {
        let mut file = self.file();
        file.bytes.clear();
        file.room = usize::MAX;
    }
}

impl io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.file();
        file.writes += 1;
        if let Some(error) = file.error {
            if error == Errno::PIPE {
                file.deserted_at = Some(file.bytes.len());
            }
            return Err(error.into());
        }
        if file.room == 0 {
            return Err(Errno::NOSPC.into());
        }
        let taken = bytes.len().min(file.room).min(file.write_max);
        file.bytes.extend(&bytes[..taken]);
        file.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Disk {
    fn len(&self) -> Option<u64> {
        Some(self.file().bytes.len() as u64)
    }

    fn ends_within_a_line(&self) -> bool {
        self.file().bytes.last().is_some_and(|&byte| byte != b'\n')
    }

    fn position(&mut self) -> Option<u64> {
        self.len()
    }

    fn go_to_end(&mut self) {}
}

/// A running log. Its writer runs only while the test awaits.
pub(super) struct Log {
    pub(super) backlog: Arc<Backlog>,
    orders: mpsc::Sender<Order<Disk>>,
    /// All of them are waited for to the end.
    reopens: RefCell<Vec<Receiver<()>>>,
    writer: JoinHandle<()>,
}

/// Starts a log on `disk`, as inode 1, with a bound of `events_max`.
pub(super) fn start(disk: &Disk, events_max: u64) -> (Log, Recorder) {
    let (recorder, queue, backlog) = recorder::new(events_max);
    let (orders, take_orders) = mpsc::channel(ORDERS_MAX);
    let writer =
        Writer::new("disk".into(), disk.destination(1), queue, take_orders, Arc::clone(&backlog)).run();
    (Log { backlog, orders, reopens: RefCell::default(), writer: tokio::spawn(writer) }, recorder)
}

impl Log {
    pub(super) fn reopen(&self, destination: Destination<Disk>) {
        let (taken, is_taken) = sync_channel(1);
        assert!(self.orders.try_send(Order::Reopen(destination, taken)).is_ok());
        self.reopens.borrow_mut().push(is_taken);
    }

    /// Ends the log, which the writer must be able to do.
    pub(super) async fn finish(self) {
        let (done, is_done) = oneshot::channel();
        assert!(self.orders.try_send(Order::Finish(done)).is_ok());
        timeout(A_WHILE, is_done).await.expect("in time").expect("all is written");
        self.writer.await.unwrap();
    }

    /// Ends the log as the process's end does, and waits for its writer.
    pub(super) async fn abandon(self) {
        drop(self.orders);
        self.writer.await.unwrap();
    }
}

/// Lets the writer do all that it can.
pub(super) async fn settle() {
    tokio::time::sleep(A_WHILE).await;
}
