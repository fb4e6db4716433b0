//! TLS to the server, as the flags ask for it.

use std::fs;
use std::path::{Path, PathBuf};

use client::{Identity, Tls, TlsError};

/// TLS flags. Without `--tls-ca` the connection is plain.
#[derive(Debug, clap::Args)]
pub(super) struct TlsArgs {
    /// Speak TLS, to a server that one of the authorities in this PEM file vouches for.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Our certificate, for a server that asks for one: PEM, intermediate certificates behind it.
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert: PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the host of the address.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
}

impl TlsArgs {
    /// Reads what the flags name; `None` without flags. The problem names the flag.
    pub(super) fn read(&self) -> Result<Option<Tls>, String> {
        let Some(ca) = &self.tls_ca else { return Ok(None) };
        let roots = read("--tls-ca", ca)?;
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let (certificates_pem, key_pem) = (read("--tls-cert", cert)?, read("--tls-key", key)?);
                Tls::new(&roots, Some(Identity { certificates_pem: &certificates_pem, key_pem: &key_pem }))
            }
            _ => Tls::new(&roots, None),
        };
        let tls = tls.map_err(|error| self.problem(ca, &error))?;
        match &self.tls_server_name {
            None => Ok(Some(tls)),
            Some(name) => match tls.with_server_name(name) {
                Ok(tls) => Ok(Some(tls)),
                Err(error) => Err(format!("--tls-server-name: {error}")),
            },
        }
    }

    /// What is wrong, behind the flag and the file that it is about.
    fn problem(&self, ca: &Path, error: &TlsError) -> String {
        let (flag, file) = match error {
            TlsError::Authorities(_) => ("--tls-ca", Some(ca)),
            TlsError::Certificates(_) | TlsError::Order(_) => ("--tls-cert", self.tls_cert.as_deref()),
            TlsError::Key(_) | TlsError::Mismatch => ("--tls-key", self.tls_key.as_deref()),
            TlsError::ServerName(_) => ("--tls-server-name", None),
        };
        match (error, file) {
            (
                TlsError::Authorities(problem) | TlsError::Certificates(problem) | TlsError::Key(problem),
                Some(file),
            ) => format!("{flag} {}: {problem}", file.display()),
            (error, Some(file)) => format!("{flag} {}: {error}", file.display()),
            (error, None) => format!("{flag}: {error}"),
        }
    }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{flag}: cannot read {}: {error}", path.display()))
}
