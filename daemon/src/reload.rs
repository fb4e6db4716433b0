//! The files that the server works by: read at the start, and again at each SIGHUP.
//!
//! A reload takes each part on its own, whole or not at all: what does not load keeps its previous value, so
//! nothing gets worse. Connections that are open keep what they were accepted under.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pki::Doubt;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::clock;
use crate::ha::{self, Node};
use crate::intake::Admission;
use crate::settings::{self, PairSettings, ServeSettings, TlsSettings};
use acl::{self, Acl};
use tls::{Certificate, ClientCa};

/// What is reloaded on its own: the values of the metric's label `part`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Certificate and key, which must belong together.
    Certificate,
    ClientCa,
    Acl,
    AuditLog,
    /// What the peer is shown, and who vouches for it.
    Peer,
}

impl Part {
    pub(crate) const ALL: [Self; 5] =
        [Self::Certificate, Self::ClientCa, Self::Acl, Self::AuditLog, Self::Peer];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::ClientCa => "client_ca",
            Self::Acl => "acl",
            Self::AuditLog => "audit_log",
            Self::Peer => "peer",
        }
    }
}

/// How reloads went, and what they brought.
#[derive(Debug, Default)]
pub(crate) struct ReloadStatus {
    counts: [[AtomicU64; 2]; Part::ALL.len()],
    /// 0 without TLS.
    certificate_expires_unix_s: AtomicI64,
}

