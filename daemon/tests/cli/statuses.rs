//! Exit statuses and the one line that explains them.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::operator::{LEASE, Site, ended, http, impostor, monolock};

#[test]
fn a_mistake_in_the_arguments_is_one_line_and_64() {
    let long = "x".repeat(256);
    let pattern = "x".repeat(1025);
    for (arguments, names) in [
        (&["locks", "a", "b"][..], "\"b\""),
        (&["locks", "-bogus"], "monolock locks --help"),
        (&["locks", "--admin", "nowhere"], "the port is missing"),
        (&["locks", "--admin", "unix:relative"], "absolute path"),
        (&["locks", "--admin", "localhost:1", &pattern], "1024"),
        (&["inspect"], "<NAME>"),
        (&["inspect", "--admin", "localhost:1", ""], "empty"),
        (&["release", "--admin", "localhost:1", &long], "255"),
        (&["release", "--admin", "localhost:1", "a", "--token", "latest"], "latest"),
        (&["release", "--admin", "localhost:1", "a", "--token", "1", "--token", "2"], "more than once"),
        (&["kick", "--admin", "localhost:1", "a"], "<ADDR>"),
        (&["kick", "--admin", "localhost:1", "a", "nobody"], "192.0.2.1:40000"),
        (&["top", "-interval", "soon"], "soon"),
        (&["top", "-interval", "0"], "100 ms"),
        (&["top", "-sort", "size"], "size"),
        (&["top", "-rows", "many"], "many"),
    ] {
        let line = ended(&mut monolock(arguments)).problem(64);
        assert!(line.contains(names), "{arguments:?}: {line}");
    }
}

#[test]
fn without_an_address_it_is_said_how_to_give_one() {
    for arguments in
        [&["locks"][..], &["inspect", "a"], &["release", "a"], &["kick", "a", "1.2.3.4:5"], &["top"]]
    {
        for variable in [None, Some("")] {
            let mut command = monolock(arguments);
            variable.map(|value| command.env("MONOLOCK_ADMIN_LISTEN_ADDRESS", value));
            let line = ended(&mut command).problem(64);
            assert!(line.contains("--admin") && line.contains("MONOLOCK_ADMIN_LISTEN_ADDRESS"), "{line}");
        }
    }
    let mut command = monolock(&["locks"]);
    let line = ended(command.env("MONOLOCK_ADMIN_LISTEN_ADDRESS", "9091")).problem(64);
    assert!(line.starts_with("MONOLOCK_ADMIN_LISTEN_ADDRESS: invalid value \"9091\""), "{line}");
}

#[test]
fn an_unknown_lock_is_1_and_the_apis_reason() {
    let site = Site::start();
    let line = ended(&mut site.command(&["inspect", "none"])).problem(1);
    assert_eq!(line, "nobody holds this lock or waits for it");
}

#[test]
fn where_nobody_listens_is_69_and_names_the_address() {
    // Bound, so that nobody else gets the port, and not listening.
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    bound.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let free = bound.local_addr().unwrap().as_socket().unwrap().to_string();
    // Longer than a name may be: it is not looked up anywhere.
    let no_host = format!("{}:1", "x".repeat(64));
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("none").display());
    for address in [&free, &socket, &no_host] {
        for arguments in [&["locks"][..], &["inspect", "a"], &["release", "a"], &["top", "--once"]] {
            let line = ended(monolock(arguments).args(["--admin", address])).problem(69);
            assert!(line.contains(address) && line.contains("-admin-listen"), "{line}");
            assert!(!line.contains("whether it was done"), "{line}");
        }
    }
}

#[test]
fn a_dead_servers_socket_is_69() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(&["-admin-listen", &format!("unix:{}", folder.path().join("socket").display())]);
    let (admin, server) = (site.admin, site.server);
    drop(server);
    let line = ended(&mut monolock(&["locks", "--admin", &admin])).problem(69);
    assert!(line.contains(&admin) && line.contains("Connection refused"), "{line}");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
    /// What is documented, and what a busy machine adds.
    const BOUND: Duration = Duration::from_secs(25);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let started = Instant::now();
    let mut look = monolock(&["locks", "--admin", &address]);
    let look = look.stderr(Stdio::piped()).spawn().unwrap();
    let line = ended(&mut monolock(&["release", "a", "--admin", &address])).problem(69);
    assert!(line.contains(&format!("no answer from {address} within 10 s")), "{line}");
    assert!(line.contains("whether it was done is not known"), "{line}");
    let look = look.wait_with_output().unwrap();
    assert_eq!(look.status.code(), Some(69));
    assert!(!String::from_utf8(look.stderr).unwrap().contains("whether it was done"));
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
}

