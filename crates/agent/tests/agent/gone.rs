//! What the peer is told.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use agent::LOCK_FILE;
use durable::Lock;
use ha::message::{Ask, GateState, Refusal, Unfit, Verdict};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::patience::wait_for;

use crate::node::{ANSWER_MAX, CEILING, Node, close, close_weakly, request, term};
use crate::raw::RawServer;
use crate::roles::Answers;

#[test]
fn a_connected_servers_answer_goes_back_as_it_is() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Closed);
    let answer = node.ask(Ask::Status).unwrap();
    assert_eq!((answer.said.verdict, answer.facts.acl.as_str()), (Verdict::Status, "of the server"));
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::ClosedFor(term(5)));
    assert!(server.is_alive());
}

#[test]
fn what_the_agent_does_not_understand_passes_in_both_directions() {
    let node = Node::new();
    let _agent = node.agent();
    let mut server = RawServer::let_in(&node);
    let serving = std::thread::spawn(move || {
        let ask = server.receive().unwrap()["ask"].clone();
        assert_eq!(ask["request"], json!({"of": "a later version"}));
        server.send(&json!({"answer": {"id": ask["id"], "answer": {"said": ["later", 1]}}}));
        server
    });
    let runtime = threads::runtime::current_thread().unwrap();
    let question = json!({"of": "a later version"});
    let answer = runtime.block_on(node.peer().ask(&question, ANSWER_MAX, |_: &Value| Ok(())));
    assert_eq!(answer.unwrap(), json!({"said": ["later", 1]}));
    serving.join().unwrap();
}

#[test]
fn a_refusal_is_passed_on_and_kills_nobody() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Refused);
    let refused = Verdict::Refused { term: term(5), weak: false, why: Refusal::Promised };
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, refused);
    assert!(server.is_alive());
}

#[test]
fn a_stopped_server_that_is_asked_to_close_is_killed_and_gone() {
    let node = Node::new();
    let (agent, mut server) = node.healthy(Answers::Closed);
    server.signal(Signal::STOP);
    let started = Instant::now();
    let answer = node.ask(close(5)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200), "it had its time");
    assert_eq!(answer.said.verdict, Verdict::GoneFor(term(5)));
    assert_eq!((answer.said.ceiling, answer.said.gate), (CEILING, GateState::Closed));
    assert_eq!(answer.said.promise, Some(term(5)));
    assert_eq!(answer.said.unfit, Some(Unfit::NotReady));
    assert!(!server.is_alive());
    let stored = node.stored();
    assert_eq!((stored.promise, stored.active), (Some(term(5)), false));
    agent.log_line("killed the server");
}

#[test]
fn a_server_that_runs_and_does_not_confirm_is_killed_too() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Nothing);
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
    assert!(!server.is_alive());
}

#[test]
fn the_same_request_gets_the_same_answer_and_a_lower_term_a_refusal() {
    let node = Node::new();
    let _agent = node.agent();
    for ask in [close(5), close(5), close_weakly(5)] {
        assert_eq!(node.ask(ask).unwrap().said.verdict, Verdict::GoneFor(term(5)));
    }
    for (ask, weak) in [(close(4), false), (close_weakly(4), true)] {
        let refused = Verdict::Refused { term: term(4), weak, why: Refusal::Promised };
        assert_eq!(node.ask(ask).unwrap().said.verdict, refused);
    }
    assert_eq!(node.ask(close(6)).unwrap().said.verdict, Verdict::GoneFor(term(6)));
    assert_eq!(node.stored().promise, Some(term(6)));
}

#[test]
fn requests_at_once_get_the_same_answer() {
    let node = Node::new();
    let (_agent, server) = node.healthy(Answers::Closed);
    server.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(|| node.ask(close(5)))).collect();
        for asker in askers {
            assert_eq!(asker.join().unwrap().unwrap().said.verdict, Verdict::GoneFor(term(5)));
        }
    });
}

#[test]
fn a_server_that_is_asked_weakly_is_never_killed() {
    let node = Node::new();
    let (agent, mut server) = node.healthy(Answers::Nothing);
    assert!(node.ask(close_weakly(5)).is_err());
    server.signal(Signal::STOP);
    node.wait_unhealthy();
    assert!(node.ask(close_weakly(6)).is_err());
    assert!(server.is_alive());
    agent.log_line("asked weakly");
    server.kill();
    assert_eq!(node.ask_until_answered(&close_weakly(6)).said.verdict, Verdict::GoneFor(term(6)));
}

#[test]
fn a_server_whose_connection_broke_is_not_gone_and_is_killed_only_when_asked_in_earnest() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Closed);
    server.order("leave");
    node.wait_unhealthy();
    assert!(node.ask(close_weakly(5)).is_err());
    assert!(node.ask(Ask::Status).is_err());
    assert!(server.is_alive());
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
    assert!(!server.is_alive());
}

