//! Arguments: how a run is asked for, and what is said of mistakes.

use std::ffi::OsString;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;

use protocol::decode_acquire;
use rustix::process::Signal;

use crate::harness::Server;
use crate::runs::{LONG, Run, locked, monolock_run, only_line, run_to_end};

/// The lease and the name that a server hears from `monolock run` with these arguments; `ADDRESS` is the
/// server's.
fn heard(arguments: &[&str], variable: Option<&str>) -> (u32, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let placed = |text: &str| text.replace("ADDRESS", &address);
    let arguments: Vec<String> = arguments.iter().map(|argument| placed(argument)).collect();
    let mut command = monolock_run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    if let Some(value) = variable {
        command.env("MONOLOCK_ADDRESS", placed(value));
    }
    listener.set_nonblocking(true).unwrap();
    let mut run = Run::start(command);
    let mut stream = crate::harness::wait_for("a connection", || listener.accept().ok()).0;
    stream.set_nonblocking(false).unwrap();
    let mut received = Vec::new();
    let acquire = loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the rest of the request");
        received.push(byte[0]);
        if let Some((acquire, _)) = decode_acquire(&received).expect("a request") {
            break acquire;
        }
    };
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code, Some(128 + 15));
    (acquire.lease.as_ms(), acquire.name.as_str().to_owned())
}

#[test]
fn flags_are_taken_in_the_style_of_go_and_in_that_of_gnu() {
    let expected = (2000, "lock".to_owned());
    for arguments in [
        &["-lease", "2s", "-address", "ADDRESS", "lock", "--", "true"][..],
        &["-lease=2s", "-address=ADDRESS", "lock", "--", "true"],
        &["--lease=2s", "--address=ADDRESS", "lock", "--", "true"],
        &["--lease", "2s", "--address", "ADDRESS", "lock", "--", "true"],
        &["lock", "-lease=2000ms", "--address", "ADDRESS", "--", "true"],
        // The last one counts.
        &["-lease=5s", "-address=localhost:1", "-lease=2s", "-address=ADDRESS", "lock", "--", "true"],
    ] {
        assert_eq!(heard(arguments, None), expected, "{arguments:?}");
    }
}

#[test]
fn the_lease_is_ten_seconds_if_nothing_is_said() {
    assert_eq!(heard(&["-address=ADDRESS", "a b", "--", "true"], None), (10_000, "a b".to_owned()));
}

#[test]
fn the_address_comes_from_the_flag_or_else_from_the_variable() {
    let nowhere = "127.0.0.1:1";
    assert_eq!(heard(&["lock", "--", "true"], Some("ADDRESS")).1, "lock");
    assert_eq!(heard(&["--address", "ADDRESS", "lock", "--", "true"], Some(nowhere)).1, "lock");
}

#[test]
fn an_empty_variable_is_unset() {
    let mut command = monolock_run(&["--try", "lock", "--", "true"]);
    command.env("MONOLOCK_ADDRESS", "").env("MONOLOCK_LEASE", "").env("MONOLOCK_TLS_CA", "");
    let ended = run_to_end(command);
    // A server may run there.
    assert!(ended.code == Some(0) || ended.stderr.contains("127.0.0.1:7070"), "{ended:?}");
}

#[test]
fn a_mistake_is_one_line_and_64() {
    for (arguments, names) in [
        (&[][..], "NAME"),
        (&["lock"], "CMD"),
        (&["lock", "--"], "CMD"),
        (&["lock", "true"], "true"),
        (&["--", "true"], "NAME"),
        (&["-lease", "5", "lock", "--", "true"], "lease"),
        (&["--lease=5x", "lock", "--", "true"], "5x"),
        (&["--lease=-5s", "lock", "--", "true"], "lease"),
        (&["--lease=0", "lock", "--", "true"], "lease"),
        (&["--lease=1us", "lock", "--", "true"], "lease"),
        (&["--lease=1200h", "lock", "--", "true"], "lease"),
        (&["--lease=", "lock", "--", "true"], "lease"),
        (&["-wait=1s", "-try", "lock", "--", "true"], "--try"),
        (&["-leese", "2s", "lock", "--", "true"], "-leese"),
        (&["--address=localhost", "lock", "--", "true"], "localhost"),
        (&["--address=localhost:x", "lock", "--", "true"], "localhost:x"),
        (&["--address=:", "lock", "--", "true"], "--address"),
        (&["--address=", "lock", "--", "true"], "--address"),
        (&["--try", "--wait=1s", "lock", "--", "true"], "--wait"),
        (&["--wait=-1s", "lock", "--", "true"], "wait"),
        (&["--wait=soon", "lock", "--", "true"], "soon"),
        (&["--kill-after=1", "lock", "--", "true"], "kill-after"),
        (&["--", "-lock", "true"], "NAME"),
        (&["lock", "-c", "true", "--", "true"], "-c"),
        (
            &["-E", "600", "lock", "--", "true"],
            "'600' for '--conflict-exit-code <STATUS>': a number from 0 to 255",
        ),
        (&["-E", "x", "lock", "--", "true"], "a number from 0 to 255 is expected"),
        (&["-q", "-v", "lock", "--", "true"], "--quiet"),
        (&["--bad\nflag", "lock", "--", "true"], "bad"),
        (&["--lease=\u{1b}[2J", "lock", "--", "true"], "lease"),
    ] {
        let ended = run_to_end(monolock_run(arguments));
        assert_eq!(ended.code, Some(64), "{arguments:?}: {}", ended.stderr);
        assert!(only_line(&ended).contains(names), "{arguments:?}: {}", ended.stderr);
    }
    let mut command = monolock_run(&["lock", "--", "true"]);
    command.env("MONOLOCK_ADDRESS", "local\nhost");
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(64));
    assert!(only_line(&ended).contains("MONOLOCK_ADDRESS"), "{ended:?}");

    let mut command = monolock_run(&[]);
    command.args([OsString::from_vec(b"\xff".to_vec()), "--".into(), "true".into()]);
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(64));
    only_line(&ended);
}

