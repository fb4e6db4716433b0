//! The rules of a claim, one test a rule, in virtual time. The lease is 10 s: heartbeats every 2.5 s, the end
//! of an unconfirmed claim after 8 s.

use std::io;

use monolock_client::{Claim, Closed, Event, Loss, Transmit, Violation};
use protocol::{Acquire, ErrorCode, ErrorFrame, Lease, LockName, Token, UnknownFrame, WAITING, acquired};

const MS: u64 = 1_000_000;
/// Times are relative to this, so that a rule that forgets to add `now` fails.
const START_NS: u64 = 5_000_000_000_000;
const TOKEN: Token = Token(77);

fn at(ms: u64) -> u64 {
    START_NS + ms * MS
}

/// A claim and what it says; times in milliseconds since its begin.
struct Scene(Claim);

impl Scene {
    fn new() -> Self {
        let acquire =
            Acquire { name: LockName::new("jobs").unwrap(), lease: Lease::from_ms(10_000).unwrap() };
        Self(Claim::new(START_NS, acquire))
    }

    /// A claim whose ACQUIRE went out at 0.
    fn asked() -> Self {
        let mut scene = Self::new();
        assert!(matches!(scene.0.poll_transmit(at(0)), Some(Transmit::Acquire(_))));
        scene
    }

    /// A claim that was granted at once, at 0.
    fn held() -> Self {
        let mut scene = Self::asked();
        scene.input(0, &acquired(TOKEN));
        assert_eq!(scene.event(), Some(Event::Acquired(TOKEN)));
        scene
    }

    /// A claim that was queued at once, at 0.
    fn waiting() -> Self {
        let mut scene = Self::asked();
        scene.input(0, &WAITING);
        assert_eq!(scene.event(), Some(Event::Waiting));
        scene
    }

    fn input(&mut self, ms: u64, bytes: &[u8]) {
        self.0.handle_input(at(ms), bytes);
    }

    fn event(&mut self) -> Option<Event> {
        self.0.poll_event()
    }

    fn sends_heartbeat(&mut self, ms: u64) -> bool {
        match self.0.poll_transmit(at(ms)) {
            None => false,
            Some(Transmit::Heartbeat) => true,
            Some(Transmit::Acquire(_)) => panic!("a second ACQUIRE"),
        }
    }

    fn held_at(&self, ms: u64) -> bool {
        self.0.is_held(at(ms))
    }

    fn timeout_ms(&self) -> Option<u64> {
        self.0.poll_timeout().map(|ns| (ns - START_NS) / MS)
    }

    /// The claim is lost for this reason, and silent for ever.
    fn assert_lost(&mut self, ms: u64, loss: Loss) {
        assert_eq!(self.event(), Some(Event::Lost(loss)));
        assert!(!self.held_at(ms));
        assert_eq!(self.timeout_ms(), None);
        for later_ms in [ms, ms + 2500, ms + 100_000] {
            self.input(later_ms, &acquired(TOKEN));
            self.0.handle_timeout(at(later_ms));
            self.0.connection_closed(at(later_ms), Closed::ByServer);
            assert!(self.0.poll_transmit(at(later_ms)).is_none(), "a lost claim sends nothing");
            assert_eq!(self.event(), None, "a claim is lost once");
            assert!(!self.held_at(later_ms));
        }
    }
}

fn broken_by(violation: Violation) -> Loss {
    Loss::ProtocolViolation(violation)
}

#[test]
fn the_first_frame_is_the_acquire_and_nothing_follows_before_its_answer() {
    let mut scene = Scene::new();
    let first = scene.0.poll_transmit(at(0)).unwrap();
    assert_eq!(*first, *b"\x01\x01\x00\x00\x27\x10\x00\x04jobs");
    assert!(scene.0.poll_transmit(at(7999)).is_none());
    assert_eq!(scene.timeout_ms(), Some(8000));
}

#[test]
fn a_free_lock_is_held_from_the_answer_on_and_counts_from_the_acquire() {
    let mut scene = Scene::asked();
    scene.input(1000, &acquired(TOKEN));
    assert_eq!(scene.event(), Some(Event::Acquired(TOKEN)));
    assert_eq!(scene.0.confirmed_ns(), at(0));
    assert!(scene.held_at(1000));
    assert!(scene.0.is_held(at(8000) - 1));
    assert!(!scene.0.is_held(at(8000)));
}

#[test]
fn a_taken_lock_is_waited_for_with_heartbeats() {
    let mut scene = Scene::waiting();
    for beat_ms in [2500, 5000, 7500, 10_000] {
        assert!(!scene.sends_heartbeat(beat_ms - 1));
        assert!(scene.sends_heartbeat(beat_ms));
        scene.input(beat_ms, &WAITING);
        assert!(!scene.held_at(beat_ms));
        assert_eq!(scene.event(), None, "Waiting is told once");
    }
}

