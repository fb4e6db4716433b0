//! Which name in a certificate is the identity.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::certificates::{Certificates, Says};
use crate::tls::Fault;
use crate::tls::identity::{IDENTITY_BYTES_MAX, identity};

fn identity_of(files: &Certificates, subject: &str, extensions: &str) -> Result<String, Fault> {
    files.issue("client", Says { subject, extensions, ..Says::default() });
    let certificate = CertificateDer::from_pem_file(files.path("client.pem")).unwrap();
    identity(&certificate).map(str::to_owned)
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
