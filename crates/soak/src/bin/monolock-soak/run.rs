//! The run: clients, the plan of what is done to them, server lives, and the check at the end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use soak::logs::entry::Act;
use soak::logs::names::{admin_socket, audit_log};
use testkit::process::{Server, Start, fixed_address, raise_nofile};

use crate::acts::Acts;
use crate::admin::Administrator;
use crate::crowd::Crowd;
use crate::options::Options;
use crate::schedule::{Planned, plan};
use crate::verdict::{Verdict, judge};

/// How long a server may take to end in order; it promises about two seconds.
pub(super) const END_MAX: Duration = Duration::from_secs(10);

/// Between two looks at the plan and at who is gone.
const TURN: Duration = Duration::from_millis(5);

pub(super) fn run(options: &Options, program: &Path) -> Result<Verdict> {
    raise_nofile()?;
    ensure!(!options.lease_min.is_zero(), "--lease-min 0ms is no lease");
    ensure!(options.lease_min <= options.lease_max, "--lease-min is longer than --lease-max");
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!(
        "{} clients, {} locks, {} s, leases of {} to {} ms; --seed {seed}",
        options.clients,
        options.locks,
        options.seconds,
        options.lease_min.as_millis(),
        options.lease_max.as_millis()
    );
    let folder = Folder::create(options.keep.as_deref())?;
    soak(options, program, &folder.path, seed)?;
    let verdict = judge(&folder.path)?;
    if matches!(verdict, Verdict::Missed(_)) {
        folder.keep();
    }
    Ok(verdict)
}

fn soak(options: &Options, program: &Path, dir: &Path, seed: u64) -> Result<()> {
    let acts = Acts::create(dir)?;
    let address = fixed_address()?;
    let administrator = Administrator::new(admin_socket(dir));
    let start = || start(options, program, dir, address, &acts);
    let mut server = start()?;
    let mut crowd = Crowd::start(options, dir, address, seed, &acts)?;
    let run = Duration::from_secs(u64::from(options.seconds));
    let planned = plan(seed, options.clients, options.locks, run, options.lease_max);
    let mut planned = planned.into_iter().peekable();
    let begin = Instant::now();
    while begin.elapsed() < run {
        let now_ms = u64::try_from(begin.elapsed().as_millis())?;
        // What is done takes its time where the server does not answer: the run ends all the same.
        while begin.elapsed() < run
            && let Some((_, next)) = planned.next_if(|&(at_ms, _)| at_ms <= now_ms)
        {
            match next {
                Planned::Kill(place) => crowd.signal(place, Signal::KILL, &acts)?,
                Planned::Stop(place) => crowd.signal(place, Signal::STOP, &acts)?,
                Planned::Continue(place) => crowd.signal(place, Signal::CONT, &acts)?,
                Planned::RestartByTerm => {
                    end(&mut server, Signal::TERM, &acts)?;
                    server = start()?;
                }
                Planned::RestartByKill => {
                    end(&mut server, Signal::KILL, &acts)?;
                    server = start()?;
                }
                Planned::ForceRelease(lock) => administrator.force_release(lock, &acts)?,
                Planned::Kick { lock, pick } => administrator.kick(lock, pick, &acts)?,
            }
        }
        server.check_alive()?;
        crowd.replace(&acts)?;
        thread::sleep(TURN);
    }
    for place in 0..options.clients {
        crowd.signal(place, Signal::KILL, &acts)?;
    }
    end(&mut server, Signal::TERM, &acts)
}

fn start(options: &Options, program: &Path, dir: &Path, address: SocketAddr, acts: &Acts) -> Result<Server> {
    let log = audit_log(dir);
    let audit_bytes = if log.exists() { usize::try_from(fs::metadata(&log)?.len())? } else { 0 };
    acts.note(Act::ServerStart { audit_bytes })?;
    let mut start = Start::new(program, options.shards);
    let shown = |path: &Path| path.to_str().map(str::to_owned).context("the folder's name is not UTF-8");
    start.flags = vec!["-audit-log".into(), shown(&log)?];
    start.flags.extend(["-admin-listen".into(), format!("unix:{}", shown(&admin_socket(dir))?)]);
    let server = Server::start_at(&start, address)?;
    acts.note(Act::ServerListening)?;
    Ok(server)
}

fn end(server: &mut Server, signal: Signal, acts: &Acts) -> Result<()> {
    acts.note(if signal == Signal::TERM { Act::ServerTerm } else { Act::ServerKill })?;
    server.signal(signal)?;
    let status = server.wait_for_end(END_MAX)?;
    acts.note(Act::ServerEnded)?;
    ensure!(signal == Signal::KILL || status.success(), "the server ended by SIGTERM with {status}");
    Ok(())
}

/// The logs' folder: removed with it, unless it is to stay.
struct Folder {
    path: PathBuf,
    stays: bool,
}

impl Folder {
    fn create(asked: Option<&Path>) -> Result<Self> {
        let own = || env::temp_dir().join(format!("monolock-soak-{}", process::id()));
        let path = asked.map_or_else(own, Path::to_owned);
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self { path, stays: asked.is_some() })
    }

    fn keep(mut self) {
        self.stays = true;
        println!("the logs stay in {}", self.path.display());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays {
            // What cannot be removed stays; the verdict is worth more.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
