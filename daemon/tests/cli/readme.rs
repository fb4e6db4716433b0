//! The examples of README.md.

use std::process::Command;

use protocol::ErrorCode;

use crate::harness::MONOLOCK;
use crate::operator::{LEASE, Site, address, ended};

#[test]
#[ignore = "needs jq, which .ci/run installs before it runs this"]
fn the_examples_of_the_readme_do_what_it_says() {
    let readme = include_str!("../../../README.md");
    let section = readme.split_once("\n### Looking and acting\n").expect("the section").1;
    let script = section.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let site = Site::start();
    let (mut holder, _) = site.server.hold("deploy", LEASE);
    let mut waiters: Vec<_> = (0..2).map(|_| site.server.wait_in_line("deploy", LEASE)).collect();
    let (_long, _) = site.server.hold("long line", LEASE);
    let _line: Vec<_> = (0..11).map(|_| site.server.wait_in_line("long line", LEASE)).collect();

    let script = script.replace("target/release/monolock", &MONOLOCK).replace("127.0.0.1:9091", &site.admin);
    let text = ended(Command::new("bash").args(["-euo", "pipefail", "-c", &script])).ok();
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    waiters.remove(0).refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    waiters.remove(0).acquired();
    assert_eq!(text.matches("NAME ").count(), 2, "two tables: {text}");
    assert!(text.contains("\nPOS  ADDRESS "), "{text}");
    assert!(text.contains(&format!("\nreleased deploy: {} held it ", address(&holder))), "{text}");
    assert!(text.ends_with("\nlong line\n"), "{text}");
}
