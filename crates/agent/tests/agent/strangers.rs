//! Who is not let in, and whose requests are not heeded.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use ha::message::{Ask, Request, Verdict};
use rustix::process::{Pid, getpid};
use serde_json::{Value, json};
use testkit::patience::wait_for;

use crate::node::{HOST, Node, PEER_HOST, Process, close, request, term};
use crate::raw::{RawServer, pidfd};
use crate::roles::{Answers, Role};

#[test]
fn requests_of_whoever_is_not_the_peer_kill_nobody_and_are_not_answered_from_disk() {
    let node = Node::new();
    let mut stored = node.stored();
    stored.peer.host = Some(PEER_HOST);
    node.store(&stored);
    let changes: [fn(&mut Request); 5] = [
        // The address that moves: this node asks itself.
        |request| request.host = HOST,
        |request| request.from = "c".parse().unwrap(),
        |request| request.to = "c".parse().unwrap(),
        |request| request.version += 1,
        |request| request.host = ha::identity::HostId(0xc),
    ];
    let of_another = |request: &mut Request| {
        let term = "5.c".parse().unwrap();
        request.ask = Ask::Close { term, weak: false, ceiling: ha::ceiling::Ceiling(1) };
    };
    let (_agent, mut server) = node.healthy(Answers::Nothing);
    for change in changes.into_iter().chain([of_another as fn(&mut Request)]) {
        let mut asked = request(close(5));
        change(&mut asked);
        assert!(node.request(&asked).is_err(), "{asked:?}");
        assert!(server.is_alive(), "{asked:?}");
    }
    server.kill();
    for change in changes.into_iter().chain([of_another as fn(&mut Request)]) {
        let mut asked = request(close(5));
        change(&mut asked);
        assert!(node.request(&asked).is_err(), "{asked:?}");
    }
    assert_eq!(node.stored().promise, None);
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
}

#[test]
fn a_node_that_reaches_itself_by_the_address_that_moves_neither_kills_nor_fences_itself() {
    let node = Node::new();
    assert_eq!(node.stored().peer.host, None, "nothing else tells that it is not the peer");
    let (agent, mut server) = node.healthy(Answers::Nothing);
    let mut asked = request(close(5));
    asked.host = HOST;
    assert!(node.request(&asked).is_err());
    assert!(server.is_alive());
    agent.log_line("it is this host itself");
    server.kill();
    assert!(node.request(&asked).is_err());
    assert_eq!(node.stored().promise, None);
}

#[test]
fn a_server_of_another_version_is_not_let_in_and_said_nothing_for() {
    let node = Node::new();
    let agent = node.agent();
    let own = pidfd(getpid());
    let mut server = RawServer::connect(&node);
    let said = server.hello(&node, |hello| hello["version"] = json!(2), Some(own.as_fd())).unwrap();
    assert!(said["refused"]["why"].as_str().unwrap().contains("version 2"), "{said}");
    assert_eq!(server.receive(), None);
    agent.log_line("restart the older one of both");
    // Also one that says what this version does not know beside its version.
    let mut server = RawServer::connect(&node);
    let strange = |hello: &mut Value| *hello = json!({"version": 3, "who": ["knows"]});
    assert!(server.hello(&node, strange, Some(own.as_fd())).unwrap()["refused"].is_object());
    assert!(!node.is_healthy());
    // Such a server has the lock.
    let lock = durable::Lock::take(&node.file("state").join("lock"), std::time::Duration::ZERO).unwrap();
    assert!(node.ask(close(5)).is_err());
    drop(lock);
    // Upgraded.
    let _server = node.server();
    node.wait_healthy();
}

