//! Bytes that no honest client sends.

use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ContentType, Error, InvalidMessage, PeerMisbehaved};

use super::forger::Forger;
use super::pair::{Pair, VERSIONS, client, plain};
use crate::{Fault, Session};

/// A fatal alert as it stands on the wire without encryption.
fn alert(description: AlertDescription) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description.into()]
}

/// What a fresh session makes of `bytes`: its fault, and what it sends.
fn first_bytes(bytes: &[u8]) -> (Result<(), Fault>, Vec<u8>) {
    let (mut plaintext, mut output) = (Vec::new(), Vec::new());
    let outcome = Session::new(&plain()).receive(bytes, &mut plaintext, &mut output);
    assert!(plaintext.is_empty());
    (outcome, output)
}

fn misbehaved(why: PeerMisbehaved) -> Fault {
    Fault::Protocol(Error::PeerMisbehaved(why))
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn what_is_no_tls_is_answered_with_an_alert() {
    let acquire = [&[1, 0, 0, 0x27, 0x10][..], b"\x04lock"].concat();
    for bytes in [&acquire[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096]] {
        let (outcome, output) = first_bytes(bytes);
        assert_eq!(outcome, Err(Fault::NoTls));
        assert_eq!(output, alert(AlertDescription::DecodeError));
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn random_bytes_never_panic_and_are_never_kept_beyond_the_limit() {
    let only = std::env::var("TLS_SEED").ok().map(|seed| seed.parse().expect("TLS_SEED is a number"));
    let config = plain();
    for seed in only.map_or(0..2000, |seed: u64| seed..seed + 1) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut session = Session::new(&config);
        // Looks like a handshake or an alert at first, so that it is not refused at the first byte.
        let mut bytes = client_hello();
        for _ in 0..random.usize(0..8) {
            let place = random.usize(..bytes.len());
            bytes[place] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        for piece in bytes.chunks(random.usize(1..200)) {
            if session.receive(piece, &mut Vec::new(), &mut Vec::new()).is_err() {
                break;
            }
            assert!(session.kept_bytes() <= bytes.len(), "TLS_SEED={seed}");
        }
        let mut output = Vec::new();
        session.close_notify(&mut output);
        assert!(session.is_handshaking(), "TLS_SEED={seed}");
    }
}

fn client_hello() -> Vec<u8> {
    Pair::new(&client(&TLS12, None), &plain()).outgoing()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_record_that_was_changed_ends_the_session_and_delivers_nothing() {
    for version in VERSIONS {
        let mut forger = Forger::new(version);
        let mut records = forger.record(ContentType::ApplicationData, b"good");
        records.extend(forger.record(ContentType::ApplicationData, b"bad"));
        *records.last_mut().unwrap() ^= 1;
        assert_eq!(forger.give(&records), Err(Fault::Protocol(Error::DecryptError)), "{version:?}");
        assert_eq!(forger.received, b"", "{version:?}");
        assert!(forger.sent_bytes > 0, "an alert, {version:?}");
        let mut output = Vec::new();
        forger.server.send(b"too late", &mut output);
        forger.server.close_notify(&mut output);
        assert_eq!(output, b"", "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_record_without_its_end_is_waited_for() {
    for version in VERSIONS {
        let mut forger = Forger::new(version);
        let record = forger.record(ContentType::ApplicationData, b"heartbeat");
        for &byte in &record[..record.len() - 1] {
            assert_eq!(forger.give(&[byte]), Ok(()), "{version:?}");
        }
        assert_eq!(forger.received, b"", "{version:?}");
        assert_eq!(forger.server.kept_bytes(), record.len() - 1, "{version:?}");
        forger.give(&record[record.len() - 1..]).unwrap();
        assert_eq!(forger.received, b"heartbeat", "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_record_longer_than_tls_allows_is_refused_at_its_header() {
    let too_large = Err(Fault::Protocol(Error::InvalidMessage(InvalidMessage::MessageTooLarge)));
    assert_eq!(
        first_bytes(&[22, 3, 1, 0x48, 0x01]),
        (too_large.clone(), alert(AlertDescription::DecodeError))
    );
    for version in VERSIONS {
        assert_eq!(Forger::new(version).give(&[23, 3, 3, 0x48, 0x01]), too_large, "{version:?}");
    }
    // Short enough for a record, and more than 2^14 bytes of data in it.
    let mut forger = Forger::new(&TLS13);
    let outcome = forger.send(ContentType::ApplicationData, &[0; (1 << 14) + 1]);
    assert_eq!(outcome, Err(Fault::Protocol(Error::PeerSentOversizedRecord)));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_handshake_message_without_end_is_given_up() {
    let fragment = [&[22, 3, 1, 0x01, 0x00][..], &[0; 256]].concat();
    let mut first = fragment.clone();
    // A ClientHello of 64 KB.
    first[5..9].copy_from_slice(&[1, 0, 0xff, 0xff]);
    let mut session = Session::new(&plain());
    let (mut given, mut output) = (first.len(), Vec::new());
    let mut outcome = session.receive(&first, &mut Vec::new(), &mut Vec::new());
    while outcome.is_ok() && given < 100_000 {
        given += fragment.len();
        outcome = session.receive(&fragment, &mut Vec::new(), &mut output);
    }
    assert!(
        matches!(outcome, Err(Fault::MessageTooLong(max)) if given - fragment.len() <= max),
        "{outcome:?}"
    );
    assert_eq!(session.kept_bytes(), 0);
    assert_eq!(output, alert(AlertDescription::DecodeError));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn data_before_the_handshake_is_over_is_refused() {
    let mut pair = Pair::new(&client(&TLS13, None), &plain());
    let hello = pair.outgoing();
    pair.give(&hello).unwrap();
    let fault = pair.give(&[23, 3, 3, 0, 1, 0]).expect_err("not decrypted");
    assert!(matches!(fault, Fault::Protocol(_)), "{fault:?}");
    assert!(pair.received.is_empty());
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn one_renegotiation_is_declined_and_a_second_one_ends_the_session() {
    let mut forger = Forger::new(&TLS12);
    let hello = &client_hello()[5..];
    forger.send(ContentType::Handshake, hello).unwrap();
    assert!(forger.sent_bytes > 0, "a warning");
    forger.send(ContentType::ApplicationData, b"heartbeat").unwrap();
    assert_eq!(forger.received, b"heartbeat", "the session goes on");
    let outcome = forger.send(ContentType::Handshake, hello);
    assert_eq!(outcome, Err(misbehaved(PeerMisbehaved::TooManyRenegotiationRequests)));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn floods_of_records_that_say_nothing_end_the_session() {
    use PeerMisbehaved::*;
    const WARNING: [u8; 2] = [1, 90];
    const KEY_UPDATE_WITHOUT_ANSWER: [u8; 5] = [24, 0, 0, 1, 0];
    for version in VERSIONS {
        let (taken, fault) = Forger::new(version).flood(ContentType::ApplicationData, b"");
        assert_eq!((taken, fault), (32, misbehaved(TooManyEmptyFragments)), "{version:?}");
        let (taken, fault) = Forger::new(version).flood(ContentType::Alert, &WARNING);
        assert_eq!((taken, fault), (4, misbehaved(TooManyWarningAlertsReceived)), "{version:?}");
    }
    let mut forger = Forger::new(&TLS12);
    assert!(forger.send(ContentType::Handshake, &KEY_UPDATE_WITHOUT_ANSWER).is_err(), "not in TLS 1.2");
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn random_records_in_random_pieces_never_panic() {
    let only = std::env::var("TLS_SEED").ok().map(|seed| seed.parse().expect("TLS_SEED is a number"));
    for seed in only.map_or(0..300, |seed: u64| seed..seed + 1) {
        println!("TLS_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut forger = Forger::new(VERSIONS[random.usize(..2)]);
        for _ in 0..random.usize(1..60) {
            let record = random_record(&mut random, &mut forger);
            let piece_bytes = random.usize(1..=record.len());
            for piece in record.chunks(piece_bytes) {
                let ended = forger.give(piece).is_err();
                match random.u8(..40) {
                    0 => forger.server.close_notify(&mut Vec::new()),
                    1..20 => forger.server.send(b"answer", &mut Vec::new()),
                    _ => {}
                }
                assert!(!ended || forger.server.kept_bytes() == 0);
            }
        }
    }
}

/// Mostly such as an honest client could send, and then not quite.
fn random_record(random: &mut fastrand::Rng, forger: &mut Forger) -> Vec<u8> {
    const KEY_UPDATE: &[u8] = &[24, 0, 0, 1, 1];
    const TORN_KEY_UPDATE: &[u8] = &[24, 0, 0];
    const REST_OF_KEY_UPDATE: &[u8] = &[1, 0];
    let hello = client_hello();
    let (typ, payload): (_, &[u8]) = match random.u8(..24) {
        0..10 => (ContentType::ApplicationData, &[2]),
        10 => (ContentType::ApplicationData, &[]),
        11 => (ContentType::Alert, &[1, 90]),
        12 => (ContentType::Alert, &[1, 0]),
        13 => (ContentType::Alert, &[7, 7]),
        14..17 => (ContentType::Handshake, KEY_UPDATE),
        17 => (ContentType::Handshake, TORN_KEY_UPDATE),
        18 => (ContentType::Handshake, REST_OF_KEY_UPDATE),
        19 => (ContentType::Handshake, &hello[5..]),
        20 => (ContentType::ChangeCipherSpec, &[1]),
        21 => (ContentType::Unknown(random.u8(..)), &[0; 5]),
        22 => (ContentType::Handshake, &[20, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        _ => return vec![random.u8(20..25), 3, 3, 0, 3, 1, random.u8(..), 0],
    };
    let mut record = forger.record(typ, payload);
    if random.u8(..20) == 0 {
        let place = random.usize(..record.len());
        record[place] = random.u8(..);
    }
    record
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn an_established_session_takes_no_record_that_is_longer_than_any_client_needs() {
    for version in VERSIONS {
        for (said_bytes, is_taken) in [(1500, true), (3000, false)] {
            let mut pair = Pair::established(&client(version, None), &plain());
            std::io::Write::write_all(&mut pair.client.writer(), &vec![2; said_bytes]).unwrap();
            let record = pair.outgoing();
            let outcome = record.chunks(64).try_for_each(|piece| pair.give(piece));
            assert_eq!(outcome.is_ok(), is_taken, "{version:?}: {outcome:?}");
            assert!(pair.server.kept_bytes() <= 2048);
        }
    }
}
