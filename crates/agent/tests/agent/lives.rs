//! Agents and servers that end and come back, in any order.

use ha::message::{Ask, Verdict};
use rustix::process::Signal;
use testkit::patience::wait_for;

use crate::node::{Authority, Node, close, term};
use crate::roles::Answers;

#[test]
fn whatever_is_killed_and_started_again_they_find_each_other() {
    let node = Node::new();
    let (mut agent, mut server) = node.healthy(Answers::Closed);
    for round in ["agent", "server", "agent, server", "server, agent", "agent", "server"] {
        for who in round.split(", ") {
            if who == "agent" { agent.kill() } else { server.kill() }
        }
        if !round.contains(", ") {
            node.wait_unhealthy();
        }
        for who in round.split(", ") {
            if who == "agent" {
                // Where both were killed, the file is the unit's matter, and that of the next agent.
                agent = node.agent();
            } else {
                server = node.server();
            }
        }
        node.wait_healthy();
        assert_eq!(node.ask(Ask::Status).unwrap().facts.acl, "of the server", "{round}");
    }
}

#[test]
fn a_close_that_meets_an_agent_that_has_just_started_waits_for_its_server() {
    let node = Node::new();
    let (mut agent, mut server) = node.healthy(Answers::Closed);
    for counter in 1..6 {
        agent.kill();
        agent = node.agent();
        // At once: the server may be about to connect.
        assert_eq!(node.ask(close(counter)).unwrap().said.verdict, Verdict::ClosedFor(term(counter)));
        assert!(server.is_alive());
    }
}

#[test]
fn a_second_agent_does_not_start_and_the_first_goes_on() {
    let node = Node::new();
    let (_agent, _server) = node.healthy(Answers::Closed);
    let role =
        crate::roles::AgentRole { folder: node.file(""), listen: "127.0.0.1:0".into(), port: node.port };
    let mut second = crate::node::Process::start(&crate::roles::Role::Agent(role));
    assert_eq!(second.exit().code(), Some(71));
    assert!(second.log_line("in use by another process").contains("agent.sock.lock"));
    assert!(node.is_healthy());
}

#[test]
fn at_sighup_certificates_are_read_again_and_bad_ones_are_not_taken() {
    let node = Node::new();
    let agent = node.agent();
    let other = Authority::new();
    let status = |authority: &Authority| {
        let runtime = threads::runtime::current_thread().unwrap();
        let request = crate::node::request(Ask::Status);
        let asking = node.peer_of(authority);
        runtime.block_on(asking.ask(&request, crate::node::ANSWER_MAX, |_: &ha::message::Answer| Ok(())))
    };
    assert!(status(&other).is_err());
    node.certify(&other);
    agent.signal(Signal::HUP);
    agent.log_line("certificates are read again");
    wait_for("an answer", || status(&other).ok());
    std::fs::write(node.file("a.key"), "no key").unwrap();
    agent.signal(Signal::HUP);
    agent.log_line("certificates are as before");
    assert!(status(&other).is_ok());
}

#[test]
fn an_agent_that_nobody_asks_ends_five_seconds_after_sigterm() {
    let node = Node::new();
    let (mut agent, _server) = node.healthy(Answers::Closed);
    let started = std::time::Instant::now();
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit().code(), Some(0));
    assert!(started.elapsed() >= std::time::Duration::from_secs(4));
    assert!(!node.is_healthy());
}

#[test]
fn an_agent_that_was_stopped_for_long_is_found_again_past_the_connections_that_were_given_up() {
    let node = Node::new();
    let (agent, server) = node.healthy(Answers::Closed);
    agent.signal(Signal::STOP);
    node.wait_unhealthy();
    // Each second the server connects anew, and gives up.
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    agent.signal(Signal::CONT);
    node.wait_healthy();
    wait_for("an answer", || node.ask(Ask::Status).ok());
    assert_eq!(server.said_to("standing"), "connected");
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::ClosedFor(term(5)));
}

#[test]
fn a_connection_whose_place_another_takes_ends_so_that_its_server_comes_again() {
    let node = Node::new();
    let _agent = node.agent();
    let mut first = crate::raw::RawServer::connect(&node);
    let hello = serde_json::to_value(node.hello()).unwrap();
    let own = crate::raw::pidfd(rustix::process::getpid());
    let say = |server: &mut crate::raw::RawServer| {
        server.hello(
            &node,
            |said| said["incarnation"] = hello["incarnation"].clone(),
            Some(std::os::fd::AsFd::as_fd(&own)),
        )
    };
    assert!(say(&mut first).unwrap()["welcome"].is_object());
    let mut second = crate::raw::RawServer::connect(&node);
    assert!(say(&mut second).unwrap()["welcome"].is_object());
    assert_eq!(first.receive(), None);
    second.beat();
    node.wait_healthy();
}
