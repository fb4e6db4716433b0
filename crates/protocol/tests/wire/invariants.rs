//! What must hold for any bytes from any peer: [`check`] panics where it does not.

use protocol::{
    ACQUIRE_BYTES_MAX, ERROR_BYTES_MAX, ErrorFrame, HEARTBEAT, ServerFrame, SessionInput, UnknownFrame,
    WAITING, acquired, decode_acquire, decode_server_frame, decode_session,
};

/// Gives `data` to every decoder.
pub(crate) fn check(data: &[u8]) {
    check_acquire(data);
    check_session(data);
    check_server_frame(data);
}

/// The frame as a server encodes it.
pub(crate) fn encode_server_frame(frame: &ServerFrame) -> Vec<u8> {
    match frame {
        ServerFrame::Waiting => WAITING.to_vec(),
        ServerFrame::Acquired(token) => acquired(*token).to_vec(),
        ServerFrame::Error { code, reason } => ErrorFrame::with_reason(*code, reason).to_vec(),
    }
}

/// The shortest prefix for which `decided` holds; from there on it must hold.
fn decisive_len(data: &[u8], decided: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let first = (0..=data.len()).find(|end| decided(&data[..*end]))?;
    assert!((first..=data.len()).all(|end| decided(&data[..end])), "decided at {first} bytes, then not");
    Some(first)
}

/// `data` with every byte from `start` on inverted: whoever reads one of them notices.
fn other_tail(data: &[u8], start: usize) -> Vec<u8> {
    let mut other = data.to_vec();
    other[start..].iter_mut().for_each(|byte| *byte = !*byte);
    other
}

fn check_acquire(data: &[u8]) {
    let Some(decisive) = decisive_len(data, |prefix| decode_acquire(prefix) != Ok(None)) else {
        assert!(data.len() < ACQUIRE_BYTES_MAX, "a full buffer and still undecided");
        return;
    };
    let verdict = decode_acquire(&data[..decisive]);
    if let Ok(Some((claim, rest))) = &verdict {
        assert!(rest.is_empty(), "decided later than at the last byte of the frame");
        assert_eq!(*claim.encode(), data[..decisive], "encoded again, the claim is another frame");
    }
    for end in decisive..=data.len() {
        let tail = &data[decisive..end];
        let expected = verdict.clone().map(|decoded| decoded.map(|(claim, _)| (claim, tail)));
        assert_eq!(decode_acquire(&data[..end]), expected, "{end} bytes say something else than {decisive}");
    }
    let other = other_tail(data, decisive);
    let expected = verdict.map(|decoded| decoded.map(|(claim, _)| (claim, &other[decisive..])));
    assert_eq!(decode_acquire(&other), expected, "bytes after the first {decisive} matter");
}

fn check_session(data: &[u8]) {
    let whole = decode_session(data);
    assert!(data[..whole.heartbeats].iter().all(|byte| *byte == HEARTBEAT[0]));
    assert_eq!(whole.violation.is_some(), whole.heartbeats < data.len(), "every byte is one or the other");
    for middle in 0..=data.len() {
        let (first, second) = (decode_session(&data[..middle]), decode_session(&data[middle..]));
        let glued = match first.violation {
            Some(_) => first,
            None => {
                SessionInput { heartbeats: first.heartbeats + second.heartbeats, violation: second.violation }
            }
        };
        assert_eq!(glued, whole, "cut at {middle}");
    }
    if whole.violation.is_some() {
        assert_eq!(decode_session(&other_tail(data, whole.heartbeats + 1)), whole);
    }
}

fn check_server_frame(data: &[u8]) {
    let Some(decisive) = decisive_len(data, |prefix| decode_server_frame(prefix) != Ok(None)) else {
        assert!(data.len() < ERROR_BYTES_MAX, "a full buffer and still undecided");
        return;
    };
    let verdict = decode_server_frame(&data[..decisive]);
    match &verdict {
        Ok(None) => unreachable!("decisive by definition"),
        Ok(Some((frame, len))) => {
            assert_eq!(*len, decisive, "decided later than at the last byte of the frame");
            check_encoded_again(frame, &data[..decisive]);
        }
        Err(UnknownFrame(byte)) => assert_eq!((*byte, decisive), (data[0], 1)),
    }
    for end in decisive..=data.len() {
        assert_eq!(
            decode_server_frame(&data[..end]),
            verdict,
            "{end} bytes say something else than {decisive}"
        );
    }
    let other = other_tail(data, decisive);
    assert_eq!(decode_server_frame(&other), verdict, "bytes after the first {decisive} matter");
}

fn check_encoded_again(frame: &ServerFrame, consumed: &[u8]) {
    match frame {
        ServerFrame::Error { code, reason } if str::from_utf8(&consumed[3..]).is_err() => {
            assert_eq!(code.0, consumed[1]);
            assert_eq!(**reason, *String::from_utf8_lossy(&consumed[3..]), "a bad reason is repaired");
        }
        frame => assert_eq!(encode_server_frame(frame), consumed, "encoded again, it is another frame"),
    }
}