#[test]
fn heartbeats_are_counted_from_send_to_send() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2600));
    scene.input(2600, &acquired(TOKEN));
    assert_eq!(scene.timeout_ms(), Some(5100));
    assert!(!scene.sends_heartbeat(5099));
    assert!(scene.sends_heartbeat(5100));
}

#[test]
fn the_pause_is_shortened_by_two_average_round_trips() {
    let mut scene = Scene::asked();
    scene.input(100, &acquired(TOKEN));
    assert_eq!(scene.timeout_ms(), Some(2300));
    assert!(scene.sends_heartbeat(2300));
    scene.input(2600, &acquired(TOKEN));
    assert_eq!(scene.timeout_ms(), Some(2300 + 2500 - 2 * 140));
}

#[test]
fn at_most_one_heartbeat_is_in_flight() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2500));
    assert!(!scene.sends_heartbeat(5000));
    assert!(!scene.sends_heartbeat(7999));
    assert_eq!(scene.timeout_ms(), Some(8000));
}

#[test]
fn after_a_round_trip_as_long_as_the_pause_the_next_heartbeat_goes_out_with_the_answer() {
    let mut scene = Scene::asked();
    scene.input(1250, &acquired(TOKEN));
    assert!(scene.sends_heartbeat(1250));
    assert!(!scene.sends_heartbeat(2400));
    scene.input(2500, &acquired(TOKEN));
    assert!(scene.sends_heartbeat(2500));
}

#[test]
fn an_answered_heartbeat_confirms_as_of_its_sending_however_late_the_answer_comes() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2500));
    scene.input(7000, &acquired(TOKEN));
    assert_eq!(scene.0.confirmed_ns(), at(2500));
    assert!(scene.0.is_held(at(10_500) - 1));
    assert!(!scene.held_at(10_500));
}

#[test]
fn a_claim_without_confirmation_is_given_up_after_eight_tenths_of_its_lease() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2500));
    scene.0.handle_timeout(at(8000) - 1);
    assert_eq!(scene.event(), None);
    scene.0.handle_timeout(at(8000));
    scene.assert_lost(8000, Loss::HeartbeatTimeout);
}

#[test]
fn a_handshake_without_answer_is_given_up_too() {
    let mut scene = Scene::asked();
    assert_eq!(scene.timeout_ms(), Some(8000));
    scene.0.handle_timeout(at(8000));
    scene.assert_lost(8000, Loss::HeartbeatTimeout);
}

#[test]
fn a_request_that_could_not_be_sent_is_given_up_too() {
    let mut scene = Scene::new();
    assert!(scene.0.poll_transmit(at(8000)).is_none());
    scene.assert_lost(8000, Loss::HeartbeatTimeout);
}

#[test]
fn a_waiter_without_confirmation_is_given_up_too() {
    let mut scene = Scene::waiting();
    assert!(scene.sends_heartbeat(2500));
    scene.0.handle_timeout(at(8000));
    scene.assert_lost(8000, Loss::HeartbeatTimeout);
}

#[test]
fn an_answer_read_after_the_deadline_does_not_save_the_claim() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2500));
    scene.input(8000, &acquired(TOKEN));
    scene.assert_lost(8000, Loss::HeartbeatTimeout);
}

#[test]
fn a_push_read_after_the_deadline_grants_nothing() {
    let mut scene = Scene::waiting();
    scene.input(8000, &acquired(TOKEN));
    scene.assert_lost(8000, Loss::HeartbeatTimeout);
}

#[test]
fn a_wake_up_after_the_deadline_sends_no_heartbeat() {
    let mut scene = Scene::held();
    assert!(!scene.sends_heartbeat(60_000));
    scene.assert_lost(60_000, Loss::HeartbeatTimeout);
}

#[test]
fn the_first_acquired_after_a_waiting_is_the_push_and_confirms_nothing() {
    let mut scene = Scene::waiting();
    assert!(scene.sends_heartbeat(2500));
    scene.input(2600, &WAITING);
    scene.input(4000, &acquired(TOKEN));
    assert_eq!(scene.event(), Some(Event::Acquired(TOKEN)));
    assert_eq!(scene.0.confirmed_ns(), at(2500));
    assert!(scene.0.is_held(at(10_500) - 1));
    assert!(!scene.held_at(10_500));
}

#[test]
fn a_heartbeat_in_flight_stays_in_flight_over_the_push_and_the_next_frame_answers_it() {
    let mut scene = Scene::waiting();
    assert!(scene.sends_heartbeat(2500));
    scene.input(2600, &acquired(TOKEN));
    assert_eq!(scene.0.confirmed_ns(), at(0));
    assert!(!scene.sends_heartbeat(5000), "one is still in flight");
    scene.input(5000, &acquired(TOKEN));
    assert_eq!(scene.0.confirmed_ns(), at(2500));
}