#[test]
fn a_server_that_the_agent_does_not_know_is_not_killed_and_not_gone() {
    let node = Node::new();
    // It has the lock and the port, and an agent that it never finds.
    let mut server = node.server();
    server.order("leave");
    let agent = node.agent();
    assert!(node.ask(close(5)).is_err());
    assert!(server.is_alive());
    agent.log_line("in use by another process");
    server.kill();
    assert_eq!(node.ask_until_answered(&close(5)).said.verdict, Verdict::GoneFor(term(5)));
}

#[test]
fn a_server_started_by_hand_on_the_port_is_not_gone() {
    let node = Node::new();
    let agent = node.agent();
    let by_hand = TcpListener::bind(("127.0.0.1", node.port)).unwrap();
    assert!(node.ask(close(5)).is_err());
    assert!(node.ask(Ask::Status).is_err());
    agent.log_line("somebody listens on port");
    assert_eq!(node.stored().promise, None);
    drop(by_hand);
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
}

#[test]
fn while_somebody_else_has_the_state_lock_there_is_no_answer() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Closed);
    server.kill();
    let lock = wait_for("the lock", || Lock::take(&node.file("state").join(LOCK_FILE), Duration::ZERO).ok());
    assert!(node.ask(close(5)).is_err());
    assert!(node.ask(Ask::Status).is_err());
    assert_eq!(node.stored().promise, None);
    drop(lock);
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
}

#[test]
fn what_cannot_be_stored_is_not_said_and_for_what_cannot_be_read_nobody_is_killed() {
    let node = Node::new();
    let agent = node.agent();
    let aside = node.file("state").join("state.new");
    // As on a full disk.
    std::os::unix::fs::symlink("/dev/full", &aside).unwrap();
    assert!(node.ask(close(5)).is_err());
    agent.log_line("No space left");
    assert_eq!(node.stored().promise, None);
    // It is read all the same.
    assert!(node.ask(Ask::Status).is_ok());
    fs::remove_file(&aside).unwrap();

    let mut server = node.server_that(Answers::Nothing);
    node.wait_healthy();
    let file = node.file("state").join("state");
    let before = fs::read(&file).unwrap();
    for damage in [&b""[..], b"monolock other 1 crc32 00000000\n{}\n", &before[..before.len() - 3]] {
        fs::write(&file, damage).unwrap();
        assert!(node.ask(close(5)).is_err());
        assert!(server.is_alive());
    }
    fs::remove_file(&file).unwrap();
    assert!(node.ask(close(5)).is_err());
    assert!(server.is_alive());
    fs::write(&file, before).unwrap();
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
    assert!(!server.is_alive());
}

#[test]
fn a_higher_promise_on_disk_saves_a_silent_server_from_a_lower_term() {
    let node = Node::new();
    let mut stored = node.stored();
    assert!(stored.promise_to_peer(&term(9)));
    node.store(&stored);
    let (_agent, mut server) = node.healthy(Answers::Nothing);
    assert!(node.ask(close(5)).is_err());
    assert!(server.is_alive());
}

#[test]
fn without_a_server_the_status_comes_from_the_disk() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Closed);
    server.kill();
    let answer = node.ask_until_answered(&Ask::Status);
    assert_eq!((answer.said.verdict, answer.said.gate), (Verdict::Status, GateState::Closed));
    assert_eq!((answer.said.ceiling, answer.facts.acl.as_str()), (CEILING, ""));
    assert!(answer.facts.wall_clock_ns > 0);
    assert!(node.ask(Ask::TakeOver { promise: None }).is_err(), "nobody is there who could");
}

#[test]
fn a_server_that_starts_while_the_agent_answers_waits_and_starts() {
    let node = Node::new();
    let _agent = node.agent();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for counter in 1..40 {
                let _ = node.ask(close_weakly(counter));
            }
        });
        for _ in 0..3 {
            let mut server = node.server();
            node.wait_healthy();
            server.kill();
        }
        asking.join().unwrap();
    });
}

#[test]
fn the_peers_ceiling_is_kept_with_the_promise() {
    let node = Node::new();
    let _agent = node.agent();
    let ceiling = ha::ceiling::Ceiling(CEILING.0 + 7);
    node.ask(Ask::Close { term: term(5), weak: false, ceiling }).unwrap();
    assert_eq!(node.stored().peer.ceiling.unwrap().ceiling, ceiling);
}

#[test]
fn after_sigterm_the_agent_still_says_gone_and_then_ends() {
    let node = Node::new();
    let (mut agent, mut server) = node.healthy(Answers::Closed);
    agent.signal(Signal::TERM);
    server.signal(Signal::TERM);
    server.exit();
    let started = Instant::now();
    assert_eq!(node.ask_until_answered(&close(5)).said.verdict, Verdict::GoneFor(term(5)));
    assert!(agent.exit().success());
    assert!(started.elapsed() < Duration::from_secs(4), "it does not wait for more");
    assert!(node.request(&request(Ask::Status)).is_err());
}
