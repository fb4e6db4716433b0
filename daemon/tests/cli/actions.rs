//! `release` and `kick`: what is done, and what is said of it.

use protocol::ErrorCode;

use crate::operator::{LEASE, Site, address, ended};

#[test]
fn a_release_says_who_held_the_lock_and_the_next_in_line_has_it() {
    let site = Site::start();
    let (mut holder, token) = site.server.hold("jobs", LEASE);
    let mut next = site.server.wait_in_line("jobs", LEASE);
    let said = site.says(&["release", "jobs"]);
    assert!(said.starts_with(&format!("released jobs: {} held it for ", address(&holder))), "{said}");
    assert!(said.ends_with(&format!("s, token {}\n", token.0)), "{said}");
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    let token = next.acquired();

    let said = site.json(&["release", "jobs"]);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["name"], "jobs");
    assert_eq!(said[0]["released"]["remote_addr"], address(&next));
    assert_eq!(said[0]["released"]["token"], token.0);
    next.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);

    let problem = ended(&mut site.command(&["release", "jobs"])).problem(1);
    assert_eq!(problem, "nobody holds this lock");
    let problem = ended(&mut site.command(&["release", "jobs", "--json"])).problem(1);
    assert_eq!(problem, "nobody holds this lock");
}

#[test]
fn a_release_of_a_token_that_is_another_ones_is_2_and_names_the_holders() {
    let site = Site::start();
    let (mut holder, token) = site.server.hold("jobs", LEASE);
    let other = (token.0 - 1).to_string();
    let problem = ended(&mut site.command(&["release", "jobs", "--token", &other])).problem(2);
    assert_eq!(problem, format!("the holder's token is {token}, not {other}"));
    holder.heartbeat();
    assert_eq!(holder.acquired(), token);

    let said = site.says(&["release", "jobs", "--token", &token.0.to_string()]);
    assert!(said.ends_with(&format!(", token {token}\n")), "{said}");
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    let problem = ended(&mut site.command(&["release", "jobs", "--token", &token.0.to_string()])).problem(1);
    assert_eq!(problem, "nobody holds this lock");
}

#[test]
fn a_kick_says_who_waited_and_the_others_keep_their_order() {
    let site = Site::start();
    let (holder, _) = site.server.hold("jobs", LEASE);
    let mut waiters: Vec<_> = (0..4).map(|_| site.server.wait_in_line("jobs", LEASE)).collect();
    let mut kicked = waiters.remove(1);
    let said = site.says(&["kick", "jobs", &address(&kicked)]);
    let expected = format!("kicked {} out of the line for jobs, after ", address(&kicked));
    assert!(said.starts_with(&expected), "{said}");
    kicked.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);

    let mut kicked = waiters.remove(1);
    let said = site.json(&["kick", "jobs", &address(&kicked)]);
    assert_eq!(said[0]["kicked"]["remote_addr"], address(&kicked));
    kicked.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);

    let lock = &site.json(&["inspect", "jobs"])[0];
    let left: Vec<_> = lock["waiters"].as_array().unwrap().iter().map(|w| w["remote_addr"].clone()).collect();
    assert_eq!(left, [address(&waiters[0]), address(&waiters[1])]);

    for (name, who) in [("jobs", address(&kicked)), ("jobs", address(&holder)), ("none", address(&kicked))] {
        let problem = ended(&mut site.command(&["kick", name, &who])).problem(1);
        assert!(problem.contains("this lock"), "{problem}");
    }
}
