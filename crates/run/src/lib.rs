//! `monolock run`: a command that runs for as long as a lock is held.
//!
//! Until the lock is held, [`queue`] decides and [`acquire`] does. From then on [`watch`] decides; [`starter`], [`group`], [`kin`]
//! and [`signals`] do. A second process, the [`guardian`], stops the command when this one does not; at a terminal a third one,
//! the [`front`], is the shell's job. The connection is kept until all of the command is gone: closing it makes the server pass
//! the lock on. Nothing here writes to standard error itself, which may block; the [`voice`] does.
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod acquire;
mod address;
mod front;
mod group;
mod guard;
mod guardian;
mod kin;
mod members;
mod order;
mod queue;
mod relay;
mod settings;
mod signals;
mod starter;
mod status;
mod tls;
mod vigil;
mod voice;
mod watch;
mod words;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::process::ExitCode;
use std::time::Duration;

use client::{Alarm, Config, Connection, Event, boottime_ns};
use protocol::Token;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};

use acquire::{Senses, acquire};
use cli::{Flags, parse_duration};
use front::{Need, ToFront};
use group::Group;
use guard::{Ended, Guard};
pub use guardian::{GuardianArgs, guard};
use kin::Kin;
use queue::{Patience, Queue, Talk};
use settings::Wait;
pub use settings::{Run, RunSettings};
use signals::{Children, Inherited, Signals};
use starter::Begun;
pub use starter::{StarterArgs, start as start_command};
use threads::runtime;
use vigil::Verdict;
use voice::Voice;
use watch::{Step, Watch};
use words::Subject;

/// What is executed for the other processes: the very file that runs, also if its path has another one by now.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// How often it is asked who is left of a command that has ended or was killed. Nothing else reports that, and a look
/// at /proc takes some 0.6 ms on a machine with 90 processes.
const GROUP_POLL: Duration = Duration::from_millis(5);

/// The guardian is told of new confirmations this many times a lease, which is four times as often as there is one.
const TELL_DIVISOR: u64 = 16;

/// How a name is told from the command.
const USAGE: &str = "monolock run [FLAGS] [--] NAME -- CMD [ARGUMENTS]
       monolock run [FLAGS] -c SCRIPT [--] NAME";

/// Runs a command for as long as a lock is held.
///
/// Waits in the lock's queue, then runs CMD with the lock's name in MONOLOCK_LOCK and the fencing token of this grant in
/// MONOLOCK_TOKEN. If the claim is lost, CMD and all that descends from it get SIGTERM, and SIGKILL in time to be dead
/// 0.9 × lease after the claim's last confirmation. What CMD leaves running when it ends gets SIGTERM, and SIGKILL a second
/// later; then the lock is released. That includes who left CMD's process group (setsid, timeout, a daemon): what is to
/// outlive CMD is started by the service manager. What cannot be stopped (another user's, or stuck in the kernel) is named.
///
/// While it waits, it connects again when the server restarts or cannot be reached: after 0.1 s at first, 5 s at
/// last, at the end of the queue. It goes on until --wait is over, or without it for ever; a refusal for good and a
/// kick by an administrator end it. A lock that is held does not outlive its connection: a restart of the server stops
/// CMD (status 74).
///
/// At a terminal it tells what it waits for. Elsewhere it only says what is wrong; -v says everything.
///
/// At a terminal CMD belongs to the shell's job, as if it had been started alone: it may read the terminal, and Ctrl-C,
/// Ctrl-Z, fg and bg reach it. A stopped CMD keeps the lock, and a line says so. A stopped job that still waits keeps its place;
/// a turn that comes meanwhile goes to the next in the line. Elsewhere CMD has a process group of its own.
///
/// Signals (HUP, INT, QUIT, TERM, USR1, USR2, ALRM) are forwarded to CMD's group; while waiting they end the wait. CMD starts with
/// the signals blocked and ignored that it would have alone.
///
/// A second process (`monolock run-guardian`) stops CMD when `monolock run` is stopped or late, and kills all at once when
/// `monolock run` is killed; who left CMD's group, and at a terminal everybody but CMD itself, is then known by the two variables
/// alone. If the guardian is killed, `monolock run` stops CMD (status 70). If both are, the kernel kills CMD itself; children of
/// CMD go on.
#[derive(Debug, clap::Args)]
#[command(after_help = status::HELP, override_usage = USAGE)]
pub struct RunArgs {
    #[command(flatten)]
    flags: Flags<Run>,
    /// Give up, with status 75, when the lock was not acquired in this time; with 69 if the server cannot be reached
    /// at its end. 0 is --try.
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "try_once")]
    wait: Option<Duration>,
    /// Give up at once, with status 75, when the lock is held; with 69 if the server cannot be reached.
    #[arg(short = 'n', long = "try")]
    try_once: bool,
    /// The status instead of 75 when another client holds the lock, at once (--try) or still (--wait).
    #[arg(short = 'E', long, value_name = "STATUS")]
    conflict_exit_code: Option<u8>,
    /// Tell of the wait, of each attempt to connect, and of the lock's token.
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Only say what is wrong, also at a terminal.
    #[arg(short, long)]
    quiet: bool,
    /// Instead of CMD: this, by the shell in $SHELL, or /bin/sh.
    #[arg(short = 'c', long = "command", value_name = "SCRIPT", allow_hyphen_values = true)]
    script: Option<OsString>,
    /// The lock. A name that begins with a dash has a -- before it.
    name: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs to the end; the status is CMD's, or one of those in [`status`]. `unknown_variables` are those of the environment that
