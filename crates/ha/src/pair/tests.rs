//! Each rule by its name, on one node whose peer is played by the test.

use super::*;
use crate::identity::{BootId, HostId};
use crate::message::{Answer, Facts, Refusal, Said, Stranger, Verdict};

const S: u64 = 1_000_000_000;

struct Node {
    pair: Pair,
    now_ns: u64,
    /// Everything that came out and was not looked at.
    out: Vec<Action>,
}

fn term(text: &str) -> Term {
    text.parse().unwrap()
}

fn fresh() -> Stored {
    Stored::new(HostId(1), BootId(1), Ceiling(1 << 40), 0)
}

impl Node {
    fn start(levels: &str, stored: Stored, boot: u128) -> Self {
        let setup = Setup {
            node: "a".parse().unwrap(),
            peer: "b".parse().unwrap(),
            levels: levels.parse().unwrap(),
            pace: Pace { fence_delay_ns: S, ..Pace::default() },
        };
        let incarnation = Incarnation { boot: BootId(boot), started_ns: 0 };
        let (pair, out) = Pair::start(Arc::new(setup), stored, incarnation, 0);
        let mut node = Self { pair, now_ns: 0, out };
        node.sync();
        node
    }

    fn new(levels: &str) -> Self {
        Self::start(levels, fresh(), 1)
    }

    /// One event, without the disk.
    fn raw(&mut self, event: Event) {
        let actions = self.pair.handle(event, self.now_ns);
        self.out.extend(actions);
    }

    /// The disk writes whatever it has been given.
    fn sync(&mut self) {
        while self.pair.disk.writing {
            self.raw(Event::Stored);
        }
    }

    fn handle(&mut self, event: Event) -> Vec<Action> {
        self.raw(event);
        self.sync();
        std::mem::take(&mut self.out)
    }

    fn command(&mut self, command: Command) -> Vec<Action> {
        self.handle(Event::Command(CommandId(9), command))
    }

    fn tick(&mut self, after_ns: u64) -> Vec<Action> {
        self.now_ns += after_ns;
        self.handle(Event::Tick)
    }

    fn said(verdict: Verdict) -> Said {
        Said {
            version: VERSION,
            node: "b".parse().unwrap(),
            host: HostId(2),
            incarnation: Incarnation { boot: BootId(77), started_ns: 0 },
            promise: None,
            opened: None,
            gate: GateState::Closed,
            promoting: false,
            unfit: None,
            ceiling: Ceiling(1 << 41),
            copied: None,
            fencers: "peer".parse().unwrap(),
            verdict,
        }
    }

    fn answer(&mut self, ask: Ask, said: Said) -> Vec<Action> {
        let answer = Box::new(Answer { said, facts: Facts::default() });
        self.handle(Event::Answered { ask, answer, sent_ns: self.now_ns })
    }

    fn hear(&mut self) {
        self.answer(Ask::Status, Self::said(Verdict::Status));
    }

    fn close(&mut self, text: &str, weak: bool) -> Vec<Action> {
        self.handle(Event::Request(
            RequestId(1),
            request(Ask::Close { term: term(text), weak, ceiling: Ceiling(0) }),
        ))
    }

    fn open(levels: &str) -> Self {
        let mut node = Self::new(levels);
        let ask = asked(&node.command(Command::Promote)).unwrap();
        let out = node.answer(ask, Self::said(Verdict::ClosedFor(term("1.a"))));
        assert!(opened(&out).is_some());
        node
    }
}

fn request(ask: Ask) -> Request {
    let name = |name: &str| name.parse().unwrap();
    Request { version: VERSION, from: name("b"), host: HostId(2), to: name("a"), ask }
}

fn asked(actions: &[Action]) -> Option<Ask> {
    actions.iter().find_map(|action| match action {
        Action::Ask(request) if request.ask != Ask::Status => Some(request.ask.clone()),
        _ => None,
    })
}

fn opened(actions: &[Action]) -> Option<Term> {
    actions.iter().find_map(|action| match action {
        Action::OpenGate { term, .. } => Some(term.clone()),
        _ => None,
    })
}

