//! One session as its client sees it: what is in flight, and what each frame means then.

use std::io::ErrorKind;
use std::mem;

use anyhow::{Context, Result};
use protocol::{HEARTBEAT, ServerFrame, Token, decode_server_frame};

use super::stream::Stream;
use super::{End, Sent, What};
use crate::clock::now_ns;

/// Sums over the sessions of a fleet.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// ACQUIREs without an answer.
    pub(super) joining: usize,
    /// Heartbeats without an answer.
    pub(super) in_flight: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Joining,
    Queued,
    Holding(Token),
}

pub(super) struct Session {
    pub(super) stream: Stream,
    state: State,
    /// When the heartbeat in flight was sent.
    sent_ns: Option<u64>,
    /// The start of a frame whose rest did not come yet; rarely used.
    partial: Vec<u8>,
}

impl Session {
    /// A session whose ACQUIRE was sent.
    pub(super) fn joining(stream: Stream, counts: &mut Counts) -> Self {
        counts.joining += 1;
        Self { stream, state: State::Joining, sent_ns: None, partial: Vec::new() }
    }

    /// Takes the session out of the counts.
    pub(super) fn leave(self, counts: &mut Counts) {
        counts.joining -= usize::from(matches!(self.state, State::Joining));
        counts.in_flight -= usize::from(self.sent_ns.is_some());
    }

    pub(super) fn heartbeat(&mut self, counts: &mut Counts) -> Result<Sent> {
        if self.sent_ns.is_some() || matches!(self.state, State::Joining) {
            return Ok(Sent::Busy);
        }
        let now = now_ns();
        match self.stream.send(&HEARTBEAT) {
            Ok(()) => {}
            // The next poll says how the session ended.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Ok(Sent::Gone);
            }
            Err(error) => return Err(error).context("sending a heartbeat"),
        }
        self.sent_ns = Some(now);
        counts.in_flight += 1;
        Ok(Sent::Yes)
    }

    /// Decodes received bytes and tells what they mean.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        at_ns: u64,
        counts: &mut Counts,
        mut tell: impl FnMut(What),
    ) -> Result<(), End> {
        let mut glued = mem::take(&mut self.partial);
        let mut rest = bytes;
        if !glued.is_empty() {
            glued.extend_from_slice(bytes);
            rest = &glued;
        }
        let unknown = |_| End::Violation("sent a frame of unknown type");
        while let Some((frame, len)) = decode_server_frame(rest).map_err(unknown)? {
            rest = &rest[len..];
            tell(self.apply(&frame, at_ns, counts)?);
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// What a frame means in this state. The first ACQUIRED after a WAITING is always the push and answers
    /// nothing.
    fn apply(&mut self, frame: &ServerFrame, at_ns: u64, counts: &mut Counts) -> Result<What, End> {
        match (frame, self.state) {
            (ServerFrame::Waiting, State::Joining) => {
                counts.joining -= 1;
                self.state = State::Queued;
                Ok(What::Queued)
            }
            (&ServerFrame::Acquired(token), State::Joining | State::Queued) => {
                counts.joining -= usize::from(matches!(self.state, State::Joining));
                self.state = State::Holding(token);
                Ok(What::Granted(token))
            }
            (ServerFrame::Waiting, State::Queued) => self.answered(at_ns, counts),
            (ServerFrame::Acquired(token), State::Holding(held)) if *token == held => {
                self.answered(at_ns, counts)
            }
            (ServerFrame::Acquired(_), State::Holding(_)) => Err(End::Violation("sent another token")),
            (ServerFrame::Waiting, State::Holding(_)) => Err(End::Violation("sent WAITING after ACQUIRED")),
            (ServerFrame::Error { code, .. }, _) => Err(End::Refused(*code)),
        }
    }

    fn answered(&mut self, at_ns: u64, counts: &mut Counts) -> Result<What, End> {
        let sent_ns = self.sent_ns.take().ok_or(End::Violation("answered a heartbeat that was not sent"))?;
        counts.in_flight -= 1;
        Ok(What::Beat { rtt_ns: at_ns.saturating_sub(sent_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    use protocol::{ErrorCode, ErrorFrame, WAITING, acquired};

    /// What a session makes of `input` when it comes in pieces of `piece` bytes.
    fn told(input: &[u8], piece: usize) -> (Vec<What>, Result<(), End>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut counts = Counts::default();
        let mut session = Session::joining(Stream::Plain(socket), &mut counts);
        let mut told = Vec::new();
        let mut result = Ok(());
        for piece in input.chunks(piece) {
            result = result.and_then(|()| session.take(piece, now_ns(), &mut counts, |what| told.push(what)));
            // A client that keeps one heartbeat in flight whenever it may.
            session.heartbeat(&mut counts).unwrap();
        }
        session.leave(&mut counts);
        assert_eq!((counts.joining, counts.in_flight), (0, 0));
        (told, result)
    }

    #[test]
    fn the_first_acquired_after_a_waiting_is_the_push_and_the_next_answers_the_heartbeat() {
        let frames = [&WAITING[..], &acquired(Token(5)), &acquired(Token(5))].concat();
        for piece in [1, 2, 3] {
            let (told, result) = told(&frames, piece);
            assert_eq!(result, Ok(()), "pieces of {piece}");
            assert!(
                matches!(told[..], [What::Queued, What::Granted(Token(5)), What::Beat { .. }]),
                "pieces of {piece}: {told:?}"
            );
        }
    }

    #[test]
    fn frames_that_no_server_may_send_end_the_session() {
        let end = |frames: &[&[u8]]| told(&frames.concat(), 1).1.unwrap_err();
        let (mine, other) = (acquired(Token(5)), acquired(Token(6)));
        assert_eq!(end(&[&mine, &other]), End::Violation("sent another token"));
        assert_eq!(end(&[&mine, &WAITING]), End::Violation("sent WAITING after ACQUIRED"));
        assert_eq!(end(&[&[0x7f]]), End::Violation("sent a frame of unknown type"));
        let refusal = ErrorFrame::new(ErrorCode::SHUTTING_DOWN);
        assert_eq!(end(&[&mine, &refusal]), End::Refused(ErrorCode::SHUTTING_DOWN));
        let twice = [&mine[..], &mine].concat();
        assert_eq!(
            told(&twice, twice.len()).1,
            Err(End::Violation("answered a heartbeat that was not sent"))
        );
    }
}
