//! One of two nodes: when this server may grant, and how the other one is kept from it.
//!
//! What is decided is in `crates/ha`; here it meets the gate, the disk, the peer and the fencers.

mod driver;
mod facts;
mod fencers;
mod metrics;
mod seen;
mod state;

use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::{Hello, Link, Question};
use audit::Recorder;
use cli::ListenAddress;
use ha::identity::Incarnation;
use ha::message::{Answer, Request};
use ha::pair::{Command, Outcome, Pace, Pair, Setup};
use ha::stored::Stored;
use locks::TokenSource;
use peer::{Allowed, Credentials, Peer};
use protocol::Token;
use threads::Workers;
use tls::Mutual;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use driver::{Driver, Order, Parts};
use facts::FactsSource;
pub(crate) use metrics::{HaMetrics, LEVELS_MAX, ROLES, Transition};
pub(crate) use seen::Seen;
use state::StateDir;
pub(crate) use state::StateError;

use crate::addresses;
use crate::clock;
use crate::gate::Gate;
use crate::listener::{self, BindError};
use crate::metrics::Published;
use crate::settings::{Ear, PairSettings, ServeSettings};
use crate::shard::Wakers;

/// Commands and requests that may wait for the driver, which takes microseconds for each.
const ORDERS_MAX: usize = 64;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{flag} {0}", flag = flag_of(.0.of))]
    Files(#[from] tls::FileError),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error("cannot start the thread that writes the state directory: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// The system's matter, and not one of the configuration.
    pub(crate) fn is_system(&self) -> bool {
        match self {
            Self::State(error) => error.is_system(),
            Self::Files(_) => false,
            Self::Listen(_) | Self::Thread(_) => true,
        }
    }
}

/// The flag that names a file of the peer's connection.
pub(crate) fn flag_of(file: tls::FileOf) -> &'static str {
    match file {
        tls::FileOf::Certificate => crate::settings::HA_CERT.flag.name,
        tls::FileOf::Key => crate::settings::HA_KEY.flag.name,
        tls::FileOf::ClientCa => crate::settings::HA_CA.flag.name,
    }
}

/// What a node has before its shards run: its files are in order, and nobody else uses its state.
pub(crate) struct Prepared {
    state: StateDir,
    stored: Stored,
    credentials: Credentials,
    incarnation: Incarnation,
}

impl Prepared {
    /// Reads the files and takes the state directory. May wait for a server of this node that ends.
    pub(crate) fn new(settings: &PairSettings) -> Result<Self, StartError> {
        let mutual = load(&settings.cert, &settings.key, &settings.authorities)?;
        let (state, stored) = StateDir::open(&settings.state)?;
        let incarnation = Incarnation { boot: state::boot_id()?, started_ns: clock::boot_ns() };
        Ok(Self { state, stored, credentials: Credentials::new(mutual), incarnation })
    }

    /// The node's tokens: none before it is promoted.
    pub(crate) fn tokens(&self) -> Arc<TokenSource> {
        Arc::new(TokenSource::with_ceiling(Token(self.stored.ceiling.ceiling.0)))
    }
}

fn load(cert: &Path, key: &Path, authorities: &Path) -> Result<Mutual, tls::FileError> {
    Mutual::load(cert, key, authorities)
}

/// What a node works with.
pub(crate) struct Around {
    pub(crate) gate: Arc<Gate>,
    pub(crate) tokens: Arc<TokenSource>,
    pub(crate) wakers: Wakers,
    pub(crate) published: Vec<Arc<Published>>,
    pub(crate) addresses: addresses::Shared,
    pub(crate) audit: Option<Recorder>,
    pub(crate) metrics: Arc<HaMetrics>,
    /// Where the connection to the agent is put, for readiness.
    pub(crate) link: SharedLink,
    /// Whether this node may serve.
    pub(crate) is_ready: Box<dyn Fn() -> bool + Send>,
}

/// The connection to the agent, from when there is one.
pub(crate) type SharedLink = Arc<Mutex<Option<Arc<Link>>>>;

/// The way to the node, for the admin API, the ops endpoints and the shutdown. Clones are of the same node.
#[derive(Clone)]
pub(crate) struct Node {
    orders: mpsc::Sender<Order>,
    seen: watch::Receiver<Seen>,
    facts: FactsSource,
    credentials: Credentials,
    setup: Arc<Setup>,
}

/// A node that runs.
pub(crate) struct Running {
    pub(crate) node: Node,
    /// Neither ends.
    pub(crate) tasks: [JoinHandle<()>; 2],
    /// Where the peer asks, for the log.
    pub(crate) address: Option<String>,
}