fn told(actions: &[Action]) -> Option<Outcome> {
    actions.iter().find_map(|action| match action {
        Action::Tell(_, outcome) => Some(outcome.clone()),
        _ => None,
    })
}

fn verdict(actions: &[Action]) -> Option<Verdict> {
    actions.iter().find_map(|action| match action {
        Action::Answer(_, said) => Some(said.verdict.clone()),
        _ => None,
    })
}

fn shots(actions: &[Action]) -> Vec<(usize, usize)> {
    let shot = |action: &Action| match action {
        Action::Fence { level, device, .. } => Some((*level, *device)),
        _ => None,
    };
    actions.iter().filter_map(shot).collect()
}

#[test]
fn a_promise_is_told_only_when_it_is_synced_and_the_gate_is_closed() {
    let mut node = Node::open("peer");
    node.raw(Event::Request(
        RequestId(1),
        request(Ask::Close { term: term("2.b"), weak: false, ceiling: Ceiling(0) }),
    ));
    assert!(node.out.contains(&Action::CloseGate));
    node.raw(Event::GateClosed);
    assert_eq!(verdict(&node.out), None);
    node.sync();
    assert_eq!(verdict(&node.out), Some(Verdict::ClosedFor(term("2.b"))));

    let mut node = Node::open("peer");
    assert_eq!(verdict(&node.close("2.b", false)), None, "a session is left");
    assert_eq!(verdict(&node.handle(Event::GateClosed)), Some(Verdict::ClosedFor(term("2.b"))));
    assert_eq!(verdict(&node.close("2.b", false)), Some(Verdict::ClosedFor(term("2.b"))), "asked again");
}

#[test]
fn a_term_that_is_not_above_the_promise_is_refused() {
    let mut node = Node::new("peer");
    node.close("2.b", false);
    let refused = |weak| Verdict::Refused { term: term("1.b"), weak, why: Refusal::Promised };
    assert_eq!(verdict(&node.close("1.b", false)), Some(refused(false)));
}

#[test]
fn two_promotions_at_once_open_at_most_one_gate() {
    let mut node = Node::new("peer");
    let ask = asked(&node.command(Command::PromoteAuto)).unwrap();
    let out = node.close("1.b", false);
    assert_eq!(verdict(&out), Some(Verdict::ClosedFor(term("1.b"))));
    assert!(matches!(told(&out), Some(Outcome::Refused(Reason::HigherTerm(_)))));
    let late = node.answer(ask, Node::said(Verdict::ClosedFor(term("1.a"))));
    assert_eq!(opened(&late), None);
}

#[test]
fn the_promise_moves_on_while_the_opening_is_being_stored() {
    let mut node = Node::new("peer");
    let ask = asked(&node.command(Command::PromoteAuto)).unwrap();
    let answer =
        Box::new(Answer { said: Node::said(Verdict::ClosedFor(term("1.a"))), facts: Facts::default() });
    node.raw(Event::Answered { ask, answer, sent_ns: 0 });
    assert!(node.pair.disk.writing);
    let out = node.close("2.b", false);
    assert_eq!(opened(&out), None);
    assert_eq!(verdict(&out), Some(Verdict::ClosedFor(term("2.b"))));
    assert!(!node.pair.stored().active, "a restart must not resume");
}

#[test]
fn a_vote_of_a_past_term_is_not_taken() {
    let mut node = Node::new("peer");
    let first = asked(&node.command(Command::PromoteAuto)).unwrap();
    node.command(Command::DemoteAuto);
    let second = asked(&node.command(Command::PromoteAuto)).unwrap();
    assert_ne!(first, second);
    assert_eq!(opened(&node.answer(first, Node::said(Verdict::ClosedFor(term("1.a"))))), None);
    assert_eq!(opened(&node.answer(second, Node::said(Verdict::ClosedFor(term("2.a"))))), Some(term("2.a")));
}

