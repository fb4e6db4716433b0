//! What stands in a file beside what is read from it.

use rcgen::{CertifiedKey, generate_simple_self_signed};

/// A certificate and its key, in PEM.
fn pair() -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

/// The same without the middle of its content.
fn damaged(pem: &str) -> String {
    let mut lines: Vec<&str> = pem.lines().collect();
    lines[1] = "????";
    lines.join("\n") + "\n"
}

#[test]
fn a_certificate_and_its_key_may_stand_in_one_file() {
    let (cert, key) = pair();
    for both in [cert.clone() + &key, key + &cert] {
        assert_eq!(pki::certificates(both.as_bytes()).unwrap().len(), 1);
        pki::private_key(both.as_bytes()).unwrap();
    }
}

#[test]
fn what_is_not_used_is_refused_with_its_line_when_it_is_damaged() {
    let (cert, key) = pair();
    let line = cert.lines().count() + 1;
    let problem = pki::certificates((cert.clone() + &damaged(&key)).as_bytes()).unwrap_err().to_string();
    assert_eq!(problem, format!("line {line}: this PRIVATE KEY is damaged: it is not in base64"));
    let line = key.lines().count() + 1;
    let problem = pki::private_key((key + &damaged(&cert)).as_bytes()).unwrap_err().to_string();
    assert_eq!(problem, format!("line {line}: this CERTIFICATE is damaged: it is not in base64"));
}
