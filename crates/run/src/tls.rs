//! TLS to the server, as flags and variables ask for it.

use std::fs;

use client::{Identity, Tls, TlsError};

use super::flags::{Run, TLS_CA, TLS_CERT, TLS_KEY, TLS_SERVER_NAME};
use cli::{Flag, Origin, Reader};

/// A value, and the flag or variable that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(super) name: String,
    pub(super) value: String,
}

/// The files of TLS, all of them PEM.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    ca: Named,
    /// Certificate and key.
    identity: Option<(Named, Named)>,
    server_name: Option<Named>,
}

impl TlsFiles {
    /// What flags and variables name; `None` for a plain connection.
    ///
    /// The variables of certificate and key are the server's too. They mean ours only beside a CA, which is
    /// no setting of the server's.
    ///
    /// # Errors
    ///
    /// A setting without what it needs, in one line that names both.
    pub(super) fn given(
        reader: &Reader<'_, Run, impl Fn(&str) -> Option<String>>,
    ) -> Result<Option<Self>, String> {
        let named = |flag: &'static Flag| {
            let given = reader.given(flag);
            (!given.text.is_empty()).then(|| (Named { name: given.name(), value: given.text }, given.origin))
        };
        let [ca, cert, key, server_name] = [&TLS_CA, &TLS_CERT, &TLS_KEY, &TLS_SERVER_NAME].map(named);
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
        Ok(Some(Self { ca, identity, server_name: server_name.map(|(name, _)| name) }))
    }

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

fn needs(alone: &Named, missing: &Flag) -> String {
    format!("{} needs {} ({}) as well", alone.name, missing.name, missing.variable)
}

fn read(file: &Named) -> Result<Vec<u8>, String> {
    let Named { name, value } = file;
    fs::read(value).map_err(|error| format!("{name}: cannot read {value}: {error}"))
}