#[test]
fn silence_proves_nothing_and_ends_in_pending() {
    let mut node = Node::new("peer");
    node.hear();
    let ask = asked(&node.command(Command::Promote)).unwrap();
    let out = node.handle(Event::Unanswered(ask));
    assert_eq!(told(&out), Some(Outcome::Pending(Reason::NoAnswer)));
    assert_eq!(node.pair.status().role, Role::FencePending);
    assert!(asked(&node.tick(6 * S)).is_some(), "the next round");
}

#[test]
fn levels_run_in_order_after_the_delay_and_count_when_all_devices_confirm() {
    let mut node = Node::new("peer,exec:/a+exec:/b,exec:/c");
    node.hear();
    let ask = asked(&node.command(Command::PromoteAuto)).unwrap();
    assert!(shots(&node.handle(Event::Unanswered(ask))).is_empty());
    assert_eq!(shots(&node.tick(S)), [(1, 0), (1, 1)]);
    let ended = |level, device, confirmed| Event::Fenced { term: term("1.a"), level, device, confirmed };
    assert!(shots(&node.handle(ended(1, 0, true))).is_empty());
    assert_eq!(shots(&node.handle(ended(1, 1, false))), [(2, 0)]);
    assert_eq!(opened(&node.handle(ended(1, 1, true))), None, "a late result of another level");
    assert_eq!(opened(&node.handle(ended(2, 0, true))), Some(term("1.a")));
}

#[test]
fn a_peer_that_was_not_heard_since_this_boot_is_not_shot() {
    let mut node = Node::new("peer,exec:/off");
    node.hear();
    let mut node = Node::start("peer,exec:/off", node.pair.stored().clone(), 2);
    let ask = asked(&node.command(Command::Promote)).unwrap();
    let out = node.handle(Event::Unanswered(ask));
    assert_eq!(told(&out), Some(Outcome::Pending(Reason::NotHeardSinceBoot)));
    assert!(told(&out).unwrap().to_string().contains("--force-unfenced"));
    let ask = asked(&node.answer(Ask::Status, Node::said(Verdict::Status))).unwrap();
    node.handle(Event::Unanswered(ask));
    assert_eq!(shots(&node.tick(S)), [(1, 0)]);
}

#[test]
fn keep_asks_weakly_and_never_shoots() {
    let mut node = Node::new("peer,exec:/off");
    node.hear();
    let ask = asked(&node.command(Command::PromoteKeep)).unwrap();
    assert!(matches!(ask, Ask::Close { weak: true, .. }));
    let out = node.handle(Event::Unanswered(ask));
    assert_eq!(told(&out).unwrap().exit_status(), 2);
    assert!(shots(&node.tick(60 * S)).is_empty());
    let mut node = Node::open("peer");
    assert!(matches!(verdict(&node.close("5.b", true)), Some(Verdict::Refused { why: Refusal::Open, .. })));
}

#[test]
fn a_stronger_command_joins_and_a_refusal_of_the_weak_ask_does_not_end_it() {
    let mut node = Node::new("peer");
    let weak = asked(&node.command(Command::PromoteKeep)).unwrap();
    let strong = asked(&node.command(Command::PromoteAuto)).unwrap();
    let refused = Verdict::Refused { term: term("1.a"), weak: true, why: Refusal::Open };
    assert_eq!(told(&node.answer(weak, Node::said(refused))), None);
    assert_eq!(opened(&node.answer(strong, Node::said(Verdict::ClosedFor(term("1.a"))))), Some(term("1.a")));
}

#[test]
fn a_demotion_by_hand_is_lifted_by_hand_only() {
    let mut node = Node::open("peer");
    assert_eq!(told(&node.command(Command::Demote)), None, "sessions are left");
    assert_eq!(told(&node.handle(Event::GateClosed)), Some(Outcome::Closed));
    let mut node = Node::start("peer", node.pair.stored().clone(), 1);
    for command in [Command::PromoteAuto, Command::PromoteKeep] {
        assert_eq!(told(&node.command(command)), Some(Outcome::Refused(Reason::Demoted)));
    }
    assert!(asked(&node.command(Command::Promote)).is_some());
}

