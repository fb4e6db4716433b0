//! Errors of TLS in words for people.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{
    AlertDescription, CertificateError, ContentType, Error, HandshakeType, InvalidMessage, OtherError,
    PeerIncompatible, PeerMisbehaved,
};

fn broken_rule(error: webpki::Error) -> Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}

#[test]
fn no_message_has_the_name_of_a_type_in_it() {
    let at = |unix_s| UnixTime::since_unix_epoch(Duration::from_secs(unix_s));
    let (signature_algorithm_id, supported_algorithms) = (vec![6, 3, 0x2b, 0x65, 0x71], Vec::new());
    let errors = [
        Error::NoCertificatesPresented,
        Error::UnsupportedNameType,
        Error::DecryptError,
        Error::EncryptError,
        Error::HandshakeNotComplete,
        Error::NoApplicationProtocol,
        Error::FailedToGetCurrentTime,
        Error::AlertReceived(AlertDescription::CertificateRequired),
        Error::AlertReceived(AlertDescription::Unknown(200)),
        InvalidMessage::InvalidContentType.into(),
        InvalidMessage::MissingData("ClientHello").into(),
        Error::InappropriateMessage {
            expect_types: vec![ContentType::Handshake],
            got_type: ContentType::ApplicationData,
        },
        Error::InappropriateHandshakeMessage {
            expect_types: vec![HandshakeType::ClientHello],
            got_type: HandshakeType::Finished,
        },
        PeerMisbehaved::TooManyEmptyFragments.into(),
        PeerIncompatible::NoCipherSuitesInCommon.into(),
        PeerIncompatible::NullCompressionRequired.into(),
        CertificateError::BadEncoding.into(),
        CertificateError::BadSignature.into(),
        CertificateError::ExpiredContext { time: at(9), not_after: at(5) }.into(),
        CertificateError::NotValidYetContext { time: at(5), not_before: at(u64::MAX) }.into(),
        CertificateError::UnknownRevocationStatus.into(),
        CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id,
            supported_algorithms,
        }
        .into(),
        CertificateError::NotValidForNameContext {
            expected: "a.test".try_into().unwrap(),
            presented: vec!["DnsName(\"b.test\")".into(), "IpAddress(::1)".into()],
        }
        .into(),
        broken_rule(webpki::Error::CaUsedAsEndEntity),
        broken_rule(webpki::Error::NameConstraintViolation),
        broken_rule(webpki::Error::MalformedExtensions),
    ];
    for error in errors {
        let said = pki::words::error(&error);
        let is_type = |word: &str| {
            let mut letters = word.chars().skip_while(|c| c.is_ascii_uppercase());
            letters.next().is_some_and(|c| c.is_ascii_lowercase()) && letters.any(|c| c.is_ascii_uppercase())
        };
        let words = || said.split(|c: char| !c.is_alphanumeric());
        // Names of fields in certificates begin with a small letter; algorithms are known by such names.
        let types: Vec<_> = words()
            .filter(|word| is_type(word) && word.starts_with(|c: char| c.is_ascii_uppercase()))
            .collect();
        assert!(types.is_empty() && !said.is_empty(), "{error:?}: {said}");
    }
}