impl ReloadStatus {
    fn count(&self, part: Part, success: bool) {
        self.counts[part as usize][usize::from(success)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn total(&self, part: Part, success: bool) -> u64 {
        self.counts[part as usize][usize::from(success)].load(Ordering::Relaxed)
    }

    /// The end of the certificate in use, where there is one.
    pub(crate) fn certificate_expires_unix_s(&self) -> Option<i64> {
        Some(self.certificate_expires_unix_s.load(Ordering::Relaxed)).filter(|&at| at != 0)
    }

    fn uses(&self, certificate: &Certificate) {
        self.certificate_expires_unix_s.store(certificate.not_after_unix_s(), Ordering::Relaxed);
    }
}

/// A file that cannot be used, under the flag that names it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("{flag} {0}", flag = settings::tls_flag(.0.of))]
    Tls(#[from] tls::FileError),
    #[error("-tls-cert: {0}")]
    Setup(#[from] tls::SetupError),
    #[error("-tls-cert {}: clients refuse the certificate, and not the one in use: {doubt}", path.display())]
    Refused { path: PathBuf, doubt: Doubt },
    #[error("-acl-file {0}")]
    Acl(#[from] acl::FileError),
    #[error("-audit-log {0}")]
    Audit(#[from] audit::OpenError),
    #[error("{flag} {0}", flag = ha::flag_of(.0.of))]
    Peer(tls::FileError),
}

/// The files, as they were last read in whole.
pub(crate) struct Files {
    tls: Option<TlsFiles>,
    acl_file: Option<PathBuf>,
    audit: Option<Arc<audit::Log>>,
    node: Option<(PairSettings, Node)>,
    admission: watch::Sender<Arc<Admission>>,
    status: Arc<ReloadStatus>,
}

#[derive(Clone)]
struct TlsFiles {
    settings: TlsSettings,
    certificate: Certificate,
    client_ca: Option<ClientCa>,
}

impl Files {
    /// Reads all files.
    ///
    /// # Errors
    ///
    /// The first one that cannot be used.
    pub(crate) fn load(settings: &ServeSettings) -> Result<Self, LoadError> {
        let tls = settings.tls.clone().map(TlsFiles::load).transpose()?;
        if let Some(files) = &tls {
            files.warn_of_doubt();
        }
        let acl_file = settings.tls.as_ref().and_then(|tls| tls.client_ca.as_ref()?.acl_file.clone());
        let acl = acl_file.as_deref().map(load_acl).transpose()?;
        let config = tls.as_ref().map(TlsFiles::config).transpose()?;
        let (admission, _) = watch::channel(Arc::new(Admission { tls: config, acl }));
        let status = Arc::<ReloadStatus>::default();
        if let Some(files) = &tls {
            status.uses(&files.certificate);
        }
        Ok(Self { tls, acl_file, audit: None, node: None, admission, status })
    }

    /// Reopens this audit log too.
    pub(crate) fn set_audit(&mut self, audit: Option<Arc<audit::Log>>) {
        self.audit = audit;
    }

    /// Rereads the files of this node too.
    pub(crate) fn set_node(&mut self, settings: PairSettings, node: Node) {
        self.node = Some((settings, node));
    }

    /// What connections are accepted under, now and after each reload.
    pub(crate) fn admission(&self) -> watch::Receiver<Arc<Admission>> {
        self.admission.subscribe()
    }

    pub(crate) fn status(&self) -> Arc<ReloadStatus> {
        Arc::clone(&self.status)
    }

    /// Reads everything again; may wait for disks.
    pub(crate) fn reload(&mut self) {
        let mut outcomes = Vec::new();
        let before = Arc::clone(&self.admission.borrow());
        let mut admission = Admission { tls: before.tls.clone(), acl: before.acl.clone() };
        if let Some(files) = &mut self.tls {
            outcomes.push((Part::Certificate, files.reload_certificate()));
            outcomes.extend(files.reload_client_ca().map(|outcome| (Part::ClientCa, outcome)));
            // Also when nothing changed: tickets of before do not outlive a reload.
            match files.config() {
                Ok(config) => {
                    admission.tls = Some(config);
                    self.status.uses(&files.certificate);
                }
                Err(error) => error!("TLS keeps its previous state: {error}"),
            }
        }
        if let Some(path) = &self.acl_file {
            let loaded = load_acl(path).map(|acl| admission.acl = Some(acl));
            outcomes.push((Part::Acl, loaded));
        }
        self.admission.send_replace(Arc::new(admission));
        if let Some(audit) = &self.audit {
            outcomes.push((Part::AuditLog, audit.reopen().map_err(LoadError::Audit)));
        }
        if let Some((settings, node)) = &self.node {
            outcomes.push((Part::Peer, node.reload(settings).map_err(LoadError::Peer)));
        }
        if outcomes.is_empty() {
            info!("SIGHUP: no file is configured, nothing to reload");
        }
        // Counted when it has taken effect.
        for (part, outcome) in outcomes {
            self.status.count(part, outcome.is_ok());
            match outcome {
                Ok(()) => info!(part = part.as_str(), "reloaded"),
                Err(error) => error!(part = part.as_str(), "not reloaded, the previous state stays: {error}"),
            }
        }
    }
}

impl TlsFiles {
    fn load(settings: TlsSettings) -> Result<Self, LoadError> {
        let certificate = Certificate::load(&settings.cert, &settings.key)?;
        let client_ca = settings.client_ca.as_ref().map(|ca| ClientCa::load(&ca.file)).transpose()?;
        Ok(Self { settings, certificate, client_ca })
    }

    fn config(&self) -> Result<tls::Config, LoadError> {
        Ok(tls::Config::new(&self.certificate, self.client_ca.as_ref())?)
    }

    fn reload_certificate(&mut self) -> Result<(), LoadError> {
        let certificate = Certificate::load(&self.settings.cert, &self.settings.key)?;
        let now_unix_s = now_unix_s();
        if let Some(doubt) = certificate.doubt(now_unix_s)
            && self.certificate.doubt(now_unix_s).is_none()
        {
            return Err(LoadError::Refused { path: self.settings.cert.clone(), doubt });
        }
        self.adopt(Self { certificate, ..self.clone() })?;
        self.warn_of_doubt();
        Ok(())
    }

    fn warn_of_doubt(&self) {
        if let Some(doubt) = self.certificate.doubt(now_unix_s()) {
            warn!(file = %self.settings.cert.display(), "clients will refuse the TLS certificate: {doubt}");
        }
    }

    fn reload_client_ca(&mut self) -> Option<Result<(), LoadError>> {
        let settings = self.settings.client_ca.as_ref()?;
        let loaded = ClientCa::load(&settings.file).map_err(LoadError::from);
        Some(loaded.and_then(|client_ca| self.adopt(Self { client_ca: Some(client_ca), ..self.clone() })))
    }

    /// Takes what was read only if TLS works with it.
    fn adopt(&mut self, next: Self) -> Result<(), LoadError> {
        next.config()?;
        *self = next;
        Ok(())
    }
}

fn load_acl(path: &Path) -> Result<Arc<Acl>, LoadError> {
    Ok(Arc::new(acl::load(path)?))
}

fn now_unix_s() -> i64 {
    (clock::unix_ns() / 1_000_000_000).cast_signed()
}
