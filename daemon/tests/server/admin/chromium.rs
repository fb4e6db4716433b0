//! What a page in a real browser can do to the admin API: it tries every way that a browser offers.

mod web;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::{ErrorCode, Token};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use self::web::{Asked, Seen, Web};
use super::{Api, LEASE, address};
use crate::harness::{Peer, Server, wait_for};

/// How long a browser may take to start and to run a page: 2 s on an idle machine.
const BROWSER_TIME_MAX: Duration = Duration::from_secs(60);

/// `evil.example` is this machine, and so is an address of another network. Nothing else is found.
const RESOLVER_RULES: &str = "MAP evil.example 127.0.0.1, MAP 192.0.2.1 127.0.0.1, EXCLUDE localhost, \
     EXCLUDE 127.0.0.1, MAP * ~NOTFOUND";

/// The ways of `page.html`. Each aims at the lock of its own name.
const WAYS: [&str; 17] = [
    "release-form-frame",
    "release-form-window",
    "release-fetch",
    "release-fetch-opaque",
    "release-fetch-json",
    "release-xhr",
    "release-beacon",
    "kick-fetch",
    "kick-xhr",
    "list-fetch",
    "list-fetch-opaque",
    "list-xhr",
    "list-image",
    "list-script",
    "list-style",
    "list-frame",
    "list-socket",
];

/// Before these, a browser asks whether a page of another origin may.
const WITH_PREFLIGHT: [&str; 3] = ["release-fetch-json", "kick-fetch", "kick-xhr"];

/// A lock that a page is after.
struct Prey {
    holder: Peer,
    token: Token,
    waiter: Peer,
}

impl Prey {
    fn new(server: &Server, name: &str) -> Self {
        let (holder, token) = server.hold(name, LEASE);
        Self { holder, token, waiter: server.wait_in_line(name, LEASE) }
    }

    fn assert_unharmed(&mut self) {
        self.holder.heartbeat();
        assert_eq!(self.holder.acquired(), self.token);
        self.waiter.heartbeat();
        self.waiter.waiting();
    }
}

/// One server, a lock for each way, and two web servers in front of the API.
struct Hunt {
    _server: Server,
    api: Api,
    preys: BTreeMap<&'static str, Prey>,
    /// Where pages of elsewhere come from.
    elsewhere: Web,
    /// The API's port, as browsers know it.
    front: Web,
}

impl Hunt {
    fn start() -> Self {
        let (server, api) = Api::start(&[]);
        let preys = WAYS.map(|way| (way, Prey::new(&server, way))).into();
        let (elsewhere, front) = (Web::start(api.address), Web::start(api.address));
        Self { _server: server, api, preys, elsewhere, front }
    }

    /// The method and the target of a way's request.
    fn call(&self, way: &str) -> (&'static str, String) {
        if way.starts_with("release") {
            ("POST", format!("/api/locks/{way}/release"))
        } else if way.starts_with("kick") {
            ("DELETE", format!("/api/locks/{way}/waiters/{}", address(&self.preys[way].waiter)))
        } else {
            ("GET", format!("/api/locks?match={way}"))
        }
    }

    /// Lets a page try every way at the API as `api_host`, until all have been answered. What the page could
    /// read.
    fn let_page_try(&self, page: &str, from: &Web, api_host: &str) -> Seen {
        let waiters: BTreeMap<_, _> =
            self.preys.iter().map(|(way, prey)| (way, address(&prey.waiter))).collect();
        let waiters = serde_json::to_string(&waiters).unwrap();
        let waiters = utf8_percent_encode(&waiters, NON_ALPHANUMERIC);
        let api_port = self.front.port;
        let _browser =
            Browser::open(&format!("http://{page}?api=http://{api_host}:{api_port}&waiters={waiters}"));
        let seen = from.seen.recv_timeout(BROWSER_TIME_MAX);
        let seen = seen.unwrap_or_else(|_| panic!("the page came to no end: {:#?}", self.front.asked()));
        // The page does not hear of the answers to a beacon and in another window.
        wait_for("all requests", || (self.front.asked().len() >= WAYS.len()).then_some(()));
        seen
    }