#[test]
fn a_process_that_hands_over_another_one_or_none_is_not_let_in() {
    let node = Node::new();
    let _agent = node.agent();
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let of_other = pidfd(Pid::from_child(&other));
    let file = File::open("/dev/null").unwrap();
    for descriptor in [Some(of_other.as_fd()), Some(file.as_fd()), None] {
        let mut server = RawServer::connect(&node);
        let said = server.hello(&node, |_| (), descriptor);
        // Without a descriptor the hello is not even complete.
        assert!(said.as_ref().is_none_or(|said| said["refused"].is_object()), "{said:?}");
    }
    other.kill().unwrap();
    other.wait().unwrap();
    // Of a process that has ended.
    let said = RawServer::connect(&node).hello(&node, |_| (), Some(of_other.as_fd())).unwrap();
    assert!(said["refused"].is_object(), "{said}");
    assert!(!node.is_healthy());
}

#[test]
fn a_server_of_another_node_or_another_boot_is_not_let_in() {
    let node = Node::new();
    let _agent = node.agent();
    let changes: [fn(&mut Value); 2] = [
        |hello| hello["node"] = json!("c"),
        |hello| hello["incarnation"]["boot"] = json!("0123456789abcdef0123456789abcdef"),
    ];
    for change in changes {
        let said = RawServer::connect(&node).hello(&node, change, Some(pidfd(getpid()).as_fd())).unwrap();
        assert!(said["refused"].is_object(), "{said}");
    }
}

#[test]
fn a_second_server_is_not_let_in_beside_one_that_runs_and_is_after_its_end() {
    let node = Node::new();
    let (agent, mut first) = node.healthy(Answers::Closed);
    let mut role = node.server_role(Answers::Closed);
    role.serves = false;
    let second = Process::start(&Role::Server(role));
    agent.log_line("is connected, and runs");
    assert_eq!(node.ask(Ask::Status).unwrap().facts.acl, "of the server");
    first.kill();
    second.log_line("connected to the agent");
    node.wait_healthy();
}

#[test]
fn who_says_nothing_or_nonsense_holds_up_nobody() {
    let node = Node::new();
    let _agent = node.agent();
    let idle: Vec<_> = (0..20).map(|_| RawServer::connect(&node)).collect();
    for nonsense in [json!(null), json!({"node": "a"}), json!([1, 2])] {
        let mut server = RawServer::connect(&node);
        server.send(&nonsense);
        let said = server.receive();
        assert!(said.as_ref().is_none_or(|said| said["refused"].is_object()), "{said:?}");
    }
    let _server = node.server();
    node.wait_healthy();
    drop(idle);
}

#[test]
fn a_server_that_sends_nonsense_later_has_left() {
    let node = Node::new();
    let _agent = node.agent();
    let mut server = RawServer::let_in(&node);
    server.beat();
    node.wait_healthy();
    server.send(&json!({"unheard": "of"}));
    node.wait_unhealthy();
    // It lives, and so it is not gone. This test itself would be killed for a strong request.
    assert!(node.ask(crate::node::close_weakly(5)).is_err());
}

#[test]
#[ignore = "needs root"]
fn a_server_of_another_user_is_not_let_in() {
    let node = Node::new();
    let agent = node.agent();
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    // Where the socket's own permissions let everybody in.
    open(&node.file(""), 0o755);
    open(&node.file("agent.sock"), 0o666);
    let mut role = node.server_role(Answers::Closed);
    role.serves = false;
    // This program may lie where other users cannot start it; socat speaks as well.
    let mut visitor = Command::new("socat")
        .args(["-u", "-", &format!("UNIX-CONNECT:{}", node.file("agent.sock").display())])
        .uid(65_534)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    agent.log_line("it runs as user 65534");
    let _ = visitor.kill();
    let _ = visitor.wait();
}

#[test]
#[ignore = "needs root, to choose the number of a process"]
fn a_number_that_another_process_has_by_now_is_not_the_server() {
    let node = Node::new();
    let (_agent, mut server) = node.healthy(Answers::Closed);
    let number = server.id();
    server.kill();
    // Others start processes too: until the number has come round.
    let mut heir = wait_for("another process with that number", || {
        fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).unwrap();
        let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        if sleeping.id() == u32::try_from(number).unwrap() {
            return Some(sleeping);
        }
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        None
    });
    assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
    assert!(heir.try_wait().unwrap().is_none(), "it was never touched");
    heir.kill().unwrap();
    heir.wait().unwrap();
}
