//! Starting: the first line, addresses, flags and variables, and what is refused before a port is open.

use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::harness::{MONOLOCK, Peer, Server, acquire, run_to_end};

const LEASE: Duration = Duration::from_secs(60);

/// The exit status and the only line that a mistake gives.
fn refused(command: &mut Command) -> (i32, String) {
    let (status, stderr) = run_to_end(command);
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    (status.code().expect("an exit status"), stderr)
}

#[test]
fn the_first_line_says_where_the_server_listens() {
    let server = Server::start();
    let first = &server.log()[0];
    assert!(first.contains("listening") && first.contains(&server.address.to_string()), "{first}");
}

#[test]
fn json_lines_are_json_and_say_the_same() {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "--log-format=json"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut line)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).expect("a JSON object a line");
    let text = line.to_string();
    assert!(text.contains("listening") && text.contains("127.0.0.1:"), "{text}");
}

#[test]
fn a_second_server_on_the_same_port_fails_and_the_first_goes_on() {
    let server = Server::start();
    let address = server.address.to_string();
    let (status, line) = refused(Command::new(MONOLOCK).args(["-listen", &address]));
    assert_eq!(status, 71);
    assert!(line.contains("-listen") && line.contains(&address), "{line}");
    server.hold("lock", LEASE);
}

#[test]
fn a_server_comes_back_on_its_port_at_once_after_it_was_killed() {
    let server = Server::start();
    let address = server.address.to_string();
    let held: Vec<_> = (0..100).map(|index| server.hold(&format!("lock-{index}"), LEASE)).collect();
    drop(server);
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", &address]);
    let server = Server::spawn(command);
    server.hold("lock-0", LEASE);
    drop(held);
}

#[test]
fn both_dash_styles_and_variables_set_the_same_things() {
    let spellings: [&[&str]; 4] = [
        &["-listen", "127.0.0.1:0", "-shards", "1"],
        &["--listen", "127.0.0.1:0", "--shards", "1"],
        &["-listen=127.0.0.1:0", "-shards=1"],
        &["serve", "--listen=127.0.0.1:0", "-shards=1"],
    ];
    for spelling in spellings {
        let mut command = Command::new(MONOLOCK);
        command.args(spelling);
        let server = Server::spawn(command);
        assert!(server.log()[0].contains("shards=1"), "{spelling:?}: {:?}", server.log());
    }
    let mut command = Command::new(MONOLOCK);
    command
        .env("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0")
        .env("MONOLOCK_SHARDS", "1")
        .env("MONOLOCK_LOG_LEVEL", "");
    let server = Server::spawn(command);
    assert!(server.log()[0].contains("shards=1"));
}

#[test]
fn a_flag_beats_a_variable() {
    let mut command = Command::new(MONOLOCK);
    command.env("MONOLOCK_SHARDS", "3").args(["-listen", "127.0.0.1:0", "-shards", "2"]);
    assert!(Server::spawn(command).log()[0].contains("shards=2"));
}

#[test]
fn a_mistake_is_one_line_that_names_the_flag_and_opens_no_port() {
    // A port that is free now and would be taken by a server that started.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = address.to_string();
    let mistakes: [(&[&str], &str); 8] = [
        (&["-io-timeout", "5"], "io-timeout"),
        (&["-io-timeout", "-5s"], "io-timeout"),
        (&["-io-timeout", "0s"], "io-timeout"),
        (&["-log-level", "loud"], "log-level"),
        (&["-log-format", "xml"], "log-format"),
        (&["-shards", "0"], "shards"),
        (&["-ops-listen", "nowhere"], "ops-listen"),
        (&["-no-such-flag"], "no-such-flag"),
    ];
    for (flags, named) in mistakes {
        let (status, line) = refused(Command::new(MONOLOCK).args(["-listen", &listen]).args(flags));
        assert_eq!(status, 64, "{flags:?}: {line}");
        assert!(line.contains(named), "{flags:?}: {line}");
        assert!(TcpStream::connect(address).is_err(), "{flags:?} opened the port");
    }
    let (status, line) = refused(Command::new(MONOLOCK).env("MONOLOCK_IO_TIMEOUT", "soon"));
    assert_eq!(status, 64);
    assert!(line.contains("MONOLOCK_IO_TIMEOUT"), "{line}");
}

#[test]
fn an_address_that_cannot_be_bound_is_named() {
    let (status, line) = refused(Command::new(MONOLOCK).args(["-listen", "192.0.2.1:0"]));
    assert_eq!(status, 71);
    assert!(line.contains("-listen") && line.contains("192.0.2.1"), "{line}");
}

#[test]
fn help_and_version_answer_on_standard_output() {
    for flag in ["-h", "--help"] {
        let output = Command::new(MONOLOCK).arg(flag).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        for word in [
            "listen",
            "MONOLOCK_LISTEN_ADDRESS",
            "0.0.0.0:7070",
            "io-timeout",
            "MONOLOCK_OPS_LISTEN_ADDRESS",
            "run",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
    let output = Command::new(MONOLOCK).arg("--version").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn ipv6_and_dual_stack_addresses_serve() {
    let listen = |address: &str| {
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", address]);
        Server::spawn(command)
    };
    let server = listen("[::1]:0");
    server.hold("lock", LEASE);

    for wildcard in [":0", "0.0.0.0:0", "[::]:0"] {
        let server = listen(wildcard);
        for address in [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let mut peer = Peer::connect(SocketAddr::new(address.ip(), server.address.port()));
            peer.send(&acquire(&address.to_string(), LEASE));
            peer.acquired();
        }
    }
}

#[test]
fn a_host_name_is_resolved() {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "localhost:0", "-ops-listen", "localhost:0"]);
    // Several addresses are several listeners, each on a port of its own here.
    let (status, _) = {
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut line)
            .unwrap();
        child.kill().unwrap();
        (child.wait().unwrap(), assert!(line.contains("listening") && line.contains(":"), "{line}"))
    };
    assert!(!status.success(), "killed above");
}

/// Where this test binary, started anew, forbids io_uring to itself and becomes the server.
const FORBID_IO_URING: &str = "TEST_FORBID_IO_URING";

#[test]
fn forbidden_io_uring_is_one_line_with_the_remedy_and_exit_69() {
    if std::env::var_os(FORBID_IO_URING).is_some() {
        forbid_io_uring();
        let error = std::os::unix::process::CommandExt::exec(
            Command::new(MONOLOCK).args(["-listen", "127.0.0.1:0"]).env_remove(FORBID_IO_URING),
        );
        panic!("{error}");
    }
    let this = std::env::current_exe().unwrap();
    let test = "start::forbidden_io_uring_is_one_line_with_the_remedy_and_exit_69";
    let mut command = Command::new(this);
    command.args([test, "--exact", "--nocapture"]).env(FORBID_IO_URING, "1");
    let (status, line) = refused(command.stdout(std::process::Stdio::null()));
    assert_eq!(status, 69, "{line}");
    for word in ["io_uring", "seccomp", "kernel.io_uring_disabled"] {
        assert!(line.contains(word), "{word} in {line}");
    }
}

/// What a container's default seccomp profile does: io_uring_setup fails with EPERM.
fn forbid_io_uring() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    const SYS_IO_URING_SETUP: i64 = 425;
    let filter = SeccompFilter::new(
        [(SYS_IO_URING_SETUP, vec![])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(1),
        std::env::consts::ARCH.try_into().expect("an architecture that seccomp knows"),
    );
    let program: BpfProgram = filter.expect("a valid filter").try_into().expect("a valid program");
    seccompiler::apply_filter_all_threads(&program).expect("the filter is taken");
}