/// look like ours and are none.
pub fn run(settings: &RunSettings, unknown_variables: &[String]) -> ExitCode {
    if let Err(error) = std::fs::metadata(THIS_PROGRAM) {
        return cannot_start(&format!("it needs /proc, where {THIS_PROGRAM} cannot be found: {error}"));
    }
    match Need::of_this_process() {
        // The first argument after the program's name is this subcommand's.
        Some(need) => front::stand(&need, std::env::args_os().skip(2))
            .unwrap_or_else(|error| cannot_start(&format!("starting its keeper: {error}"))),
        None => keep(settings, unknown_variables, None),
    }
}

/// The same as a front's keeper.
pub fn keep_for_front(settings: &RunSettings, unknown_variables: &[String]) -> ExitCode {
    match ToFront::take() {
        Ok(front) => keep(settings, unknown_variables, Some(front)),
        Err(error) => cannot_start(&format!("hearing of its front: {error}")),
    }
}

/// Nothing runs yet that a blocked standard error could keep up.
fn cannot_start(problem: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "monolock run: {problem}");
    ExitCode::from(status::OS_ERROR)
}

fn keep(settings: &RunSettings, unknown_variables: &[String], front: Option<ToFront>) -> ExitCode {
    let started = Inherited::put_aside().and_then(|inherited| Ok((inherited, Voice::start()?)));
    let (mut inherited, (voice, _flush)) = match started {
        Ok(started) => started,
        Err(error) => return cannot_start(&format!("starting: {error}")),
    };
    if let Some(front) = &front {
        inherited.ignored = front.ignored;
    }
    let last_words = voice.clone();
    // The group is killed after these: they must not block either.
    panic::set_hook(Box::new(move |panic| last_words.say(format_args!("{panic}"))));
    for name in unknown_variables {
        voice.say(format_args!(
            "the variable {name} is none of monolock's: mistyped? monolock run --help lists them"
        ));
    }
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(os_error(&voice, "starting", &error)),
    };
    ExitCode::from(runtime.block_on(run_until_done(settings, (inherited, front), &voice)))
}

async fn run_until_done(
    settings: &RunSettings,
    (inherited, front): (Inherited, Option<ToFront>),
    voice: &Voice,
) -> u8 {
    let queue = settings.queue(boottime_ns());
    let RunSettings { acquire: wanted, address, .. } = settings;
    let config = match settings.tls.as_ref().map(tls::TlsFiles::read).transpose() {
        Ok(None) => Config::new(address),
        Ok(Some(tls)) => Config::new(address).with_tls(tls),
        Err(problem) => {
            voice.say(format_args!("{problem}"));
            return status::USAGE;
        }
    };
    let (mut signals, mut children, mut alarm) = match senses(&inherited, front) {
        Ok(senses) => senses,
        Err(error) => return os_error(voice, "watching signals and time", &error),
    };
    let subject = Subject { name: wanted.name.as_str(), address, patience: queue.patience() };
    let senses = Senses { signals: &mut signals, children: &mut children, alarm: &mut alarm };
    let (connection, token) = match acquire(&config, wanted, queue, senses, (voice, &subject)).await {
        Ok(acquired) => acquired,
        Err(code) => return code,
    };
    let runner = Runner {
        guarded: None,
        settings,
        inherited,
        voice,
        watch: Watch::new(wanted.lease, settings.kill_after.map(duration_ns)),
        connection,
        signals,
        children,
        alarm,
        tell_ns: wanted.lease.as_ns() / TELL_DIVISOR,
        children_changed: false,
    };
    runner.drive(token).await
}

