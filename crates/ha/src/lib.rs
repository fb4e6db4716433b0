//! High availability, decided: who of two nodes may be active, and when.
//!
//! Sans-IO: no socket, clock, thread, randomness or log. The crate does not know what it guards; the guarded
//! device has a *gate*, and this crate says when the gate opens and closes. `spec/ha.md`, section 3, is the
//! source of every rule here.
//!
//! # A pair without a coordinator
//!
//! [`pair::Pair`] is one node of two. Its driver feeds it [`pair::Event`]s (commands, requests and answers of
//! the peer, results of fences, "the gate is closed", "the state is stored", time) and carries out the
//! [`pair::Action`]s that come back, in order.
//!
//! ```text
//!                promote, or a restart of the active process
//!      ┌────────┐ ───────────────────────────▶ ┌───────────┐
//!      │ closed │                              │ promoting │  a higher term, promised to oneself (synced)
//!      └────────┘ ◀─────────────────────────── └───────────┘
//!        ▲    ▲     refused · demote · hold ·        │ the peer says `closed for term T`,
//!        │    │     the peer's higher term           │ or a fence confirms; the promise still is T;
//!  every │    │                                      ▼ stored (synced)
//!  shard │    │ demote · switchover · the peer   ┌────────┐
//!  and   │    └──── asks for a higher term, or ──│  open  │
//!  session            has *opened* one           └────────┘
//! ```
//!
//! # What is always so
//!
//! Each rule stands at one place:
//!
//! | rule | where |
//! | --- | --- |
//! | nothing is said or done about a state before it is synced | `Pair::advance`, `Pair::answer_askers` |
//! | the gate opens only while the promise is the promotion's term, closed, and stored | `Pair::open_gate` |
//! | what is promised, and answered when closed | `pair/peer.rs`: `promise_to_peer` |
//! | a higher *opened* term closes an open node, a mere promise never | `hear_opened` |
//! | who speaks under the own host id, another node id or an unknown host is not the peer | `stranger` |
//! | which fence levels may run, in which order | `pair/promotion.rs`: `next_level` |
//! | what a restart may resume, and on whose word | `wake_up`, `nobody_else_can_be_open` |
//! | `demote` by hand is lifted by `promote` by hand only | `pair/commands.rs`: `promote` |
//! | a successor's tokens begin above everything that was issued | [`ceiling`] |
//!
//! # What it never does
//!
//! - It never takes silence, a refused connection or a time-out for an answer.
//! - It never opens by itself on another boot, after a demotion, or under hold.
//! - It never shoots for `--keep`, a resume or a switchover, and never a peer that has given no answer since
//!   this host has booted.
//! - It never takes a higher counter by itself: only a command, a start and the undo of a switchover do.
//!
//! # An example
//!
//! Node `a` asks node `b`, which has never been active, and opens. (A driver would sync what `Store` says,
//! and send what `Ask` says.)
//!
//! ```
//! use std::sync::Arc;
//! use ha::ceiling::Ceiling;
//! use ha::fence::Levels;
//! use ha::identity::{BootId, HostId, Incarnation};
//! use ha::message::{Answer, Facts};
//! use ha::pair::{Action, Command, CommandId, Event, Pace, Pair, RequestId, Setup};
//! use ha::stored::Stored;
//!
//! let node = |node: &str, peer: &str, host: u128| {
//!     let setup = Setup {
//!         node: node.parse().unwrap(),
//!         peer: peer.parse().unwrap(),
//!         levels: Levels::peer_only(),
//!         pace: Pace::default(),
//!     };
//!     let boot = BootId(host);
//!     let stored = Stored::new(HostId(host), boot, Ceiling(1 << 50), 0);
//!     Pair::start(Arc::new(setup), stored, Incarnation { boot, started_ns: 0 }, 0).0
//! };
//! let (mut a, mut b) = (node("a", "b", 1), node("b", "a", 2));
//!
//! // `monolock promote` on a: first its own promise goes to disk, then b is asked.
//! let actions = a.handle(Event::Command(CommandId(1), Command::Promote), 10);
//! assert!(matches!(actions[..], [Action::Store(_)]));
//! let actions = a.handle(Event::Stored, 20);
//! let [Action::Ask(request)] = &actions[..] else { panic!("{actions:?}") };
//!
//! // b promises, and answers when that is on disk.
//! let actions = b.handle(Event::Request(RequestId(7), request.clone()), 30);
//! assert!(matches!(actions[..], [Action::Store(_), ..]));
//! let actions = b.handle(Event::Stored, 40);
//! let [Action::Answer(RequestId(7), said)] = &actions[..] else { panic!("{actions:?}") };
//!
//! // a stores that it is about to be active, and opens.
//! let answer = Box::new(Answer { said: *said.clone(), facts: Facts::default() });
//! let ask = request.ask.clone();
//! a.handle(Event::Answered { ask, answer, sent_ns: 20 }, 50);
//! let actions = a.handle(Event::Stored, 60);
//! assert!(actions.iter().any(|action| matches!(action, Action::OpenGate { .. })));
//! ```
//!
//! # Explored completely
//!
//! `tests/explore` walks through every state of two nodes, the wire between them and their fences within a
//! bound that it prints, and finds each fault that is planted in the driver.
#![forbid(unsafe_code)]

pub mod ceiling;
pub mod fence;
pub mod identity;
pub mod message;
pub mod pair;
pub mod stored;
pub mod term;
