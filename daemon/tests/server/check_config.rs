//! `monolock check-config`: what a server would use, and every mistake in it, without touching anything.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::harness::{MONOLOCK, run_to_end};
use crate::start::without_io_uring;
use testkit::certificates::{Certificates, EXPIRED, FUTURE, Key, Says};

const ACL: &str = r#"{"rules":[{"identity":"*","locks":["a"]},{"identity":"b","locks":["*"]}]}"#;

/// `check-config` in a folder.
fn check(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(MONOLOCK);
    command.arg("check-config").args(flags).current_dir(folder);
    command
}

/// Exit status, standard output, and the lines of standard error.
fn answer(command: &mut Command) -> (i32, String, Vec<String>) {
    let output = command.output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().expect("an exit status"), stdout, stderr.lines().map(str::to_owned).collect())
}

/// The only mistake of a configuration.
fn mistake(command: &mut Command) -> String {
    let (status, stdout, mut mistakes) = answer(command);
    assert_eq!((status, mistakes.len()), (78, 1), "{mistakes:#?}\n{stdout}");
    mistakes.remove(0)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn every_setting_is_told_with_its_origin_and_every_file_with_what_is_in_it() {
    let files = Certificates::new();
    files.issue("server", Says { subject: "/CN=locks.example", ..Says::default() });
    fs::write(files.path("acl"), ACL).unwrap();
    let before = names(files.directory());
    // A server runs there: asking is no matter of its port.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let socket = format!("unix:{}", files.path("socket").display());
    let mut command =
        check(files.directory(), &["-listen", &listen, "--ops-listen=:9090", "-admin-listen", &socket]);
    command.args(["-admin-host", "locks.example", "-tls-cert", "server.pem", "-tls-key", "server.key"]);
    command.args(["-acl-file", "acl", "-audit-log", "audit.log"]).env("MONOLOCK_TLS_CLIENT_CA", "ca.pem");
    let (status, stdout, mistakes) = answer(&mut command);
    assert_eq!((status, mistakes), (0, vec![]), "{stdout}");
    let lines: Vec<&str> = stdout.lines().collect();
    let cpus = thread::available_parallelism().unwrap();
    for line in [
        &format!("-listen        flag     {listen}"),
        "-tls-client-ca variable ca.pem",
        "-io-timeout    default  5s",
        &format!("-shards        default  {cpus} (one for each usable CPU)"),
        &format!("-listen {listen}: {listen}, in use now"),
        "-ops-listen :9090: [::]:9090",
        &format!("-admin-listen {socket}: it would be created"),
        "-tls-client-ca ca.pem: 1 authority",
        "-acl-file acl: 2 rules",
        "-audit-log audit.log: it would be created",
    ] {
        assert!(lines.contains(&line), "{line} in\n{stdout}");
    }
    let certificate = lines.iter().find(|line| line.starts_with("-tls-cert server.pem: ")).expect("a line");
    for word in ["CN=locks.example", "2099-01-01T00:00:00Z", "P-256"] {
        assert!(certificate.contains(word), "{word} in {certificate}");
    }
    assert_eq!(names(files.directory()), before, "nothing was created");
}

#[test]
fn the_settings_alone_are_a_good_configuration() {
    let (status, stdout, mistakes) = answer(Command::new(MONOLOCK).arg("check-config"));
    assert_eq!((status, mistakes), (0, vec![]));
    assert!(stdout.starts_with("-listen        default  0.0.0.0:7070\n"), "{stdout}");
    assert!(stdout.contains("\n-listen 0.0.0.0:7070: [::]:7070"), "{stdout}");
    assert!(stdout.contains("\nopen files: enough for "), "{stdout}");
}

#[test]
fn every_mistake_is_a_line_with_its_flag_and_path() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let host = format!("{}:1", "x".repeat(64));
    let mut command = check(folder.path(), &["-listen", &host, "-io-timeout", "soon", "-admin-host", "h"]);
    command.args(["-tls-cert", "empty", "-tls-key", "missing", "-tls-client-ca", "missing"]);
    command.args(["-acl-file", "empty", "-audit-log", "missing/audit.log", "-ops-listen", "nowhere"]);
    let (status, _, mistakes) = answer(&mut command);
    let starts = [
        "monolock: -ops-listen: invalid value \"nowhere\": ",
        "monolock: -io-timeout: invalid value \"soon\": ",
        "monolock: -admin-host needs -admin-listen as well",
        &format!("monolock: -listen {host}: "),
        "monolock: -tls-cert empty: there is no certificate in it",
        "monolock: -tls-client-ca missing: cannot read it: No such file",
        "monolock: -acl-file empty: EOF while parsing a value at line 1 column 0",
        "monolock: -audit-log missing/audit.log: there is no directory missing",
    ];
    assert_eq!((status, mistakes.len()), (78, starts.len()), "{mistakes:#?}");
    for (mistake, start) in mistakes.iter().zip(starts) {
        assert!(mistake.starts_with(start), "{start}\n{mistakes:#?}");
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_certificate_that_clients_will_refuse_is_a_mistake() {
    let files = Certificates::new();
    files.issue("server", Says::default());
    files.issue("old", Says { valid: EXPIRED, key: Key::Ed25519, ..Says::default() });
    files.issue("new", Says { valid: FUTURE, key: Key::Ed25519, ..Says::default() });
    let with =
        |cert: &str, key: &str| mistake(&mut check(files.directory(), &["-tls-cert", cert, "-tls-key", key]));
    let line = with("old.pem", "old.key");
    assert!(
        line.starts_with("monolock: -tls-cert old.pem: clients refuse the certificate: it expired at "),
        "{line}"
    );
    let line = with("new.pem", "new.key");
    assert!(
        line.starts_with(
            "monolock: -tls-cert new.pem: clients refuse the certificate: it is not valid before "
        ),
        "{line}"
    );
    let line = with("missing.pem", "server.key");
    assert!(line.starts_with("monolock: -tls-cert missing.pem: "), "{line}");
    let line = with("server.pem", "ca.key");
    assert!(line.starts_with("monolock: -tls-key ca.key: this private key does not belong"), "{line}");
    // The other way round.
    let line = with("server.key", "server.pem");
    assert!(line.starts_with("monolock: -tls-cert server.key: "), "{line}");
}

#[test]
fn a_file_that_never_ends_is_a_mistake_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    mknodat(CWD, folder.path().join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    for file in ["fifo", "/dev/zero"] {
        let mut command =
            check(folder.path(), &["-tls-cert", file, "-tls-key", file, "-tls-client-ca", file]);
        let (status, mistakes) = run_to_end(command.args(["-acl-file", file]).stdout(Stdio::null()));
        assert_eq!(status.code(), Some(78), "{mistakes}");
        for flag in ["-tls-cert", "-tls-client-ca", "-acl-file"] {
            let line = format!("monolock: {flag} {file}: cannot read it: not a regular file\n");
            assert!(mistakes.contains(&line), "{line} in {mistakes}");
        }
    }
}

#[test]
fn a_mistake_in_the_acl_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (acl, problem) in [
        ("{\"rules\":[\n{\"identity\":\"a\"}]}", "rules[0]: missing field `locks` at line 2 column 16"),
        ("\u{feff}{\"rules\":[]}", "it starts with a byte order mark"),
        (r#"{"a\nb\u001b[31m":1}"#, "a\\u000ab\\u001b[31m: unknown field"),
    ] {
        fs::write(folder.path().join("acl"), acl).unwrap();
        let (status, _, mistakes) = answer(check(folder.path(), &[]).env("MONOLOCK_ACL_FILE", "acl"));
        // Besides the missing authority.
        assert_eq!((status, mistakes.len()), (78, 2), "{mistakes:#?}");
        assert!(mistakes[1].starts_with(&format!("monolock: -acl-file acl: {problem}")), "{mistakes:#?}");
    }
}

#[test]
fn what_the_user_may_not_write_is_a_mistake() {
    /// Of nobody: a user that owns nothing.
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let open_to_all = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open_to_all(folder.path());
    // The built program may be in a folder that only its owner sees.
    let program = folder.path().join("monolock");
    fs::copy(MONOLOCK, &program).unwrap();
    open_to_all(&program);
    let log = folder.path().join("audit.log");
    fs::write(&log, "").unwrap();
    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    // Root may do everything, and asks as nobody; another user is stopped by the modes.
    let is_root = rustix::process::geteuid().is_root();
    for (path, mode) in [(&log, 0o444), (&locked, 0o555)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for (flag, value, problem) in [
        ("-audit-log", log.display().to_string(), "it cannot be written to: Permission denied"),
        ("-audit-log", locked.join("log").display().to_string(), "nothing can be created in"),
        ("-admin-listen", format!("unix:{}", locked.join("socket").display()), "nothing can be created in"),
    ] {
        let mut command = Command::new(&program);
        command.args(["check-config", flag, &value]);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let line = mistake(&mut command);
        assert!(line.starts_with(&format!("monolock: {flag} {value}: {problem}")), "{line}");
    }
}

#[test]
fn unknown_flags_are_a_matter_of_usage_and_help_has_the_table() {
    for arguments in [&["check-config", "-no-such-flag"][..], &["check-config", "extra"]] {
        let (status, stdout, lines) = answer(Command::new(MONOLOCK).args(arguments));
        assert_eq!((status, lines.len(), stdout.as_str()), (64, 1, ""), "{lines:?}");
    }
    let (status, help, _) = answer(Command::new(MONOLOCK).args(["check-config", "-h"]));
    assert_eq!(status, 0);
    for word in ["monolock check-config", "-acl-file", "MONOLOCK_ACL_FILE", "78"] {
        assert!(help.contains(word), "{word} in {help}");
    }
    let (_, help, _) = answer(Command::new(MONOLOCK).arg("--help"));
    assert!(help.contains("check-config"), "{help}");
}

#[test]
fn a_mistyped_variable_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let said = mistake(check(folder.path(), &[]).env("MONOLOCK_TLS_CLIENTCA", "ca.pem"));
    assert!(said.contains("MONOLOCK_TLS_CLIENTCA is no variable of monolock"), "{said}");
}

#[test]
fn a_kernel_that_offers_no_io_uring_is_a_mistake() {
    let test = "check_config::a_kernel_that_offers_no_io_uring_is_a_mistake";
    let said = mistake(&mut without_io_uring(test, &["check-config"]));
    assert!(said.contains("io_uring") && said.contains("kernel.io_uring_disabled"), "{said}");
}

#[test]
fn a_limit_of_open_files_that_leaves_no_room_for_a_client_is_a_mistake() {
    let mut command = Command::new("prlimit");
    let said = mistake(command.args(["--nofile=64:64", &MONOLOCK, "check-config"]));
    assert!(said.contains("the limit of 64 open files leaves no room"), "{said}");
}

#[test]
fn an_address_that_is_not_this_machines_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["-listen", "-ops-listen", "-admin-listen"] {
        let said = mistake(&mut check(folder.path(), &[flag, "192.0.2.1:7070"]));
        let start =
            format!("monolock: {flag} 192.0.2.1:7070: cannot listen on 192.0.2.1:7070: Cannot assign");
        assert!(said.starts_with(&start), "{said}");
    }
}

#[test]
fn two_listeners_on_one_port_are_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    for (listen, ops, is_mistake) in [
        (":7070", "127.0.0.1:7070", true),
        ("127.0.0.1:7070", "[::]:7070", true),
        ("localhost:7070", "127.0.0.1:7070", true),
        ("127.0.0.1:7070", "127.0.0.2:7070", false),
        (":0", ":0", false),
    ] {
        let mut command = check(folder.path(), &["-listen", listen, "-ops-listen", ops]);
        if is_mistake {
            let said = mistake(&mut command);
            assert!(
                said.starts_with(&format!("monolock: -ops-listen {ops}: -listen {listen} has ")),
                "{said}"
            );
        } else {
            assert_eq!(answer(&mut command).0, 0, "{listen} {ops}");
        }
    }
}