#[test]
fn a_notification_that_lands_late_demotes_and_keep_brings_the_node_back() {
    let mut node = Node::open("peer");
    node.command(Command::DemoteAuto);
    node.handle(Event::GateClosed);
    let ask = asked(&node.command(Command::PromoteKeep)).unwrap();
    assert_eq!(opened(&node.answer(ask, Node::said(Verdict::ClosedFor(term("2.a"))))), Some(term("2.a")));
}

#[test]
fn a_restart_resumes_on_its_boot_with_the_peers_word() {
    let stored = Node::open("peer").pair.stored().clone();
    let mut node = Node::start("peer", stored.clone(), 1);
    let ask = asked(&node.out).unwrap();
    assert!(matches!(&ask, Ask::Close { weak: true, .. }));
    assert_eq!(opened(&node.answer(ask, Node::said(Verdict::ClosedFor(term("2.a"))))), Some(term("2.a")));
    assert_eq!(asked(&Node::start("peer", stored, 2).out), None, "another boot");
}

#[test]
fn without_an_answer_a_restart_resumes_only_against_a_peer_that_has_no_other_fencer() {
    for (fencers, resumes) in [("peer", true), ("peer,exec:/off", false)] {
        let mut stored = Node::open("peer").pair.stored().clone();
        stored.peer.fencers = Some(fencers.parse().unwrap());
        let mut node = Node::start("peer", stored, 1);
        let ask = asked(&node.out).unwrap();
        assert_eq!(opened(&node.handle(Event::Unanswered(ask))).is_some(), resumes, "{fencers}");
    }
}

#[test]
fn hold_cancels_a_fence_and_stops_promotions_and_never_closes_or_mutes() {
    let mut node = Node::new("peer,exec:/off");
    node.hear();
    let ask = asked(&node.command(Command::Promote)).unwrap();
    node.handle(Event::Unanswered(ask));
    node.tick(S);
    assert!(node.command(Command::Hold).contains(&Action::CancelFence(term("1.a"))));
    let confirmed = Event::Fenced { term: term("1.a"), level: 1, device: 0, confirmed: true };
    assert_eq!(opened(&node.handle(confirmed)), None);
    for command in [Command::Promote, Command::PromoteUnfenced, Command::PromoteAuto] {
        assert_eq!(told(&node.command(command)), Some(Outcome::Refused(Reason::Held)));
    }
    assert_eq!(verdict(&node.close("9.b", false)), Some(Verdict::ClosedFor(term("9.b"))));
    let mut node = Node::open("peer");
    assert!(!node.command(Command::Hold).contains(&Action::CloseGate));
    assert_eq!(
        asked(&Node::start("peer", node.pair.stored().clone(), 1).out),
        None,
        "a resume is a promotion"
    );
}

#[test]
fn a_higher_opened_term_closes_and_a_mere_promise_does_not() {
    let mut node = Node::open("peer");
    let out = node.answer(Ask::Status, Said { promise: Some(term("5.b")), ..Node::said(Verdict::Status) });
    assert!(!out.contains(&Action::CloseGate));
    let out = node.answer(Ask::Status, Said { opened: Some(term("5.b")), ..Node::said(Verdict::Status) });
    assert!(out.contains(&Action::CloseGate));
    assert!(!node.pair.stored().active);
}

#[test]
fn who_is_not_the_peer_is_not_believed() {
    let mut node = Node::new("peer");
    node.hear();
    let ask = asked(&node.command(Command::Promote)).unwrap();
    let yes = Node::said(Verdict::ClosedFor(term("1.a")));
    let strangers = [
        (Said { host: HostId(1), ..yes.clone() }, Stranger::Myself),
        (Said { node: "c".parse().unwrap(), ..yes.clone() }, Stranger::OtherNode),
        (Said { version: 2, ..yes.clone() }, Stranger::OtherVersion),
        (Said { host: HostId(3), ..yes.clone() }, Stranger::OtherHost),
    ];
    for (said, stranger) in strangers {
        let out = node.answer(ask.clone(), said);
        assert!(opened(&out).is_none() && out.contains(&Action::Warn(Warning::Stranger(stranger))));
    }
    assert!(opened(&node.answer(ask, yes)).is_some());
}

