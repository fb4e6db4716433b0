//! Whole frames from a byte stream that was split in any way.

use protocol::{ERROR_BYTES_MAX, ServerFrame, UnknownFrame, decode_server_frame};

/// The bytes of a frame that is not complete yet. The longest frame of a server bounds it.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: [u8; ERROR_BYTES_MAX],
    len: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; ERROR_BYTES_MAX], len: 0 }
    }

    /// The next whole frame, taken from what was kept and then from `received`, which shrinks to what is
    /// left. `None` when all of it is used up.
    pub(crate) fn next_frame(&mut self, received: &mut &[u8]) -> Result<Option<ServerFrame>, UnknownFrame> {
        let kept = self.len;
        let taken = received.len().min(ERROR_BYTES_MAX - kept);
        self.bytes[kept..kept + taken].copy_from_slice(&received[..taken]);
        let filled = kept + taken;
        match decode_server_frame(&self.bytes[..filled])? {
            Some((frame, frame_len)) => {
                assert!(frame_len > kept, "what was kept had no whole frame");
                *received = &received[frame_len - kept..];
                self.len = 0;
                Ok(Some(frame))
            }
            None => {
                assert!(filled < ERROR_BYTES_MAX, "no frame of a server is longer");
                *received = &[];
                self.len = filled;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ErrorCode, ErrorFrame, Token, WAITING, acquired};

    fn frames(pieces: &[&[u8]]) -> Vec<ServerFrame> {
        let mut inbox = Inbox::new();
        let mut frames = Vec::new();
        for mut piece in pieces.iter().copied() {
            while let Some(frame) = inbox.next_frame(&mut piece).unwrap() {
                frames.push(frame);
            }
            assert!(piece.is_empty());
        }
        frames
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_frames() {
        let longest = ErrorFrame::with_reason(ErrorCode::STANDBY, &"x".repeat(255));
        let stream = [&WAITING[..], &acquired(Token(7)), &acquired(Token(7)), &longest].concat();
        let whole = frames(&[&stream]);
        assert_eq!(whole.len(), 4);
        for at in 0..=stream.len() {
            assert_eq!(frames(&[&stream[..at], &stream[at..]]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(frames(&bytes), whole);
    }
}
