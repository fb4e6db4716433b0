//! TLS to the server, as flags and variables ask for it.

use std::fs;

use client::{Identity, Tls, TlsError};

use super::settings::{TLS_CA, TLS_CERT, TLS_KEY, TLS_SERVER_NAME, named};
use cli::{Origin, Setting};

/// TLS flags. Without a CA the connection is plain.
#[derive(Debug, clap::Args)]
pub struct TlsArgs {
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, help = TLS_CA.meaning)]
    tls_ca: Option<String>,
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, help = TLS_CERT.meaning)]
    tls_cert: Option<String>,
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, help = TLS_KEY.meaning)]
    tls_key: Option<String>,
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help = TLS_SERVER_NAME.meaning)]
    tls_server_name: Option<String>,
}

/// A value, and the flag or variable that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub(super) name: String,
    pub(super) value: String,
}

/// The files of TLS, all of them PEM.
#[derive(Debug, PartialEq, Eq)]
pub struct TlsFiles {
    ca: Named,
    /// Certificate and key.
    identity: Option<(Named, Named)>,
    server_name: Option<Named>,
}

impl TlsArgs {
    /// What flags and variables name; `None` for a plain connection.
    ///
    /// The variables of certificate and key are the server's too. They mean ours only beside a CA, which is
    /// no setting of the server's.
    ///
    /// # Errors
    ///
    /// A setting without what it needs, in one line that names both.
    pub(super) fn files(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<TlsFiles>, String> {
        let ca = named(&TLS_CA, self.tls_ca.as_ref(), &variable);
        let cert = named(&TLS_CERT, self.tls_cert.as_ref(), &variable);
        let key = named(&TLS_KEY, self.tls_key.as_ref(), &variable);
        let server_name = named(&TLS_SERVER_NAME, self.tls_server_name.as_ref(), &variable);
        let Some((ca, _)) = ca else {
            let ours = |given: Option<(Named, Origin)>| given.filter(|(_, origin)| *origin == Origin::Flag);
            return match ours(cert).or(ours(key)).or(server_name) {
                Some((alone, _)) => Err(needs(&alone, &TLS_CA)),
                None => Ok(None),
            };
        };
        let identity = match (cert, key) {
            (Some((cert, _)), Some((key, _))) => Some((cert, key)),
            (Some((cert, _)), None) => return Err(needs(&cert, &TLS_KEY)),
            (None, Some((key, _))) => return Err(needs(&key, &TLS_CERT)),
            (None, None) => None,
        };
        Ok(Some(TlsFiles { ca, identity, server_name: server_name.map(|(name, _)| name) }))
    }
}

impl TlsFiles {
    /// Reads the files. The problem names the flag or the variable.
    pub(super) fn read(&self) -> Result<Tls, String> {
        let roots = read(&self.ca)?;
        let tls = match &self.identity {
            Some((cert, key)) => {
                let (certificates_pem, key_pem) = (read(cert)?, read(key)?);
                Tls::new(&roots, Some(Identity { certificates_pem: &certificates_pem, key_pem: &key_pem }))
            }
            None => Tls::new(&roots, None),
        };
        let tls = tls.map_err(|error| self.problem(&error))?;
        match &self.server_name {
            None => Ok(tls),
            Some(name) => tls.with_server_name(&name.value).map_err(|error| self.problem(&error)),
        }
    }

    #[cfg(test)]
    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// What is wrong, behind the flag or variable and the file that it is about.
    fn problem(&self, error: &TlsError) -> String {
        let identity = self.identity.as_ref();
        let given = match error {
            TlsError::Authorities(_) => Some(&self.ca),
            TlsError::Certificates(_) | TlsError::Order(_) => identity.map(|(cert, _)| cert),
            TlsError::Key(_) | TlsError::Mismatch => identity.map(|(_, key)| key),
            TlsError::ServerName(_) => self.server_name.as_ref(),
        };
        let Named { name, value } = given.expect("no error is about what was not given");
        match error {
            TlsError::Authorities(problem) | TlsError::Certificates(problem) | TlsError::Key(problem) => {
                format!("{name} {value}: {problem}")
            }
            TlsError::Mismatch | TlsError::Order(_) => format!("{name} {value}: {error}"),
            TlsError::ServerName(_) => format!("{name}: {error}"),
        }
    }
}

fn needs(alone: &Named, missing: &Setting) -> String {
    format!("{} needs {} ({}) as well", alone.name, missing.flag, missing.variable)
}

fn read(file: &Named) -> Result<Vec<u8>, String> {
    let Named { name, value } = file;
    fs::read(value).map_err(|error| format!("{name}: cannot read {value}: {error}"))
}
