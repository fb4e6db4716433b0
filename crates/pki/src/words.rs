//! What rustls reports, for people: no names of types, and what to do where somebody can do something.

use std::time::{Duration, UNIX_EPOCH};

use rustls::{CertificateError, Error, ExtendedKeyPurpose, InvalidMessage, OtherError, PeerIncompatible};
use x509_parser::der_parser::asn1_rs::Oid;
use x509_parser::oid_registry::OidRegistry;

/// What ended TLS, or keeps it from being set up. It goes on from "the other side" or "the certificate".
pub fn error(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::NoCertificatesPresented => "no certificate was sent".to_owned(),
        Error::AlertReceived(description) => alert((*description).into(), "our"),
        Error::DecryptError => "a record was changed on its way".to_owned(),
        Error::PeerSentOversizedRecord => "it sent a record that is too long".to_owned(),
        Error::InvalidMessage(why) => format!("it sent a bad message: {}", spelled(why)),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "it sent a message out of turn".to_owned()
        }
        Error::PeerMisbehaved(why) => format!("it broke the rules: {}", spelled(why)),
        Error::PeerIncompatible(why) => incompatible(why),
        Error::FailedToGetCurrentTime => "this machine's clock cannot be read".to_owned(),
        Error::FailedToGetRandomBytes => "the system gives no random bytes".to_owned(),
        Error::General(words) => words.clone(),
        other => spelled(other),
    }
}

/// Whether the first thing that came is no TLS at all: another protocol speaks there.
pub fn is_no_tls(error: &Error) -> bool {
    use InvalidMessage::{InvalidContentType, UnknownProtocolVersion};
    matches!(error, Error::InvalidMessage(InvalidContentType | UnknownProtocolVersion))
}

/// Why a certificate is not accepted; "it" is the certificate.
fn certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired => "it has expired".to_owned(),
        E::ExpiredContext { not_after, .. } => format!("it expired at {}", date_of(not_after.as_secs())),
        E::NotValidYet => "it is not valid yet".to_owned(),
        E::NotValidYetContext { time, not_before } => format!(
            "it is not valid before {}, and the clock here says {}",
            date_of(not_before.as_secs()),
            date_of(time.as_secs())
        ),
        E::Revoked => "it was revoked".to_owned(),
        E::UnknownIssuer => "no authority that is trusted here vouches for it".to_owned(),
        E::BadSignature => {
            "a signature does not fit: an authority of the same name has another key, or a key in the chain is RSA \
                            of less than 2048 bits"
                .to_owned()
        }
        E::UnsupportedSignatureAlgorithmContext { signature_algorithm_id, .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { signature_algorithm_id, .. } => format!(
            "a signature in its chain is of a kind that is not accepted here ({}): RSA and ECDSA (P-256, P-384) with \
             SHA-256 to SHA-512 and Ed25519 are",
            algorithm(signature_algorithm_id)
        ),
        E::NotValidForName => "it is not for the name of this server".to_owned(),
        E::NotValidForNameContext { expected, presented } => {
            format!("it is not for {}, but for {}", expected.to_str(), names(presented))
        }
        E::InvalidPurpose => "its extendedKeyUsage is for something else".to_owned(),
        E::InvalidPurposeContext { required, .. } => match required {
            ExtendedKeyPurpose::ClientAuth => "its extendedKeyUsage has no clientAuth".to_owned(),
            ExtendedKeyPurpose::ServerAuth => "its extendedKeyUsage has no serverAuth".to_owned(),
            _ => "its extendedKeyUsage is for something else".to_owned(),
        },
        E::UnhandledCriticalExtension => "it has a critical extension that is not known here".to_owned(),
        E::BadEncoding => "it is damaged".to_owned(),
        E::Other(OtherError(source)) => match source.downcast_ref::<webpki::Error>() {
            Some(error) => rule(error),
            None => source.to_string(),
        },
        other => format!("it breaks a rule: {}", spelled(other)),
    }
}

fn rule(error: &webpki::Error) -> String {
    use webpki::Error as E;
    match error {
        E::CaUsedAsEndEntity => {
            "it is an authority's (CA:TRUE): the authority has to issue another one, with CA:FALSE".to_owned()
        }
        E::EndEntityUsedAsCa => "one in its chain signed it and is no authority (CA:FALSE)".to_owned(),
        E::NameConstraintViolation => {
            "its authority may not vouch for such names (nameConstraints)".to_owned()
        }
        E::PathLenConstraintViolated => {
            "there are more authorities between than allowed (pathlen)".to_owned()
        }
        E::UnsupportedCertVersion => "it is X.509 v1, and must be v3: issue it with an extension".to_owned(),
        E::UnsupportedCriticalExtension => "it has a critical extension that is not known here".to_owned(),
        other => format!("it breaks a rule: {}", spelled(other)),
    }
}

