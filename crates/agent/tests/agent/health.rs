//! When the health file is there.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::node::{Node, Process};
use crate::raw::RawServer;
use crate::roles::Answers;

#[test]
fn it_is_there_once_a_server_is_connected_and_ready() {
    let node = Node::new();
    let agent = node.agent();
    assert!(!node.is_healthy());
    let server = node.server();
    node.wait_healthy();
    server.order("not ready");
    node.wait_unhealthy();
    server.order("ready");
    node.wait_healthy();
    assert!(agent.log_line("healthy=false").contains("not ready"));
}

#[test]
fn it_goes_when_the_server_is_killed_stopped_hangs_or_leaves() {
    type Way = fn(&Process);
    let ways: [(&str, Way); 4] = [
        ("killed", |server| server.signal(Signal::KILL)),
        ("stopped", |server| server.signal(Signal::STOP)),
        ("its control thread hangs", |server| server.order("hang")),
        ("it leaves", |server| server.order("leave")),
    ];
    for (what, way) in ways {
        let node = Node::new();
        let (_agent, server) = node.healthy(Answers::Closed);
        way(&server);
        let time = node.wait_unhealthy();
        eprintln!("{what}: {time:?}");
    }
}

#[test]
fn a_server_that_was_stopped_and_goes_on_has_it_back() {
    let node = Node::new();
    let (_agent, server) = node.healthy(Answers::Closed);
    server.signal(Signal::STOP);
    node.wait_unhealthy();
    server.signal(Signal::CONT);
    node.wait_healthy();
}

#[test]
fn the_server_takes_it_away_when_the_agent_is_killed_or_hangs() {
    for signal in [Signal::KILL, Signal::STOP] {
        let node = Node::new();
        let (agent, server) = node.healthy(Answers::Closed);
        agent.signal(signal);
        node.wait_unhealthy();
        testkit::patience::wait_for("the server to say that it is alone", || {
            (server.said_to("standing") == "away").then_some(())
        });
    }
}

#[test]
fn an_agent_that_was_stopped_trusts_no_old_beat() {
    let node = Node::new();
    let (agent, server) = node.healthy(Answers::Closed);
    agent.signal(Signal::STOP);
    // Beats lie in the queue, and the server cannot take the file away either.
    std::thread::sleep(Duration::from_millis(120));
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(400));
    assert!(node.is_healthy());
    agent.signal(Signal::CONT);
    node.wait_unhealthy();
    agent.log_line("no beat for 300 ms");
    let log = agent.log();
    assert_eq!(log.iter().filter(|line| line.contains("healthy=true")).count(), 1, "{log:#?}");
    server.signal(Signal::CONT);
    node.wait_healthy();
}

#[test]
fn a_new_agent_removes_what_a_killed_one_has_left_before_it_listens() {
    let node = Node::new();
    let (mut agent, server) = node.healthy(Answers::Closed);
    server.signal(Signal::STOP);
    agent.kill();
    fs::write(node.file("health"), "1\n").unwrap();
    // It cannot start, and has taken the file away nevertheless.
    fs::remove_file(node.file("a.key")).unwrap();
    let role =
        crate::roles::AgentRole { folder: node.file(""), listen: "127.0.0.1:0".into(), port: node.port };
    let mut failing = Process::start(&crate::roles::Role::Agent(role));
    assert_eq!(failing.exit().code(), Some(78));
    assert!(!node.is_healthy());
}

#[test]
fn one_that_somebody_removes_comes_back_while_the_server_is_well() {
    let node = Node::new();
    let (_agent, _server) = node.healthy(Answers::Closed);
    fs::remove_file(node.file("health")).unwrap();
    node.wait_healthy();
}

#[test]
fn a_file_that_cannot_be_made_is_a_line_in_the_log_and_comes_when_it_can() {
    let node = Node::new();
    fs::create_dir(node.file("health.new")).unwrap();
    let agent = node.agent();
    let _server = node.server();
    agent.log_line("cannot be changed");
    assert!(!node.is_healthy());
    fs::remove_dir(node.file("health.new")).unwrap();
    node.wait_healthy();
}

#[test]
fn beats_of_a_future_or_a_past_clock_do_not_count() {
    let node = Node::new();
    let agent = node.agent();
    let mut server = RawServer::let_in(&node);
    for sent_ns in [1_u64, u64::MAX] {
        server.send(&serde_json::json!({"beat": {"sent_ns": sent_ns, "ready": true}}));
        assert_eq!(server.receive(), Some("alive".into()));
        assert!(!node.is_healthy(), "{sent_ns}");
    }
    server.beat();
    node.wait_healthy();
    drop(agent);
}

#[test]
fn on_sigterm_it_goes_first_and_does_not_come_back() {
    let node = Node::new();
    let (mut agent, server) = node.healthy(Answers::Closed);
    agent.signal(Signal::TERM);
    node.wait_unhealthy();
    server.order("not ready");
    server.order("ready");
    // The agent goes on answering meanwhile.
    assert!(node.ask(ha::message::Ask::Status).is_ok());
    assert!(!node.is_healthy() && agent.is_alive());
    std::thread::sleep(Duration::from_millis(300));
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit().code(), Some(130));
    assert!(!node.is_healthy());
}
