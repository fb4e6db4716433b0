//! What a node refuses to start with: one line that says what to do.

use std::fs;

use testkit::harness::{Server, run_to_end};

use crate::nodes::{A, Pair};

/// The exit status and the only line of a node that does not start.
fn refused(pair: &Pair) -> (i32, String) {
    let (status, stderr) = run_to_end(&mut pair.command(A));
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    (status.code().expect("an exit status"), stderr)
}

#[test]
fn flags_that_do_not_go_together_are_named() {
    for (flags, parts) in [
        (&["-ha-listen", ""][..], &["-standby needs -ha-listen or -ha-agent"][..]),
        (&["-peer", ""], &["-standby needs -peer as well"]),
        (&["-peer", "b"], &["-peer", "b=10.0.0.2:7171"]),
        (&["-peer", "b=:7171"], &["-peer", "names no host"]),
        (&["-peer", "a=127.0.0.1:1"], &["-node-id", "two names"]),
        (&["-token-file", "/tmp/x"], &["-token-file", "-ha-state", "keeps tokens rising"]),
        (&["-fencer", "exec:/x"], &["-fencer", "`peer`"]),
        (&["-standby=maybe"], &["-standby", "true or false"]),
        (&["-standby=false"], &["-node-id needs -standby"]),
    ] {
        let mut pair = Pair::prepare();
        pair.flags[A] = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (status, line) = refused(&pair);
        assert_eq!(status, 64, "{line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{flags:?}: {line}");
    }
}

#[test]
fn a_state_directory_that_is_missing_damaged_or_in_use_is_named_with_what_to_do() {
    let mut pair = Pair::prepare();
    fs::remove_dir(pair.state(A)).unwrap();
    let (status, line) = refused(&pair);
    assert_eq!((status, line.contains("-ha-state") && line.contains("No such file")), (71, true), "{line}");
    fs::create_dir(pair.state(A)).unwrap();
    pair.run(A);
    let (status, line) = refused(&pair);
    assert_eq!((status, line.contains("another server of this node runs")), (71, true), "{line}");
    pair.kill(A);
    fs::write(pair.state(A).join("state"), "nonsense").unwrap();
    let (status, line) = refused(&pair);
    assert_eq!((status, line.contains("put a copy back")), (78, true), "{line}");
}

#[test]
fn a_certificate_file_that_cannot_be_used_is_named_by_its_flag() {
    let pair = Pair::prepare();
    for (file, flag) in [("a.pem", "-ha-cert"), ("a.key", "-ha-key"), ("ca.pem", "-ha-ca")] {
        let path = pair.path(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "nonsense").unwrap();
        let (status, line) = refused(&pair);
        assert_eq!((status, line.contains(&format!("{flag} "))), (78, true), "{line}");
        fs::write(&path, whole).unwrap();
    }
    drop(Server::spawn(pair.command(A)));
}