fn incompatible(why: &PeerIncompatible) -> String {
    use PeerIncompatible as P;
    match why {
        P::ServerDoesNotSupportTls12Or13
        | P::ServerTlsVersionIsDisabledByOurConfig
        | P::SupportedVersionsExtensionRequired
        | P::Tls12NotOffered
        | P::Tls12NotOfferedOrEnabled => "it speaks no version of TLS that is spoken here".to_owned(),
        P::NoCipherSuitesInCommon => "it offers no cipher suite that is used here".to_owned(),
        P::NoKxGroupsInCommon | P::NamedGroupsExtensionRequired | P::KeyShareExtensionRequired => {
            "it offers no key exchange that is used here: X25519, P-256 and P-384 are".to_owned()
        }
        P::NoSignatureSchemesInCommon | P::NoCertificateRequestSignatureSchemesInCommon => {
            "it accepts no signature that the key here can make".to_owned()
        }
        other => spelled(other),
    }
}

/// A fatal alert in words, by its number (RFC 8446, 6.2). "It" is the side that sent the alert; the other
/// one, which may have shown a certificate, is `our`, as in "our certificate".
pub fn alert(number: u8, our: &str) -> String {
    let meaning = match number {
        10 => "it got a message out of turn",
        20 => "it got a record that was changed on its way",
        22 => "it got a record that is too long",
        40 => "it has nothing in common with this side: version, cipher or kind of key",
        42 => "it cannot use {our} certificate",
        43 => "it does not take certificates like {our} certificate",
        44 => "{our} certificate was revoked",
        45 => "{our} certificate has expired or is not valid yet",
        46 => "it does not accept {our} certificate",
        47 => "it got a message that makes no sense",
        48 => "it does not know the authority of {our} certificate",
        49 => "{our} certificate gives no access",
        50 => "it cannot read a message: this is no TLS for it, or a chain of certificates is too long",
        51 => "a signature in the chain of {our} certificate is wrong, or of a kind that it does not accept",
        70 => "it does not speak such a version of TLS",
        71 => "it wants stronger cryptography",
        80 => "it has a problem of its own",
        90 => "it gave up",
        112 => "it does not know the name of the server",
        116 => "it wants a certificate",
        120 => "it does not know the protocol",
        other => return format!("alert {other}"),
    };
    format!("{} (alert {number})", meaning.replace("{our}", our))
}

/// A second of Unix time, as RFC 3339 has it.
pub fn date(unix_s: i64) -> String {
    u64::try_from(unix_s).map_or("before 1970".to_owned(), date_of)
}

fn date_of(unix_s: u64) -> String {
    // The year 9999: certificates that never end say that.
    const LAST_UNIX_S: u64 = 253_402_300_799;
    let at = UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_UNIX_S));
    humantime::format_rfc3339_seconds(at).to_string()
}

/// The names in a certificate, which come as `DnsName("a.test")`.
fn names(presented: &[String]) -> String {
    let name = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    match presented {
        [] => "no name at all (subjectAltName)".to_owned(),
        presented => presented.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

/// The name of an algorithm from the content of its DER.
fn algorithm(der: &[u8]) -> String {
    let Some(&[6, len, ref rest @ ..]) = Some(der) else { return "unknown".to_owned() };
    let Some(oid) = rest.get(..usize::from(len)) else { return "unknown".to_owned() };
    let oid = Oid::new(oid.into());
    match OidRegistry::default().with_all_crypto().with_x509().get(&oid) {
        Some(entry) => entry.sn().to_owned(),
        None => oid.to_id_string(),
    }
}

/// `TooManyEmptyFragments` as "too many empty fragments": for all that is rare.
fn spelled(error: &impl std::fmt::Debug) -> String {
    let name = format!("{error:?}");
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    let mut words = String::new();
    for c in name[..end].chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustls::PeerMisbehaved;

    #[test]
    fn a_certificate_for_another_name_is_told_with_all_names_and_a_signature_with_its_kind() {
        let for_name = |presented: &[&str]| {
            let presented = presented.iter().map(|&name| name.to_owned()).collect();
            let expected = "10.0.0.1".try_into().unwrap();
            error(&CertificateError::NotValidForNameContext { expected, presented }.into())
        };
        assert_eq!(
            for_name(&["DnsName(\"b.test\")", "IpAddress(::1)"]),
            "it is not for 10.0.0.1, but for b.test, ::1"
        );
        assert_eq!(for_name(&[]), "it is not for 10.0.0.1, but for no name at all (subjectAltName)");
        assert_eq!(algorithm(&[6, 3, 0x2b, 0x65, 0x71]), "ed448");
        assert_eq!(algorithm(&[6, 3, 0x2b, 1, 1]), "1.3.1.1");
        assert_eq!(algorithm(&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4]), "ecdsa-with-SHA512");
        for torn in [&[][..], &[6], &[6, 9, 1], &[5, 0]] {
            assert_eq!(algorithm(torn), "unknown");
        }
        assert_eq!(spelled(&PeerMisbehaved::TooManyEmptyFragments), "too many empty fragments");
        assert_eq!(date(-1), "before 1970");
    }
}
