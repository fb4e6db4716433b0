//! The address of the ops endpoints, as a URL.

use std::fmt;

use cli::ListenAddress;

const PORT: u16 = 80;

/// `http://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    address: ListenAddress,
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err("the ops endpoints have no TLS: write http://".to_owned()),
            _ => return Err("a URL such as http://127.0.0.1:9090 is expected".to_owned()),
        };
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.contains(['/', '?', '#', '@']) {
            return Err("only host and port are expected after http://".to_owned());
        }
        if host.is_empty() {
            return Err("the host is missing".to_owned());
        }
        let has_port = host.rsplit(']').next().is_some_and(|after| after.contains(':'));
        let with_port = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        Ok(Self { address: with_port.parse::<ListenAddress>()?.to_dial() })
    }

    /// Host and port, for the request and for a look-up.
    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_host_with_or_without_a_port() {
        for (text, host) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090"),
            ("http://127.0.0.1:9090/", "127.0.0.1:9090"),
            ("http://[::1]:9090", "[::1]:9090"),
            ("http://[::1]", "[::1]:80"),
            ("http://lock1.example.net", "lock1.example.net:80"),
            // As in the server's own setting.
            ("http://:9090", "localhost:9090"),
            ("http://0.0.0.0:9090", "localhost:9090"),
        ] {
            assert_eq!(Url::parse(text).unwrap().host(), host, "{text}");
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for text in [
            "",
            "127.0.0.1:9090",
            "https://127.0.0.1:9090",
            "unix:/run/ops",
            "http://",
            "http://h:9090/readyz",
            "http://user@h:9090",
            "http://h:x",
            "http://h:70000",
            "http://a b",
            "http://::1:9090",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
