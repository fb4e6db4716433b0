//! How long it takes: printed, and held against limits that are no matter of speed.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ha::message::Verdict;
use rustix::process::Signal;

use crate::node::{Node, close, term};
use crate::roles::Answers;

/// How often each is measured; 50 for a figure that is written down.
fn count() -> usize {
    std::env::var("TEST_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

#[test]
#[ignore = "it measures, beside nothing and beside a load"]
fn the_times_of_an_end() {
    for load in [false, true] {
        let _load = load.then(Load::start);
        let said = if load { "two busy loops a core" } else { "idle" };
        let killed = times(|| {
            let node = Node::new();
            let (_agent, server) = node.healthy(Answers::Closed);
            let started = Instant::now();
            server.signal(Signal::KILL);
            gone(&node, started)
        });
        let stopped = times(|| {
            let node = Node::new();
            let (_agent, server) = node.healthy(Answers::Closed);
            let started = Instant::now();
            server.signal(Signal::STOP);
            gone(&node, started)
        });
        let asked = times(|| {
            let node = Node::new();
            let (_agent, server) = node.healthy(Answers::Closed);
            server.signal(Signal::STOP);
            let started = Instant::now();
            assert_eq!(node.ask(close(5)).unwrap().said.verdict, Verdict::GoneFor(term(5)));
            started.elapsed()
        });
        for (what, times) in [
            ("kill -9 to unlink", killed),
            ("SIGSTOP to unlink", stopped),
            ("SIGSTOP, asked, to gone", asked),
        ] {
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            println!("{what} ({said}): median {median:?}, worst {worst:?} of {}", times.len());
        }
    }
}

fn gone(node: &Node, started: Instant) -> Duration {
    while node.file("health").exists() {
        assert!(started.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_micros(100));
    }
    started.elapsed()
}

fn times(mut measure: impl FnMut() -> Duration) -> Vec<Duration> {
    let mut times: Vec<_> = (0..count()).map(|_| measure()).collect();
    times.sort();
    times
}

/// Two busy loops a core.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let loops = 2 * std::thread::available_parallelism().unwrap().get();
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..loops).map(|_| busy()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for busy in &mut self.0 {
            let _ = busy.kill();
            let _ = busy.wait();
        }
    }
}