impl RunSettings {
    fn queue(&self, now_ns: u64) -> Queue {
        let patience = match self.wait {
            Wait::Endless => Patience::Endless,
            Wait::OneAnswer => Patience::OneAnswer,
            Wait::For(wait) => Patience::Until(now_ns + duration_ns(wait)),
        };
        let by_itself = if io::stderr().is_terminal() { Talk::Waits } else { Talk::Faults };
        Queue::new(now_ns, patience, self.taken, self.talk.unwrap_or(by_itself))
    }
}

/// Made before anything else is done, so that no signal is missed.
fn senses(inherited: &Inherited, front: Option<ToFront>) -> io::Result<(Signals, Children, Alarm)> {
    Ok((Signals::new(inherited, front)?, Children::new()?, Alarm::new()?))
}

/// Brings to the watch what happens, and does what it says.
struct Runner<'a> {
    /// Before the connection, so that it also ends first when this is dropped by a panic.
    guarded: Option<Guarded>,
    settings: &'a RunSettings,
    inherited: Inherited,
    voice: &'a Voice,
    watch: Watch,
    connection: Connection,
    signals: Signals,
    children: Children,
    alarm: Alarm,
    /// The time from one look at the claim's confirmation to the next.
    tell_ns: u64,
    /// Somebody may have ended whose end nobody was told.
    children_changed: bool,
}

/// The command and who guards it.
struct Guarded {
    group: Group,
    guard: Guard,
}

