//! What ends a ticket with time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use testkit::certificates::Says;
use testkit::tls::VERSIONS;

use super::{FILES, Pair, authorities, certificate, client};
use crate::{Config, Fault};

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
