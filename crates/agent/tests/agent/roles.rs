//! The processes that tests start.

use std::io::{BufRead, stdin};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{Agent, Config, Ended, Hello, LOCK_FILE, Link, Question, STATE_FILE, STATE_KIND, Standing};
use cli::ListenAddress;
use durable::{Lock, Record};
use ha::message::{Answer, Ask, Facts, GateState, Refusal, Said, VERSION, Verdict};
use ha::stored::Stored;
use logging::{LogFormat, LogLevel, Logging};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// What a started process is, as JSON in this variable.
pub(crate) const ROLE: &str = "TEST_ROLE";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    Agent(AgentRole),
    Server(ServerRole),
}

/// A [`Config`], as far as tests differ.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AgentRole {
    pub(crate) folder: PathBuf,
    pub(crate) listen: String,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerRole {
    pub(crate) folder: PathBuf,
    pub(crate) hello: Hello,
    /// With the lock, and a listener on its port. Else it only says hello.
    pub(crate) serves: bool,
    pub(crate) answers: Answers,
}

/// What a server says to a request to close.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Answers {
    /// It promises, stores that, and says `closed`.
    Closed,
    Refused,
    Nothing,
}

#[test]
#[ignore = "it does something only where another test starts it"]
fn role() {
    let Some(role) = std::env::var(ROLE).ok() else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    match serde_json::from_str(&role).unwrap() {
        Role::Agent(role) => std::process::exit(run_agent(&role)),
        Role::Server(role) => run_server(role),
    }
}

fn run_agent(role: &AgentRole) -> i32 {
    let file = |name: &str| role.folder.join(name);
    let agent = Agent::new().unwrap();
    let _logging = Logging::start(LogLevel::Info, LogFormat::Text).unwrap();
    let config = Config {
        socket: file("agent.sock"),
        health_file: file("health"),
        state: file("state"),
        node: "a".parse().unwrap(),
        peer: "b".parse().unwrap(),
        fencers: "peer".parse().unwrap(),
        ports: vec![role.port],
        listen: role.listen.parse().unwrap(),
        cert: file("a.pem"),
        key: file("a.key"),
        authorities: file("a.ca"),
        allow: vec!["b".into()],
    };
    let bind = async |address: &ListenAddress| {
        let listener = TcpListener::bind(&address.resolve().await?[..])?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(vec![listener])
    };
    let ended = agent.run(&config, bind);
    match ended {
        Ok(Ended::InOrder) => 0,
        Ok(Ended::AtOnce) => 130,
        Err(error) => {
            tracing::error!("{error}");
            error.exit_status().into()
        }
    }
}

fn run_server(role: ServerRole) {
    let _logging = Logging::start(LogLevel::Info, LogFormat::Text).unwrap();
    let state = role.folder.join("state");
    let _serving = role.serves.then(|| {
        let lock = Lock::take(&state.join(LOCK_FILE), Duration::from_secs(5)).expect("the state lock");
        let listeners: Vec<_> =
            role.hello.ports.iter().map(|&port| TcpListener::bind(("127.0.0.1", port)).unwrap()).collect();
        (lock, listeners)
    });
    let (said, mut orders) = mpsc::channel(8);
    std::thread::spawn(move || {
        for line in stdin().lines() {
            said.blocking_send(line.unwrap()).unwrap();
        }
    });
    let runtime = threads::runtime::current_thread().unwrap();
    runtime.block_on(async {
        let (link, mut questions) = Link::start(&role.folder.join("agent.sock"), role.hello.clone());
        let mut link = Some(link);
        link.as_ref().unwrap().set_ready(true);
        println!("started");
        loop {
            tokio::select! {
                Some(question) = questions.recv() => answer(question, &role, &state),
                Some(order) = orders.recv() => match order.as_str() {
                    "not ready" => link.as_ref().unwrap().set_ready(false),
                    "ready" => link.as_ref().unwrap().set_ready(true),
                    "leave" => drop(link.take()),
                    "hang" => std::thread::sleep(Duration::from_secs(3600)),
                    "standing" => match link.as_ref().unwrap().standing() {
                        Standing::Connected { .. } => println!("connected"),
                        Standing::Away { .. } => println!("away"),
                    },
                    other => panic!("{other:?} is no order"),
                },
            }
        }
    });
}

fn answer(question: Question, role: &ServerRole, state: &Path) {
    if let (Ask::Close { .. }, Answers::Nothing) = (&question.request.ask, role.answers) {
        return;
    }
    let record = Record::<Stored>::new(state.join(STATE_FILE), STATE_KIND);
    let mut stored = record.read().unwrap().unwrap();
    let verdict = match (&question.request.ask, role.answers) {
        (Ask::Status | Ask::TakeOver { .. }, _) => Verdict::Status,
        (Ask::Close { term, weak, .. }, Answers::Refused | Answers::Nothing) => {
            Verdict::Refused { term: term.clone(), weak: *weak, why: Refusal::Promised }
        }
        (Ask::Close { term, .. }, Answers::Closed) => {
            assert!(stored.promise_to_peer(term));
            record.write(&stored).unwrap();
            Verdict::ClosedFor(term.clone())
        }
    };
    let Hello { node, host, incarnation, fencers, .. } = role.hello.clone();
    let said = Said {
        version: VERSION,
        node,
        host,
        incarnation,
        promise: stored.promise,
        opened: stored.opened,
        gate: GateState::Closed,
        promoting: false,
        unfit: None,
        ceiling: stored.ceiling.ceiling,
        copied: None,
        fencers,
        verdict,
    };
    let facts = Facts { acl: "of the server".into(), ..Facts::default() };
    question.answer(Answer { said, facts });
}

/// The line of an order that is one.
pub(crate) fn first_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim().to_owned()
}