    /// The API was asked once for each way and answered with `status`; for a page of another origin, in
    /// preflights.
    fn assert_asked(&self, has_preflights: bool, status: impl Fn(&str) -> u16) {
        let asked = WAYS.map(|way| {
            let (mut method, target) = self.call(way);
            if has_preflights && WITH_PREFLIGHT.contains(&way) {
                method = "OPTIONS";
            }
            Asked { method: method.to_owned(), target, status: status(way) }
        });
        assert_eq!(self.front.asked(), BTreeSet::from(asked).into_iter().collect::<Vec<_>>());
        assert_eq!(self.elsewhere.asked(), []);
    }

    /// Nothing has happened to the locks; and the same calls succeed when no browser makes them.
    fn assert_unharmed(mut self) {
        self.preys.values_mut().for_each(Prey::assert_unharmed);
        for way in WAYS {
            let (method, target) = self.call(way);
            let answer = self.api.request(method, &target, &[]).ok();
            let name = if way.starts_with("list") { &answer["locks"][0]["name"] } else { &answer["name"] };
            assert_eq!(name, way);
        }
        for (way, mut prey) in self.preys {
            if way.starts_with("release") {
                prey.holder.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
                prey.waiter.acquired();
            } else if way.starts_with("kick") {
                prey.waiter.refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
            } else {
                prey.assert_unharmed();
            }
        }
    }
}

/// A browser without a window that shows one page. Every name but `evil.example` and this machine's is
/// unknown to it.
struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let child = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg("--no-proxy-server")
            // A page may open a window only when somebody clicks, and here nobody does.
            .arg("--disable-popup-blocking")
            .arg(format!("--host-resolver-rules={RESOLVER_RULES}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromium is there");
        Self { child, _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A page of another origin tries every way: it sees neither a status nor a byte, and changes nothing.
fn try_from_elsewhere(host: &str, path: &str, api_host: &str, status: impl Fn(&str) -> u16) {
    let hunt = Hunt::start();
    let page = format!("{host}:{}/{path}", hunt.elsewhere.port);
    let seen = hunt.let_page_try(&page, &hunt.elsewhere, api_host);
    hunt.assert_asked(true, status);
    assert_eq!(seen, Seen::new());
    hunt.assert_unharmed();
}

#[test]
#[ignore = "needs chromium, which .ci/run installs before it runs this"]
fn a_page_of_another_port_of_this_machine_reads_and_changes_nothing() {
    try_from_elsewhere("localhost", "page", "localhost", |_| 403);
}

#[test]
#[ignore = "needs chromium, which .ci/run installs before it runs this"]
fn a_page_of_another_site_reads_and_changes_nothing() {
    try_from_elsewhere("evil.example", "page", "127.0.0.1", |_| 403);
}

#[test]
#[ignore = "needs chromium, which .ci/run installs before it runs this"]
fn a_page_without_an_origin_reads_and_changes_nothing() {
    try_from_elsewhere("localhost", "sandboxed", "localhost", |_| 403);
}

#[test]
#[ignore = "needs chromium, which .ci/run installs before it runs this"]
fn a_page_whose_site_has_a_name_for_this_machine_reads_and_changes_nothing() {
    try_from_elsewhere("evil.example", "page", "evil.example", |_| 403);
}

/// Browsers say where a request comes from only to addresses that they trust, like this machine's, and of
/// their own accord only for what may change something or be read.
#[test]
#[ignore = "needs chromium, which .ci/run installs before it runs this"]
fn a_page_reads_and_changes_nothing_at_a_network_address_either_though_it_may_embed_the_list() {
    let embedded = ["list-fetch-opaque", "list-image", "list-script", "list-style", "list-frame"];
    let status = |way: &str| if embedded.contains(&way) { 200 } else { 403 };
    try_from_elsewhere("evil.example", "page", "192.0.2.1", status);
}

#[test]
#[ignore = "needs chromium, which .ci/run installs before it runs this"]
fn a_page_whose_name_was_rebound_to_the_api_reads_its_refusal_and_changes_nothing() {
    let hunt = Hunt::start();
    let page = format!("evil.example:{}/page", hunt.front.port);
    let seen = hunt.let_page_try(&page, &hunt.front, "evil.example");
    hunt.assert_asked(false, |_| 403);
    // As the page's own origin the API is open to it, but for the server's refusal.
    assert!(seen.contains_key("kick-xhr") && seen.contains_key("list-frame"), "{seen:#?}");
    let is_refusal = |text: &String| text == "status 403" || text.contains("is not a host of this server");
    assert!(seen.values().flatten().all(is_refusal), "{seen:#?}");
    hunt.assert_unharmed();
}
