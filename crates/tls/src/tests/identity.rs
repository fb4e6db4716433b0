//! Which name in a certificate is the identity.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::pair::{FILES, Pair, VERSIONS, certificate, client};
use crate::identity::{IDENTITY_BYTES_MAX, identity};
use crate::{ClientCa, Config, Fault};
use testkit::certificates::{Certificates, Says};

fn identity_of(files: &Certificates, subject: &str, extensions: &str) -> Result<String, Fault> {
    files.issue("client", Says { subject, extensions, ..Says::default() });
    let certificate = CertificateDer::from_pem_file(files.path("client.pem")).unwrap();
    identity(&certificate, false).map(str::to_owned)
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn the_first_uri_goes_before_the_first_dns_name_before_the_common_name() {
    let files = Certificates::new();
    for (subject, extensions, expected) in [
        ("/CN=cn", "subjectAltName=DNS:dns,URI:urn:one,URI:urn:two", "urn:one"),
        ("/CN=cn", "subjectAltName=IP:10.0.0.1,DNS:one.test,email:a@b.test,DNS:two.test", "one.test"),
        ("/CN=cn", "subjectAltName=IP:10.0.0.1,email:a@b.test", "cn"),
        ("/CN=cn", "basicConstraints=CA:false", "cn"),
        ("/", "subjectAltName=URI:urn:one", "urn:one"),
        ("/O=no name", "basicConstraints=CA:false", ""),
        ("/", "basicConstraints=CA:false", ""),
        ("/CN=root/CN=leaf", "basicConstraints=CA:false", "leaf"),
        ("/CN=größe 鍵", "basicConstraints=CA:false", "größe 鍵"),
        ("/CN=a\nb\u{1b}[31m", "basicConstraints=CA:false", "a\nb\u{1b}[31m"),
    ] {
        let found = identity_of(&files, subject, extensions);
        assert_eq!(found.as_deref(), Ok(expected), "{subject:?} {extensions:?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn an_identity_that_is_too_long_is_refused() {
    let files = Certificates::new();
    let uri = |len: usize| format!("spiffe://{}", "x".repeat(len - "spiffe://".len()));
    let longest = uri(IDENTITY_BYTES_MAX);
    assert_eq!(identity_of(&files, "/", &format!("subjectAltName=URI:{longest}")), Ok(longest));
    let too_long = uri(IDENTITY_BYTES_MAX + 1);
    let fault = identity_of(&files, "/CN=short", &format!("subjectAltName=URI:{too_long}"));
    assert!(matches!(&fault, Err(Fault::Identity(why)) if why.contains("2048")), "{fault:?}");
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_name_that_is_no_text_does_not_give_way_to_another_one() {
    let files = Certificates::new();
    // 0x86: a URI, 0x82: a DNS name; 0xff is no character of ASCII or UTF-8.
    for san in
        ["DER:30:03:86:01:ff", "DER:30:03:82:01:ff", "DER:30:06:82:01:ff:86:01:61", "DER:30:03:86:02:61"]
    {
        let found = identity_of(&files, "/CN=admin", &format!("2.5.29.17={san}"));
        assert!(matches!(&found, Err(Fault::Identity(_))), "{san}: {found:?}");
    }
}

/// What a server that trusts `root` makes of a client that `by` vouches for; `None` if its handshake fails.
fn identity_under(root: &str, by: &str, subject: &str, names: &str) -> Option<Result<String, String>> {
    let name = "constrained-client";
    let extensions = format!("extendedKeyUsage=clientAuth{names}");
    FILES.issue(name, Says { subject, extensions: &extensions, by, ..Says::default() });
    let chain =
        [format!("{name}.pem"), format!("{by}.pem")].map(|file| std::fs::read(FILES.path(&file)).unwrap());
    std::fs::write(FILES.path(&format!("{name}.pem")), chain.concat()).unwrap();
    let authorities = ClientCa::load(&FILES.path(&format!("{root}.pem"))).unwrap();
    let config = Config::new(&certificate("server"), Some(&authorities)).unwrap();
    // Also where the session is resumed.
    let client = client(VERSIONS[1], Some(name));
    let mut found = Vec::new();
    for _ in 0..2 {
        let mut pair = Pair::new(&client, &config);
        pair.exchange().ok()?;
        let identity = pair.server.identity();
        found.push(identity.map(|name| name.unwrap().to_string()).map_err(|fault| fault.to_string()));
    }
    assert_eq!(found[0], found[1]);
    found.pop()
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_common_name_does_not_count_below_an_authority_that_may_vouch_for_some_names_only() {
    let authority = |name: &str, subject: &str, more: &str| {
        let extensions = format!("basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign{more}");
        FILES.issue(name, Says { subject, extensions: &extensions, ..Says::default() });
    };
    authority("free", "/CN=free", "");
    authority("team", "/CN=team", "\nnameConstraints=critical,permitted;DNS:team.example");
    // The constraint does its work for what it binds: a DNS name.
    let own = identity_under("ca", "team", "/CN=admin.svc", "\nsubjectAltName=DNS:a.team.example");
    assert_eq!(own, Some(Ok("a.team.example".to_owned())));
    assert_eq!(identity_under("ca", "team", "/", "\nsubjectAltName=DNS:admin.svc"), None);
    // The intermediate authority, or the root itself, or one above.
    for root in ["ca", "team"] {
        let forged = identity_under(root, "team", "/CN=admin.svc", "").unwrap().unwrap_err();
        assert!(forged.contains("nameConstraints"), "{root}: {forged}");
        let forged = identity_under(root, "team", "/CN=admin.svc", "\nsubjectAltName=IP:10.0.0.1").unwrap();
        assert!(forged.is_err(), "{root}: {forged:?}");
    }
    assert_eq!(identity_under("ca", "team", "/", ""), Some(Ok(String::new())));
    assert_eq!(identity_under("ca", "free", "/CN=admin.svc", ""), Some(Ok("admin.svc".to_owned())));
    // As README says: a DNS constraint leaves URIs free.
    let uri = identity_under("ca", "team", "/", "\nsubjectAltName=URI:spiffe://other/admin");
    assert_eq!(uri, Some(Ok("spiffe://other/admin".to_owned())));
    authority("uri", "/CN=uri", "\nnameConstraints=critical,permitted;URI:team.example");
    for uri in ["spiffe://team.example/a", "spiffe://other/admin"] {
        assert_eq!(identity_under("ca", "uri", "/", &format!("\nsubjectAltName=URI:{uri}")), None, "{uri}");
    }
}
