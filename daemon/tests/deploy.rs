//! What `deploy/` says of the server, held against the server.
#![forbid(unsafe_code)]

#[path = "ha_agent/agents.rs"]
mod agents;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use seccompiler::BpfMap;
use testkit::harness::{MONOLOCK, Server};

const LEASE: Duration = Duration::from_secs(60);

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

fn read(file: &str) -> String {
    let path = deploy(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Standard output of a program that must succeed and complain about nothing.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && stderr.is_empty(), "{command:?}: {stdout}{stderr}");
    stdout
}

/// The words of metrics, variables and labels.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

fn words_with<'a>(text: &'a str, prefixes: &'a [&str]) -> BTreeSet<&'a str> {
    words(text).filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect()
}

#[test]
fn the_environment_file_has_every_setting_and_sets_none() {
    let file = read("systemd/monolock.env");
    let help = output_of(Command::new(MONOLOCK).arg("--help"));
    assert_eq!(words_with(&file, &["MONOLOCK_"]), words_with(&help, &["MONOLOCK_"]));
    let set: Vec<&str> = file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(set, [""; 0]);
}

#[test]
fn a_server_takes_every_example_of_the_environment_file_that_names_no_file() {
    let file = read("systemd/monolock.env");
    let mut command = Command::new(MONOLOCK);
    // One of two nodes needs files: tests/pair has those.
    let of_a_pair = |variable: &str| {
        ["STANDBY", "NODE_ID", "PEER", "HA_", "FENCE"].iter().any(|word| variable.contains(word))
    };
    let settings = file.lines().filter_map(|line| line.strip_prefix('#')?.split_once('='));
    for (variable, value) in settings.filter(|(variable, _)| !of_a_pair(variable)) {
        if variable.ends_with("_ADDRESS") {
            command.env(variable, "127.0.0.1:0");
        } else if !value.contains('/') {
            command.env(variable, value);
        }
    }
    Server::spawn(command).hold("lock", LEASE);
}

#[test]
fn every_metric_and_label_of_the_alerts_is_in_a_scrape() {
    let alerts = read("prometheus/alerts.yml");
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|file| folder.path().join(file));
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&cert, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let server = Server::with(&["-tls-cert", cert.to_str().unwrap(), "-tls-key", key.to_str().unwrap()]);
    let (_, scrape) = server.get("/metrics");
    let scraped = words_with(&scrape, &["monolock_", "process_"]);
    let named = words_with(&alerts, &["monolock_", "process_"]);
    assert!(named.contains("monolock_releases_total"), "{named:?}");
    let missing: Vec<_> = named.difference(&scraped).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // `reason="expired"` and the like; Prometheus itself adds the job and writes bounds as it likes.
    let pairs = alerts.split(['{', '}', ',', ' ', '(', ')']).filter(|part| part.contains("=\""));
    for pair in pairs.filter(|pair| !pair.starts_with("job=")) {
        assert!(scrape.contains(pair), "{pair}");
    }
}

#[test]
fn every_alert_has_a_test_in_which_it_fires() {
    let alerts = read("prometheus/alerts.yml");
    let tests = read("prometheus/alerts_test.yml");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(tests.contains(&format!("{{alertname=\"{name}\"}}")), "{name}");
    }
}

#[test]
#[ignore = "needs promtool, which .ci/run installs before it runs this"]
fn promtool_takes_the_rules_their_tests_and_the_scrape_configuration() {
    for arguments in [
        &["check", "rules", "--lint-fatal", "alerts.yml"][..],
        &["test", "rules", "alerts_test.yml"],
        &["check", "config", "--syntax-only", "scrape.yml"],
    ] {
        output_of(Command::new("promtool").args(arguments).current_dir(deploy("prometheus")));
    }
}

