//! The ops endpoints: metrics that promtool accepts, health, readiness that a hung shard cannot keep up.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::panic::AssertUnwindSafe;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use socket2::SockRef;

use crate::harness::{Server, wait_for};
use crate::secured::{Secured, client};
use testkit::certificates::Says;

const LEASE: Duration = Duration::from_secs(60);

#[test]
fn metrics_follow_the_truth() {
    let server = Server::start();
    let (mut holder, _) = server.hold("lock", LEASE);
    let mut waiters: Vec<_> = (0..3).map(|_| server.wait_in_line("lock", LEASE)).collect();
    server.wait_for_metric("monolock_connections_active", 4.0);
    server.wait_for_metric("monolock_locks_held", 1.0);
    server.wait_for_metric("monolock_waiters", 3.0);
    server.wait_for_metric("monolock_acquires_total", 1.0);
    for _ in 0..5 {
        holder.heartbeat();
        holder.acquired();
    }
    server.wait_for_metric("monolock_heartbeats_total", 5.0);
    server.wait_for_metric("monolock_heartbeat_service_seconds_count", 5.0);
    holder.close();
    waiters[0].acquired();
    server.wait_for_metric("monolock_releases_total{reason=\"graceful\"}", 1.0);
    server.wait_for_metric("monolock_handover_seconds_count", 1.0);
    server.wait_for_metric("monolock_wait_seconds_count", 2.0);
    server.wait_for_metric("monolock_hold_seconds_count", 1.0);
    assert_eq!(server.metric("monolock_connections_accepted_total"), 4.0);
    drop(waiters);
    server.wait_for_metric("monolock_connections_active", 0.0);
}

#[test]
#[ignore = "needs promtool and openssl, which .ci/run installs before it runs this"]
fn promtool_accepts_the_exposition_and_no_label_has_a_value_that_a_client_chose() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.log");
    let everything = ["-audit-log", audit.to_str().unwrap(), "-admin-listen", "127.0.0.1:0"];
    let acl = r#"{"rules":[{"identity":"chosen-*","locks":["chosen-*"]}]}"#;
    let secured = Secured::start(acl, &everything);
    secured.files.issue("someone", Says { subject: "/CN=chosen-identity", ..client() });
    let client = secured.client("ca", "someone");
    let stop = AtomicBool::new(false);
    let scrapes: Vec<String> = thread::scope(|scope| {
        for worker in 0..4 {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                for claim in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    drop(client.acquire(&format!("chosen-lock-{}", (claim + worker) % 3), LEASE).unwrap());
                    assert!(client.acquire(&format!("denied-lock-{claim}"), LEASE).is_err());
                }
            });
        }
        let scrape = || {
            wait_for("some load", || {
                (secured.server.metric("monolock_acl_denials_total") >= 20.0).then_some(())
            });
            secured.server.get("/metrics").1
        };
        let scrapes = (0..5).map(|_| scrape()).collect();
        stop.store(true, Ordering::Relaxed);
        scrapes
    });
    for metrics in &scrapes {
        for chosen in ["chosen", "denied-lock", "someone", "127.0.0.1", "spiffe"] {
            assert!(!metrics.contains(chosen), "{chosen} is in\n{metrics}");
        }
        check_metrics(metrics);
    }
}

fn check_metrics(metrics: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there (Debian package prometheus)");
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn paths_and_methods_have_their_status() {
    let server = Server::start();
    assert_eq!(server.get("/").0, 404);
    assert_eq!(server.get("/metrics/x").0, 404);
    assert_eq!(server.request("POST", "/healthz").0, 405);
}

#[test]
fn a_shard_that_hangs_cannot_keep_readiness_up() {
    let server = Server::with(&["-shards", "2"]);
    assert_eq!(server.get("/readyz").0, 200);
    let shard = server.thread("shard-1");
    ptrace::seize(shard, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(shard).unwrap();
    waitpid(shard, Some(nix::sys::wait::WaitPidFlag::__WALL)).unwrap();

    let reasons = wait_for("readiness to fail", || {
        let (status, body) = server.get("/readyz");
        (status == 503).then_some(body)
    });
    assert!(reasons.contains("shard 1") && !reasons.contains("shard 0"), "{reasons}");
    assert_eq!(server.get("/healthz").0, 200, "alive it is");

    ptrace::detach(shard, None).unwrap();
    wait_for("readiness to come back", || (server.get("/readyz").0 == 200).then_some(()));
}

#[test]
#[ignore = "takes some seconds; .ci/run runs it"]
fn a_flood_of_connections_costs_no_scrape() {
    const SCRAPES: usize = 70;
    /// Connections of each flooding thread that stay open: more than the server serves at once.
    const OPEN: usize = 64;
    let server = Server::start();
    let ops = server.ops.unwrap();
    let (stop, connections) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    let took = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut open = VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    let stream = TcpStream::connect(ops).expect("a connection");
                    // Closed by RST: ports in TIME_WAIT would soon be all that there are.
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                    open.push_back(stream);
                    connections.fetch_add(1, Ordering::Relaxed);
                    if open.len() > OPEN {
                        open.pop_front();
                    }
                }
            });
        }
        let scrape = |_| {
            let at = Instant::now();
            std::panic::catch_unwind(AssertUnwindSafe(|| server.get("/metrics").0 == 200))
                .is_ok_and(|good| good)
                .then(|| at.elapsed())
        };
        let took: Vec<_> = (0..SCRAPES).map(scrape).collect();
        stop.store(true, Ordering::Relaxed);
        took
    });
    let rate = connections.into_inner() as f64 / started.elapsed().as_secs_f64();
    let lost = took.iter().filter(|took| took.is_none()).count();
    println!(
        "{lost} of {SCRAPES} lost, longest {:?}, at {rate:.0} connections/s",
        took.iter().flatten().max()
    );
    assert_eq!(lost, 0, "at {rate:.0} connections/s");
}

#[test]
fn an_idle_server_stays_ready() {
    let server = Server::start();
    // Longer than the stall limit of one second: a shard without work still beats.
    let until = std::time::Instant::now() + Duration::from_millis(1500);
    while std::time::Instant::now() < until {
        assert_eq!(server.get("/readyz").0, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
}
