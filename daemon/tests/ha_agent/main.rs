//! `monolock ha-agent` as its user and the service manager see it. What it decides is tested in
//! `crates/agent`.
#![forbid(unsafe_code)]

mod agents;

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use testkit::harness::{MONOLOCK, run_to_end};

use agents::Node;

fn command() -> Command {
    let mut command = Command::new(MONOLOCK);
    command.arg("ha-agent");
    command
}

#[test]
fn it_lives_from_variables_and_tells_the_service_manager() {
    let node = Node::new();
    let folder = tempfile::tempdir().unwrap();
    let manager = folder.path().join("manager");
    let told = UnixDatagram::bind(&manager).unwrap();
    told.set_read_timeout(Some(testkit::harness::PATIENCE)).unwrap();
    let mut command = command();
    command.env("NOTIFY_SOCKET", &manager);
    let mut agent = node.agent(command);
    let next = || {
        let mut message = [0; 256];
        let len = told.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    assert_eq!(next(), "READY=1\n");
    node.connects_asks_and_ends(&mut agent);
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(), "READY=1\n");
    assert_eq!(next(), "STOPPING=1\n");
}

#[test]
fn a_mistake_is_one_line_and_its_status() {
    let node = Node::new();
    let with = |name: &str, value: &str| {
        let mut command = command();
        command.envs(node.variables()).env(name, value);
        run_to_end(&mut command)
    };
    for (name, value, status, says) in [
        ("MONOLOCK_NODE_ID", "", 64, "-node-id (MONOLOCK_NODE_ID) is missing"),
        ("MONOLOCK_HA_CERT", "/nonexistent/a.pem", 78, "/nonexistent/a.pem"),
        ("MONOLOCK_HA_LISTEN_ADDRESS", "192.0.2.1:7072", 71, "-ha-listen 192.0.2.1:7072"),
    ] {
        let (ended, said) = with(name, value);
        assert_eq!(ended.code(), Some(status), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}
