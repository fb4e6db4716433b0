//! The servers that have said hello: the one that is connected, and every process that may still live.
//!
//! A connection that ends says nothing about its process. So each process stays known by its pidfd until that
//! shows its exit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ha::fence::Levels;
use ha::identity::{BootId, Incarnation};
use ha::term::NodeId;
use logging::seldom::Seldom;
use rustix::process::geteuid;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{Level, info, warn};

use crate::clock;
use crate::health::HealthFile;
use crate::process::Process;
use crate::state::Last;
use crate::vigil::{BEAT_MS, Vigil};
use crate::wire::{Connection, FromAgent, FromServer, Hello, Opening, VERSION};

/// Connections at once. There is one server; others are mistakes.
const CONNECTIONS_MAX: usize = 8;

/// How long a connection may take to say hello.
const HELLO_TIME_MAX: Duration = Duration::from_secs(1);

/// Questions to the server on their way: the peer has no more connections.
const QUESTIONS_MAX: usize = 16;

/// Between two looks whether a server is still well. Beats come as often, so it matters only when none does;
/// and after a suspend of the machine, which tokio's clock does not see.
const LOOK_EVERY: Duration = Duration::from_millis(BEAT_MS);

/// The pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How often a visitor that is not let in is logged: it comes again at once.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Shared by the connections and by whoever answers the peer.
#[derive(Debug, Clone)]
pub(crate) struct Servers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: NodeId,
    boot: BootId,
    inner: Mutex<Inner>,
    /// A server has connected, or its connection has ended.
    changed: Notify,
    refused: Seldom,
}

#[derive(Debug)]
struct Inner {
    health: HealthFile,
    vigil: Vigil,
    connected: Option<Connected>,
    /// Those that may still live.
    processes: Vec<Arc<Process>>,
    last: Last,
    /// Of the flags: what a server listens on that has never said hello.
    own_ports: Vec<u16>,
    is_ending: bool,
    connections: u64,
}

#[derive(Debug)]
struct Connected {
    number: u64,
    incarnation: Incarnation,
    process: Arc<Process>,
    /// The only sender: when another connection takes this place, the one before ends.
    questions: mpsc::Sender<Question>,
}

/// What the task of a connection has of it.
#[derive(Debug)]
struct Place {
    number: u64,
    process: Arc<Process>,
    questions: mpsc::Receiver<Question>,
}

/// The peer's question on its way to the server.
#[derive(Debug)]
struct Question {
    request: Box<RawValue>,
    answer: oneshot::Sender<Box<RawValue>>,
}

/// Why a server gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It is connected and says nothing.
    Silent,
    /// No server is connected, or the connection has ended.
    Away,
}

