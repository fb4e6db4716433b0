//! Starting: the first line, addresses, flags and variables, and what is refused before a port is open.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{MONOLOCK, Peer, Server, acquire, field, run_to_end, wait_for};

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
fn a_locks_name_does_not_look_like_other_fields_of_a_line() {
    let mut server = Server::with(&["-log-level", "debug"]);
    let name = r#"a reason="force" token=1"#;
    server.hold(name, LEASE).0.close();
    for event in ["granted", "released"] {
        let line = server.log_line(&format!(" {event} "));
        assert!(line.contains(&format!(" lock={name:?} ")), "{line}");
    }
}

#[test]
fn json_lines_are_json_and_say_the_same() {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0", "--log-format=json"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
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
    // A server that came as far as opening the port would find it taken, and say that instead.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let long_socket = format!("unix:/{}", "x".repeat(107));
    let mistakes: [(&[&str], &str); 18] = [
        (&["-io-timeout", "5"], "io-timeout"),
        (&["-io-timeout", "-5s"], "io-timeout"),
        (&["-io-timeout", "0s"], "io-timeout"),
        (&["-log-level", "loud"], "log-level"),
        (&["-log-format", "xml"], "log-format"),
        (&["-shards", "0"], "shards"),
        (&["-ops-listen", "nowhere"], "ops-listen"),
        (&["-tls-cert", "c"], "-tls-cert needs -tls-key"),
        (&["-tls-key", "k"], "-tls-key needs -tls-cert"),
        (&["-tls-client-ca", "a"], "-tls-client-ca needs -tls-cert and -tls-key"),
        (&["-tls-cert", "c", "-tls-key", "k", "-acl-file", "l"], "-acl-file needs -tls-client-ca"),
        (&["-admin-host", "h"], "-admin-host needs -admin-listen"),
        (&["-admin-listen", ":0", "-admin-host", "h:80"], "-admin-host: invalid value"),
        (&["-admin-listen", "nowhere"], "-admin-listen: invalid value"),
        (&["-admin-listen", "unix:"], "-admin-listen: invalid value"),
        (&["-admin-listen", "unix:relative"], "-admin-listen: invalid value"),
        (&["-admin-listen", &long_socket], "-admin-listen: invalid value"),
        (&["-no-such-flag"], "no-such-flag"),
    ];
    for (flags, named) in mistakes {
        let (status, line) = refused(Command::new(MONOLOCK).args(["-listen", &listen]).args(flags));
        assert_eq!(status, 64, "{flags:?}: {line}");
        assert!(line.contains(named), "{flags:?}: {line}");
    }
    let (status, line) = refused(Command::new(MONOLOCK).env("MONOLOCK_IO_TIMEOUT", "soon"));
    assert_eq!(status, 64);
    assert!(line.contains("MONOLOCK_IO_TIMEOUT") && line.contains("-io-timeout"), "{line}");
}

#[test]
fn a_file_that_cannot_be_used_is_one_line_that_names_flag_and_file_and_opens_no_port() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file).to_str().unwrap().to_owned();
    for name in ["one", "two"] {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        fs::write(path(&format!("{name}.pem")), own.cert.pem()).unwrap();
        fs::write(path(&format!("{name}.key")), own.signing_key.serialize_pem()).unwrap();
    }
    fs::write(path("text"), "no PEM").unwrap();
    fs::write(path("bad.json"), "{\"rules\": [{\"identity\": \"a\"}]}").unwrap();
    let (cert, key, ca) = ("one.pem", "one.key", "two.pem");
    let mistakes = [
        (["missing", key, ca, "bad.json"], "-tls-cert", "missing"),
        (["text", key, ca, "bad.json"], "-tls-cert", "text"),
        ([key, key, ca, "bad.json"], "-tls-cert", key),
        ([cert, "missing", ca, "bad.json"], "-tls-key", "missing"),
        ([cert, cert, ca, "bad.json"], "-tls-key", cert),
        ([cert, "two.key", ca, "bad.json"], "-tls-key", "two.key"),
        ([cert, key, "text", "bad.json"], "-tls-client-ca", "text"),
        ([cert, key, "missing", "bad.json"], "-tls-client-ca", "missing"),
        ([cert, key, ca, "missing"], "-acl-file", "missing"),
        ([cert, key, ca, "text"], "-acl-file", "text"),
        ([cert, key, ca, "bad.json"], "-acl-file", "bad.json: rules[0]: missing field `locks`"),
    ];
    for (files, flag, named) in mistakes {
        let mut command = Command::new(MONOLOCK);
        command.args(["-listen", &listen]);
        for (flag, file) in ["-tls-cert", "-tls-key", "-tls-client-ca", "-acl-file"].iter().zip(files) {
            command.args([*flag, &path(file)]);
        }
        let (status, line) = refused(&mut command);
        assert_eq!(status, 78, "{files:?}: {line}");
        assert!(line.contains(&format!("{flag} {}", path(named))), "{files:?}: {line}");
    }
}