#[test]
fn a_socket_that_the_server_would_refuse_is_a_mistake_and_a_running_servers_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let flag = format!("unix:{}", path.display());
    let _other = UnixDatagram::bind(&path).unwrap();
    let said = mistake(&mut check(folder.path(), &["-admin-listen", &flag]));
    assert!(said.starts_with(&format!("monolock: -admin-listen {flag}: cannot tell whether")), "{said}");
    fs::remove_file(&path).unwrap();
    let live = UnixListener::bind(&path).unwrap();
    let found = || {
        let (status, stdout, mistakes) = answer(&mut check(folder.path(), &["-admin-listen", &flag]));
        assert_eq!((status, mistakes), (0, vec![]), "{stdout}");
        stdout
    };
    assert!(found().contains(&format!("-admin-listen {flag}: a server listens there now\n")));
    drop(live);
    assert!(found().contains(&format!("-admin-listen {flag}: it would take the place of a dead server's\n")));
    assert!(path.exists());
}

#[test]
fn a_log_that_may_not_open_at_the_start_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    mknodat(CWD, folder.path().join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (path, found) in [
        ("fifo", "it is a FIFO: something must read from it when the server starts"),
        (
            "/dev/stdout",
            "under a service manager it may be a socket, which cannot be opened: - is standard output",
        ),
        (
            "/dev/stderr",
            "under a service manager it may be a socket, which cannot be opened: - is standard output",
        ),
    ] {
        let (status, stdout, mistakes) = answer(&mut check(folder.path(), &["-audit-log", path]));
        assert_eq!((status, mistakes), (0, vec![]), "{stdout}");
        assert!(stdout.contains(&format!("\n-audit-log {path}: {found}\n")), "{stdout}");
    }
}