#[test]
#[ignore = "needs systemd-analyze, which .ci/run installs before it runs this"]
fn systemd_takes_the_units_without_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let installed = "/usr/bin/monolock";
    for name in ["monolock.service", "monolock-ha-agent.service"] {
        let unit = directory.path().join(name);
        let text = read(&format!("systemd/{name}"));
        assert!(text.contains(installed));
        // It wants the program to be there.
        std::fs::write(&unit, text.replace(installed, &MONOLOCK)).unwrap();
        let said = output_of(Command::new("systemd-analyze").arg("verify").arg(&unit));
        assert_eq!(said, "", "{name}");
    }
    let sysusers = deploy("systemd/monolock.sysusers");
    let planned = Command::new("systemd-sysusers").arg("--dry-run").arg(sysusers).output().unwrap();
    assert!(planned.status.success(), "{planned:?}");
}

#[test]
fn neither_unit_takes_the_other_with_it_and_the_folder_of_the_health_file_stays() {
    for name in ["monolock.service", "monolock-ha-agent.service"] {
        let text = read(&format!("systemd/{name}"));
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let binds = ["BindsTo=", "PartOf=", "Requires=", "Requisite=", "Conflicts=", "PropagatesStopTo="];
        assert!(!lines.any(|line| binds.iter().any(|bind| line.starts_with(bind))), "{name}");
    }
    let agent = read("systemd/monolock-ha-agent.service");
    for line in [
        "RuntimeDirectory=monolock-ha-agent",
        "RuntimeDirectoryPreserve=yes",
        "ExecStopPost=/bin/rm -f %t/monolock-ha-agent/health",
        "OOMScoreAdjust=-1000",
        "Before=keepalived.service",
    ] {
        assert!(agent.lines().any(|there| there == line), "{line}");
    }
    let server = read("systemd/monolock.service");
    assert!(server.lines().any(|line| line == "ReadWritePaths=-/run/monolock-ha-agent"));
    assert!(read("systemd/monolock.tmpfiles").contains("d /run/monolock-ha-agent 0750 monolock monolock"));
}

/// Where this test's program, started anew, forbids itself all but the unit's calls and becomes the server.
const CONFINED: &str = "TEST_CONFINED";

#[test]
#[ignore = "needs systemd-analyze and openssl, which .ci/run installs before it runs this"]
fn the_server_makes_no_system_call_that_the_unit_forbids() {
    if std::env::var_os(CONFINED).is_some() {
        seccompiler::apply_filter_all_threads(&filter("monolock.service")["server"])
            .expect("the filter is taken");
        let error = std::os::unix::process::CommandExt::exec(Command::new(MONOLOCK).env_remove(CONFINED));
        panic!("{error}");
    }
    serve_and_tell_the_administrator();
    serve_over_tls_and_reload();
}

#[test]
#[ignore = "needs systemd-analyze and openssl, which .ci/run installs before it runs this"]
fn the_agent_makes_no_system_call_that_its_unit_forbids() {
    if std::env::var_os(CONFINED).is_some() {
        let filter = filter("monolock-ha-agent.service");
        seccompiler::apply_filter_all_threads(&filter["server"]).expect("the filter is taken");
        let mut agent = Command::new(MONOLOCK);
        let error = std::os::unix::process::CommandExt::exec(agent.arg("ha-agent").env_remove(CONFINED));
        panic!("{error}");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "the_agent_makes_no_system_call_that_its_unit_forbids";
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(CONFINED, "1");
    let node = agents::Node::new();
    let mut agent = node.agent(command);
    node.connects_asks_and_ends(&mut agent);
}

/// A server under the unit's filter, with these variables.
fn confined<'a>(variables: impl IntoIterator<Item = (&'a str, String)>) -> Server {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "the_server_makes_no_system_call_that_the_unit_forbids";
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(CONFINED, "1");
    command.env("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0").env("MONOLOCK_OPS_LISTEN_ADDRESS", "127.0.0.1:0");
    command.envs(variables);
    Server::spawn(command)
}

