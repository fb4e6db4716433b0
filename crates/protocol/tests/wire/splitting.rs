//! TCP splits and glues as it likes; what a stream means does not depend on it.

use proptest::prelude::*;
use proptest::sample::Index;
use protocol::{
    Acquire, ErrorCode, HEARTBEAT, ServerFrame, SessionInput, UnknownFrame, decode_acquire,
    decode_server_frame, decode_session,
};

use crate::invariants::encode_server_frame;
use crate::values::{self, pieces};

/// What a server made of a client's stream.
#[derive(Debug, PartialEq, Eq)]
struct Received {
    /// `None` while the first frame is incomplete.
    first: Option<Result<Acquire, ErrorCode>>,
    session: SessionInput,
}

/// A server that receives `stream` in pieces.
fn receive(stream: &[u8], cuts: &[Index]) -> Received {
    let mut received = Received { first: None, session: SessionInput::default() };
    let mut unread = Vec::new();
    for piece in pieces(stream, cuts) {
        unread.extend_from_slice(piece);
        if received.first.is_none() {
            match decode_acquire(&unread) {
                Ok(None) => {}
                Ok(Some((acquire, rest))) => {
                    let rest = rest.to_vec();
                    received.first = Some(Ok(acquire));
                    unread = rest;
                }
                Err(code) => received.first = Some(Err(code)),
            }
        }
        if matches!(received.first, Some(Ok(_))) && received.session.violation.is_none() {
            let input = decode_session(&unread);
            received.session.heartbeats += input.heartbeats;
            received.session.violation = input.violation;
            unread.clear();
        }
    }
    received
}

/// What a client read: whole frames, how many bytes of an incomplete one, and what ended the stream.
type Read = (Vec<ServerFrame>, usize, Option<UnknownFrame>);

/// A client that receives `stream` in pieces.
fn read(stream: &[u8], cuts: &[Index]) -> Read {
    let (mut frames, mut unread) = (Vec::new(), Vec::new());
    for piece in pieces(stream, cuts) {
        unread.extend_from_slice(piece);
        loop {
            match decode_server_frame(&unread) {
                Ok(None) => break,
                Ok(Some((frame, len))) => {
                    frames.push(frame);
                    unread.drain(..len);
                }
                Err(unknown) => return (frames, 0, Some(unknown)),
            }
        }
    }
    (frames, unread.len(), None)
}

/// Bytes of all kinds: frames of both sides, and noise of the bytes that mean something somewhere.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![prop::sample::select(vec![0, 1, 2, 3, 0x11, 0x12, 0x13]), any::<u8>()];
    let part = prop_oneof![
        values::acquire().prop_map(|acquire| acquire.encode().to_vec()),
        values::server_frame().prop_map(|frame| encode_server_frame(&frame)),
        prop::collection::vec(byte, 0..12),
    ];
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(values::config())]

    #[test]
    fn a_client_stream_gives_its_claim_its_heartbeats_and_its_first_violation(
        acquire in values::acquire(),
        heartbeats in 0_usize..40,
        violation in prop::option::of(any::<u8>().prop_filter("no heartbeat", |byte| *byte != HEARTBEAT[0])),
        ignored in prop::collection::vec(any::<u8>(), 0..8),
        cuts in values::cuts(),
    ) {
        let mut stream = [&*acquire.encode(), &vec![HEARTBEAT[0]; heartbeats]].concat();
        if let Some(violation) = violation {
            stream.push(violation);
            stream.extend(ignored);
        }
        let violation = violation.map(|byte| match byte {
            0x01 => ErrorCode::DUPLICATE_ACQUIRE,
            _ => ErrorCode::UNKNOWN_TYPE,
        });
        let session = SessionInput { heartbeats, violation };
        prop_assert_eq!(receive(&stream, &cuts), Received { first: Some(Ok(acquire)), session });
    }

    #[test]
    fn no_splitting_changes_what_a_server_makes_of_any_bytes(stream in noise(), cuts in values::cuts()) {
        prop_assert_eq!(receive(&stream, &cuts), receive(&stream, &[]));
    }

    #[test]
    fn an_acquire_says_nothing_before_its_last_byte_and_the_same_from_then_on(
        acquire in values::acquire(),
        rest in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let frame = acquire.encode();
        let stream = [&*frame, &rest].concat();
        for end in 0..frame.len() {
            prop_assert_eq!(decode_acquire(&stream[..end]), Ok(None));
        }
        for end in frame.len()..=stream.len() {
            let expected = (acquire.clone(), &stream[frame.len()..end]);
            prop_assert_eq!(decode_acquire(&stream[..end]), Ok(Some(expected)));
        }
    }

    #[test]
    fn a_server_stream_gives_its_frames_and_keeps_the_incomplete_one(
        frames in prop::collection::vec(values::server_frame(), 0..8),
        cuts in values::cuts(),
        end in any::<Index>(),
    ) {
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |end, frame| { *end += encode_server_frame(frame).len(); Some(*end) })
            .collect();
        let stream = frames.iter().map(encode_server_frame).collect::<Vec<_>>().concat();
        let end = end.index(stream.len() + 1);
        let whole = ends.iter().take_while(|frame_end| **frame_end <= end).count();
        let incomplete = end - ends[..whole].last().copied().unwrap_or(0);
        prop_assert_eq!(read(&stream, &cuts), (frames.clone(), 0, None));
        prop_assert_eq!(read(&stream[..end], &cuts), (frames[..whole].to_vec(), incomplete, None));
    }

    #[test]
    fn no_splitting_changes_what_a_client_makes_of_any_bytes(stream in noise(), cuts in values::cuts()) {
        prop_assert_eq!(read(&stream, &cuts), read(&stream, &[]));
    }
}
