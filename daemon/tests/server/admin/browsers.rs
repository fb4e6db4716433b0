//! What a web page can make a browser send to this machine, and what comes of it.

use super::{Api, LEASE};
use crate::harness::Server;

/// A lock that a page would like to release.
fn prey(server: &Server, api: &Api) -> impl FnMut() {
    let (mut holder, token) = server.hold("jobs", LEASE);
    let address = api.address;
    move || {
        holder.heartbeat();
        assert_eq!(holder.acquired(), token, "the holder keeps it");
        assert_eq!(Api { address }.get("/api/locks/jobs").status, 200);
    }
}

#[test]
fn a_form_post_from_another_site_does_nothing() {
    let (server, api) = Api::start(&[]);
    let mut is_unharmed = prey(&server, &api);
    let form = "Content-Type: application/x-www-form-urlencoded";
    for origin in ["http://evil.example", "https://evil.example:8443", "null", "http://localhost:8000"] {
        let origin = format!("Origin: {origin}");
        let answer = api.request("POST", "/api/locks/jobs/release", &[form, &origin]);
        answer.error(403);
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    api.request("POST", "/api/locks/jobs/release", &["Sec-Fetch-Site: cross-site"]).error(403);
    api.request("POST", "/api/locks/jobs/release", &["Sec-Fetch-Site: same-site"]).error(403);
    is_unharmed();
}

#[test]
fn a_preflight_is_never_granted() {
    let (server, api) = Api::start(&[]);
    let mut is_unharmed = prey(&server, &api);
    let ask = "Access-Control-Request-Method: DELETE";
    let own = format!("Origin: http://{}", api.address);
    for (origin, status) in [("Origin: http://evil.example", 403), (own.as_str(), 405)] {
        let answer = api.request("OPTIONS", "/api/locks/jobs/waiters/127.0.0.1:1", &[origin, ask]);
        answer.error(status);
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    is_unharmed();
}

#[test]
fn a_name_that_was_rebound_to_this_machine_opens_nothing() {
    let (server, api) = Api::start(&[]);
    let mut is_unharmed = prey(&server, &api);
    let port = api.address.port();
    for host in ["evil.example".to_owned(), format!("evil.example:{port}"), "127.0.0.1.evil.example".into()] {
        for (method, path) in [("GET", "/api/locks"), ("POST", "/api/locks/jobs/release")] {
            // As the page's own name, it is its own origin.
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n\r\n"
            );
            api.send(&request).error(403);
            let absolute = format!("{method} http://{host}{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            api.send(&absolute).error(403);
        }
    }
    api.send("GET /api/locks HTTP/1.1\r\n\r\n").error(400);
    api.send("GET /api/locks HTTP/1.0\r\n\r\n").error(400);
    api.send("GET /api/locks HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n").error(400);
    is_unharmed();
}

#[test]
fn addresses_localhost_and_given_names_are_served_through_any_port() {
    let (_server, api) = Api::start(&["-admin-host", "locks.example, b"]);
    for host in ["127.0.0.1", "192.0.2.1:1", "[::1]:80", "localhost:12345", "LOCKS.example:443", "b"] {
        let plain = format!("GET /api/info HTTP/1.1\r\nHost: {host}\r\n\r\n");
        api.send(&plain).ok();
        let page = format!("GET /api/info HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n");
        api.send(&page).ok();
        let absolute = format!("GET http://{host}/api/info HTTP/1.1\r\nHost: {host}\r\n\r\n");
        api.send(&absolute).ok();
    }
}

#[test]
fn every_answer_tells_a_browser_not_to_hand_it_to_a_page_that_embeds_it() {
    let (server, api) = Api::start(&[]);
    let _holder = server.hold("jobs", LEASE);
    for target in ["/api/locks", "/api/locks/jobs", "/api/locks/idle", "/nowhere"] {
        let answer = api.get(target);
        for header in ["x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin"] {
            assert!(answer.head.contains(&format!("\r\n{header}")), "{target}: {answer:?}");
        }
    }
}