#[test]
fn what_stands_after_two_dashes_reaches_the_command_untouched() {
    let server = Server::start();
    let words: [&[u8]; 12] = [
        b"-lease",
        b"--lease=3s",
        b"-h",
        b"--help",
        b"--",
        b"a b",
        b"",
        b"x\ny",
        b"'\"$HOME`\\",
        b"*",
        b"\xff\xfe",
        b"-- ",
    ];
    let mut command = locked(server.address, LONG, "lock", &["printf", "%s\\0"]);
    command.args(words.map(|word| OsString::from_vec(word.to_vec())));
    let ended = run_to_end(command);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let printed: Vec<&[u8]> = ended.stdout.strip_suffix(b"\0").unwrap().split(|&byte| byte == 0).collect();
    assert_eq!(printed, words);
}

#[test]
fn help_tells_every_setting_with_its_default_and_every_status() {
    for flag in ["-h", "-help", "--help"] {
        let ended = run_to_end(monolock_run(&[flag]));
        let help = String::from_utf8(ended.stdout).unwrap();
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        for status in ["64", "69", "70", "71", "74", "75", "76", "77", "126", "127", "128+n"] {
            assert!(
                help.lines().any(|line| line.trim_start().starts_with(status)),
                "{flag}: {status}\n{help}"
            );
        }
        for setting in [
            "--lease <DURATION>",
            "10s",
            "--wait <DURATION>",
            "--try",
            "--kill-after <DURATION>",
            "--address <HOST:PORT>",
            "MONOLOCK_ADDRESS",
            "127.0.0.1:7070",
            "MONOLOCK_LEASE",
            "MONOLOCK_KILL_AFTER",
            "MONOLOCK_TLS_CA",
            "MONOLOCK_TLS_CERT",
            "MONOLOCK_TLS_KEY",
            "MONOLOCK_TLS_SERVER_NAME",
            "-E, --conflict-exit-code <STATUS>",
            "-c, --command <SCRIPT>",
            "[--] NAME -- CMD",
        ] {
            assert!(help.contains(setting), "{flag}: {setting}\n{help}");
        }
    }
}

#[test]
fn a_name_that_begins_with_a_dash_is_given_after_two_dashes() {
    let server = Server::start();
    for name in ["-lease", "--help", "--", "-"] {
        let address = server.address.to_string();
        let flags = ["--address", &address, "--", name, "--", "printenv", "MONOLOCK_LOCK"];
        let ended = run_to_end(monolock_run(&flags));
        assert_eq!((ended.code, String::from_utf8(ended.stdout).unwrap()), (Some(0), format!("{name}\n")));
        let flags = ["--address", &address, "-c", "printenv MONOLOCK_LOCK", "--", name];
        let ended = run_to_end(monolock_run(&flags));
        assert_eq!((ended.code, String::from_utf8(ended.stdout).unwrap()), (Some(0), format!("{name}\n")));
    }
}

#[test]
fn a_script_is_run_by_the_users_shell_or_by_sh_and_its_status_counts() {
    let server = Server::start();
    let address = server.address.to_string();
    let script = "test \"$MONOLOCK_LOCK\" = lock && echo \"$0 $#\" && exit 7";
    for (shell, name) in [(Some("/bin/bash"), "/bin/bash"), (Some(""), "/bin/sh"), (None, "/bin/sh")] {
        let mut command = monolock_run(&["--address", &address, "lock", "-c", script]);
        match shell {
            Some(shell) => command.env("SHELL", shell),
            None => command.env_remove("SHELL"),
        };
        let ended = run_to_end(command);
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert_eq!((ended.code, printed, &*ended.stderr), (Some(7), format!("{name} 0\n"), ""));
    }
}

#[test]
fn a_variable_that_is_none_of_monolocks_is_told_of_and_those_that_a_command_inherits_are_not() {
    let server = Server::start();
    let address = server.address.to_string();
    let mut command = monolock_run(&["lock", "--", "true"]);
    command.env("MONOLOCK_ADDRESS", &address).env("MONOLOCK_ADRESS", "x").env("MONOLOCK_SHARDS", "2");
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(0));
    assert!(only_line(&ended).contains("MONOLOCK_ADRESS"), "{ended:?}");

    let inner = format!("{} run --address {address} inner -- true", crate::harness::MONOLOCK);
    let ended = run_to_end(monolock_run(&["--address", &address, "outer", "-c", &inner]));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}
