//! Kinds of keys: their names, and what they are good for here.

use rustls::pki_types::PrivateKeyDer;
use x509_parser::asn1_rs::Oid;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::ber::BerObject;
use x509_parser::der_parser::der::parse_der;
use x509_parser::public_key::PublicKey;

/// A kind of key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// Whether TLS can be spoken with such a private key.
    pub(crate) signs: bool,
    /// Whether signatures can be verified with such a public key.
    pub(crate) verifies: bool,
}

const RSA: &str = "1.2.840.113549.1.1.1";
const EC: &str = "1.2.840.10045.2.1";

/// The curves and other algorithms that have a name, as RFC 5480, RFC 8410 and their kin number them.
const NAMES: [(&str, &str); 9] = [
    ("1.2.840.10045.3.1.7", "ECDSA P-256"),
    ("1.3.132.0.34", "ECDSA P-384"),
    ("1.3.132.0.35", "ECDSA P-521"),
    ("1.3.132.0.33", "ECDSA P-224"),
    ("1.3.132.0.10", "ECDSA secp256k1"),
    ("1.3.101.112", "Ed25519"),
    ("1.3.101.113", "Ed448"),
    ("1.2.840.10040.4.1", "DSA"),
    ("1.2.840.113549.1.1.10", "RSA-PSS"),
];

/// What *ring* signs and verifies with, besides RSA.
const USABLE: [&str; 3] = ["ECDSA P-256", "ECDSA P-384", "Ed25519"];

pub(crate) fn of_certificate(certificate: &X509Certificate<'_>) -> Kind {
    let key = certificate.public_key();
    let bits = match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => Some(rsa.key_size()),
        _ => None,
    };
    let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    of(&key.algorithm.algorithm, curve.as_ref(), bits)
}

/// `None` if it is no key.
pub(crate) fn of_private_key(key: &PrivateKeyDer<'_>) -> Option<Kind> {
    match key {
        PrivateKeyDer::Pkcs1(key) => Some(rsa(modulus_bits(key.secret_pkcs1_der())?)),
        PrivateKeyDer::Sec1(key) => {
            let curve = sequence(key.secret_sec1_der())?;
            // RFC 5915: version, private key, [0] curve, [1] public key.
            let curve = parse_der(curve.get(2)?.as_slice().ok()?).ok()?.1;
            Some(named(curve.as_oid().ok()))
        }
        PrivateKeyDer::Pkcs8(key) => {
            // RFC 5208: version, algorithm, private key.
            let parts = sequence(key.secret_pkcs8_der())?;
            let algorithm = parts.get(1)?.as_sequence().ok()?.clone();
            let curve = algorithm.get(1).and_then(|parameters| parameters.as_oid().ok());
            let bits = parts.get(2)?.as_slice().ok().and_then(modulus_bits);
            Some(of(algorithm.first()?.as_oid().ok()?, curve, bits))
        }
        _ => None,
    }
}

fn of(algorithm: &Oid<'_>, curve: Option<&Oid<'_>>, rsa_bits: Option<usize>) -> Kind {
    match (algorithm.to_id_string().as_str(), rsa_bits) {
        (RSA, Some(bits)) => rsa(bits),
        (EC, _) => named(curve),
        _ => named(Some(algorithm)),
    }
}

fn rsa(bits: usize) -> Kind {
    Kind {
        name: format!("RSA {bits}"),
        signs: (2048..=4096).contains(&bits),
        verifies: (2048..=8192).contains(&bits),
    }
}

fn named(id: Option<&Oid<'_>>) -> Kind {
    let Some(id) = id.map(Oid::to_id_string) else {
        return Kind { name: "ECDSA on a curve without a name".into(), signs: false, verifies: false };
    };
    let name = NAMES.iter().find(|(known, _)| *known == id).map(|(_, name)| *name);
    let is_usable = name.is_some_and(|name| USABLE.contains(&name));
    let name = name.map_or(format!("key of type {id}"), str::to_owned);
    Kind { name, signs: is_usable, verifies: is_usable }
}

/// RFC 8017, A.1.2: version, modulus.
fn modulus_bits(der: &[u8]) -> Option<usize> {
    let parts = sequence(der)?;
    let modulus = parts.get(1)?.as_slice().ok()?;
    let significant = &modulus[modulus.iter().position(|&byte| byte != 0)?..];
    Some(significant.len() * 8 - significant[0].leading_zeros() as usize)
}

fn sequence(der: &[u8]) -> Option<Vec<BerObject<'_>>> {
    parse_der(der).ok()?.1.as_sequence().ok().cloned()
}
