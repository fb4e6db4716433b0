//! Resumption: what a ticket is good for, and what ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::pair::{FILES, Pair, VERSIONS, authorities, certificate, client, mutual, plain};
use crate::{Config, Fault};
use testkit::certificates::Says;

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_session_is_resumed_with_its_identity_but_not_after_a_reload() {
    for (name, configs) in [(None, [plain(), plain()]), (Some("client"), [mutual(), mutual()])] {
        for version in VERSIONS {
            let client = client(version, name);
            let kind = |config: &Config| {
                let mut pair = Pair::established(&client, config);
                assert_eq!(pair.server.identity().unwrap().is_some(), name.is_some());
                pair.say(b"question");
                assert_eq!(pair.received, b"question");
                assert_eq!(pair.reply(b"answer"), b"answer");
                pair.client.handshake_kind().unwrap()
            };
            let [before, after] = &configs;
            assert_eq!(kind(before), HandshakeKind::Full, "{version:?}");
            assert_eq!(kind(before), HandshakeKind::Resumed, "{version:?}");
            assert_eq!(kind(&before.clone()), HandshakeKind::Resumed, "{version:?}");
            assert_eq!(kind(after), HandshakeKind::Full, "{version:?}");
            assert_eq!(kind(after), HandshakeKind::Resumed, "{version:?}");
        }
    }
}

/// A clock that stands where it is put.
#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_whose_certificate_has_expired_since_does_not_get_in_with_its_ticket() {
    let valid = ("20300101000000Z", "20300102000000Z");
    let (day_2030_01_01_unix_s, day_s) = (1_893_456_000, 86_400);
    FILES.issue("a-day", Says { valid, ..Says::default() });
    for version in VERSIONS {
        let clock = Arc::new(Clock(AtomicU64::new(day_2030_01_01_unix_s + day_s / 2)));
        let provider = rustls::crypto::ring::default_provider();
        let now = Arc::clone(&clock);
        let config = Config::with(&certificate("server"), Some(&authorities()), provider, now).unwrap();
        let client = client(version, Some("a-day"));
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let pair = Pair::established(&client, &config);
            assert_eq!(pair.client.handshake_kind(), Some(expected), "{version:?}");
        }

        clock.0.store(day_2030_01_01_unix_s + day_s + 1, Ordering::Relaxed);
        let mut pair = Pair::new(&client, &config);
        std::io::Write::write_all(&mut pair.client.writer(), b"ACQUIRE").unwrap();
        let fault = pair.exchange().expect_err("the certificate is over");
        assert!(matches!(fault, Fault::ResumedCertificate(_)), "{fault:?}");
        assert!(fault.to_string().contains("expired"), "{fault}");
        assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
        assert_eq!(pair.received, b"", "{version:?}");
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed(), "the client was told");
    }
}
