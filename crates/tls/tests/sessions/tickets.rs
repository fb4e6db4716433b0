//! Resumption: what a ticket is good for.

use rustls::HandshakeKind;
use tls::Config;

use crate::pair::{Pair, VERSIONS, client, mutual, plain};

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
