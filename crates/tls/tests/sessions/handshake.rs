//! Handshakes, and data after them.

use tls::{ClientCa, Config, Session};

use crate::pair::{FILES, Pair, VERSIONS, certificate, client, mutual};

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

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn clients_are_served_also_where_the_names_of_all_authorities_are_too_long_for_a_message() {
    // In TLS they have 64 KB; each of these takes 15 bytes.
    let many = std::fs::read_to_string(FILES.path("ca.pem")).unwrap().repeat(5000);
    let file = FILES.path("many-authorities.pem");
    std::fs::write(&file, many).unwrap();
    let config = Config::new(&certificate("server"), Some(&ClientCa::load(&file).unwrap())).unwrap();
    for version in VERSIONS {
        let pair = Pair::established(&client(version, Some("client")), &config);
        assert_eq!(pair.server.identity().unwrap().as_deref(), Some("spiffe://test/client"), "{version:?}");
    }
}

#[test]
fn a_session_is_small() {
    // Mostly rustls's own; what is on the heap is measured elsewhere.
    assert!(size_of::<Session>() <= 1152, "{} bytes", size_of::<Session>());
}
