//! Bytes that no honest client sends.

use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ContentType, Error, InvalidMessage, PeerMisbehaved};
use tls::{Fault, Session};

use crate::pair::{Pair, VERSIONS, client, forger, plain};

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

fn client_hello() -> Vec<u8> {
    Pair::new(&client(&TLS12, None), &plain()).outgoing()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_record_that_was_changed_ends_the_session_and_delivers_nothing() {
    for version in VERSIONS {
        let mut forger = forger(version);
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
fn a_record_longer_than_tls_allows_is_refused_at_its_header() {
    let too_large = Err(Fault::Protocol(Error::InvalidMessage(InvalidMessage::MessageTooLarge)));
    assert_eq!(
        first_bytes(&[22, 3, 1, 0x48, 0x01]),
        (too_large.clone(), alert(AlertDescription::DecodeError))
    );
    for version in VERSIONS {
        assert_eq!(forger(version).give(&[23, 3, 3, 0x48, 0x01]), too_large, "{version:?}");
    }
    // Short enough for a record, and more than 2^14 bytes of data in it.
    let mut forger = forger(&TLS13);
    let outcome = forger.send(ContentType::ApplicationData, &[0; (1 << 14) + 1]);
    assert_eq!(outcome, Err(Fault::Protocol(Error::PeerSentOversizedRecord)));
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
    let mut forger = forger(&TLS12);
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
        let (taken, fault) = forger(version).flood(ContentType::ApplicationData, b"");
        assert_eq!((taken, fault), (32, misbehaved(TooManyEmptyFragments)), "{version:?}");
        let (taken, fault) = forger(version).flood(ContentType::Alert, &WARNING);
        assert_eq!((taken, fault), (4, misbehaved(TooManyWarningAlertsReceived)), "{version:?}");
    }
    let mut forger = forger(&TLS12);
    assert!(forger.send(ContentType::Handshake, &KEY_UPDATE_WITHOUT_ANSWER).is_err(), "not in TLS 1.2");
}
