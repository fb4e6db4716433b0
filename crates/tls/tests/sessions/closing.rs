//! The end of a session: close_notify from either side.

use crate::pair::{Pair, VERSIONS, client, plain};

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn our_close_notify_comes_behind_our_data_and_is_the_last_thing_we_send() {
    for version in VERSIONS {
        let mut pair = Pair::established(&client(version, None), &plain());
        let mut output = Vec::new();
        pair.server.send(b"good bye", &mut output);
        pair.server.close_notify(&mut output);
        let len = output.len();
        pair.server.close_notify(&mut output);
        assert_eq!(output.len(), len, "said once, {version:?}");
        pair.answer(&output);
        assert_eq!(pair.heard, b"good bye", "{version:?}");
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed(), "{version:?}");
        std::io::Write::write_all(&mut pair.client.writer(), b"I was not done").unwrap();
        let outgoing = [&*pair.outgoing(), b"this is no TLS at all"].concat();
        pair.give(&outgoing).expect("ignored");
        assert_eq!(pair.received, b"", "{version:?}");
        let mut output = Vec::new();
        pair.server.send(b"too late", &mut output);
        assert_eq!(output, b"", "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn there_is_nothing_to_close_before_the_handshake_is_over() {
    let mut pair = Pair::new(&client(VERSIONS[1], None), &plain());
    let mut output = Vec::new();
    pair.server.close_notify(&mut output);
    assert_eq!(output, b"");
    pair.exchange().unwrap();
    assert!(!pair.server.is_handshaking());
}