#[test]
fn a_503_is_69_with_the_servers_reason() {
    let address = impostor(|_| http("503 Service Unavailable", r#"{"error":"another \u001b[2Jlisting"}"#));
    for arguments in [&["locks"][..], &["release", "a"], &["top", "--once"]] {
        let line = ended(monolock(arguments).args(["--admin", &address])).problem(69);
        assert!(line.contains(&address) && line.contains("another \\u001b[2Jlisting"), "{line}");
        assert!(!line.contains("whether it was done"), "it was not");
    }
}

#[test]
fn an_answer_that_breaks_off_is_69_and_leaves_an_action_unknown() {
    let answers: [&[u8]; 3] =
        [b"", b"HTTP/1.1 200 OK\r\nConte", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"];
    for answer in answers {
        let address = impostor(|_| answer.to_vec());
        ended(&mut monolock(&["locks", "--admin", &address])).problem(69);
        let line = ended(&mut monolock(&["kick", "a", "1.2.3.4:5", "--admin", &address])).problem(69);
        assert!(line.contains(&address) && line.contains("whether it was done is not known"), "{line}");
    }
}

#[test]
fn what_is_no_admin_api_is_76_and_never_a_lock_that_is_not_there() {
    for answer in [
        b"\x13\x02nonsense\r\n\r\n".to_vec(),
        http("200 OK", "<html>"),
        http("200 OK", r#"{"locks":3}"#),
        http("404 Not Found", "<html>"),
        http("403 Forbidden", r#"{"error":"no"}"#),
        http("301 Moved", ""),
        http("500 Internal", r#"{"error":"\n"}"#),
    ] {
        let address = impostor(move |_| answer.clone());
        for arguments in [&["locks"][..], &["inspect", "a"], &["top", "--once"]] {
            let line = ended(monolock(arguments).args(["--admin", &address])).problem(76);
            assert!(line.contains(&address), "{line}");
        }
    }
    let address = impostor(|_| http("404 Not Found", r#"{"error":"what?"}"#));
    ended(&mut monolock(&["locks", "--admin", &address])).problem(76);
    // The lock protocol's own port.
    let site = Site::start();
    let address = site.server.address.to_string();
    let line = ended(&mut monolock(&["locks", "--admin", &address])).problem(76);
    assert!(line.contains("-admin-listen"), "{line}");
}

#[test]
fn a_full_disk_is_74_and_a_reader_that_has_left_is_no_error() {
    let site = Site::start();
    let _held = site.server.hold("jobs", LEASE);
    for arguments in
        [&["locks"][..], &["locks", "--json"], &["inspect", "jobs"], &["top", "--once"], &["top"]]
    {
        let mut command = site.command(arguments);
        let output = command.stdout(File::create("/dev/full").unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(74), "{output:?}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = site.command(arguments).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
    }
}

#[test]
fn a_socket_that_may_not_be_opened_is_69_and_says_who_may() {
    use std::os::unix::process::CommandExt;
    /// Of nobody: a user that owns nothing.
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        // Only root can ask as somebody else.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The built program may be in a folder that only its owner sees.
    let program = folder.path().join("monolock");
    fs::copy(crate::harness::MONOLOCK, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let site = Site::with(&["-admin-listen", &format!("unix:{}", folder.path().join("socket").display())]);
    let mut command = std::process::Command::new(program);
    let line = ended(command.args(["locks", "--admin", &site.admin]).uid(NOBODY).gid(NOBODY)).problem(69);
    assert!(line.contains("only the server's user may use the socket"), "{line}");
}

#[test]
fn every_help_has_the_statuses() {
    for command in ["locks", "inspect", "release", "kick", "top"] {
        for flag in ["-h", "--help", "-help"] {
            let help = ended(&mut monolock(&[command, flag])).ok();
            for word in ["--admin", "Exit status:", "  64  ", "  69  ", "  76  "] {
                assert!(help.contains(word), "{word} in {help}");
            }
        }
    }
    let help = ended(&mut monolock(&["--help"])).ok();
    for command in ["  locks  ", "  inspect  ", "  release  ", "  kick  ", "  top  "] {
        assert!(help.contains(command), "{help}");
    }
}

#[test]
fn a_command_that_gets_no_more_open_files_says_so_and_does_not_panic() {
    let mut codes = Vec::new();
    // Below 4 the program itself cannot be loaded.
    for files_max in 4..20 {
        let command = monolock(&["locks", "--admin", "127.0.0.1:1"]);
        let mut confined = std::process::Command::new("prlimit");
        confined.arg(format!("--nofile={files_max}")).arg(command.get_program()).args(command.get_args());
        let ended = confined.output().unwrap();
        assert!(matches!(ended.status.code(), Some(69 | 71)), "{files_max}: {ended:?}");
        assert_eq!(String::from_utf8(ended.stderr).unwrap().lines().count(), 1, "{files_max}");
        codes.push(ended.status.code());
    }
    assert!(codes.contains(&Some(71)) && codes.ends_with(&[Some(69)]), "{codes:?}");
}
