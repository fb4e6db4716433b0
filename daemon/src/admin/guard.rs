//! Keeps web pages out: a browser on this machine reaches the API, and must not drive it for a page from
//! elsewhere.
//!
//! A page can send simple requests anywhere, and DNS rebinding lets it send any to an address under the
//! page's own name. Both show in headers that a page cannot choose: `Host` names the page's host, `Origin`
//! and `Sec-Fetch-Site` the page.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::refusal::Refusal;
use cli::HostName;
use httpd::Remote;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a request is taken. `hosts` may stand in `Host` besides IP addresses and `localhost`.
pub(super) fn check(
    remote: Remote,
    uri: &Uri,
    headers: &HeaderMap,
    hosts: &[HostName],
) -> Result<(), Refusal> {
    let own_origin = match remote {
        Remote::Tcp(_) => Some(format!("http://{}", own_host(uri, headers, hosts)?)),
        // Browsers do not speak to Unix sockets, and the file's mode says who may.
        Remote::Unix { .. } => None,
    };
    let is_foreign =
        |origin: &HeaderValue| Some(origin.as_bytes()) != own_origin.as_deref().map(str::as_bytes);
    if headers.get_all(ORIGIN).iter().any(is_foreign) {
        return Err(forbidden("a request of a web page from elsewhere (Origin)"));
    }
    let is_cross_site = |site: &HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    if headers.get_all(SEC_FETCH_SITE).iter().any(is_cross_site) {
        return Err(forbidden("a request of a web page from elsewhere (Sec-Fetch-Site)"));
    }
    Ok(())
}

/// The one `Host`, if it is one of this server's.
fn own_host<'a>(uri: &Uri, headers: &'a HeaderMap, hosts: &[HostName]) -> Result<&'a str, Refusal> {
    let mut given = headers.get_all(HOST).iter();
    let (Some(host), None) = (given.next(), given.next()) else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "exactly one Host header is expected"));
    };
    let host = host.to_str().unwrap_or_default();
    // A target in absolute form names its host once more, and HTTP lets that one count.
    let in_target = uri.authority().map(|authority| authority.as_str());
    match [Some(host), in_target].into_iter().flatten().find(|host| !is_own(host, hosts)) {
        None => Ok(host),
        Some(foreign) => Err(forbidden(format!(
            "{foreign:?} is not a host of this server: an IP address, localhost, or a name of -admin-host is"
        ))),
    }
}

/// Whether a host, with or without a port, is an IP address, `localhost`, or one of `hosts`.
fn is_own(text: &str, hosts: &[HostName]) -> bool {
    if let Some(bracketed) = text.strip_prefix('[') {
        return bracketed.split_once(']').is_some_and(|(address, port)| {
            address.parse::<Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        });
    }
    let (host, port) = text.split_once(':').unwrap_or((text, ""));
    is_port(port)
        && (host.parse::<Ipv4Addr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || hosts.iter().any(|own| own == host))
}

/// Any port: `ssh -L` and port mappings change it.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn forbidden(problem: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, problem)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const UNIX: Remote = Remote::Unix { uid: 1000 };

    fn status(target: &str, headers: &[(&str, &str)]) -> u16 {
        let remote: SocketAddr = (Ipv4Addr::LOCALHOST, 4000).into();
        status_for(Remote::Tcp(remote), target, headers)
    }

    /// The status of a request with these headers.
    fn status_for(remote: Remote, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let hosts = ["Locks.Example".parse().unwrap()];
        let checked = check(remote, &target.parse().unwrap(), &map, &hosts);
        checked.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn ip_addresses_localhost_and_given_names_are_own_hosts_whatever_the_port() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9091",
            "192.0.2.1:1",
            "[::1]",
            "[::1]:9091",
            "localhost",
            "LocalHost:1",
            "locks.example",
            "LOCKS.example:443",
            "localhost:",
        ] {
            assert_eq!(status("/", &[("host", host)]), 200, "{host}");
        }
    }

    #[test]
    fn any_other_host_is_forbidden_as_a_rebound_name_would_be() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.1.evil.example",
            "0x7f.1",
            "2130706433",
            "127.1",
            "::1",
            "[::1",
            "[::1]evil",
            "[127.0.0.1]",
            "user@localhost",
            "localhost:80:80",
            "localhost:http",
            "",
            " ",
            "locks.example.",
            "[fe80::1%25eth0]",
            "127.0.0.1, evil.example",
        ] {
            assert_eq!(status("/", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status("/", &[]), 400);
        assert_eq!(status("/", &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn a_target_in_absolute_form_must_name_an_own_host_too() {
        let host = [("host", "localhost:9091")];
        assert_eq!(status("http://localhost:9091/api/info", &host), 200);
        assert_eq!(status("http://evil.example/api/info", &host), 403);
        assert_eq!(status("http://evil@localhost/api/info", &host), 403);
        assert_eq!(status("http://localhost/api/info", &[("host", "evil.example")]), 403);
    }

    #[test]
    fn an_origin_must_be_the_host_itself() {
        let with = |origin| status("/", &[("host", "localhost:9091"), ("origin", origin)]);
        assert_eq!(with("http://localhost:9091"), 200);
        for foreign in [
            "http://evil.example",
            "null",
            "",
            "http://localhost",
            "http://localhost:9092",
            "https://localhost:9091",
            "http://127.0.0.1:9091",
            "http://localhost:9091/",
        ] {
            assert_eq!(with(foreign), 403, "{foreign:?}");
        }
        let own = ("origin", "http://localhost:9091");
        assert_eq!(status("/", &[("host", "localhost:9091"), own, ("origin", "null")]), 403);
    }

    #[test]
    fn a_browser_that_says_cross_site_is_believed() {
        let with = |site| status("/", &[("host", "localhost"), ("sec-fetch-site", site)]);
        assert_eq!((with("same-origin"), with("none")), (200, 200));
        assert_eq!((with("cross-site"), with("same-site"), with("")), (403, 403, 403));
    }

    #[test]
    fn on_a_unix_socket_the_host_does_not_matter_and_every_origin_is_foreign() {
        assert_eq!(status_for(UNIX, "/", &[]), 200);
        assert_eq!(status_for(UNIX, "http://any/", &[("host", "monolock")]), 200);
        assert_eq!(status_for(UNIX, "/", &[("host", "localhost"), ("origin", "http://localhost")]), 403);
        assert_eq!(status_for(UNIX, "/", &[("sec-fetch-site", "cross-site")]), 403);
    }
}
