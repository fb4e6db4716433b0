//! Where the admin API listens, and under which names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{ListenAddress, values};

/// The longest path of a Unix socket: sun_path of sockaddr_un is 108 bytes, and a NUL ends it.
const UNIX_PATH_LEN_MAX: usize = 107;

/// The longest host name and the longest of its labels: RFC 1035, 2.3.4.
const HOST_NAME_LEN_MAX: usize = 253;
const LABEL_LEN_MAX: usize = 63;

/// `host:port`, or `unix:/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAddress {
    /// Of this machine.
    Tcp(ListenAddress),
    /// An absolute path that fits into a socket's address.
    Unix(PathBuf),
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            if text.starts_with('/') {
                return Err(format!("a Unix socket is written as unix:{text}"));
            }
            return text.parse().map(Self::Tcp);
        };
        if !path.starts_with('/') {
            return Err("an absolute path is expected after unix:".into());
        }
        if path.len() > UNIX_PATH_LEN_MAX {
            return Err(format!("the path of a Unix socket has at most {UNIX_PATH_LEN_MAX} bytes"));
        }
        Ok(Self::Unix(values::optional_path(path)?.expect("it begins with a slash")))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", Path::display(path)),
        }
    }
}

/// The name of a host, without a port. It equals a text in any case of its letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Names with commas between them, and spaces where they like.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        if text.is_empty() {
            Ok(Vec::new())
        } else {
            text.split(',').map(|name| name.trim().parse()).collect()
        }
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_label = |label: &str| {
            (1..=LABEL_LEN_MAX).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        // A browser takes what ends in a number for an IPv4 address. Those need no listing.
        let ends_in_number =
            text.rsplit('.').next().is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit()));
        if text.len() > HOST_NAME_LEN_MAX || !text.split('.').all(is_label) || ends_in_number {
            return Err(format!(
                "{text:?} is not a host name: names without ports are expected, as in a.example,b"
            ));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl PartialEq<str> for HostName {
    fn eq(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other)
    }
}