#[test]
fn a_switchover_looks_before_it_closes() {
    let mut node = Node::open("peer");
    node.command(Command::Switchover);
    let unfit = Said { unfit: Some(Unfit::Demoted), ..Node::said(Verdict::Status) };
    let out = node.answer(Ask::Status, unfit);
    assert_eq!(told(&out), Some(Outcome::Refused(Reason::PeerUnfit(Unfit::Demoted))));
    assert!(!out.contains(&Action::CloseGate));
    assert_eq!(
        told(&Node::new("peer").command(Command::Switchover)),
        Some(Outcome::Refused(Reason::NotActive))
    );
}

#[test]
fn a_switchover_closes_lets_the_peer_open_and_moves_the_address() {
    let mut node = Node::open("peer");
    node.command(Command::Switchover);
    assert!(node.answer(Ask::Status, Node::said(Verdict::Status)).contains(&Action::CloseGate));
    assert_eq!(told(&node.command(Command::PromoteKeep)), Some(Outcome::Pending(Reason::SwitchingOver)));
    let ask = asked(&node.handle(Event::GateClosed)).unwrap();
    assert_eq!(ask, Ask::TakeOver { promise: None });
    node.close("2.b", false);
    let out = node.answer(ask, Node::said(Verdict::TookOver(term("2.b"))));
    assert_eq!(told(&out), Some(Outcome::SwitchedOver(term("2.b"))));
    assert!(out.contains(&Action::GiveAddress(true)));
    assert!(node.tick(11 * S).contains(&Action::GiveAddress(false)));
}

#[test]
fn a_switchover_is_undone_only_with_the_peers_promise_and_says_what_it_knows() {
    let waiting = || {
        let mut node = Node::open("peer");
        node.command(Command::Switchover);
        node.answer(Ask::Status, Node::said(Verdict::Status));
        let ask = asked(&node.handle(Event::GateClosed)).unwrap();
        let undo = asked(&node.handle(Event::Unanswered(ask))).unwrap();
        assert!(matches!(&undo, Ask::Close { weak: true, .. }));
        (node, undo)
    };
    let (mut node, undo) = waiting();
    let out = node.answer(undo, Node::said(Verdict::ClosedFor(term("2.a"))));
    assert_eq!((opened(&out), told(&out)), (Some(term("2.a")), Some(Outcome::Refused(Reason::Undone))));
    let (mut node, undo) = waiting();
    let out = node.handle(Event::Unanswered(undo));
    assert_eq!((opened(&out), told(&out)), (None, Some(Outcome::Unknown(Reason::BothClosed))));
}

#[test]
fn a_late_order_to_take_over_is_refused() {
    let mut node = Node::new("peer");
    node.close("4.b", false);
    let out =
        node.handle(Event::Request(RequestId(2), request(Ask::TakeOver { promise: Some(term("1.b")) })));
    assert_eq!(verdict(&out), Some(Verdict::NotTakenOver));
    let out =
        node.handle(Event::Request(RequestId(2), request(Ask::TakeOver { promise: Some(term("4.b")) })));
    assert_eq!(verdict(&out), None, "it promotes");
    assert!(asked(&out).is_some());
}

#[test]
fn an_unfenced_promotion_opens_with_a_warning_and_an_audit_event() {
    let mut node = Node::new("peer");
    let out = node.command(Command::PromoteUnfenced);
    assert_eq!(opened(&out), Some(term("1.a")));
    assert!(out.contains(&Action::Warn(Warning::Unfenced)));
    let audited = Audit::Promoted { term: term("1.a"), by: By::Unfenced, failed: None };
    assert!(out.contains(&Action::Audit(audited)));
}

