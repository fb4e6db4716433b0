//! Files: what is read from them, and what is said about bad ones.

use std::fs;

use super::certificates::{Key, Says};
use super::pair::{FILES, certificate};
use crate::tls::{Certificate, ClientCa};

/// The problem with a pair of files, and what stands before it, which must be a flag and the path of `named`.
fn problem(cert: &str, key: &str, named: &str) -> String {
    let error =
        Certificate::load(&FILES.path(cert), &FILES.path(key)).expect_err("cannot be used").to_string();
    let path = format!(" {}: ", FILES.path(named).display());
    let problem = error.strip_prefix("-tls-cert").or(error.strip_prefix("-tls-key"));
    problem
        .and_then(|rest| rest.strip_prefix(&path))
        .unwrap_or_else(|| panic!("{error:?} names {named}"))
        .to_owned()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_certificate_is_described_in_one_line() {
    let names = "subjectAltName=DNS:lock.test,IP:10.1.2.3,IP:2001:db8::1,URI:spiffe://test/lock";
    FILES.issue(
        "described",
        Says {
            subject: "/O=Test/CN=lock",
            extensions: names,
            valid: ("20250102030405Z", "20260102030405Z"),
            ..Says::default()
        },
    );
    let described = certificate("described");
    assert_eq!(
        described.description(),
        "subject O=Test, CN=lock, names lock.test 10.1.2.3 2001:db8::1 spiffe://test/lock, \
         valid from 2025-01-02T03:04:05Z to 2026-01-02T03:04:05Z, ECDSA P-256"
    );
    assert_eq!((described.not_before_unix_s(), described.not_after_unix_s()), (1_735_787_045, 1_767_323_045));
    assert!(!described.is_expired(1_767_323_045) && described.is_expired(1_767_323_046));
    for (server, kind) in [("server-ed25519", "Ed25519"), ("server-rsa2048", "RSA 2048")] {
        let certificate = certificate(server);
        assert!(certificate.description().ends_with(kind), "{}", certificate.description());
    }
    FILES.issue(
        "nameless",
        Says { subject: "/", extensions: "basicConstraints=CA:false", key: Key::P256, ..Says::default() },
    );
    assert!(certificate("nameless").description().starts_with("subject none, valid from "));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_key_that_belongs_to_another_certificate_is_refused() {
    let said = problem("server.pem", "client.key", "client.key");
    assert!(said.starts_with("this private key does not belong to the certificate in "), "{said}");
    assert!(said.ends_with("/server.pem"), "{said}");
    problem("server-rsa2048.pem", "server-ed25519.key", "server-ed25519.key");
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_file_without_what_is_needed_is_refused_and_it_is_said_what_it_has() {
    fs::write(FILES.path("empty.pem"), "").unwrap();
    fs::write(FILES.path("notes.pem"), "to be done\n").unwrap();
    FILES.openssl(&["x509", "-in", "server.pem", "-outform", "DER", "-out", "der.pem"]);
    for (cert, key, named, expected) in [
        (
            "server.key",
            "server.pem",
            "server.key",
            "there is no certificate in it in PEM; it has PRIVATE KEY",
        ),
        ("server.pem", "ca.pem", "ca.pem", "there is no private key in it in PEM; it has CERTIFICATE"),
        ("empty.pem", "server.key", "empty.pem", "there is no certificate in it in PEM; it has nothing"),
        ("server.pem", "empty.pem", "empty.pem", "there is no private key in it in PEM; it has nothing"),
        (
            "notes.pem",
            "server.key",
            "notes.pem",
            "there is no certificate in it in PEM; it has no PEM at all",
        ),
        ("der.pem", "server.key", "der.pem", "there is no certificate in it in PEM; it has no PEM at all"),
    ] {
        assert_eq!(problem(cert, key, named), expected);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn an_encrypted_key_is_refused_and_it_is_said_how_to_decrypt_it() {
    FILES.openssl(&["pkey", "-in", "server.key", "-aes256", "-passout", "pass:secret", "-out", "pkcs8.key"]);
    let traditional =
        ["pkey", "-traditional", "-in", "server-rsa2048.key", "-aes128", "-passout", "pass:secret"];
    FILES.openssl(&[&traditional[..], &["-out", "traditional.key"]].concat());
    for (cert, key) in [("server.pem", "pkcs8.key"), ("server-rsa2048.pem", "traditional.key")] {
        let expected = format!(
            "the private key is encrypted; decrypt it with: openssl pkey -in {} -out KEY",
            FILES.path(key).display()
        );
        assert_eq!(problem(cert, key, key), expected);
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn keys_in_the_older_formats_are_read_too() {
    for (name, kind) in [("server", "EC PRIVATE KEY"), ("server-rsa2048", "RSA PRIVATE KEY")] {
        let (cert, key, old) = (format!("{name}.pem"), format!("{name}.key"), format!("{name}.old.key"));
        FILES.openssl(&["pkey", "-traditional", "-in", &key, "-out", &old]);
        assert!(fs::read_to_string(FILES.path(&old)).unwrap().contains(kind));
        Certificate::load(&FILES.path(&cert), &FILES.path(&old)).unwrap();
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn certificate_and_key_may_be_in_one_file() {
    let both = ["server.key", "server.pem"].map(|file| fs::read(FILES.path(file)).unwrap()).concat();
    fs::write(FILES.path("both-in-one.pem"), both).unwrap();
    let path = FILES.path("both-in-one.pem");
    Certificate::load(&path, &path).unwrap();
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn what_cannot_be_read_or_is_broken_is_refused() {
    fs::create_dir_all(FILES.path("directory")).unwrap();
    let whole = fs::read_to_string(FILES.path("server.pem")).unwrap();
    fs::write(FILES.path("torn.pem"), &whole[..whole.len() / 2]).unwrap();
    fs::write(FILES.path("no-base64.pem"), whole.replace('M', "!")).unwrap();
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(FILES.path("no-certificate.pem"), no_certificate).unwrap();
    fs::write(FILES.path("no-key.pem"), no_certificate.replace("CERTIFICATE", "PRIVATE KEY")).unwrap();
    fs::write(FILES.path("bad-second.pem"), format!("{whole}{no_certificate}")).unwrap();
    FILES.issue("server-v1", Says { extensions: "", ..Says::default() });
    for (cert, key, named, expected) in [
        ("missing.pem", "server.key", "missing.pem", "cannot read it: No such file or directory"),
        ("server.pem", "directory", "directory", "cannot read it: Is a directory"),
        ("torn.pem", "server.key", "torn.pem", "broken PEM: a section has no END line"),
        ("no-base64.pem", "server.key", "no-base64.pem", "broken PEM: a section is no base64"),
        ("no-certificate.pem", "server.key", "no-certificate.pem", "unusable certificate: "),
        ("bad-second.pem", "server.key", "bad-second.pem", "unusable certificate: "),
        ("server-v1.pem", "server-v1.key", "server-v1.pem", "unusable certificate: "),
        ("server.pem", "no-key.pem", "no-key.pem", "unusable private key: "),
    ] {
        let said = problem(cert, key, named);
        assert!(said.starts_with(expected), "{said}");
    }
    for (authorities, expected) in [
        ("directory", "cannot read it: Is a directory"),
        ("empty.ca", "there is no certificate in it in PEM; it has nothing"),
        ("server.key", "there is no certificate in it in PEM; it has PRIVATE KEY"),
        ("bad-second.pem", "unusable certificate: "),
    ] {
        fs::write(FILES.path("empty.ca"), "").unwrap();
        let error = ClientCa::load(&FILES.path(authorities)).expect_err("cannot be used").to_string();
        let path = format!("-tls-client-ca {}: {expected}", FILES.path(authorities).display());
        assert!(error.starts_with(&path), "{error}");
    }
}
