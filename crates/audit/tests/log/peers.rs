//! How a peer is shown.

use std::net::SocketAddr;

use audit::Peer;

#[test]
fn an_ipv4_peer_is_shown_as_ipv4_whichever_way_it_came() {
    for (address, shown) in [
        ("192.0.2.1:70", "192.0.2.1:70"),
        ("[::ffff:192.0.2.1]:70", "192.0.2.1:70"),
        ("[2001:db8::1]:70", "[2001:db8::1]:70"),
    ] {
        assert_eq!(Peer::from(address.parse::<SocketAddr>().unwrap()).to_string(), shown);
    }
}
