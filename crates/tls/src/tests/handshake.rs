//! Handshakes, and data after them.

use super::pair::{FILES, Pair, VERSIONS, certificate, client, mutual};
use crate::{ClientCa, Config, Session};

/// Handshakes of the test with random splits; each has its own seed.
const SEEDS: u64 = 40;

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
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn it_does_not_matter_how_the_bytes_are_split() {
    let only = std::env::var("TLS_SEED").ok().map(|seed| seed.parse().expect("TLS_SEED is a number"));
    let config = mutual();
    for seed in only.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
        println!("TLS_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let piece_bytes_max = *random.choice([1, 2, 7, 100, 400, 5000, 40_000].iter()).unwrap();
        let version = *random.choice(VERSIONS.iter()).unwrap();
        let said: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(*[1, 20, 40_000].get(seed as usize % 3).unwrap())
            .collect();
        let mut pair = Pair::new(&client(version, Some("client")), &config);
        // Records that an established session takes.
        for record in said.chunks(1000) {
            std::io::Write::write_all(&mut pair.client.writer(), record).unwrap();
        }
        loop {
            let mut outgoing = &*pair.outgoing();
            if outgoing.is_empty() {
                break;
            }
            while !outgoing.is_empty() {
                let (piece, rest) = outgoing.split_at(random.usize(1..=piece_bytes_max.min(outgoing.len())));
                pair.give(piece).unwrap();
                outgoing = rest;
            }
        }
        assert!(pair.received == said, "{} of {} bytes", pair.received.len(), said.len());
        assert_eq!(pair.server.kept_bytes(), 0);
        assert!(pair.reply(&said) == said);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn only_an_incomplete_record_is_kept() {
    for version in VERSIONS {
        let mut pair = Pair::established(&client(version, Some("client")), &mutual());
        assert_eq!(pair.server.kept_bytes(), 0, "{version:?}");
        std::io::Write::write_all(&mut pair.client.writer(), &[7; 600]).unwrap();
        let record = pair.outgoing();
        pair.give(&record[..500]).unwrap();
        assert_eq!((&*pair.received, pair.server.kept_bytes()), (&b""[..], 500), "{version:?}");
        pair.give(&record[500..]).unwrap();
        assert_eq!((&*pair.received, pair.server.kept_bytes()), (&[7; 600][..], 0), "{version:?}");
    }
}

#[test]
fn a_session_is_small() {
    // Mostly rustls's own; what is on the heap is measured elsewhere.
    assert!(size_of::<Session>() <= 1152, "{} bytes", size_of::<Session>());
}
