//! `monolock run`: a command that runs for as long as a lock is held.
//!
//! [`watch`] decides, [`group`] and [`signals`] do. The connection is kept until the command's group is gone: closing
//! it makes the server pass the lock on. Nothing here writes to standard error itself, which may block; the [`voice`]
//! does.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod address;
mod group;
mod launch;
mod members;
mod signals;
mod status;
mod voice;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;
use std::time::Duration;

use client::{Alarm, Connection, Event, boottime_ns};
use protocol::Token;
use rustix::process::Signal;

use crate::duration::parse_duration;
use crate::settings;
use group::{Group, SignalError};
use launch::{Launch, Launched};
use signals::{Children, Signals};
use voice::Voice;
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
/// foreground group: a CMD that reads from the terminal is stopped by it; give it </dev/null.
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
    let (voice, _flush) = match Voice::start() {
        Ok(started) => started,
        Err(error) => {
            // Nothing runs yet that this could keep up.
            let _ = writeln!(io::stderr(), "monolock run: starting: {error}");
            return ExitCode::from(status::OS_ERROR);
        }
    };
    let last_words = voice.clone();
    // The group is killed after these: they must not block either.
    panic::set_hook(Box::new(move |panic| last_words.say(format_args!("{panic}"))));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(os_error(&voice, "starting", &error)),
    };
    let code = runtime.block_on(run_until_done(&args, &voice));
    // A name look-up cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn run_until_done(args: &RunArgs, voice: &Voice) -> u8 {
    let acquire = match client::request(&args.name, args.lease) {
        Ok(acquire) => acquire,
        Err(error) => return fail(voice, &error),
    };
    let address = match address::resolve(args.address.as_deref(), settings::environment_variable) {
        Ok(address) => address,
        Err(problem) => {
            voice.say(format_args!("{problem}"));
            return status::USAGE;
        }
    };
    let (mut signals, children, alarm) = match senses() {
        Ok(senses) => senses,
        Err(error) => return os_error(voice, "watching signals and time", &error),
    };
    let watch = Watch::new(acquire.lease);
    let connection = tokio::select! {
        opened = Connection::open(&address, acquire) => match opened {
            Ok(connection) => connection,
            Err(error) => return fail(voice, &error),
        },
        signal = signals.next() => return status::of_signal(signal),
    };
    Runner { group: None, launch: None, args, voice, watch, connection, signals, children, alarm }
        .drive()
        .await
}

/// Made before anything else is done, so that no signal is missed.
fn senses() -> io::Result<(Signals, Children, Alarm)> {
    Ok((Signals::new()?, Children::new()?, Alarm::new()?))
}

/// Brings to the watch what happens, and does what it says.
struct Runner<'a> {
    /// Before the connection, so that it also ends first when this is dropped by a panic.
    group: Option<Group>,
    /// The group that is on its way.
    launch: Option<Launch>,
    args: &'a RunArgs,
    voice: &'a Voice,
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
                    if let Err(error) = self.start(token) {
                        return self.cannot_run(&error);
                    }
                }
                Step::Forward(signal) => match &mut self.launch {
                    Some(launch) => launch.signal(signal),
                    None => self.act(|group| group.forward(signal)),
                },
                Step::Terminate => match &mut self.launch {
                    Some(launch) => launch.call_off(Signal::TERM),
                    None => self.act(Group::terminate),
                },
                Step::Kill => match &mut self.launch {
                    Some(launch) => launch.call_off(Signal::KILL),
                    None => self.act(Group::kill),
                },
                Step::Finish(code) => return code,
            }
        }
    }

    /// The claim comes first: what happened together with its loss happened too late. Only what was started is known
    /// before, so that it is stopped as what runs.
    async fn next_step(&mut self) -> Step {
        let (group, launch, watch) = (&mut self.group, &mut self.launch, &mut self.watch);
        let running = group.as_ref().is_some_and(|group| !group.leader_ended());
        let left_over = group.as_ref().is_some_and(Group::leader_ended);
        let starting = launch.is_some();
        let wake_ns = watch.wake_ns();
        tokio::select! {
            biased;
            launched = async { launch.as_mut().expect("it is being started").outcome().await }, if starting => {
                self.launched(launched)
            }
            event = self.connection.next_event() => {
                tell(self.voice, &event, &self.args.name, running || left_over || starting);
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

    fn start(&mut self, token: Token) -> io::Result<()> {
        let (command, name) = (self.args.command.clone(), self.args.name.clone());
        let until_ns = self.watch.start_until_ns(self.connection.confirmed_ns());
        self.launch = Some(Launch::begin(move || Group::spawn(&command, &name, token), until_ns)?);
        Ok(())
    }

    fn launched(&mut self, launched: Launched) -> Step {
        let launch = self.launch.take().expect("it was being started");
        let is_held = self.connection.is_held();
        match launched {
            Ok(Some(group)) => {
                self.group = Some(group);
                let confirmed_ns = self.connection.confirmed_ns();
                let step = self.watch.started(boottime_ns(), is_held, confirmed_ns);
                if step == Step::Wait {
                    for signal in launch.into_unsent() {
                        self.act(|group| group.forward(signal));
                    }
                }
                step
            }
            Ok(None) => self.watch.not_started(is_held),
            Err(error) => Step::Finish(self.cannot_run(&error)),
        }
    }

    fn act(&mut self, act: impl FnOnce(&mut Group) -> Result<(), SignalError>) {
        let group = self.group.as_mut().expect("the watch orders this only after the start");
        if let Err(error) = act(group) {
            self.voice.say(format_args!("{error}"));
        }
    }

    fn cannot_run(&self, error: &io::Error) -> u8 {
        self.voice.say(format_args!("cannot run {}: {error}", self.args.command[0].display()));
        status::of_spawn_error(error)
    }
}

fn tell(voice: &Voice, event: &Event, name: &str, running: bool) {
    if let Event::Lost(loss) = event {
        let then = if running { "; stopping the command" } else { "" };
        voice.say(format_args!("lost the claim on {name:?}: {loss}{then}"));
    }
}

fn fail(voice: &Voice, error: &client::Error) -> u8 {
    voice.say(format_args!("{error}"));
    status::of_error(error)
}

fn os_error(voice: &Voice, what: &str, error: &io::Error) -> u8 {
    voice.say(format_args!("{what}: {error}"));
    status::OS_ERROR
}
