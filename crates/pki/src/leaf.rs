//! A certificate of somebody's own: what it says, and why another side would not accept it.

use std::fmt;
use std::net::IpAddr;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_EXT_NAME_CONSTRAINTS;
use x509_parser::prelude::FromDer;

use crate::kind;
use crate::words::date;

/// What a certificate says.
#[derive(Debug)]
pub struct Leaf<'a>(X509Certificate<'a>);

/// Which side shows a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It must name the host.
    Server,
    /// It need not name anything.
    Client,
}

/// Why the other side refuses a certificate, as soon as it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// From this second of Unix time on it is valid.
    NotYet(i64),
    /// Until this second of Unix time it was valid.
    Expired(i64),
    /// It is that of an authority.
    Authority,
    /// It is not for this side of TLS.
    Purpose(Side),
    /// It names no host.
    Nameless,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet(from) => write!(f, "it is not valid before {}", date(*from)),
            Self::Expired(until) => write!(f, "it expired at {}", date(*until)),
            Self::Authority => {
                write!(f, "it is an authority's (CA:TRUE): let the authority issue one with CA:FALSE")
            }
            Self::Purpose(Side::Server) => write!(f, "its extendedKeyUsage has no serverAuth"),
            Self::Purpose(Side::Client) => write!(f, "its extendedKeyUsage has no clientAuth"),
            Self::Nameless => write!(f, "it has no DNS name or IP address (subjectAltName)"),
        }
    }
}

impl<'a> Leaf<'a> {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// In words: it is no certificate.
    pub fn parse(der: &'a [u8]) -> Result<Self, String> {
        parse(der).map(Self)
    }

    fn not_before_unix_s(&self) -> i64 {
        self.0.validity.not_before.timestamp()
    }

    /// Until when it is valid, in seconds of Unix time.
    pub fn not_after_unix_s(&self) -> i64 {
        self.0.validity.not_after.timestamp()
    }

    /// Why `side` is refused with it at this time; the first reason that there is.
    pub fn doubt(&self, side: Side, now_unix_s: i64) -> Option<Doubt> {
        if now_unix_s < self.not_before_unix_s() {
            Some(Doubt::NotYet(self.not_before_unix_s()))
        } else if now_unix_s > self.not_after_unix_s() {
            Some(Doubt::Expired(self.not_after_unix_s()))
        } else {
            self.lasting_doubt(side)
        }
    }

    /// The same at any time.
    pub fn lasting_doubt(&self, side: Side) -> Option<Doubt> {
        let is_authority = matches!(self.0.basic_constraints(), Ok(Some(is)) if is.value.ca);
        let is_for_others = match (self.0.extended_key_usage(), side) {
            (Ok(Some(usage)), Side::Server) => !usage.value.server_auth,
            (Ok(Some(usage)), Side::Client) => !usage.value.client_auth,
            _ => false,
        };
        if is_authority {
            Some(Doubt::Authority)
        } else if is_for_others {
            Some(Doubt::Purpose(side))
        } else if side == Side::Server && self.names().is_empty() {
            Some(Doubt::Nameless)
        } else {
            None
        }
    }

    /// The DNS names and IP addresses that it is for.
    fn names(&self) -> Vec<String> {
        let is_host =
            |name: &&GeneralName<'_>| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_));
        self.alternative_names().iter().filter(is_host).filter_map(name).collect()
    }

    fn alternative_names(&self) -> &[GeneralName<'a>] {
        match self.0.tbs_certificate.subject_alternative_name() {
            Ok(Some(extension)) => &extension.value.general_names,
            _ => &[],
        }
    }
}

/// Subject, names, validity and kind of key in one line, for people. Control characters in it are not
/// escaped.
impl fmt::Display for Leaf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subject {}", or_none(&self.0.subject.to_string()))?;
        if let Ok(Some(_)) = self.0.subject_alternative_name() {
            let names: Vec<_> = self.alternative_names().iter().filter_map(name).collect();
            write!(f, ", names {}", or_none(&names.join(" ")))?;
        }
        let (from, until) = (date(self.not_before_unix_s()), date(self.not_after_unix_s()));
        write!(f, ", valid from {from} to {until}, {}", kind::of_certificate(&self.0).name)
    }
}

/// Whether some authority of a verified chain may vouch for certain names only (RFC 5280, 4.2.1.10). The
/// chain is what a peer showed, its own certificate first; which of `roots` ends it is told by the name of
/// that.
pub fn is_constrained(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> bool {
    let mut constrained = roots.roots.iter().filter(|root| root.name_constraints.is_some()).peekable();
    let has_constraints = |certificate: &X509Certificate<'_>| {
        certificate.extensions().iter().any(|extension| extension.oid == OID_X509_EXT_NAME_CONSTRAINTS)
    };
    let is_above =
        |der: &CertificateDer<'_>| parse(der).is_ok_and(|certificate| has_constraints(&certificate));
    if chain.iter().skip(1).any(is_above) {
        return true;
    }
    if constrained.peek().is_none() {
        return false;
    }
    // Without the header of the SEQUENCE, which a trust anchor does not have.
    let names: Vec<_> = constrained.map(|root| root.subject.as_ref()).collect();
    let is_issuer = |issuer: &[u8]| names.iter().any(|name| issuer.ends_with(name));
    chain.iter().any(|der| parse(der).is_ok_and(|certificate| is_issuer(certificate.issuer().as_raw())))
}

pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("it has more behind its end".to_owned()),
        Err(_) => Err("it is no certificate".to_owned()),
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match *name {
        GeneralName::DNSName(name) => Some(name.to_owned()),
        GeneralName::URI(uri) => Some(uri.to_owned()),
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?).to_string()),
            _ => Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?).to_string()),
        },
        _ => None,
    }
}
