//! Names of any kind, as curl sends them and as JSON shows them.

use std::process::Command;

use protocol::ErrorCode;
use serde_json::Value;
use testkit::names::{self, is_raw};

use super::{Api, LEASE};

/// What curl gets for a path that it must not touch.
fn curl(api: &Api, arguments: &[&str], path: &str) -> (String, Value) {
    let url = format!("http://{}{path}", api.address);
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--path-as-is", "--max-time", "10"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl is there");
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (text, json)
}

/// Every byte that is not a letter or a digit, percent-encoded.
fn encoded(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[test]
#[ignore = "needs curl, which .ci/run installs before it runs this"]
fn a_name_of_any_characters_is_found_shown_and_released() {
    let (mut server, api) = Api::start(&["-shards", "2"]);
    let names = names::odd();
    let mut held: Vec<_> = names.iter().map(|name| server.hold(name, LEASE).0).collect();
    let (text, listing) = curl(&api, &[], "/api/locks");
    assert!(!text.contains(is_raw) && text.matches('\n').count() == 1, "{text:?}");
    let mut sorted = names.clone();
    sorted.sort_unstable();
    let listed: Vec<&str> =
        listing["locks"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(listed, sorted);

    for (name, holder) in names.iter().zip(&mut held) {
        let path = format!("/api/locks/{}", encoded(name));
        assert_eq!(curl(&api, &[], &path).1["name"], *name);
        let pattern = format!("/api/locks?match={}", encoded(name));
        let found = curl(&api, &[], &pattern).1;
        assert!(found["locks"].as_array().unwrap().iter().any(|lock| lock["name"] == *name), "{name:?}");
        let released = curl(&api, &["--request", "POST"], &format!("{path}/release")).1;
        assert_eq!(released["name"], *name);
        holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
        assert!(curl(&api, &[], &path).1["error"].is_string());
    }
    server.log_line("force-release");
    for line in server.log() {
        assert!(!line.contains(is_raw), "{line:?}");
    }
}

#[test]
#[ignore = "needs curl, which .ci/run installs before it runs this"]
fn names_that_are_nearly_each_other_are_different() {
    let (server, api) = Api::start(&[]);
    let _held: Vec<_> = ["a%2Fb", "b"].map(|name| server.hold(name, LEASE)).into();
    for (path, status) in [
        ("/api/locks/a%2Fb", "404"),
        ("/api/locks/a%252Fb", "200"),
        ("/api/locks/a/../b", "404"),
        ("/api/locks/%2e%2e", "404"),
        ("/api/locks/B", "404"),
        ("/api/locks/b%20", "404"),
        ("/api/locks/b", "200"),
    ] {
        let url = format!("http://{}{path}", api.address);
        let output = Command::new("curl")
            .args(["--silent", "--path-as-is", "--output", "/dev/null", "--write-out", "%{http_code}", &url])
            .output()
            .expect("curl is there");
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{path}");
    }
}
