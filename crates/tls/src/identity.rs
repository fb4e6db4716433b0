//! Who a client is: the one name in its certificate that access rules and logs know it by.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::Fault;

/// The longest identity. SPIFFE-ID, section 2.3: an ID is at most 2048 bytes long.
pub(crate) const IDENTITY_BYTES_MAX: usize = 2048;

/// Tags of the names in a SubjectAltName (RFC 5280, 4.2.1.6).
const TAG_DNS_NAME: u32 = 2;
const TAG_URI: u32 = 6;

/// The identity in an end-entity certificate: its first URI, else its first DNS name, else its Common Name,
/// else nothing.
///
/// An authority that may vouch for certain names only (`is_constrained`) could write any Common Name: name
/// constraints do not bind it. So it does not count there.
pub(super) fn identity(certificate: &[u8], is_constrained: bool) -> Result<&str, Fault> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| fault("it cannot be read"))?;
    let identity = match alternative_name(&certificate)? {
        Some(name) => name,
        None => match common_name(&certificate)? {
            "" => "",
            _ if is_constrained => return Err(fault(CONSTRAINED)),
            name => name,
        },
    };
    if identity.len() > IDENTITY_BYTES_MAX {
        return Err(Fault::Identity(format!("it is longer than {IDENTITY_BYTES_MAX} bytes")));
    }
    Ok(identity)
}

const SAN_UNREADABLE: &str = "its subjectAltName cannot be read, or is there twice";

const CONSTRAINED: &str = "its authority may vouch for certain names only (nameConstraints), which do not bind a Common \
                           Name: it needs a URI or DNS name (subjectAltName)";

fn alternative_name<'a>(certificate: &X509Certificate<'a>) -> Result<Option<&'a str>, Fault> {
    let names = match certificate.subject_alternative_name().map_err(|_| fault(SAN_UNREADABLE))? {
        Some(extension) => &extension.value.general_names,
        None => return Ok(None),
    };
    let mut dns_name = None;
    for name in names {
        match *name {
            GeneralName::URI(uri) => return Ok(Some(uri)),
            GeneralName::DNSName(name) => dns_name = dns_name.or(Some(name)),
            // Falling back to another name could make it somebody else.
            GeneralName::Invalid(tag, _) if tag.0 == TAG_DNS_NAME || tag.0 == TAG_URI => {
                return Err(fault("a URI or DNS name in it is no text"));
            }
            _ => {}
        }
    }
    Ok(dns_name)
}

/// The last one, where there are several: the most specific one, since a name goes from the root downwards.
fn common_name<'a>(certificate: &X509Certificate<'a>) -> Result<&'a str, Fault> {
    match certificate.subject.iter_common_name().last() {
        None => Ok(""),
        Some(name) => name.as_str().map_err(|_| fault("its Common Name cannot be read")),
    }
}

fn fault(why: &str) -> Fault {
    Fault::Identity(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
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
}
