//! Certificates for tests, made by the real openssl in a temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

/// A folder with authorities, and with the certificates that they signed: `NAME.pem` and `NAME.key` each.
/// `ca` is there from the start.
pub struct Certificates {
    folder: TempDir,
    /// Held while an authority signs: openssl keeps its list in one file, and tests run side by side.
    signing: Mutex<()>,
}

/// What a certificate says. Without extensions it is X.509 v1.
#[derive(Clone, Copy)]
pub struct Says<'a> {
    /// As openssl writes subjects: `/CN=name`; `/` is none.
    pub subject: &'a str,
    /// Lines of an openssl extension section.
    pub extensions: &'a str,
    /// The kind of its key.
    pub key: Key,
    /// From and until when, as openssl takes it: `YYYYMMDDhhmmssZ`.
    pub valid: (&'a str, &'a str),
    /// The authority that signs.
    pub by: &'a str,
}

/// A kind of key.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// EdDSA over Curve25519.
    Ed25519,
    /// EdDSA over Curve448.
    Ed448,
    /// ECDSA over P-256.
    P256,
    /// ECDSA over P-521.
    P521,
    /// With so many bits.
    Rsa(u16),
}

/// From long ago until far away.
pub const ALWAYS: (&str, &str) = ("20200101000000Z", "20990101000000Z");

/// Over.
pub const EXPIRED: (&str, &str) = ("20200101000000Z", "20200201000000Z");

/// Not begun.
pub const FUTURE: (&str, &str) = ("20980101000000Z", "20990101000000Z");

impl Default for Says<'_> {
    fn default() -> Self {
        Self {
            subject: "/CN=somebody",
            extensions: "subjectAltName=DNS:localhost,IP:127.0.0.1",
            key: Key::P256,
            valid: ALWAYS,
            by: "ca",
        }
    }
}

const SETTINGS: &str = "
[ca]
default_ca = all
[all]
database = index.txt
new_certs_dir = .
rand_serial = yes
unique_subject = no
default_md = default
policy = any
preserve = yes
[any]
organizationName = optional
commonName = optional
";

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// A folder with `ca`.
    pub fn new() -> Self {
        let all = Self { folder: tempfile::tempdir().unwrap(), signing: Mutex::default() };
        fs::write(all.path("settings"), SETTINGS).unwrap();
        fs::write(all.path("index.txt"), "").unwrap();
        all.authority("ca");
        all
    }

    /// The folder.
    pub fn directory(&self) -> &Path {
        self.folder.path()
    }

    /// A file of it.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Makes an authority.
    pub fn authority(&self, name: &str) {
        self.authority_with(name, Key::P256);
    }

    /// Makes an authority with this kind of key.
    pub fn authority_with(&self, name: &str, key: Key) {
        self.key(name, key);
        let (key, cert, subject) = (format!("{name}.key"), format!("{name}.pem"), format!("/CN={name}"));
        self.openssl(&[
            "req", "-x509", "-new", "-key", &key, "-subj", &subject, "-days", "9999", "-out", &cert,
        ]);
    }

    /// Makes a key and a certificate for it.
    pub fn issue(&self, name: &str, says: Says<'_>) {
        self.key(name, says.key);
        let [key, request, cert, extensions] =
            ["key", "csr", "pem", "extensions"].map(|kind| format!("{name}.{kind}"));
        let (ca, ca_key) = (format!("{}.pem", says.by), format!("{}.key", says.by));
        self.openssl(&["req", "-new", "-utf8", "-key", &key, "-subj", says.subject, "-out", &request]);
        let (from, until) = says.valid;
        let mut sign = vec!["ca", "-batch", "-notext", "-utf8", "-config", "settings", "-cert", &ca];
        sign.extend([
            "-keyfile",
            &ca_key,
            "-startdate",
            from,
            "-enddate",
            until,
            "-in",
            &request,
            "-out",
            &cert,
        ]);
        if !says.extensions.is_empty() {
            fs::write(self.path(&extensions), says.extensions).unwrap();
            sign.extend(["-extfile", &extensions]);
        }
        let _signing = self.signing.lock().unwrap_or_else(PoisonError::into_inner);
        self.openssl(&sign);
    }

    fn key(&self, name: &str, key: Key) {
        let file = format!("{name}.key");
        let bits;
        let mut make = vec!["genpkey", "-out", &file, "-algorithm"];
        match key {
            Key::Ed25519 => make.push("ED25519"),
            Key::Ed448 => make.push("ED448"),
            Key::P256 => make.extend(["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]),
            Key::P521 => make.extend(["EC", "-pkeyopt", "ec_paramgen_curve:P-521"]),
            Key::Rsa(count) => {
                bits = format!("rsa_keygen_bits:{count}");
                make.extend(["RSA", "-pkeyopt", &bits]);
            }
        }
        self.openssl(&make);
    }

    /// Runs openssl in the folder; what it prints to standard output.
    pub fn openssl(&self, arguments: &[&str]) -> Vec<u8> {
        let ran = Command::new("openssl").args(arguments).current_dir(&self.folder).output();
        let ran = ran.expect("openssl is there");
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    }
}
