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
