//! Keys that have protected enough.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::time_provider::DefaultTimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use super::{Pair, certificate, client};
use crate::{Config, Fault};

/// Keys that are good for a few records only.
const RECORDS: u64 = 8;

fn short_lived_keys() -> Config {
    let mut provider: CryptoProvider = rustls::crypto::ring::default_provider();
    for suite in &mut provider.cipher_suites {
        let common = |common: &CipherSuiteCommon| CipherSuiteCommon {
            suite: common.suite,
            hash_provider: common.hash_provider,
            confidentiality_limit: RECORDS,
        };
        *suite = match *suite {
            SupportedCipherSuite::Tls12(suite) => {
                let suite = Tls12CipherSuite { common: common(&suite.common), ..*suite };
                SupportedCipherSuite::Tls12(Box::leak(Box::new(suite)))
            }
            SupportedCipherSuite::Tls13(suite) => {
                let suite = Tls13CipherSuite { common: common(&suite.common), ..*suite };
                SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
            }
        };
    }
    Config::with(&certificate("server"), None, provider, Arc::new(DefaultTimeProvider)).unwrap()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_tls_1_3_session_outlives_its_keys() {
    let mut pair = Pair::established(&client(&TLS13, None), &short_lived_keys());
    for round in 0..10 * RECORDS {
        assert_eq!(pair.reply(b"answer"), b"answer", "round {round}");
        pair.say(b"heartbeat");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_tls_1_2_session_ends_with_its_key_and_says_so() {
    let mut pair = Pair::established(&client(&TLS12, None), &short_lived_keys());
    let rounds = (0..2 * RECORDS).take_while(|_| pair.reply(b"answer") == b"answer").count();
    assert!(rounds > 0 && rounds < RECORDS as usize, "{rounds} answers");
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed(), "the client was told");
    let outcome = pair.server.receive(b"", &mut Vec::new(), &mut Vec::new());
    assert_eq!(outcome, Err(Fault::KeyExhausted));
}