#[test]
fn of_a_repeated_flag_the_last_one_counts() {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "nowhere", "-shards", "7", "-listen", "127.0.0.1:0", "--shards=2"]);
    assert!(Server::spawn(command).log()[0].contains("shards=2"));
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_limit() {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -Sn 64; ulimit -Hn 500; exec \"$0\" \"$@\"", &MONOLOCK]);
    command.args(["-listen", "127.0.0.1:0", "-shards", "1"]);
    let server = Server::spawn(command);
    let places: usize = field(&server.log()[0], "connections_max").unwrap().parse().unwrap();
    assert!((300..500).contains(&places), "{places}");
}

#[test]
fn a_signal_during_the_start_ends_it() {
    // The start waits here for a predecessor to let go of its port.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", &taken.local_addr().unwrap().to_string(), "-shards", "1"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let tasks = format!("/proc/{}/task", child.id());
    // Signals are taken care of before the first shard is there.
    wait_for("the shard to be there", || {
        let mut tasks = std::fs::read_dir(&tasks).ok()?.filter_map(Result::ok);
        let is_shard = |comm: std::io::Result<String>| comm.is_ok_and(|comm| comm.starts_with("shard-"));
        tasks.any(|task| is_shard(std::fs::read_to_string(task.path().join("comm")))).then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = wait_for("the server to exit", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let mut log = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut log).unwrap();
    assert!(log.contains("SIGTERM") && !log.contains("cannot listen"), "{log}");
}

#[test]
fn help_for_a_reader_that_has_gone_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(MONOLOCK).arg("--help").stdout(writer).status().unwrap();
    assert!(status.success(), "{status}");
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
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
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
    let test = "start::forbidden_io_uring_is_one_line_with_the_remedy_and_exit_69";
    let mut command = without_io_uring(test, &["-listen", "127.0.0.1:0"]);
    let (status, line) = refused(command.stdout(Stdio::null()));
    assert_eq!(status, 69, "{line}");
    for word in ["io_uring", "seccomp", "kernel.io_uring_disabled"] {
        assert!(line.contains(word), "{word} in {line}");
    }
}

/// The program where io_uring is forbidden. `test` runs in a process of its own, comes here again, and
/// becomes the program.
pub(crate) fn without_io_uring(test: &str, arguments: &[&str]) -> Command {
    if std::env::var_os(FORBID_IO_URING).is_some() {
        forbid_io_uring();
        let error = std::os::unix::process::CommandExt::exec(
            Command::new(MONOLOCK).args(arguments).env_remove(FORBID_IO_URING),
        );
        panic!("{error}");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(FORBID_IO_URING, "1");
    command
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

#[test]
fn a_mistyped_variable_is_warned_of() {
    let mut command = Command::new(MONOLOCK);
    command.args(["-listen", "127.0.0.1:0"]).env("MONOLOCK_LISTEN_ADRESS", ":1");
    let server = Server::spawn(command);
    assert!(server.log()[0].contains("WARN") && server.log()[0].contains("MONOLOCK_LISTEN_ADRESS"));
}

#[test]
fn a_server_that_gets_no_more_open_files_says_so_in_one_line_with_71_and_does_not_panic() {
    // Below 4 the program itself cannot be loaded.
    for files_max in 4..40 {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files_max}")).args([&*MONOLOCK, "-listen", "127.0.0.1:0"]);
        let (status, said) = run_to_end(&mut command);
        assert_eq!(status.code(), Some(71), "{files_max}: {said}");
        assert_eq!(said.lines().count(), 1, "{files_max}: {said}");
    }
}
