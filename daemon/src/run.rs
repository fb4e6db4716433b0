//! `monolock run`: a command that runs for as long as a lock is held.
//!
//! [`watch`] decides, [`group`] and [`signals`] do. The connection is kept until the command's group is gone: closing
//! it makes the server pass the lock on.

mod address;
mod group;
mod members;
mod signals;
mod status;
mod watch;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use client::{Alarm, Connection, Event, boottime_ns};
use protocol::{Acquire, Token};

use crate::duration::parse_duration;
use crate::settings;
use group::Group;
use signals::{Children, Signals};
use watch::{Step, Watch};

/// How often a group whose leader has ended is asked whether somebody is left. Nothing else reports that, and a look
/// at /proc takes some 0.6 ms on a machine with 90 processes.
const GROUP_POLL: Duration = Duration::from_millis(5);

/// Runs a command for as long as a lock is held.
///
/// Waits in the lock's queue, then runs CMD in a process group of its own, with the lock's name in MONOLOCK_LOCK and
/// the fencing token of this grant in MONOLOCK_TOKEN. If the claim is lost, the group gets SIGTERM, and SIGKILL in
/// time to be dead 0.9 × lease after the claim's last confirmation. What CMD leaves running in its group when it ends
/// gets SIGTERM, and SIGKILL a second later; then the lock is released.
///
/// Signals (HUP, INT, QUIT, TERM, USR1, USR2, ALRM) are forwarded to the group; while waiting they end the wait.
/// Ctrl-Z has no effect, since a stopped `monolock run` could not keep its claim. CMD's group is never the terminal's
/// foreground group: a CMD that reads from the terminal is stopped by it.
///
/// Nobody stops CMD while `monolock run` itself is killed by SIGKILL or stopped by SIGSTOP; a `monolock run` that goes
/// on after its claim's time kills the group at once.
#[derive(Debug, clap::Args)]
#[command(after_help = status::HELP)]
pub(crate) struct RunArgs {
    /// How long the server keeps the lock for a claim that went silent.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    lease: Duration,
    /// The server [env: MONOLOCK_ADDRESS] [default: 127.0.0.1:7070].
    #[arg(long, value_name = "HOST:PORT", value_parser = address::parse)]
    address: Option<String>,
    /// The lock.
    name: String,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs to the end; the status is CMD's, or one of those in [`status`].
pub(crate) fn run(args: RunArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(os_error("starting", &error)),
    };
    let code = runtime.block_on(run_until_done(&args));
    // A name look-up cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn run_until_done(args: &RunArgs) -> u8 {
    let acquire = match client::request(&args.name, args.lease) {
        Ok(acquire) => acquire,
        Err(error) => return fail(&error),
    };
    let address = match address::resolve(args.address.as_deref(), settings::environment_variable) {
        Ok(address) => address,
        Err(problem) => {
            eprintln!("monolock run: {problem}");
            return status::USAGE;
        }
    };
    let (mut signals, children, alarm) = match senses() {
        Ok(senses) => senses,
        Err(error) => return os_error("watching signals and time", &error),
    };
    let watch = Watch::new(acquire.lease);
    let connection = tokio::select! {
        opened = open(&address, acquire) => match opened {
            Ok(connection) => connection,
            Err(code) => return code,
        },
        signal = signals.next() => return status::of_signal(signal),
    };
    Runner { group: None, args, watch, connection, signals, children, alarm }.drive().await
}

/// Made before anything else is done, so that no signal is missed.
fn senses() -> io::Result<(Signals, Children, Alarm)> {
    Ok((Signals::new()?, Children::new()?, Alarm::new()?))
}

async fn open(address: &str, acquire: Acquire) -> Result<Connection, u8> {
    Connection::open(address, acquire).await.map_err(|error| fail(&error))
}

/// Brings to the watch what happens, and does what it says.
struct Runner<'a> {
    /// Before the connection, so that it also ends first when this is dropped by a panic.
    group: Option<Group>,
    args: &'a RunArgs,
    watch: Watch,
    connection: Connection,
    signals: Signals,
    children: Children,
    alarm: Alarm,
}

impl Runner<'_> {
    async fn drive(mut self) -> u8 {
        loop {
            match self.next_step().await {
                Step::Wait => {}
                Step::Start(token) => {
                    if let Err(code) = self.start(token) {
                        return code;
                    }
                }
                Step::Forward(signal) => self.group().signal(signal),
                Step::Terminate => self.group().terminate(),
                Step::Kill => self.group().kill(),
                Step::Finish(code) => return code,
            }
        }
    }

    /// The claim comes first: what happened together with its loss happened too late.
    async fn next_step(&mut self) -> Step {
        let (group, watch) = (&mut self.group, &mut self.watch);
        let running = group.as_ref().is_some_and(|group| !group.leader_ended());
        let left_over = group.as_ref().is_some_and(Group::leader_ended);
        let wake_ns = watch.wake_ns();
        tokio::select! {
            biased;
            event = self.connection.next_event() => {
                tell(&event, &self.args.name, group.is_some());
                let is_held = self.connection.is_held();
                watch.event(boottime_ns(), event, is_held, self.connection.confirmed_ns())
            }
            () = self.alarm.wait_until(wake_ns.unwrap_or(u64::MAX)), if wake_ns.is_some() => {
                watch.alarm(boottime_ns())
            }
            signal = self.signals.next() => watch.signal(signal),
            () = self.children.changed(), if running => {
                let group = group.as_mut().expect("it runs");
                let Some(code) = group.try_reap() else { return Step::Wait };
                let is_held = self.connection.is_held();
                let step = watch.ended(boottime_ns(), code, is_held, self.connection.confirmed_ns());
                if group.is_gone() { watch.gone() } else { step }
            }
            () = tokio::time::sleep(GROUP_POLL), if left_over => {
                if group.as_mut().expect("its leader ended").is_gone() { watch.gone() } else { Step::Wait }
            }
        }
    }

    fn start(&mut self, token: Token) -> Result<(), u8> {
        let group = Group::spawn(&self.args.command, &self.args.name, token).map_err(|error| {
            eprintln!("monolock run: cannot run {}: {error}", self.args.command[0].display());
            status::of_spawn_error(&error)
        })?;
        self.group = Some(group);
        Ok(())
    }

    fn group(&mut self) -> &mut Group {
        self.group.as_mut().expect("the watch orders this only after the start")
    }
}

fn tell(event: &Event, name: &str, running: bool) {
    if let Event::Lost(loss) = event {
        let then = if running { "; stopping the command" } else { "" };
        eprintln!("monolock run: lost the claim on {name:?}: {loss}{then}");
    }
}

fn fail(error: &client::Error) -> u8 {
    eprintln!("monolock run: {error}");
    status::of_error(error)
}

fn os_error(what: &str, error: &io::Error) -> u8 {
    eprintln!("monolock run: {what}: {error}");
    status::OS_ERROR
}
