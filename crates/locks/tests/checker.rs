//! The checker finds planted faults, and nothing in what is right.

use locks::Reason;
use locks::checker::{Checker, Event, Fault, Violation};
use protocol::{Lease, Token};

const MS: u64 = 1_000_000;

fn observe(history: &[(u64, Event<char>)]) -> Result<(), Violation> {
    let mut checker = Checker::new();
    history.iter().try_for_each(|&(now_ns, event)| checker.observe(now_ns, &"jobs", event))
}

/// The fault of the last event; all before it are right.
fn fault(history: &[(u64, Event<char>)]) -> Fault {
    let before = &history[..history.len() - 1];
    assert_eq!(observe(before), Ok(()));
    observe(history).unwrap_err().fault
}

fn arrived(claim: char) -> Event<char> {
    Event::Arrived { claim, lease: Lease::from_ms(10) }
}

fn confirmed(claim: char, token: Option<u64>) -> Event<char> {
    Event::Confirmed { claim, token: token.map(Token) }
}

fn granted(claim: char, token: u64) -> Event<char> {
    Event::Granted { claim, token: Token(token) }
}

fn released(claim: char, token: u64, reason: Reason) -> Event<char> {
    Event::Released { claim, token: Token(token), reason }
}

fn ended(claim: char, expired: bool) -> Event<char> {
    Event::Ended { claim, expired }
}

#[test]
fn a_history_that_keeps_every_promise_passes() {
    let history = [
        (0, arrived('a')),
        (0, granted('a', 1)),
        (MS, arrived('b')),
        (MS, arrived('c')),
        (2 * MS, arrived('d')),
        (2 * MS, Event::Suspected { claim: 'b' }),
        (3 * MS, confirmed('a', Some(1))),
        (4 * MS, released('a', 1, Reason::Graceful)),
        (4 * MS, granted('c', 5)),
        (5 * MS, Event::Returned { claim: 'b' }),
        (6 * MS, confirmed('b', None)),
        (12 * MS + 1, ended('d', true)),
        (14 * MS + 1, released('c', 5, Reason::Expired)),
        (14 * MS + 1, ended('c', true)),
        (14 * MS + 1, granted('b', 6)),
    ];
    assert_eq!(observe(&history), Ok(()));
}

#[test]
fn a_log_of_grants_and_releases_alone_is_checked_for_what_it_shows() {
    let log = [(0, granted('a', 1)), (9, released('a', 1, Reason::Expired)), (9, granted('b', 2))];
    assert_eq!(observe(&log), Ok(()));
    assert!(matches!(fault(&[log[0], log[2]]), Fault::Held { .. }));
}

#[test]
fn a_second_holder_is_found() {
    let history = [(0, arrived('a')), (0, granted('a', 1)), (1, arrived('b')), (1, granted('b', 2))];
    let found = fault(&history);
    assert_eq!(found, Fault::Held { claim: "'b'".into(), holder: "'a'".into() });
}

#[test]
fn a_grant_before_its_release_is_found() {
    let grant_first = [(0, granted('a', 1)), (1, granted('b', 2)), (1, released('a', 1, Reason::Graceful))];
    assert!(matches!(fault(&grant_first[..2]), Fault::Held { .. }));
}

#[test]
fn a_waiter_that_is_overtaken_is_found() {
    let mut lifo = vec![(0, arrived('a')), (0, granted('a', 1)), (1, arrived('b')), (2, arrived('c'))];
    lifo.extend([(3, released('a', 1, Reason::Graceful)), (3, granted('c', 2))]);
    assert_eq!(fault(&lifo), Fault::OutOfOrder { claim: "'c'".into(), first: "'b'".into() });
}

#[test]
fn a_newcomer_that_overtakes_a_waiter_is_found() {
    let history = [(0, arrived('a')), (5, granted('z', 2))];
    assert!(matches!(fault(&history), Fault::OutOfOrder { .. }));
}

#[test]
fn a_granted_suspect_is_found() {
    let history = [(0, arrived('a')), (1, Event::Suspected { claim: 'a' }), (2, granted('a', 1))];
    assert!(matches!(fault(&history), Fault::GrantedSuspect { .. }));
}

#[test]
fn a_grant_after_the_receivers_own_lease_is_found() {
    let history = [(0, arrived('a')), (10 * MS + 1, granted('a', 1))];
    assert!(matches!(fault(&history), Fault::GrantedOverdue { .. }));
    assert_eq!(observe(&[(0, arrived('a')), (10 * MS, granted('a', 1))]), Ok(()));
}

#[test]
fn a_token_that_is_used_again_or_goes_back_is_found_across_locks() {
    for token in [7, 6] {
        let mut checker = Checker::new();
        checker.observe(0, &"jobs", granted('a', 7)).unwrap();
        let found = checker.observe(1, &"mail", granted('b', token)).unwrap_err().fault;
        assert_eq!(found, Fault::TokenNotLarger { token: Token(token), last: Token(7) });
    }
}

#[test]
fn an_expiry_at_the_last_moment_of_the_lease_is_found() {
    let holder = [(0, arrived('a')), (0, granted('a', 1)), (3 * MS, confirmed('a', Some(1)))];
    for reason in [Reason::Expired, Reason::AddressLost] {
        let history = [&holder[..], &[(13 * MS, released('a', 1, reason))]].concat();
        assert_eq!(fault(&history), Fault::Early { claim: "'a'".into(), deadline_ns: 13 * MS });
    }
    assert!(matches!(fault(&[(0, arrived('a')), (10 * MS, ended('a', true))]), Fault::Early { .. }));
}

#[test]
fn a_release_of_another_claim_or_token_is_found() {
    for wrong in [released('b', 1, Reason::Graceful), released('a', 2, Reason::Graceful)] {
        assert!(matches!(fault(&[(0, granted('a', 1)), (1, wrong)]), Fault::NotHeld { .. }));
    }
}

#[test]
fn an_answer_that_contradicts_the_claim_is_found() {
    let holder = [(0, arrived('a')), (0, granted('a', 1))];
    for wrong in [confirmed('a', None), confirmed('a', Some(2))] {
        assert!(matches!(fault(&[holder[0], holder[1], (1, wrong)]), Fault::WrongAnswer { .. }));
    }
    let waiter = [(0, arrived('a')), (1, confirmed('a', Some(1)))];
    assert!(matches!(fault(&waiter), Fault::WrongAnswer { .. }));
}

#[test]
fn a_confirmation_after_the_end_and_an_end_without_release_are_found() {
    let after = [(0, arrived('a')), (1, ended('a', false)), (2, confirmed('a', None))];
    assert!(matches!(fault(&after), Fault::WrongLife { .. }));
    let unreleased = [(0, granted('a', 1)), (1, ended('a', false))];
    assert!(matches!(fault(&unreleased), Fault::WrongLife { .. }));
    assert!(matches!(fault(&[(0, arrived('a')), (1, arrived('a'))]), Fault::WrongLife { .. }));
}
