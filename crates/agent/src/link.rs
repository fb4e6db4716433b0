//! The server's side: it is connected to the agent for as long as both live.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ha::message::{Answer, Request};
use serde_json::value::to_raw_value;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::clock;
use crate::health::unlink;
use crate::process::this_process;
use crate::vigil::BEAT_MS;
use crate::wire::{Connection, FromAgent, FromServer, Hello, Opening, VERSION};

/// Between two tries to connect.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The same after a refusal, which is not over soon.
const AGAIN_AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// How long an agent may take to say welcome.
const WELCOME_TIME_MAX: Duration = Duration::from_secs(1);

/// Beats without an echo after which the agent hangs: a second of them. Not a time: when this process was
/// stopped, it has sent none.
const UNANSWERED_MAX: u32 = 20;

/// Questions that wait for the server. The agent passes on what the peer's few connections ask.
const QUESTIONS_MAX: usize = 16;

/// A server's connection to its agent. Dropped, it takes the health file away.
#[derive(Debug)]
pub struct Link {
    ready: watch::Sender<bool>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// Since when a server is connected, or is not: CLOCK_BOOTTIME, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The agent has said welcome, and echoes beats.
    Connected {
        /// Since.
        since_ns: u64,
    },
    /// It does not.
    Away {
        /// Since.
        since_ns: u64,
    },
}

/// A question of the peer.
#[derive(Debug)]
pub struct Question {
    /// What it asks.
    pub request: Request,
    id: u64,
    answers: mpsc::UnboundedSender<(u64, Answer)>,
}

impl Question {
    /// Answers it, over the connection that it came by. Without an answer the peer gets none.
    pub fn answer(self, answer: Answer) {
        // The connection may have ended.
        let _ = self.answers.send((self.id, answer));
    }
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    opening: Opening<Hello>,
    questions: mpsc::Sender<Question>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    standing: Standing,
    /// Of the agent that was connected last.
    health_file: Option<PathBuf>,
}

/// Why there is no connection, and when to try again.
type Broken = (String, Duration);

impl Link {
    /// Connects to the agent's socket, for ever, with a task on the current runtime: the control
    /// thread's, so that a control thread that hangs does not beat. A server calls it after it has taken
    /// its state lock, and is not ready before [`Link::set_ready`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(socket: &Path, hello: Hello) -> (Self, mpsc::Receiver<Question>) {
        let (ready, readiness) = watch::channel(false);
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let standing = Standing::Away { since_ns: clock::boot_ns() };
        let shared = Arc::new(Shared {
            socket: socket.into(),
            opening: Opening { version: VERSION, hello },
            questions,
            now: Mutex::new(Now { standing, health_file: None }),
        });
        let task = tokio::spawn(connect_for_ever(Arc::clone(&shared), readiness));
        (Self { ready, shared, task }, asked)
    }

    /// Whether this server is fit to have the address: goes with each beat, and a change at once.
    pub fn set_ready(&self, ready: bool) {
        self.ready.send_if_modified(|now| std::mem::replace(now, ready) != ready);
    }

    /// Whether there is an agent, for readiness.
    pub fn standing(&self) -> Standing {
        self.shared.now().standing
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.broken();
    }
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn welcomed(&self, health_file: PathBuf) {
        let mut now = self.now();
        now.standing = Standing::Connected { since_ns: clock::boot_ns() };
        now.health_file = Some(health_file);
    }

    /// Without an agent nobody would take the health file away when this process ends.
    fn broken(&self) {
        let mut now = self.now();
        if let Standing::Connected { .. } = now.standing {
            now.standing = Standing::Away { since_ns: clock::boot_ns() };
        }
        if let Some(file) = now.health_file.take()
            && let Err(error) = unlink(&file)
        {
            warn!(%error, path = %file.display(), "the health file cannot be removed");
        }
    }
}

async fn connect_for_ever(shared: Arc<Shared>, mut readiness: watch::Receiver<bool>) {
    let mut said = String::new();
    loop {
        let (why, pause) = match connection(&shared, &mut readiness).await {
            Err(broken) => broken,
            Ok(never) => match never {},
        };
        let was_connected = matches!(shared.now().standing, Standing::Connected { .. });
        shared.broken();
        if was_connected || why != said {
            warn!(why, socket = %shared.socket.display(), "not connected to the agent");
            said = why;
        }
        sleep(pause).await;
    }
}

/// A connection, from its begin to its end.
async fn connection(
    shared: &Shared,
    readiness: &mut watch::Receiver<bool>,
) -> Result<std::convert::Infallible, Broken> {
    let broken = |error: io::Error| (error.to_string(), AGAIN_AFTER);
    let stream = UnixStream::connect(&shared.socket).await.map_err(broken)?;
    let mut connection = Connection::new(stream);
    let this = this_process().map_err(broken)?;
    connection.send_with(&shared.opening, std::os::fd::AsFd::as_fd(&this)).await.map_err(broken)?;
    drop(this);
    let silent = |_| ("the agent says nothing".to_owned(), AGAIN_AFTER);
    match timeout(WELCOME_TIME_MAX, connection.receive()).await.map_err(silent)?.map_err(broken)? {
        FromAgent::Welcome { health_file } => shared.welcomed(health_file),
        FromAgent::Refused { why } => return Err((format!("refused: {why}"), AGAIN_AFTER_REFUSAL)),
        FromAgent::Alive | FromAgent::Ask { .. } => {
            return Err(("the agent says something else than welcome".into(), AGAIN_AFTER_REFUSAL));
        }
    }
    info!("connected to the agent");
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut beats = interval(Duration::from_millis(BEAT_MS));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unanswered = 0;
    loop {
        tokio::select! {
            biased;
            message = connection.receive() => match message.map_err(broken)? {
                FromAgent::Alive => unanswered = 0,
                FromAgent::Ask { id, request } => {
                    // What this version does not understand gets no answer; nor does what comes too fast.
                    if let Ok(request) = serde_json::from_str(request.get()) {
                        let question = Question { request, id, answers: answers.clone() };
                        let _ = shared.questions.try_send(question);
                    }
                }
                FromAgent::Welcome { .. } | FromAgent::Refused { .. } => {}
            },
            // This very task has a sender, so there is always one.
            Some((id, answer)) = answered.recv() => {
                let answer = to_raw_value(&answer).expect("an answer is plain data");
                connection.send(&FromServer::Answer { id, answer }).map_err(broken)?;
            }
            // Whoever changes it lives as long as this task, or ends it.
            Ok(()) = readiness.changed() => beat(&connection, readiness).map_err(broken)?,
            _ = beats.tick() => {
                if unanswered >= UNANSWERED_MAX {
                    return Err(("the agent has not answered for a second".into(), AGAIN_AFTER));
                }
                unanswered += 1;
                beat(&connection, readiness).map_err(broken)?;
            }
        }
    }
}

fn beat(connection: &Connection, readiness: &mut watch::Receiver<bool>) -> io::Result<()> {
    let ready = *readiness.borrow_and_update();
    connection.send(&FromServer::Beat { sent_ns: clock::boot_ns(), ready })
}
