//! Names of any kind: shown without harm, and found again by the same name.

use protocol::ErrorCode;
use testkit::names::{self, is_raw};

use crate::operator::{LEASE, Site, address, ended};

/// Names that a terminal shows alike, if it is given them raw.
const ALIKE: [&str; 12] = [
    "prod",
    "prod ",
    " prod",
    "prod\u{200b}",
    "pr\u{200d}od",
    "\u{feff}prod",
    "prod\u{e0041}",
    "prod\u{fe00}",
    "prod\u{3164}",
    "prod\u{2800}",
    "prod\u{a0}",
    "prod\\u200b",
];

#[test]
fn names_that_would_look_alike_are_told_apart_in_every_view() {
    let site = Site::start();
    let held: Vec<_> = ALIKE.iter().map(|name| site.server.hold(name, LEASE).0).collect();
    let mut seen = std::collections::HashSet::new();
    let mut shown = |text: &str| {
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()), "{text:?}");
        assert!(seen.insert(text.trim().to_owned()), "twice: {text:?}");
    };
    for line in site.says(&["locks"]).lines().skip(1) {
        shown(line.split_whitespace().next().unwrap());
    }
    for line in site.says(&["locks", "--json"]).lines() {
        shown(line);
    }
    for name in ALIKE {
        let mut command = site.command(&["inspect"]);
        shown(ended(command.args(["--", name])).ok().lines().next().unwrap());
        let mut command = site.command(&["release"]);
        shown(ended(command.args(["--", name])).ok().split(':').next().unwrap());
    }
    drop(held);
}

#[test]
fn a_name_of_any_characters_is_shown_escaped_and_acted_on_by_itself() {
    let site = Site::start();
    let names = names::odd_arguments();
    let held: Vec<_> = names.iter().map(|name| site.server.hold(name, LEASE).0).collect();
    for arguments in [&["locks"][..], &["locks", "--json"], &["top", "--once", "--rows", "100"]] {
        let text = site.says(arguments);
        assert!(!text.contains(is_raw), "{text:?}");
        for shown in ["nightly/backup", "日本語", "🔒", &"x".repeat(255)] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
    }
    assert_eq!(site.says(&["locks"]).lines().count(), names.len() + 1, "a line each");
    let mut sorted = names.clone();
    sorted.sort_unstable();
    let listed: Vec<_> =
        site.json(&["locks"]).iter().map(|l| l["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(listed, sorted);

    for name in &names {
        let run = |command: &str, json: &[&str]| {
            let mut command = site.command(&[command]);
            ended(command.args(json).args(["--", name])).ok()
        };
        assert!(!run("inspect", &[]).contains(is_raw), "{name:?}");
        let json: serde_json::Value = serde_json::from_str(&run("inspect", &["-json"])).unwrap();
        assert_eq!(json["name"], *name);
        let listed = run("locks", &["--json"]);
        let mut listed = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert!(listed.any(|lock| lock == json), "{name:?}");
        let said = run("release", &[]);
        assert!(said.lines().count() == 1 && !said.contains(is_raw), "{said:?}");
        let mut again = site.command(&["release"]);
        ended(again.args(["--", name])).problem(1);
    }
    assert_eq!(site.says(&["locks", "--json"]), "");
    drop(held);
}

#[test]
fn a_name_that_begins_with_a_dash_stands_after_two_dashes_for_a_kick_too() {
    let site = Site::start();
    let _holder = site.server.hold("-json", LEASE);
    let mut waiter = site.server.wait_in_line("-json", LEASE);
    let who = address(&waiter);
    let said = ended(site.command(&["kick"]).args(["--", "-json", &who])).ok();
    assert!(said.starts_with("kicked "), "{said}");
    waiter.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    // Without them it is a flag, and NAME is missing.
    ended(&mut site.command(&["kick", "-json", &who])).problem(64);
}
