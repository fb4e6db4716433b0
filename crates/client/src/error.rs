//! What can go wrong, and whose fault it is.

use std::fmt;
use std::io;

use protocol::{Class, ErrorCode, Token};
use rustix::io::Errno;

/// Why there is no claim.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address of the server could be reached, or shown by TLS to be the server's.
    #[error("cannot connect to {address}: {source}")]
    Dial {
        /// The address as the caller gave it.
        address: String,
        /// What the last attempt met.
        source: io::Error,
    },
    /// This machine refused a thread, a descriptor or memory. Nothing is said of the server.
    #[error(
        "cannot connect to {address}: this machine is at a limit of threads, open files or memory: {source}"
    )]
    Local {
        /// The address as the caller gave it.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// There was a connection, and the claim on it is lost.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// The caller's name is no lock name.
    #[error("invalid lock name: {}", .0.meaning())]
    InvalidName(ErrorCode),
    /// The caller's lease is below one millisecond or above `u32::MAX` milliseconds.
    #[error("invalid lease: it must be between 1 ms and {} ms", u32::MAX)]
    InvalidLease,
}

impl Error {
    /// A dial that met this.
    pub(crate) fn dial(address: &str, source: io::Error) -> Self {
        let address = address.to_owned();
        if is_local(&source) { Self::Local { address, source } } else { Self::Dial { address, source } }
    }

    /// Whether a new attempt may succeed without anybody changing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Dial { source, .. } => !is_wrong_for_good(source.kind()),
            Self::Local { .. } => true,
            Self::Lost(loss) => loss.is_temporary(),
            Self::InvalidName(_) | Self::InvalidLease => false,
        }
    }
}

/// Why a claim is lost, whether it was waiting or held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The connection is gone, and with it the claim.
    #[error("{0}")]
    ConnectionClosed(Closed),
    /// Nothing confirmed the claim for 0.8 × lease.
    #[error("the server did not confirm the claim in time")]
    HeartbeatTimeout,
    /// The server did what no server of this protocol does.
    #[error("protocol violation: {0}")]
    ProtocolViolation(Violation),
    /// The server ended the claim and said why.
    #[error("the server ended the claim: {} ({code}){}", code.meaning(), own_words(*code, reason))]
    Server {
        /// Its class says what to do.
        code: ErrorCode,
        /// The server's words, for people.
        reason: String,
    },
}

impl Loss {
    /// Whether a new claim may succeed without anybody changing anything: after a lost connection and after a
    /// server condition, not after a client error.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::ConnectionClosed(Closed::Broken(kind)) => !is_wrong_for_good(*kind),
            Self::ConnectionClosed(Closed::Refused(alert)) => alert.is_temporary(),
            Self::ConnectionClosed(Closed::SpeaksTls) => false,
            Self::ConnectionClosed(Closed::ByServer) | Self::HeartbeatTimeout => true,
            Self::ProtocolViolation(_) => false,
            Self::Server { code, .. } => code.class() == Class::ServerCondition,
        }
    }
}

/// What the system says when it has no thread, descriptor or memory to give: pthread_create(3), socket(2),
/// connect(2).
fn is_local(error: &io::Error) -> bool {
    let limits = [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|number| limits.iter().any(|limit| limit.raw_os_error() == number))
}

/// An address that is none, and certificates that one of the two sides does not accept.
fn is_wrong_for_good(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// How [`Client::run`](crate::Client::run) and its kin end without having held the lock from the work's begin
/// to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError<T> {
    /// The lock was not held. The work never began.
    #[error(transparent)]
    NotAcquired(#[from] Error),
    /// The caller cancelled the wait for the lock. The work never began.
    #[error("cancelled while waiting for the lock")]
    Cancelled,
    /// The claim was lost while the work ran. Another client may have held the lock meanwhile.
    #[error("the claim was lost while the work ran: {loss}")]
    Lost {
        /// Why.
        #[source]
        loss: Loss,
        /// What the work returned; `None` if it was dropped because it did not stop in time.
        result: Option<T>,
    },
}

/// The reason, as far as it says more than the code.
fn own_words(code: ErrorCode, reason: &str) -> String {
    if reason.is_empty() || reason == code.meaning() { String::new() } else { format!(": {reason}") }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// End of stream: the server closed it without an ERROR.
    #[error("the server closed the connection")]
    ByServer,
    /// Reading or writing failed.
    #[error("the connection broke: {0}")]
    Broken(io::ErrorKind),
    /// The server ended the TLS session, and said why.
    #[error("the server refused the TLS connection: {0}")]
    Refused(Alert),
    /// The server answered our first frame with TLS.
    #[error(
        "the server speaks TLS, and this client does not: use --tls-ca, or Config::with_tls in a program"
    )]
    SpeaksTls,
}

/// A fatal alert of TLS, by its number: RFC 8446, 6.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    /// Whether the server may take the same client the next time.
    pub(crate) fn is_temporary(self) -> bool {
        // internal_error and user_canceled.
        matches!(self.0, 80 | 90)
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "tls")]
        f.write_str(&pki::words::alert(self.0, "our"))?;
        #[cfg(not(feature = "tls"))]
        write!(f, "alert {}", self.0)?;
        match self.0 {
            // About certificates.
            42..=46 | 48 | 49 | 51 => f.write_str(", see --tls-cert"),
            116 => f.write_str(", see --tls-cert and --tls-key"),
            _ => Ok(()),
        }
    }
}

/// What a server did against the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A frame that answers nothing and is not the push at promotion.
    #[error("the server sent a frame that nobody asked for")]
    Unasked,
    /// ACQUIRED never goes back to WAITING.
    #[error("WAITING after ACQUIRED")]
    WaitingAfterAcquired,
    /// Every ACQUIRED of one connection carries the token of its grant.
    #[error("the token changed from {granted} to {received}")]
    TokenChanged {
        /// The token of the grant.
        granted: Token,
        /// The token that came later.
        received: Token,
    },
    /// A frame of a type that no server sends.
    #[error(transparent)]
    UnknownFrame(#[from] protocol::UnknownFrame),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_this_machine_is_not_taken_for_a_fault_of_the_server() {
        for limit in [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            let error = Error::dial("a:1", limit.into());
            assert!(matches!(error, Error::Local { .. }) && error.is_temporary(), "{error}");
        }
        for fault in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::ADDRNOTAVAIL] {
            assert!(matches!(Error::dial("a:1", fault.into()), Error::Dial { .. }), "{fault}");
        }
        // That of a timer.
        assert!(matches!(Error::dial("a:1", io::ErrorKind::TimedOut.into()), Error::Dial { .. }));
    }

    #[test]
    fn a_server_error_is_told_with_its_meaning_its_code_and_the_servers_words() {
        let loss = |reason: &str| Loss::Server { code: ErrorCode::STANDBY, reason: reason.to_owned() };
        let meaning = "the server ended the claim: standby: not the active server (0x03)";
        assert_eq!(loss("").to_string(), meaning);
        assert_eq!(loss(ErrorCode::STANDBY.meaning()).to_string(), meaning);
        assert_eq!(loss("ask b").to_string(), format!("{meaning}: ask b"));
    }
}
