//! Handshakes, and data after them.

use super::pair::{Pair, VERSIONS, certificate, client, mutual};
use crate::tls::Config;

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn data_goes_both_ways_in_both_versions_with_every_kind_of_key() {
    for server in ["server", "server-ed25519", "server-rsa2048"] {
        let config = Config::new(&certificate(server), None).unwrap();
        for version in VERSIONS {
            let mut pair = Pair::established(&client(version, None), &config);
            pair.say(b"question");
            assert_eq!(pair.received, b"question", "{server} {version:?}");
            assert_eq!(pair.reply(b"answer"), b"answer", "{server} {version:?}");
            assert_eq!(pair.server.identity().unwrap(), None);
        }
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_with_a_certificate_has_its_identity() {
    let config = mutual();
    for version in VERSIONS {
        let pair = Pair::established(&client(version, Some("client")), &config);
        assert_eq!(pair.server.identity().unwrap().as_deref(), Some("spiffe://test/client"), "{version:?}");
    }
}
