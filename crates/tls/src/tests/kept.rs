//! What a session keeps of a client's bytes: an incomplete record, and nothing else.

use rustls::version::TLS12;
use rustls::{AlertDescription, ContentType, SupportedProtocolVersion};
use testkit::tls::{Forger, VERSIONS};

use super::{FILES, Pair, authorities, certificate, client};
use crate::{Config, Fault, Session};

/// Handshakes of the test with random splits; each has its own seed.
const SEEDS: u64 = 40;

fn plain() -> Config {
    Config::new(&certificate("server"), None).unwrap()
}

fn mutual() -> Config {
    Config::new(&certificate("server"), Some(&authorities())).unwrap()
}

fn forger(version: &'static SupportedProtocolVersion) -> Forger<Session> {
    Forger::new(&FILES, version, &plain())
}

/// A fatal alert as it stands on the wire without encryption.
fn alert(description: AlertDescription) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description.into()]
}

fn client_hello() -> Vec<u8> {
    Pair::new(&client(&TLS12, None), &plain()).outgoing()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn what_came_before_a_close_notify_is_delivered_and_what_comes_after_it_is_ignored() {
    for version in VERSIONS {
        let mut pair = Pair::established(&client(version, None), &plain());
        std::io::Write::write_all(&mut pair.client.writer(), b"last words").unwrap();
        pair.client.send_close_notify();
        let mut bytes = pair.outgoing();
        assert!(!pair.server.is_closed_by_peer());
        bytes.extend_from_slice(b"this is no TLS at all");
        pair.give(&bytes).unwrap();
        assert_eq!(pair.received, b"last words", "{version:?}");
        assert!(pair.server.is_closed_by_peer(), "{version:?}");
        pair.give(b"and more").unwrap();
        assert_eq!((&*pair.received, pair.server.kept_bytes()), (&b"last words"[..], 0), "{version:?}");
        assert_eq!(pair.reply(b"good bye"), b"good bye", "the other direction is open, {version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn it_does_not_matter_how_the_bytes_are_split() {
    let only = std::env::var("TLS_SEED").ok().map(|seed| seed.parse().expect("TLS_SEED is a number"));
    let config = mutual();
    for seed in only.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
        println!("TLS_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let piece_bytes_max = *random.choice([1, 2, 7, 100, 400, 5000, 40_000].iter()).unwrap();
        let version = *random.choice(VERSIONS.iter()).unwrap();
        let said: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(*[1, 20, 40_000].get(seed as usize % 3).unwrap())
            .collect();
        let mut pair = Pair::new(&client(version, Some("client")), &config);
        // Records that an established session takes.
        for record in said.chunks(1000) {
            std::io::Write::write_all(&mut pair.client.writer(), record).unwrap();
        }
        loop {
            let mut outgoing = &*pair.outgoing();
            if outgoing.is_empty() {
                break;
            }
            while !outgoing.is_empty() {
                let (piece, rest) = outgoing.split_at(random.usize(1..=piece_bytes_max.min(outgoing.len())));
                pair.give(piece).unwrap();
                outgoing = rest;
            }
        }
        assert!(pair.received == said, "{} of {} bytes", pair.received.len(), said.len());
        assert_eq!(pair.server.kept_bytes(), 0);
        assert!(pair.reply(&said) == said);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn only_an_incomplete_record_is_kept() {
    for version in VERSIONS {
        let mut pair = Pair::established(&client(version, Some("client")), &mutual());
        assert_eq!(pair.server.kept_bytes(), 0, "{version:?}");
        std::io::Write::write_all(&mut pair.client.writer(), &[7; 600]).unwrap();
        let record = pair.outgoing();
        pair.give(&record[..500]).unwrap();
        assert_eq!((&*pair.received, pair.server.kept_bytes()), (&b""[..], 500), "{version:?}");
        pair.give(&record[500..]).unwrap();
        assert_eq!((&*pair.received, pair.server.kept_bytes()), (&[7; 600][..], 0), "{version:?}");
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

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_record_without_its_end_is_waited_for() {
    for version in VERSIONS {
        let mut forger = forger(version);
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
fn random_records_in_random_pieces_never_panic() {
    let only = std::env::var("TLS_SEED").ok().map(|seed| seed.parse().expect("TLS_SEED is a number"));
    for seed in only.map_or(0..300, |seed: u64| seed..seed + 1) {
        println!("TLS_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut forger = forger(VERSIONS[random.usize(..2)]);
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

/// Mostly such as an honest client could send, and then not quite.
fn random_record(random: &mut fastrand::Rng, forger: &mut Forger<Session>) -> Vec<u8> {
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
