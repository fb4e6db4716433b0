//! What each completion means for its connection.

use rustix::io::Errno;
use rustix::net::Shutdown;

use super::{Ended, Outcome, Reactor, tag};
use crate::connection::{Receive, Stage};
use crate::ring::Completion;
use crate::slab::Key;

impl<T> Reactor<T> {
    pub(super) fn complete(&mut self, completion: Completion) -> Outcome {
        let (key, tag) = Key::from_tagged(completion.user_data);
        match tag {
            tag::RECEIVE => return self.complete_receive(key, completion),
            tag::SEND => self.complete_send(key, completion.result),
            tag::CANCEL_RECEIVE => self.fail_cancel(key),
            tag::CANCEL_SEND => {} // The send is over, or the shutdown ends it.
            tag::WAKE => self.wake_armed &= completion.more(),
            other => unreachable!("no operation has tag {other}"),
        }
        Outcome::Nothing
    }

    fn complete_receive(&mut self, key: Key, completion: Completion) -> Outcome {
        let outcome = self.judge_receive(key, completion);
        if let (Some(buffer), false) = (completion.buffer(), matches!(outcome, Outcome::Received { .. })) {
            self.buffers.put(buffer);
        }
        outcome
    }

    fn judge_receive(&mut self, key: Key, completion: Completion) -> Outcome {
        let Some(connection) = self.connections.get_mut(key) else {
            debug_assert!(false, "a record outlives its receive");
            return Outcome::Nothing;
        };
        if !completion.more() {
            connection.receive = Receive::Idle;
        }
        let errno = match completion.result {
            bytes @ 1.. => return self.judge_bytes(key, completion, bytes as usize),
            0 => None,
            error => match -error {
                // Neither these nor the next are the connection's end.
                libc::ENOBUFS => {
                    self.starved.push(key);
                    return Outcome::Nothing;
                }
                // Paused, interrupted.
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                    self.list(key);
                    return Outcome::Nothing;
                }
                errno => Some(Errno::from_raw_os_error(errno)),
            },
        };
        let cause = connection.finish_receive(errno);
        let stage = connection.stage;
        match stage {
            Stage::Open => {
                connection.stage = Stage::Ended;
                return Outcome::Ended { key, how: cause.map_or(Ended::Eof, Ended::from_errno) };
            }
            Stage::Ended => {}
            Stage::Draining | Stage::Closing => self.list(key),
        }
        Outcome::Nothing
    }

    fn judge_bytes(&mut self, key: Key, completion: Completion, len: usize) -> Outcome {
        let connection = self.connections.get_mut(key).expect("the caller looked it up");
        let stage = connection.stage;
        let within_bounds = stage != Stage::Draining || connection.drain(len as u32);
        if !completion.more() {
            self.list(key);
        } else if connection.is_mute() {
            // The end's own wake-up came before this receive was armed, and after its last bytes the kernel
            // waits for one.
            let _ = rustix::net::shutdown(&connection.fd, Shutdown::Both);
        }
        if !within_bounds {
            self.cut_drain(key);
        }
        match (stage, completion.buffer()) {
            (Stage::Open, Some(buffer)) => Outcome::Received { key, buffer, len },
            _ => Outcome::Nothing,
        }
    }

    fn complete_send(&mut self, key: Key, result: i32) {
        let Some(connection) = self.connections.get_mut(key) else {
            debug_assert!(false, "a record outlives its send");
            return;
        };
        match result {
            sent @ 0.. => {
                connection.land(sent as usize);
                connection.block(self.now_ns);
            }
            error => match -error {
                // The time to make progress in runs from the first of these.
                libc::EAGAIN => {
                    let was_waiting = connection.is_waiting_to_send();
                    connection.land(0);
                    connection.block(if was_waiting { connection.progress_ns } else { self.now_ns });
                }
                libc::EINTR | libc::ECANCELED => connection.land(0),
                errno => {
                    let errno = Errno::from_raw_os_error(errno);
                    connection.fail_send(errno);
                    if errno != Errno::PIPE {
                        // Makes sure that the receive comes to its end, after the bytes that are there.
                        let _ = rustix::net::shutdown(&connection.fd, Shutdown::Both);
                    }
                }
            },
        }
        self.list(key);
    }

    /// The cancellation came too early or too late. If the receive's last completion is not there yet, it is
    /// sent again.
    fn fail_cancel(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && connection.receive == Receive::Cancelling
        {
            connection.receive = Receive::Armed;
            self.list(key);
        }
    }
}

impl Ended {
    fn from_errno(errno: Errno) -> Self {
        if errno == Errno::CONNRESET { Self::Reset } else { Self::Silent(errno) }
    }
}