#[test]
fn the_ceiling_rises_by_elapsed_time_and_a_step_beyond_what_the_standby_has() {
    let mut node = Node::open("peer");
    node.now_ns = S;
    let out = node.handle(Event::CeilingWanted(Ceiling(u64::MAX)));
    assert!(out.contains(&Action::RaiseCeiling(Ceiling((1 << 41) + (3 << 20)))));
    assert!(node.handle(Event::CeilingWanted(Ceiling(u64::MAX))).is_empty());
    node.answer(
        Ask::Status,
        Said { copied: Some(Ceiling((1 << 41) + (3 << 20))), ..Node::said(Verdict::Status) },
    );
    let out = node.handle(Event::CeilingWanted(Ceiling(u64::MAX)));
    assert!(out.contains(&Action::RaiseCeiling(Ceiling((1 << 41) + (5 << 20)))));
}

#[test]
fn a_disk_that_fails_leaves_everything_unsaid_until_it_works() {
    let mut node = Node::new("peer");
    node.raw(Event::Command(CommandId(9), Command::Promote));
    node.raw(Event::StoreFailed);
    assert_eq!(asked(&node.out), None);
    assert!(asked(&node.tick(S)).is_some());
}

#[test]
fn what_is_stored_and_said_is_json() {
    let stored = Node::open("peer,exec:/off").pair.stored().clone();
    let json = serde_json::to_string(&stored).unwrap();
    assert_eq!(serde_json::from_str::<Stored>(&json).unwrap(), stored, "{json}");
    let verdict = Verdict::Refused { term: term("1.a"), weak: true, why: Refusal::Open };
    let answer = Answer { said: Node::said(verdict), facts: Facts::default() };
    let json = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), answer, "{json}");
}

#[test]
fn who_has_taken_over_says_so_at_once() {
    let mut node = Node::new("peer");
    let out = node.handle(Event::Request(RequestId(2), request(Ask::TakeOver { promise: None })));
    let out = node.answer(asked(&out).unwrap(), Node::said(Verdict::ClosedFor(term("1.a"))));
    assert_eq!(opened(&out), Some(term("1.a")));
    assert_eq!(verdict(&out), Some(Verdict::TookOver(term("1.a"))));
}

#[test]
fn a_peer_that_answers_again_is_asked_at_once_and_not_after_the_pause() {
    let mut node = Node::new("peer");
    let ask = asked(&node.command(Command::PromoteAuto)).unwrap();
    node.handle(Event::Unanswered(ask));
    let out = node.answer(Ask::Status, Node::said(Verdict::Status));
    let ask = asked(&out).expect("the next round");
    assert_eq!(opened(&node.answer(ask, Node::said(Verdict::ClosedFor(term("1.a"))))), Some(term("1.a")));
}

/// The peer is down, the active server was restarted, and keepalived has said `demote --auto` on its way.
#[test]
fn without_an_answer_a_script_opens_only_who_was_open_last_against_a_peer_that_has_no_other_fencer() {
    let promoted = |node: &mut Node| {
        let ask = asked(&node.command(Command::PromoteAuto)).unwrap();
        opened(&node.handle(Event::Unanswered(ask))).is_some()
    };
    let closed = |fencers: &str, boot| {
        let mut stored = Node::open("peer").pair.stored().clone();
        stored.peer.fencers = Some(fencers.parse().unwrap());
        let mut node = Node::start("peer", stored, boot);
        node.command(Command::DemoteAuto);
        node
    };
    assert!(promoted(&mut closed("peer", 1)));
    assert!(!promoted(&mut closed("peer,exec:/off", 1)), "it may have been shot at, and missed");
    assert!(!promoted(&mut closed("peer", 2)), "another boot");
    let mut node = closed("peer", 1);
    node.close("9.b", false);
    assert!(!promoted(&mut node), "the peer has its word");
    let mut node = closed("peer", 1);
    node.command(Command::Demote);
    let ask = asked(&node.command(Command::Promote)).unwrap();
    assert_eq!(opened(&node.handle(Event::Unanswered(ask))), None, "a person may have had reasons");
}
