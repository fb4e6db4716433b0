//! A process that is stopped and goes on: its work is not told any more that it holds the lock.
//!
//! The test starts itself a second time; that process works under the lock and is stopped by SIGSTOP.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use monolock_client::{Client, Config, RunError, blocking, boottime_ns};
use rustix::process::{Pid, Signal, kill_process};
use standin::Server;

const NAME: &str = "work_of_a_process_that_was_stopped_for_longer_than_its_lease_never_goes_on_as_a_holder";

/// Where the second process finds the server.
const ADDRESS: &str = "CLIENT_PAUSE_ADDRESS";

const LEASE: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(30);

#[test]
fn work_of_a_process_that_was_stopped_for_longer_than_its_lease_never_goes_on_as_a_holder() {
    if let Ok(address) = env::var(ADDRESS) {
        return work(&address);
    }
    let server = Server::start();
    let mut worker = Worker::start(&server);
    let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("held at ")), "it begins to work");

    worker.signal(Signal::STOP);
    // Granted when the lease of the stopped process is over, and not before.
    let next = blocking::Client::new(Config::new(server.address())).unwrap().acquire("a", LONG).unwrap();
    let resumed_ns = boottime_ns();
    worker.signal(Signal::CONT);

    let lines: Vec<String> = lines.collect();
    let held_ns = lines.iter().filter_map(|line| line.strip_prefix("held at "));
    let last_ns: Option<u64> = held_ns.map(|ns| ns.parse().unwrap()).max();
    assert!(last_ns.is_none_or(|last_ns| last_ns < resumed_ns), "{last_ns:?}, resumed at {resumed_ns}");
    assert!(lines.iter().any(|line| line == "lost"), "{lines:?}");
    assert!(next.is_held());
    assert!(worker.0.wait().unwrap().success());
}

/// The second process: says when it is about to be told that it holds the lock, once it is told.
fn work(address: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Client::new(Config::new(address));
    let outcome = runtime.block_on(client.run("a", LEASE, async |grant| {
        loop {
            let now_ns = boottime_ns();
            if grant.is_held() {
                // After the name of the test, which the harness has begun the line with.
                println!("\nheld at {now_ns}");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            if grant.stop().is_cancelled() {
                return;
            }
        }
    }));
    assert!(matches!(outcome, Err(RunError::Lost { .. })), "{outcome:?}");
    println!("\nlost");
}

/// The second process; it does not outlive the test.
struct Worker(Child);

impl Worker {
    fn start(server: &Server) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(ADDRESS, server.address())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
