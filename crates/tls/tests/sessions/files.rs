//! Files: what is read from them, and what is said about bad ones.

use std::fs;

use testkit::certificates::{EXPIRED, FUTURE, Key, Says};
use tls::{Certificate, ClientCa, FileOf};

use crate::pair::{FILES, certificate};

/// The problem with a pair of files, and what stands before it, which must be the path of `named`.
fn problem(cert: &str, key: &str, named: &str) -> String {
    let error = Certificate::load(&FILES.path(cert), &FILES.path(key)).expect_err("cannot be used");
    assert!(matches!(error.of, FileOf::Certificate | FileOf::Key), "{error:?}");
    let (error, path) = (error.to_string(), format!("{}: ", FILES.path(named).display()));
    error.strip_prefix(&path).unwrap_or_else(|| panic!("{error:?} names {named}")).to_owned()
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
    assert_eq!(described.not_after_unix_s(), 1_767_323_045);
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
        (
            "der.pem",
            "server.key",
            "der.pem",
            "it is DER or PKCS #12 and no PEM: convert it with openssl x509 or openssl pkey, -in FILE -out NEW",
        ),
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
        let expected =
            "line 1: the private key is encrypted; decrypt it with: openssl pkey -in FILE -out NEW";
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
    let bad_second =
        &*format!("line {}: this CERTIFICATE is damaged: it is no certificate", whole.lines().count() + 1);
    FILES.issue("server-v1", Says { extensions: "", ..Says::default() });
    for (cert, key, named, expected) in [
        ("missing.pem", "server.key", "missing.pem", "cannot read it: No such file or directory"),
        ("server.pem", "directory", "directory", "cannot read it: Is a directory"),
        ("torn.pem", "server.key", "torn.pem", "line 1: this CERTIFICATE has no END line"),
        (
            "no-base64.pem",
            "server.key",
            "no-base64.pem",
            "line 1: this CERTIFICATE is damaged: it is not in base64",
        ),
        (
            "no-certificate.pem",
            "server.key",
            "no-certificate.pem",
            "line 1: this CERTIFICATE is damaged: it is no certificate",
        ),
        ("bad-second.pem", "server.key", "bad-second.pem", bad_second),
        (
            "server-v1.pem",
            "server-v1.key",
            "server-v1.pem",
            "unusable certificate: it is X.509 v1, and must be v3",
        ),
        (
            "server.pem",
            "no-key.pem",
            "no-key.pem",
            "TLS cannot be spoken here with this private key (damaged, or no key at all)",
        ),
    ] {
        let said = problem(cert, key, named);
        assert!(said.starts_with(expected), "{said}");
    }
    for (authorities, expected) in [
        ("directory", "cannot read it: Is a directory"),
        ("empty.ca", "there is no certificate in it in PEM; it has nothing"),
        ("server.key", "line 1: PRIVATE KEY cannot be used here: authorities are certificates alone"),
        ("bad-second.pem", bad_second),
    ] {
        fs::write(FILES.path("empty.ca"), "").unwrap();
        let error = ClientCa::load(&FILES.path(authorities)).expect_err("cannot be used").to_string();
        let path = format!("{}: {expected}", FILES.path(authorities).display());
        assert!(error.starts_with(&path), "{error}");
    }
}

/// A file in the folder of [`FILES`].
fn written(name: &str, content: impl AsRef<[u8]>) {
    fs::write(FILES.path(name), content).unwrap();
}

fn text(name: &str) -> String {
    fs::read_to_string(FILES.path(name)).unwrap()
}

