//! Keys change within a session because the client asks.

use rustls::version::TLS13;
use rustls::{Error, PeerMisbehaved};
use tls::Fault;

use crate::pair::{Pair, client, plain};

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_key_update_is_answered_with_the_next_data() {
    let mut pair = Pair::established(&client(&TLS13, None), &plain());
    for round in 0..100 {
        pair.client.refresh_traffic_keys().unwrap();
        pair.say(b"question");
        assert_eq!(pair.reply(b"answer"), b"answer", "round {round}");
    }
    assert_eq!(pair.received.len(), 100 * b"question".len());
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn key_updates_without_data_end_the_session_and_fill_nothing() {
    let mut pair = Pair::established(&client(&TLS13, None), &plain());
    let mut output = Vec::new();
    let (taken, fault) = (0..1000)
        .find_map(|taken| {
            pair.client.refresh_traffic_keys().unwrap();
            let update = pair.outgoing();
            Some((taken, pair.server.receive(&update, &mut Vec::new(), &mut output).err()?))
        })
        .expect("there is an end");
    let too_many = PeerMisbehaved::TooManyKeyUpdateRequests;
    assert_eq!((taken, fault), (32, Fault::Protocol(Error::PeerMisbehaved(too_many))));
    assert_eq!(output, b"", "one answer, with the next data");
}