impl Servers {
    /// None yet. The health file is away.
    pub(crate) fn new(
        health: HealthFile,
        node: NodeId,
        boot: BootId,
        fencers: Levels,
        ports: Vec<u16>,
    ) -> Self {
        let last = Last { started_ns: 0, fencers, ports: ports.clone() };
        let inner = Inner {
            health,
            vigil: Vigil::default(),
            connected: None,
            processes: Vec::new(),
            last,
            own_ports: ports,
            is_ending: false,
            connections: 0,
        };
        let refused = Seldom::new("a server was not let in", Level::WARN, WARN_INTERVAL);
        Self(Arc::new(Shared { node, boot, inner: Mutex::new(inner), changed: Notify::new(), refused }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The health file goes and does not come back.
    pub(crate) fn end(&self) {
        let mut inner = self.inner();
        inner.is_ending = true;
        inner.look();
    }

    /// What an answer from the disk needs to know.
    pub(crate) fn last(&self) -> Last {
        self.inner().last.clone()
    }

    /// The processes that have said hello and have not exited.
    pub(crate) fn living(&self) -> Vec<Arc<Process>> {
        let mut inner = self.inner();
        inner.processes.retain(|process| !process.has_exited());
        inner.processes.clone()
    }

    /// Returns when a server connects or leaves, or at the latest after this time.
    pub(crate) async fn change(&self, time_max: Duration) {
        // A change that is missed here costs no more than the time.
        let _ = timeout(time_max, self.0.changed.notified()).await;
    }

    /// Asks the connected server.
    pub(crate) async fn ask(
        &self,
        request: &RawValue,
        time_max: Duration,
    ) -> Result<Box<RawValue>, Unanswered> {
        let questions = self.inner().connected.as_ref().map(|connected| connected.questions.clone());
        let (answer, is_answered) = oneshot::channel();
        let question = Question { request: request.to_owned(), answer };
        let questions = questions.ok_or(Unanswered::Away)?;
        let asking = async move {
            questions.send(question).await.map_err(|_| Unanswered::Away)?;
            is_answered.await.map_err(|_| Unanswered::Away)
        };
        timeout(time_max, asking).await.unwrap_or(Err(Unanswered::Silent))
    }

    /// Lets servers in until dropped.
    pub(crate) async fn serve(self, listener: UnixListener) {
        let mut connections = JoinSet::new();
        let failing = Seldom::new("cannot accept a server", Level::WARN, WARN_INTERVAL);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
                // A panic there ends the agent: nobody would look after that server's health file any more.
                Some(ended) = connections.join_next() => {
                    ended.expect("a connection does not panic");
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    let servers = self.clone();
                    connections.spawn(async move { servers.connection(stream).await });
                }
                Err(error) => {
                    if failing.may_log() {
                        warn!(%error, "cannot accept a server");
                    }
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    async fn connection(&self, stream: UnixStream) {
        // Whoever connected; where its user cannot be told, nobody.
        let sender = stream.peer_cred().ok();
        let (uid, id) = sender.map_or((None, None), |sender| (Some(sender.uid()), sender.pid()));
        let mut connection = Connection::new(stream);
        let introduced = match (uid, id) {
            (Some(uid), Some(id)) => self.introduced(uid, id, &mut connection).await,
            _ => Err("its process cannot be seen from here".into()),
        };
        let let_in = introduced.and_then(|(hello, process)| self.let_in(&hello, process));
        let mut place = match let_in {
            Ok(place) => place,
            Err(why) => {
                if self.0.refused.may_log() {
                    warn!(process = id, why, "a server is not let in: no answer on its behalf");
                }
                let _ = connection.send(&FromAgent::Refused { why });
                return;
            }
        };
        info!(process = place.process.id(), "a server has connected");
        let health_file = self.inner().health.path().to_owned();
        let why = match connection.send(&FromAgent::Welcome { health_file }) {
            Ok(()) => self.converse(&mut connection, &mut place).await,
            Err(error) => error.to_string(),
        };
        self.left(&place, &why);
    }

    /// Who has connected.
    async fn introduced(
        &self,
        uid: u32,
        id: i32,
        connection: &mut Connection,
    ) -> Result<(Hello, Process), String> {
        let own = geteuid().as_raw();
        if uid != own && uid != 0 {
            return Err(format!("it runs as user {uid}, and the agent as user {own}"));
        }
        let hello = timeout(HELLO_TIME_MAX, connection.receive_with::<Box<RawValue>>()).await;
        let hello = hello.map_err(|_| "it says nothing".to_owned())?;
        let (hello, pidfd) = hello.map_err(|error| error.to_string())?;
        let version =
            serde_json::from_str::<Version>(hello.get()).map_err(|error| error.to_string())?.version;
        if version != VERSION {
            return Err(format!(
                "it speaks version {version} of the agent's protocol, and the agent version {VERSION}: restart \
                 the older one of both"
            ));
        }
        let hello: Opening<Hello> = serde_json::from_str(hello.get()).map_err(|error| error.to_string())?;
        let process = Process::of(pidfd, id).map_err(|error| error.to_string())?;
        Ok((hello.hello, process))
    }

    /// Makes a server the connected one.
    fn let_in(&self, hello: &Hello, process: Process) -> Result<Place, String> {
        if hello.node != self.0.node {
            return Err(format!("it is node {}, and the agent is for node {}", hello.node, self.0.node));
        }
        if hello.incarnation.boot != self.0.boot {
            return Err("it is of another boot".into());
        }
        let mut inner = self.inner();
        if let Some(other) = &inner.connected
            && other.incarnation != hello.incarnation
            && !other.process.has_exited()
        {
            return Err(format!("process {} is connected, and runs", other.process.id()));
        }
        inner.processes.retain(|known| !known.has_exited() && known.id() != process.id());
        let process = Arc::new(process);
        inner.processes.push(Arc::clone(&process));
        let mut ports = inner.own_ports.clone();
        ports.extend(hello.ports.iter().filter(|port| !inner.own_ports.contains(port)));
        inner.last = Last { started_ns: hello.incarnation.started_ns, fencers: hello.fencers.clone(), ports };
        inner.vigil.lost();
        inner.look();
        inner.connections += 1;
        let (questions, to_ask) = mpsc::channel(QUESTIONS_MAX);
        let number = inner.connections;
        let place = Place { number, process: Arc::clone(&process), questions: to_ask };
        inner.connected = Some(Connected { number, incarnation: hello.incarnation, process, questions });
        self.0.changed.notify_waiters();
        Ok(place)
    }

    /// Hears and asks a server until its connection or its process ends; says why.
    async fn converse(&self, connection: &mut Connection, place: &mut Place) -> String {
        let mut asked: HashMap<u64, oneshot::Sender<Box<RawValue>>> = HashMap::new();
        let mut number = 0;
        loop {
            tokio::select! {
                biased;
                message = connection.receive::<FromServer>() => match message {
                    Ok(FromServer::Beat { sent_ns, ready }) => {
                        self.beat(place.number, sent_ns, ready);
                        if let Err(error) = connection.send(&FromAgent::Alive) {
                            return error.to_string();
                        }
                    }
                    Ok(FromServer::Answer { id, answer }) => {
                        // Whoever asked may have given up.
                        let _ = asked.remove(&id).map(|asker| asker.send(answer));
                    }
                    Err(error) => return error.to_string(),
                },
                question = place.questions.recv() => {
                    let Some(Question { request, answer }) = question else {
                        return "another connection has taken its place".into();
                    };
                    number += 1;
                    asked.retain(|_, asker| !asker.is_closed());
                    asked.insert(number, answer);
                    if let Err(error) = connection.send(&FromAgent::Ask { id: number, request }) {
                        return error.to_string();
                    }
                }
                () = sleep(self.next_look()) => {
                    // The end of a process ends its connection, unless a child of it has inherited that.
                    if place.process.has_exited() {
                        return "it has exited".into();
                    }
                    self.inner().look();
                }
            }
        }
    }

    fn beat(&self, number: u64, sent_ns: u64, ready: bool) {
        let mut inner = self.inner();
        if inner.connected.as_ref().is_some_and(|now| now.number == number) {
            inner.vigil.beat(sent_ns, ready, clock::boot_ns());
            inner.look();
        }
    }

    fn next_look(&self) -> Duration {
        let left = self.inner().vigil.left_ns(clock::boot_ns());
        left.map_or(LOOK_EVERY, |left_ns| LOOK_EVERY.min(Duration::from_nanos(left_ns)))
    }

    /// A connection has ended. The process stays known.
    fn left(&self, place: &Place, why: &str) {
        let mut inner = self.inner();
        if inner.connected.as_ref().is_some_and(|now| now.number == place.number) {
            inner.connected = None;
            inner.vigil.lost();
            inner.look();
        }
        drop(inner);
        self.0.changed.notify_waiters();
        info!(process = place.process.id(), exited = place.process.has_exited(), why, "the server has left");
    }
}

impl Inner {
    /// Lets the health file say what is so now.
    fn look(&mut self) {
        let fault = if self.is_ending { Some("the agent ends") } else { self.vigil.fault(clock::boot_ns()) };
        self.health.set(fault);
    }
}

/// All that is read of a hello before its version is known.
#[derive(Deserialize)]
struct Version {
    version: u32,
}
