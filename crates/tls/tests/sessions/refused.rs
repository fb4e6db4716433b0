//! Clients that are not let in, and what they hear of it.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, CertificateError, Error, SupportedProtocolVersion};
use testkit::certificates::{ALWAYS, EXPIRED, FUTURE, Says};
use tls::{Config, Fault};

use crate::pair::{FILES, Pair, VERSIONS, authorities, certificate, client, mutual, plain};

/// What the server says, and what the client hears.
fn refusal(version: &'static SupportedProtocolVersion, name: Option<&str>) -> (Fault, Error) {
    let mut pair = Pair::new(&client(version, name), &mutual());
    let fault = pair.exchange().expect_err("refused");
    assert!(pair.received.is_empty());
    let again = pair.server.receive(b"more", &mut Vec::new(), &mut Vec::new()).expect_err("it is over");
    assert_eq!(again.to_string(), fault.to_string());
    (fault, pair.client_error())
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_without_a_certificate_is_refused_and_told() {
    for version in VERSIONS {
        let (fault, heard) = refusal(version, None);
        assert_eq!(fault, Fault::NoCertificate, "{version:?}");
        assert_eq!(heard, Error::AlertReceived(AlertDescription::CertificateRequired), "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_certificate_that_does_not_hold_is_refused_and_told() {
    let valid = |valid| Says { valid, ..Says::default() };
    FILES.issue("expired", valid(EXPIRED));
    FILES.issue("future", valid(FUTURE));
    FILES.issue("stranger", Says { by: "other-ca", ..valid(ALWAYS) });
    FILES.issue("for-servers", Says { extensions: "extendedKeyUsage=serverAuth", ..valid(ALWAYS) });
    FILES.issue("ca-leaf", Says { extensions: "basicConstraints=CA:true", ..valid(ALWAYS) });
    FILES.issue("v1", Says { extensions: "", ..valid(ALWAYS) });
    let v1 = FILES.openssl(&["x509", "-in", "v1.pem", "-noout", "-text"]);
    assert!(
        String::from_utf8_lossy(&v1).contains("Version: 1 "),
        "openssl makes X.509 v1 without extensions"
    );

    for version in VERSIONS {
        for (name, alert, words) in [
            ("expired", AlertDescription::CertificateExpired, "it expired at 2020-02-01T00:00:00Z"),
            (
                "future",
                AlertDescription::CertificateExpired,
                "it is not valid before 2098-01-01T00:00:00Z, and the clock here says 20",
            ),
            ("stranger", AlertDescription::UnknownCA, "no authority for clients vouches for it"),
            (
                "for-servers",
                AlertDescription::UnsupportedCertificate,
                "its extendedKeyUsage has no clientAuth",
            ),
            ("ca-leaf", AlertDescription::CertificateUnknown, "it is an authority's (CA:TRUE)"),
            ("v1", AlertDescription::CertificateUnknown, "it is X.509 v1, and must be v3"),
        ] {
            let (fault, heard) = refusal(version, Some(name));
            let text = fault.to_string();
            assert!(text.starts_with("the client's certificate is not accepted: "), "{text}");
            assert!(text.contains(words), "{name}: {text}");
            assert_eq!(heard, Error::AlertReceived(alert), "{name} {version:?}");
        }
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_chain_of_certificates_that_is_too_long_is_refused_and_told() {
    let padded = |bytes: usize| {
        let name = format!("padded-{bytes}");
        let extensions = format!("nsComment={}\nsubjectAltName=DNS:padded.test", "x".repeat(bytes));
        FILES.issue(&name, Says { extensions: &extensions, ..Says::default() });
        name
    };
    let (longest, too_long) = (padded(15_400), padded(22_000));
    let len = |name: &str| CertificateDer::from_pem_file(FILES.path(&format!("{name}.pem"))).unwrap().len();
    assert!((15_800..pki::CHAIN_BYTES_MAX).contains(&len(&longest)), "{}", len(&longest));
    for version in VERSIONS {
        Pair::established(&client(version, Some(&longest)), &mutual());
        let mut pair = Pair::new(&client(version, Some(&too_long)), &mutual());
        let fault = loop {
            let outgoing = pair.outgoing();
            // As they come from a socket.
            if let Err(fault) = outgoing.chunks(4096).try_for_each(|piece| pair.give(piece)) {
                break fault;
            }
        };
        let heard = pair.client_error();
        assert!(matches!(fault, Fault::MessageTooLong(_)), "{fault:?}");
        assert!(fault.to_string().contains("its chain of certificates is too long"), "{fault}");
        assert_eq!(heard, Error::AlertReceived(AlertDescription::DecodeError), "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_that_does_not_trust_the_server_is_the_one_to_blame() {
    FILES.issue("server-of-other-ca", Says { by: "other-ca", ..Says::default() });
    let config = Config::new(&certificate("server-of-other-ca"), Some(&authorities())).unwrap();
    for version in VERSIONS {
        let mut pair = Pair::new(&client(version, Some("client")), &config);
        let outgoing = pair.outgoing();
        pair.give(&outgoing).unwrap();
        let error = pair.client_error();
        assert_eq!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer), "{version:?}");
        assert_eq!(pair.exchange(), Err(Fault::Refused(AlertDescription::UnknownCA)), "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_certificate_that_nobody_asked_for_gives_no_identity() {
    for version in VERSIONS {
        let pair = Pair::established(&client(version, Some("client")), &plain());
        assert_eq!(pair.server.identity().unwrap(), None, "{version:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn every_authority_in_the_file_vouches_by_itself() {
    FILES.issue("of-other-ca", Says { by: "other-ca", ..Says::default() });
    let both = ["ca.pem", "other-ca.pem"].map(|file| std::fs::read(FILES.path(file)).unwrap()).concat();
    std::fs::write(FILES.path("both.pem"), both).unwrap();
    let both = tls::ClientCa::load(&FILES.path("both.pem")).unwrap();
    assert_eq!(both.count(), 2);
    let config = Config::new(&certificate("server"), Some(&both)).unwrap();
    for name in ["client", "of-other-ca"] {
        Pair::established(&client(VERSIONS[1], Some(name)), &config);
    }
}
