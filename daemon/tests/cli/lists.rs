//! `locks` and `inspect`: what the tables and the JSON show.

use std::fs;
use std::time::Duration;

use client::blocking::Client;
use client::{Config, Identity, Tls};
use serde_json::Value;

use crate::operator::{LEASE, Site, address, cells, ended, monolock};
use testkit::certificates::{Certificates, Says};

const TITLES: [&str; 6] = ["NAME", "HOLDER", "HELD", "LEASE", "TOKEN", "WAITERS"];

#[test]
fn without_locks_there_are_the_titles_alone_and_no_json_at_all() {
    let site = Site::start();
    assert_eq!(cells(&site.says(&["locks"])), [TITLES]);
    assert_eq!(site.says(&["locks", "--json"]), "");
}

#[test]
fn a_table_has_a_row_for_each_lock_that_matches_by_name() {
    let site = Site::start();
    let (b, token) = site.server.hold("nightly/b", Duration::from_millis(90_500));
    let _waiters: Vec<_> = (0..3).map(|_| site.server.wait_in_line("nightly/b", LEASE)).collect();
    let (a, _) = site.server.hold("nightly/a", LEASE);
    let _other = site.server.hold("other", LEASE);
    let text = site.says(&["locks", "n?ghtly/*"]);
    let rows = cells(&text);
    assert_eq!(rows[0], TITLES);
    assert_eq!(rows.len(), 3, "{text}");
    assert_eq!(rows[1][..2], ["nightly/a", &address(&a)]);
    let token = token.0.to_string();
    assert_eq!(rows[2][..2], ["nightly/b", &address(&b)]);
    assert_eq!(rows[2][3..], ["1m30s500ms", &token, "3"]);
    assert!(rows[2][2].strip_suffix('s').is_some_and(|s| s.parse::<u64>().is_ok()), "{text}");
    assert_eq!(cells(&site.says(&["locks"])).len(), 4);
    assert_eq!(cells(&site.says(&["locks", "nothing*"])), [TITLES]);
}

#[test]
fn json_has_a_lock_a_line_as_the_api_describes_it() {
    let site = Site::start();
    let (holder, token) = site.server.hold("a", LEASE);
    let waiters: Vec<_> = (0..2).map(|_| site.server.wait_in_line("a", LEASE)).collect();
    let _b = site.server.hold("b", LEASE);
    let locks = site.json(&["locks"]);
    let names: Vec<_> = locks.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    let lock = &locks[0];
    assert_eq!(lock["holder"]["remote_addr"], address(&holder));
    assert_eq!(lock["holder"]["lease_ms"], 600_000);
    assert_eq!(lock["holder"]["token"], token.0);
    assert_eq!(lock["waiters"][0]["remote_addr"], address(&waiters[0]));
    assert_eq!(lock["waiters"][1]["remote_addr"], address(&waiters[1]));
    assert_eq!(site.json(&["inspect", "a"]), locks[..1]);
    assert_eq!(site.json(&["locks", "b"]).len(), 1);
}

#[test]
fn a_lock_is_shown_with_its_holder_and_its_queue_in_order() {
    let site = Site::start();
    let (holder, token) = site.server.hold("jobs", Duration::from_secs(90));
    let waiters: Vec<_> = (0..12).map(|_| site.server.wait_in_line("jobs", LEASE)).collect();
    let text = site.says(&["inspect", "jobs"]);
    let (about, queue) = text.split_once("\n\n").expect("two parts");
    let about = cells(about);
    assert_eq!(about[0], ["name", "jobs"]);
    assert_eq!(about[1], ["holder", &address(&holder)]);
    assert_eq!(about[2], ["identity", "-"]);
    assert_eq!(about[3][0], "held");
    assert_eq!(about[4], ["lease", "1m30s"]);
    assert_eq!(about[5], ["token", &token.0.to_string()]);
    assert_eq!(about[6], ["waiters", "12"]);
    let queue = cells(queue);
    assert_eq!(queue[0], ["POS", "ADDRESS", "WAITING", "IDENTITY"]);
    assert_eq!(queue.len(), 13);
    for ((row, waiter), position) in queue[1..].iter().zip(&waiters).zip(1..) {
        assert_eq!(row[..2], [position.to_string(), address(waiter)]);
        assert_eq!(row[3], "-");
    }
    drop(waiters);
    let alone = site.server.hold("alone", LEASE);
    assert!(site.says(&["inspect", "alone"]).ends_with("\nwaiters  0\n"));
    drop(alone);
}

#[test]
fn the_api_is_found_by_flag_by_the_servers_own_variable_and_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("admin.sock").display());
    let site = Site::with(&["-admin-listen", &socket]);
    assert_eq!(site.admin, socket);
    let _held = site.server.hold("on-a-socket", LEASE);
    assert!(site.says(&["locks"]).contains("on-a-socket"));
    assert!(site.says(&["top", "--once"]).contains("on-a-socket"));
    assert_eq!(site.json(&["release", "on-a-socket"]).len(), 1);

    // Every address of the machine, which is what a server's variable often says.
    let site = Site::with(&["-admin-listen", ":0"]);
    let _held = site.server.hold("on-tcp", LEASE);
    let port = site.admin.rsplit_once(':').unwrap().1;
    for address in [format!(":{port}"), format!("0.0.0.0:{port}"), format!("localhost:{port}")] {
        let mut command = monolock(&["locks"]);
        let text = ended(command.env("MONOLOCK_ADMIN_LISTEN_ADDRESS", &address)).ok();
        assert!(text.contains("on-tcp"), "{text}");
        for flag in [vec!["-admin", &address], vec![&*format!("--admin={address}")]] {
            let mut command = monolock(&["locks"]);
            command.args(flag).env("MONOLOCK_ADMIN_LISTEN_ADDRESS", "127.0.0.1:1");
            assert!(ended(&mut command).ok().contains("on-tcp"));
        }
    }
}

#[test]
#[ignore = "needs openssl, which .ci/run installs before it runs this"]
fn a_client_with_a_certificate_is_shown_by_its_identity() {
    let files = Certificates::new();
    files.issue("server", Says::default());
    files
        .issue("worker", Says { extensions: "subjectAltName=URI:spiffe://prod/worker/1", ..Says::default() });
    let path = |file: &str| files.path(file).to_str().unwrap().to_owned();
    let site = Site::with(&[
        "-admin-listen",
        "127.0.0.1:0",
        "-tls-cert",
        &path("server.pem"),
        "-tls-key",
        &path("server.key"),
        "-tls-client-ca",
        &path("ca.pem"),
    ]);
    let read = |file: &str| fs::read(files.path(file)).unwrap();
    let identity = Identity { certificates_pem: &read("worker.pem"), key_pem: &read("worker.key") };
    let tls = Tls::new(&read("ca.pem"), Some(identity)).unwrap();
    let client = Client::new(Config::new(site.server.address.to_string()).with_tls(tls)).unwrap();
    let _guard = client.acquire("jobs", LEASE).unwrap();
    assert_eq!(cells(&site.says(&["locks"]))[1][..2], ["jobs", "spiffe://prod/worker/1"]);
    let text = site.says(&["inspect", "jobs"]);
    assert!(text.contains("\nidentity spiffe://prod/worker/1\n"), "{text}");
    let released = site.says(&["release", "jobs"]);
    assert!(released.contains(" (spiffe://prod/worker/1) held it for "), "{released}");
    assert_eq!(site.json(&["locks"]), Vec::<Value>::new());
}