/// How many authorities are in a bundle, or what is wrong with it.
fn authorities(name: &str) -> Result<usize, String> {
    let loaded = ClientCa::load(&FILES.path(name)).map(|authorities| authorities.count());
    let before = format!("{}: ", FILES.path(name).display());
    loaded.map_err(|error| error.to_string().strip_prefix(&before).expect("the file comes first").to_owned())
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn every_authority_of_a_bundle_is_taken_or_the_bundle_is_refused_with_the_line() {
    let (one, other) = (text("ca.pem"), text("other-ca.pem"));
    let trusted = String::from_utf8(FILES.openssl(&["x509", "-in", "ca.pem", "-trustout"])).unwrap();
    let second = one.lines().count() + 1;
    FILES.openssl(&[
        "ca", "-config", "settings", "-cert", "ca.pem", "-keyfile", "ca.key", "-gencrl", "-crldays", "9",
        "-out", "ca.crl",
    ]);
    for (what, bundle, expected) in [
        ("a byte order mark", format!("\u{feff}{one}{other}"), Ok(2)),
        ("byte order marks of both files", format!("\u{feff}{one}\u{feff}{other}"), Ok(2)),
        ("CR LF", format!("{one}{other}").replace('\n', "\r\n"), Ok(2)),
        ("indentation", format!("{one}{}", other.replace("-----BEGIN", "  -----BEGIN")), Ok(2)),
        ("an older label", format!("{one}{}", other.replace(" CERTIFICATE", " X509 CERTIFICATE")), Ok(2)),
        ("text", format!("# one\n{one}\n# other\n{other}\n"), Ok(2)),
        (
            "a trusted certificate",
            format!("{one}{trusted}"),
            Err("TRUSTED CERTIFICATE cannot be used here: write it as CERTIFICATE"),
        ),
        (
            "no line between",
            format!("{}{other}", one.trim_end()),
            Err("BEGIN and END lines must stand alone"),
        ),
        (
            "a comment",
            format!("{one}{}", other.replace("-----BEGIN", "# -----BEGIN")),
            Err("BEGIN and END lines must stand alone"),
        ),
        (
            "a key",
            format!("{one}{}", text("ca.key")),
            Err("PRIVATE KEY cannot be used here: authorities are certificates alone"),
        ),
        (
            "a revocation list",
            format!("{one}{}", text("ca.crl")),
            Err("X509 CRL cannot be used here: revocation is not looked at"),
        ),
    ] {
        written("bundle.pem", bundle);
        match (authorities("bundle.pem"), expected) {
            (Ok(count), Ok(expected)) => assert_eq!(count, expected, "{what}"),
            (Err(said), Err(expected)) => {
                let line = said.strip_prefix("line ").and_then(|said| said.split_once(": "));
                let (line, said) = line.unwrap_or_else(|| panic!("{what}: {said}"));
                assert!(said.starts_with(expected), "{what}: {said}");
                let line: usize = line.parse().unwrap();
                assert!(line.abs_diff(second) <= 1, "{what}: {line} {said}");
            }
            (found, expected) => panic!("{what}: {found:?} {expected:?}"),
        }
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_key_file_has_one_key_with_or_without_the_parameters_of_its_curve() {
    let parameters = FILES.openssl(&["ecparam", "-name", "prime256v1"]);
    written("with-parameters.key", [&parameters[..], text("server.key").as_bytes()].concat());
    Certificate::load(&FILES.path("server.pem"), &FILES.path("with-parameters.key")).unwrap();
    let keys = [text("server.key"), text("client.key")].concat();
    written("two.key", &keys);
    let second = text("server.key").lines().count() + 1;
    let said = problem("server.pem", "two.key", "two.key");
    assert_eq!(
        said,
        format!("line {second}: a second private key: leave only the one that belongs to the certificate")
    );
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_key_that_tls_cannot_use_is_refused_by_its_kind_in_every_format() {
    for (name, key, kind) in [
        ("p521", Key::P521, "ECDSA P-521"),
        ("ed448", Key::Ed448, "Ed448"),
        ("rsa1024", Key::Rsa(1024), "RSA 1024"),
        ("rsa4608", Key::Rsa(4608), "RSA 4608"),
    ] {
        FILES.issue(name, Says { key, ..Says::default() });
        let (cert, key, old) = (format!("{name}.pem"), format!("{name}.key"), format!("{name}.old.key"));
        let expected = format!(
            "TLS cannot be spoken here with this private key ({kind}): take RSA of 2048 to 4096 bits, ECDSA P-256 \
             or P-384, or Ed25519"
        );
        assert_eq!(problem(&cert, &key, &key), expected);
        // Ed448 has no older format.
        if name != "ed448" {
            FILES.openssl(&["pkey", "-traditional", "-in", &key, "-out", &old]);
            assert_eq!(problem(&cert, &old, &old), expected);
        }
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn an_authority_whose_word_can_never_be_checked_is_refused() {
    for (name, key, kind) in [
        ("ca-p521", Key::P521, "ECDSA P-521"),
        ("ca-ed448", Key::Ed448, "Ed448"),
        ("ca-rsa1024", Key::Rsa(1024), "RSA 1024"),
    ] {
        FILES.authority_with(name, key);
        let said = authorities(&format!("{name}.pem")).unwrap_err();
        let expected =
            format!("line 1: this authority's signatures cannot be checked here, its key is {kind}: ");
        assert!(said.starts_with(&expected), "{said}");
    }
    FILES.authority_with("ca-rsa4608", Key::Rsa(4608));
    assert_eq!(authorities("ca-rsa4608.pem"), Ok(1));
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn it_is_said_why_clients_will_refuse_a_certificate() {
    let valid = |valid| Says { valid, ..Says::default() };
    FILES.issue("doubt-future", valid(FUTURE));
    FILES.issue("doubt-expired", valid(EXPIRED));
    FILES.issue(
        "doubt-ca",
        Says { extensions: "basicConstraints=CA:true\nsubjectAltName=DNS:a", ..Says::default() },
    );
    FILES.issue("doubt-client", Says { extensions: "extendedKeyUsage=clientAuth", ..Says::default() });
    FILES.issue("doubt-nameless", Says { extensions: "basicConstraints=CA:false", ..Says::default() });
    let now_unix_s = 1_790_000_000;
    for (name, expected) in [
        ("server", None),
        ("doubt-future", Some("it is not valid before 2098-01-01T00:00:00Z")),
        ("doubt-expired", Some("it expired at 2020-02-01T00:00:00Z")),
        ("doubt-ca", Some("it is an authority's (CA:TRUE): let the authority issue one with CA:FALSE")),
        ("doubt-client", Some("its extendedKeyUsage has no serverAuth")),
        ("doubt-nameless", Some("it has no DNS name or IP address (subjectAltName)")),
    ] {
        let doubt = certificate(name).doubt(now_unix_s).map(|doubt| doubt.to_string());
        assert_eq!(doubt.as_deref(), expected, "{name}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn the_servers_certificate_comes_first_in_its_file_and_the_file_is_no_bundle() {
    let chain = [text("ca.pem"), text("server.pem")].concat();
    written("reversed.pem", chain);
    let said = problem("reversed.pem", "server.key", "reversed.pem");
    assert_eq!(said, "the private key belongs to certificate number 2: the server's own must be the first");
    written("long.pem", text("server.pem").repeat(60));
    let said = problem("long.pem", "server.key", "long.pem");
    assert!(said.contains("16000 is the most that is accepted"), "{said}");
}