fn serve_and_tell_the_administrator() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let mut server = confined([("MONOLOCK_ADMIN_LISTEN_ADDRESS", format!("unix:{}", socket.display()))]);
    let (mut holder, _) = server.hold("lock", LEASE);
    let mut waiter = server.wait_in_line("lock", LEASE);
    holder.heartbeat();
    holder.acquired();
    holder.close();
    waiter.acquired();
    server.wait_for_metric("monolock_handover_seconds_count", 1.0);
    assert_eq!(server.get("/readyz").0, 200);
    let mut admin = UnixStream::connect(socket).unwrap();
    admin.write_all(b"GET /api/locks/lock HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
}

fn serve_over_tls_and_reload() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (certificate, key, audit) = (file("server.pem"), file("server.key"), file("audit.log"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:false", "-out", &certificate, "-keyout", &key])
        .output();
    assert!(made.is_ok_and(|made| made.status.success()), "openssl makes a certificate");
    let mut server = confined([
        ("MONOLOCK_TLS_CERT", certificate.clone()),
        ("MONOLOCK_TLS_KEY", key),
        ("MONOLOCK_AUDIT_LOG", audit.clone()),
    ]);
    let address = server.address.to_string();
    let run_once = || {
        let flags = ["run", "--address", &address, "--tls-ca", &certificate, "lock", "--", "true"];
        let client = Command::new(MONOLOCK).args(flags).output().unwrap();
        assert!(client.status.success(), "{client:?}");
    };
    run_once();
    server.signal(Signal::HUP);
    for part in ["certificate", "audit_log"] {
        let series = format!("monolock_reloads_total{{part=\"{part}\",result=\"success\"}}");
        server.wait_for_metric(&series, 1.0);
    }
    run_once();
    server.signal(Signal::TERM);
    assert_eq!(server.exit().code(), Some(0));
    assert_eq!(std::fs::read_to_string(audit).unwrap().matches("granted").count(), 2);
}

/// The unit's list as a filter. Where the unit lets a call fail, this ends the process: so that it shows.
fn filter(unit: &str) -> BpfMap {
    let allowed = allowed_calls(unit);
    assert!(allowed.contains("pidfd_send_signal") && !allowed.contains("ptrace"));
    assert!(unit != "monolock.service" || allowed.contains("io_uring_setup"));
    // Lists name the calls of all architectures; those of others are unknown here.
    let known: Vec<String> =
        allowed.into_iter().filter(|call| compile(std::slice::from_ref(call)).is_ok()).collect();
    assert!(known.len() > 200, "{} calls", known.len());
    compile(&known).expect("calls that are known one by one")
}

fn compile(calls: &[String]) -> Result<BpfMap, seccompiler::Error> {
    let calls: Vec<_> = calls.iter().map(|call| serde_json::json!({ "syscall": call })).collect();
    let filter = serde_json::json!({
        "server": { "mismatch_action": "kill_process", "match_action": "allow", "filter": calls }
    });
    let architecture = std::env::consts::ARCH.try_into().expect("an architecture that seccomp knows");
    seccompiler::compile_from_json(filter.to_string().as_bytes(), architecture)
}

/// What `SystemCallFilter=` of the unit allows, with its groups resolved by systemd.
fn allowed_calls(unit: &str) -> BTreeSet<String> {
    let unit = read(&format!("systemd/{unit}"));
    let lists = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let mut open: Vec<String> = lists.flat_map(str::split_whitespace).map(str::to_owned).collect();
    assert!(!open.iter().any(|entry| entry.starts_with('~')), "only what is allowed is understood here");
    // Always allowed, whatever the list says.
    open.push("@default".to_owned());
    let mut calls = BTreeSet::new();
    while let Some(entry) = open.pop() {
        if entry.starts_with('@') {
            let listed = Command::new("systemd-analyze")
                .args(["syscall-filter", &entry])
                .stderr(Stdio::null())
                .output()
                .expect("systemd-analyze is there");
            let listed = String::from_utf8(listed.stdout).unwrap();
            let entries =
                listed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            open.extend(entries.filter(|line| *line != entry).map(str::to_owned));
        } else {
            calls.insert(entry);
        }
    }
    calls
}
