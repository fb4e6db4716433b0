//! Where there are no more threads (a unit's TasksMax, a user's limit): what has begun goes on, and what
//! cannot begin says so.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use protocol::ErrorCode;
use rustix::process::{Signal, getuid};

use crate::harness::{MONOLOCK, Server, field, http, run_to_end};

const LEASE: Duration = Duration::from_secs(60);

/// No account's, so that nobody else's threads count.
const NOBODY: &str = "61616";

/// What runs a command as a user whom limits bind, which root is not.
fn bound_user() -> &'static [&'static str] {
    if getuid().is_root() {
        &["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    } else {
        &["env"]
    }
}

/// The program under such a user.
fn bound(threads_max: Option<u32>) -> Command {
    let mut command = Command::new("sh");
    // Its file is open before the user changes, who may not be allowed to reach its folder.
    command.args(["-c", r#"exec 3<"$0" && exec "$@""#, &MONOLOCK]).args(bound_user());
    if let Some(max) = threads_max {
        command.args(["prlimit", &format!("--nproc={max}")]);
    }
    command.arg("/proc/self/fd/3");
    command
}

/// From now on the server gets no more threads.
fn limit(server: &Server) {
    let [user, arguments @ ..] = bound_user() else { unreachable!() };
    let mut prlimit = Command::new(user);
    prlimit.args(arguments).args(["prlimit", "--nproc=1", "--pid", &server.pid().to_string()]);
    assert!(prlimit.status().unwrap().success());
}

#[test]
fn a_server_that_gets_no_more_threads_reloads_answers_everybody_and_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let log = folder.path().join("audit.log");
    let mut command = bound(None);
    command.args(["-listen", "127.0.0.1:0", "-ops-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0"]);
    command.arg("-audit-log").arg(&log);
    let mut server = Server::spawn(command);
    let admin: SocketAddr = field(&server.log()[0], "admin").unwrap().parse().unwrap();
    limit(&server);

    let (mut holder, token) = server.hold("lock", LEASE);
    let mut waiter = server.wait_in_line("lock", LEASE);
    let mut invalid = server.connect();
    invalid.send(&[0xff; 64]);
    invalid.refused(ErrorCode::NOT_ACQUIRE);
    fs::rename(&log, folder.path().join("audit.log.1")).unwrap();
    server.signal(Signal::HUP);
    server.wait_for_metric("monolock_reloads_total{part=\"audit_log\",result=\"success\"}", 1.0);
    holder.heartbeat();
    assert_eq!(holder.acquired(), token, "nothing was lost");
    let (status, listing) = http(admin, "GET", "/api/locks");
    assert!(status == 200 && listing.contains(r#""name":"lock""#), "{status} {listing}");
    assert_eq!(http(admin, "POST", "/api/locks/lock/release").0, 200);
    holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    waiter.acquired();
    server.signal(Signal::TERM);
    waiter.refused(ErrorCode::SHUTTING_DOWN);
    assert_eq!(server.exit().code(), Some(0));
    assert!(fs::read_to_string(&log).unwrap().contains("force_release"), "the new file is the log");
    assert!(!server.log().iter().any(|line| line.contains("panic") || line.contains("itself")));
}

#[test]
fn a_start_with_too_few_threads_fails_with_71_and_one_line_that_says_what_to_look_at() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for threads_max in 1.. {
        let mut command = bound(Some(threads_max));
        // A name, which is looked up.
        command.args(["-listen", "localhost:0", "-ops-listen", "127.0.0.1:0", "-shards", "1"]);
        command.args(["-admin-listen", "127.0.0.1:0", "-audit-log"]).arg(folder.path().join("audit.log"));
        command.env("NOTIFY_SOCKET", folder.path().join("manager"));
        // Ends at once where the start succeeds: its own port is taken.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        command.args(["-listen", &format!("localhost:{}", taken.local_addr().unwrap().port())]);
        let (status, stderr) = run_to_end(&mut command);
        assert_eq!(status.code(), Some(71), "{threads_max}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{threads_max}: {stderr}");
        if stderr.contains("in use") {
            assert!(threads_max > 5, "the limit is one");
            break;
        }
        assert!(stderr.contains("TasksMax") && stderr.contains("ulimit -u"), "{threads_max}: {stderr}");
        if !getuid().is_root() {
            // Other processes of this user count too, and nobody knows how many.
            break;
        }
    }
}

#[test]
fn the_operators_commands_look_a_name_up_without_another_thread() {
    let server = Server::with(&["-admin-listen", "127.0.0.1:0"]);
    let admin: SocketAddr = field(&server.log()[0], "admin").unwrap().parse().unwrap();
    let mut command = bound(Some(1));
    command.args(["locks", "--admin", &format!("localhost:{}", admin.port())]);
    let (status, stderr) = run_to_end(&mut command);
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    let mut command = bound(Some(1));
    command.args(["check-config", "-listen", "localhost:0"]);
    let (status, stderr) = run_to_end(&mut command);
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}