/// Starts the node; a node that was active resumes if it may.
pub(crate) async fn start(
    settings: &ServeSettings,
    pair: &PairSettings,
    prepared: Prepared,
    around: Around,
) -> Result<Running, StartError> {
    let Prepared { state, stored, credentials, incarnation } = prepared;
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let setup = Arc::new(Setup {
        node: pair.node.clone(),
        peer: pair.peer.id.clone(),
        levels: pair.levels.clone(),
        pace: Pace { fence_delay_ns: ns(pair.fence_delay), ..Pace::default() },
    });
    let allowed = Allowed::from_iter(pair.allowed.iter().cloned());
    let metrics = around.metrics;
    let facts = FactsSource::new(settings, around.published, around.addresses);
    let mut parts = Parts {
        setup: Arc::clone(&setup),
        gate: around.gate,
        tokens: around.tokens,
        wakers: around.wakers,
        peer: Peer::new(pair.peer.addresses.clone(), credentials.clone(), allowed.clone()),
        fence_timeout: pair.fence_timeout,
        audit: around.audit,
        facts: facts.clone(),
        metrics,
        is_ready: around.is_ready,
        disk: Workers::start("ha-state", 1, 4).map_err(StartError::Thread)?,
        link: None,
    };
    let questions = match &pair.ear {
        Ear::Server(_) => None,
        Ear::Agent(socket) => {
            let hello = Hello {
                node: pair.node.clone(),
                host: stored.host,
                incarnation,
                fencers: pair.levels.clone(),
                ports: Some(settings.listen.port()).filter(|&port| port != 0).into_iter().collect(),
            };
            let (link, questions) = Link::start(socket, hello);
            let link = Arc::new(link);
            *around.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&link));
            parts.link = Some(link);
            Some(questions)
        }
    };
    let (node_pair, first) = Pair::start(Arc::clone(&setup), stored, incarnation, clock::boot_ns());
    let (orders, taken) = mpsc::channel(ORDERS_MAX);
    let (driver, seen) = Driver::new(parts, state, node_pair, taken);
    let node = Node { orders, seen, facts, credentials: credentials.clone(), setup };
    let (ear, address) = match (&pair.ear, questions) {
        (Ear::Server(address), _) => {
            let (task, address) = listen(address, credentials, allowed, node.clone()).await?;
            (task, Some(address))
        }
        (Ear::Agent(_), questions) => (tokio::spawn(hear_agent(questions, node.clone())), None),
    };
    Ok(Running { node, tasks: [tokio::spawn(driver.run(first)), ear], address })
}

/// Answers what the agent passes on.
async fn hear_agent(questions: Option<mpsc::Receiver<Question>>, node: Node) {
    let Some(mut questions) = questions else { return std::future::pending().await };
    while let Some(question) = questions.recv().await {
        let node = node.clone();
        tokio::spawn(async move {
            if let Some(answer) = node.answer(question.request.clone()).await {
                question.answer(answer);
            }
        });
    }
    std::future::pending().await
}

async fn listen(
    address: &ListenAddress,
    credentials: Credentials,
    allowed: Allowed,
    node: Node,
) -> Result<(JoinHandle<()>, String), StartError> {
    let listeners: Vec<TcpListener> = listener::bind_all(address, "-ha-listen").await?;
    let shown = listener::addresses(&listeners);
    let answer = move |request: Request| {
        let node = node.clone();
        async move { node.answer(request).await.ok_or_else(|| "this server shuts down".to_owned()) }
    };
    Ok((tokio::spawn(peer::serve(listeners, credentials, allowed, answer)), shown))
}

impl Node {
    /// Has a command carried out, and waits for its end as far as it has one.
    pub(crate) async fn command(&self, command: Command) -> Option<Outcome> {
        let (reply, outcome) = oneshot::channel();
        self.orders.send(Order::Command(command, reply)).await.ok()?;
        outcome.await.ok()
    }

    /// Names the address that moves: its place is told to the peer. Whether it is here.
    pub(crate) fn watch_address(&self, address: IpAddr) -> bool {
        self.facts.watch(address);
        self.facts.is_here(address)
    }

    /// What the peer is answered; waits for as long as that takes.
    async fn answer(&self, request: Request) -> Option<Answer> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(Order::Request(request, reply)).await.ok()?;
        answer.await.ok()
    }

    /// Closes the gate for good.
    pub(crate) async fn stop(&self) {
        let _ = self.orders.send(Order::Stop).await;
    }

    /// This node's name and its peer's.
    pub(crate) fn names(&self) -> (String, String) {
        (self.setup.node.to_string(), self.setup.peer.to_string())
    }

    /// The node as it is.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Connections to the peer from now on use the files as they are now.
    pub(crate) fn reload(&self, settings: &PairSettings) -> Result<(), tls::FileError> {
        let PairSettings { cert, key, authorities, .. } = settings;
        self.credentials.replace(load(cert, key, authorities)?);
        Ok(())
    }
}