impl Runner<'_> {
    async fn drive(mut self, token: Token) -> u8 {
        match self.start(token).await {
            Ok(guarded) => self.guarded = Some(guarded),
            Err(error) => return os_error(self.voice, "starting the command", &error),
        }
        loop {
            match self.next_step().await {
                Step::Wait => {}
                Step::Forward(signal) => self.group().forward(signal),
                Step::Terminate => self.stop(Group::terminate),
                Step::Kill => self.stop(Group::kill),
                Step::Finish(code) => return self.finish(code).await,
            }
            if let Some(Guarded { guard, .. }) = &mut self.guarded {
                guard.tell(self.watch.deadlines(self.connection.confirmed_ns()));
            }
        }
    }

    /// The claim comes first: what happened together with its loss happened too late.
    async fn next_step(&mut self) -> Step {
        let left_over = self.guarded.as_ref().is_some_and(|guarded| guarded.group.is_ending());
        let (watch, voice) = (&mut self.watch, self.voice);
        let tell_ns = boottime_ns() + self.tell_ns;
        let wake_ns = watch.wake_ns().map_or(tell_ns, |wake_ns| wake_ns.min(tell_ns));
        tokio::select! {
            biased;
            event = self.connection.next_event() => match event {
                Event::Lost(loss) => {
                    voice.say(format_args!("lost the claim on {}: {loss}; stopping the command", self.settings));
                    watch.lost(boottime_ns(), &loss, self.connection.confirmed_ns())
                }
                Event::Waiting | Event::Acquired(_) => unreachable!("the lock was acquired already"),
            },
            () = self.alarm.wait_until(wake_ns) => watch.alarm(boottime_ns()),
            signal = self.signals.next() => match signal {
                Signal::KILL => watch.deserted(boottime_ns()),
                Signal::CONT => {
                    self.group().go_on();
                    Step::Wait
                }
                signal => watch.signal(signal),
            },
            () = std::future::ready(()), if self.children_changed => self.look_at_children(),
            () = self.children.changed() => {
                self.children_changed = true;
                Step::Wait
            }
            () = tokio::time::sleep(GROUP_POLL), if left_over => self.look_at_group(Step::Wait),
        }
    }

    /// What became of the children, one at a time.
    fn look_at_children(&mut self) -> Step {
        let Guarded { group, guard } = self.guarded.as_mut().expect("there are children");
        if let Some(ended) = group.try_end() {
            if ended.signal().is_some() {
                self.signals.restore_terminal();
            }
            let mut code = status::of_command(ended);
            if let Begun::Failed(error) = group.begun() {
                self.voice.say(format_args!("cannot run {}: {error}", self.settings.command[0].display()));
                code = status::of_spawn_error(&error);
            }
            let is_held = self.connection.is_held();
            let step = self.watch.ended(boottime_ns(), code, is_held, self.connection.confirmed_ns());
            return self.look_at_group(step);
        }
        match guard.try_end() {
            // The group is gone: the next look at it finds that too.
            Some(Ended::Left(Verdict::Idle)) => Step::Wait,
            Some(Ended::Left(Verdict::Acted)) => {
                say_overruled(self.voice, self.settings, &self.watch);
                self.watch.overruled(boottime_ns())
            }
            Some(Ended::Failed) => {
                let settings = self.settings;
                self.voice.say(format_args!("{settings}: the guardian was killed; stopping the command"));
                self.watch.unguarded(boottime_ns())
            }
            None => {
                self.children_changed = self.look_at_others();
                Step::Wait
            }
        }
    }

    /// A stop of the command, and the end of an orphan. Whether there may be more.
    fn look_at_others(&mut self) -> bool {
        let Guarded { group, guard } = self.guarded.as_mut().expect("there are children");
        if group.try_stop() {
            let (name, address) = (self.settings.acquire.name.as_str(), &self.settings.address);
            let how = if self.signals.command_shares_group() {
                "fg continues it".to_owned()
            } else {
                format!("SIGCONT to process {} continues it", group.id())
            };
            self.voice
                .say(format_args!("the command is stopped and keeps {name:?} at {address} locked: {how}"));
            self.signals.command_stopped(group.id());
        }
        let orphan = members::ended_child().filter(|child| ![group.id(), guard.id()].contains(child));
        orphan.is_some_and(|orphan| {
            members::reap(orphan);
            true
        })
    }

    /// The end, if the group is gone, and else this step.
    fn look_at_group(&mut self, step: Step) -> Step {
        let group = &mut self.guarded.as_mut().expect("its leader ended").group;
        if group.is_gone() { self.watch.gone(!matches!(group.begun(), Begun::No)) } else { step }
    }

    /// The order makes it safe: the group exists but does nothing, the guardian knows it, the guardian lets it go.
    async fn start(&mut self, token: Token) -> io::Result<Guarded> {
        let name = self.settings.acquire.name.as_str();
        set_child_subreaper(Some(getpid()))?;
        let shares_group = self.signals.command_shares_group();
        let (leader, line) =
            starter::spawn(&self.settings.command, name, token, (self.inherited, shares_group))?;
        let id = Pid::from_child(&leader);
        let group = if shares_group { members::own_group() } else { Some(id) };
        let mut guarded = Group::led_by(leader, line, Kin::new(id, group, Some(getpid()), None));
        for signal in self.signals.command_exists().await {
            guarded.forward(signal);
        }
        let deadlines = self.watch.deadlines(self.connection.confirmed_ns());
        let connection = self.connection.as_fd().try_clone_to_owned()?;
        let command = guard::Command { leader: id, group, name, token };
        let guard = Guard::spawn(&command, guarded.line_for_guardian()?, connection, deadlines)?;
        guarded.has_guardian(guard.id());
        Ok(Guarded { group: guarded, guard })
    }

    fn group(&mut self) -> &mut Group {
        &mut self.guarded.as_mut().expect("the watch orders this only after the start").group
    }

    fn stop(&mut self, stop: impl FnOnce(&mut Group)) {
        stop(self.group());
        for process in self.group().newly_out_of_reach() {
            self.voice.say(format_args!(
                "process {} ({}) runs as another user and cannot be stopped: it may go on without the lock",
                process.pid.as_raw_pid(),
                process.name()
            ));
        }
    }

    /// The lock first, for whoever waits for it. The group's number is given back when the guardian has left and nobody
    /// signals it any more.
    async fn finish(self, code: u8) -> u8 {
        let Self { mut guarded, connection, mut children, .. } = self;
        for process in guarded.iter_mut().flat_map(|guarded| guarded.group.left()) {
            self.voice.say(format_args!(
                "process {} ({}) did not end by SIGKILL in a second: it may go on without the lock",
                process.pid.as_raw_pid(),
                process.name()
            ));
        }
        // The guardian has it open too; a connection that is gone already needs no end.
        let _ = rustix::net::shutdown(&connection, rustix::net::Shutdown::Both);
        drop(connection);
        let Some(Guarded { group, mut guard }) = guarded else { return code };
        guard.dismiss();
        let ended = guard.left(&mut children).await;
        group.release();
        if ended == Ended::Left(Verdict::Acted) && code != status::LOST {
            say_overruled(self.voice, self.settings, &self.watch);
            return status::LOST;
        }
        code
    }
}

fn say_overruled(voice: &Voice, settings: &RunSettings, watch: &Watch) {
    if !watch.is_lost() {
        voice.say(format_args!(
            "the claim on {settings} was not kept in time: the guardian stopped the command"
        ));
    }
}

fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("parsed to fit in 63 bits")
}

fn os_error(voice: &Voice, what: &str, error: &io::Error) -> u8 {
    voice.say(format_args!("{what}: {error}"));
    status::OS_ERROR
}
