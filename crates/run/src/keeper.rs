//! The keeper: it has the connection, waits for the lock, has the command started, and keeps it for as long
//! as the claim lives.
//!
//! Until the lock is held, [`queue`](super::queue) decides and [`acquire`](super::acquire) does. From then on
//! [`watch`](super::watch) decides, and [`Runner`] does.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::process::ExitCode;
use std::time::Duration;

use super::{guard, members, starter, status, tls};
use client::{Alarm, Config, Connection, Event, boottime_ns};
use protocol::Token;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};

use super::acquire::{Senses, acquire};
use super::group::Group;
use super::guard::{Guard, GuardianEnd};
use super::kin::Kin;
use super::queue::{Patience, Queue, Talk};
use super::settings::RunSettings;
use super::settings::Wait;
use super::signals::{Children, Inherited, Signals};
use super::starter::Begun;
use super::to_front::ToFront;
use super::vigil::Verdict;
use super::voice::Voice;
use super::watch::{Step, Watch};
use super::words::Subject;
use threads::runtime;

/// How often it is asked who is left of a command that has ended or was killed. Nothing else reports that,
/// and a look at /proc takes some 0.6 ms on a machine with 90 processes.
const GROUP_POLL: Duration = Duration::from_millis(5);

/// The guardian is told of new confirmations this many times a lease, which is four times as often as there
/// is one.
const TELL_DIVISOR: u64 = 16;

/// Nothing runs yet that a blocked standard error could keep up.
pub(crate) fn cannot_start(problem: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "monolock run: {problem}");
    ExitCode::from(status::OS_ERROR)
}

pub(crate) fn keep(settings: &RunSettings, unknown_variables: &[String], front: Option<ToFront>) -> ExitCode {
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
            Some(GuardianEnd::Left(Verdict::Idle)) => Step::Wait,
            Some(GuardianEnd::Left(Verdict::Acted)) => {
                say_overruled(self.voice, self.settings, &self.watch);
                self.watch.overruled(boottime_ns())
            }
            Some(GuardianEnd::Failed) => {
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

    /// The order makes it safe: the group exists but does nothing, the guardian knows it, the guardian lets
    /// it go.
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

    /// The lock first, for whoever waits for it. The group's number is given back when the guardian has left
    /// and nobody signals it any more.
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
        if ended == GuardianEnd::Left(Verdict::Acted) && code != status::LOST {
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