#[test]
fn glued_answer_push_and_answer_are_told_apart() {
    let mut scene = Scene::waiting();
    assert!(scene.sends_heartbeat(2500));
    scene.input(2500, &[&WAITING[..], &acquired(TOKEN)].concat());
    assert_eq!(scene.event(), Some(Event::Acquired(TOKEN)));
    assert!(scene.sends_heartbeat(5000));
    scene.input(5000, &acquired(TOKEN));
    assert_eq!(scene.0.confirmed_ns(), at(5000));
}

#[test]
fn a_frame_is_understood_whatever_way_it_is_split() {
    let mut scene = Scene::asked();
    for byte in [&WAITING[..], &acquired(TOKEN)].concat() {
        scene.input(10, &[byte]);
    }
    assert_eq!(scene.event(), Some(Event::Waiting));
    assert_eq!(scene.event(), Some(Event::Acquired(TOKEN)));
    assert_eq!(scene.event(), None);
}

#[test]
fn a_frame_before_the_acquire_was_sent_is_a_violation() {
    for frame in [&WAITING[..], &acquired(TOKEN)] {
        let mut scene = Scene::new();
        scene.input(0, frame);
        scene.assert_lost(0, broken_by(Violation::Unasked));
    }
}

#[test]
fn a_frame_that_answers_nothing_and_is_not_the_push_is_a_violation() {
    let mut scene = Scene::held();
    scene.input(100, &acquired(TOKEN));
    scene.assert_lost(100, broken_by(Violation::Unasked));

    let mut scene = Scene::waiting();
    scene.input(100, &WAITING);
    scene.assert_lost(100, broken_by(Violation::Unasked));
}

#[test]
fn waiting_after_acquired_is_a_violation() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2500));
    scene.input(2500, &WAITING);
    scene.assert_lost(2500, broken_by(Violation::WaitingAfterAcquired));
}

#[test]
fn another_token_is_a_violation() {
    let mut scene = Scene::held();
    assert!(scene.sends_heartbeat(2500));
    scene.input(2500, &acquired(Token(78)));
    scene.assert_lost(2500, broken_by(Violation::TokenChanged { granted: TOKEN, received: Token(78) }));
}

#[test]
fn a_frame_of_unknown_type_is_a_violation_at_its_first_byte() {
    let mut scene = Scene::held();
    scene.input(100, &[0x02]);
    scene.assert_lost(100, broken_by(Violation::UnknownFrame(UnknownFrame(2))));
}

#[test]
fn an_error_ends_the_claim_with_its_code_and_reason_in_every_state() {
    for mut scene in [Scene::new(), Scene::asked(), Scene::waiting(), Scene::held()] {
        let frame = ErrorFrame::with_reason(ErrorCode::CLOSED_BY_ADMINISTRATOR, "maintenance");
        scene.input(100, &frame);
        let code = ErrorCode::CLOSED_BY_ADMINISTRATOR;
        scene.assert_lost(100, Loss::Server { code, reason: "maintenance".to_owned() });
    }
}

#[test]
fn a_closed_connection_ends_the_claim_in_every_state() {
    for mut scene in [Scene::new(), Scene::asked(), Scene::waiting(), Scene::held()] {
        let closed = Closed::Broken(io::ErrorKind::ConnectionReset);
        scene.0.connection_closed(at(100), closed);
        scene.assert_lost(100, Loss::ConnectionClosed(closed));
    }
}

#[test]
fn a_grant_that_nobody_took_is_withdrawn_when_the_claim_is_lost() {
    let mut scene = Scene::asked();
    let error = ErrorFrame::with_reason(ErrorCode::SHUTTING_DOWN, "");
    scene.input(0, &[&acquired(TOKEN)[..], &error].concat());
    scene.assert_lost(0, Loss::Server { code: ErrorCode::SHUTTING_DOWN, reason: String::new() });
}

#[test]
fn the_shortest_lease_beats_every_quarter_and_ends_after_eight_tenths_of_a_millisecond() {
    let acquire = Acquire { name: LockName::new("x").unwrap(), lease: Lease::from_ms(1).unwrap() };
    let mut claim = Claim::new(START_NS, acquire);
    assert!(claim.poll_transmit(START_NS).is_some());
    claim.handle_input(START_NS + 1000, &acquired(TOKEN));
    assert_eq!(claim.poll_timeout(), Some(START_NS + 250_000));
    assert!(claim.is_held(START_NS + 799_999));
    assert!(!claim.is_held(START_NS + 800_000));
}
