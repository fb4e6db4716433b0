//! Between the question and the answer: what a session that came up as overdue may do before the caller says
//! what it saw.

use locks::{Gate, LOOK_AGAIN_NS, Opening, Reason, SessionId, Turn};

use crate::checked::Checked;

/// A claim with a lease of 1 ms from time 0 that came up at 2 ms and was heard at 2.5 ms: its lease is over
/// after 3.5 ms.
fn heard_after_it_came_up() -> (Checked, SessionId) {
    let mut checked = Checked::new();
    let (id, _) = checked.acquire(&at_us(0), 0, "jobs", 1);
    assert_eq!(checked.table.next_overdue(at_us(2000).now_ns), id.ok());
    checked.heartbeat(&at_us(2500), id.unwrap()).0.unwrap();
    (checked, id.unwrap())
}

fn at_us(now_us: u64) -> Turn {
    Turn { now_ns: now_us * 1000, unix_ns: 0, gate: Gate::Open(Opening::FIRST) }
}

#[test]
fn a_session_heard_before_it_is_to_be_looked_at_again_comes_up_by_its_lease() {
    let (mut checked, id) = heard_after_it_came_up();
    checked.table.look_again(at_us(3500).now_ns, id, LOOK_AGAIN_NS);
    assert_eq!(checked.table.next_deadline_ns(), Some(at_us(4000).now_ns));
    assert_eq!(checked.table.next_overdue(at_us(3999).now_ns), None);
    assert_eq!(checked.table.next_overdue(at_us(4000).now_ns), Some(id));
}

#[test]
fn a_session_heard_before_it_is_expired_stays_and_comes_up_by_its_lease() {
    let (mut checked, id) = heard_after_it_came_up();
    assert_eq!(checked.expire(&at_us(3500), id), vec![]);
    assert_eq!(checked.table.next_overdue(at_us(3999).now_ns), None);
    assert_eq!(checked.table.next_overdue(at_us(4000).now_ns), Some(id));
}

#[test]
fn a_session_that_is_silenced_after_it_was_put_off_is_put_off_no_longer() {
    const PAUSE_NS: u64 = 20 * LOOK_AGAIN_NS;
    let mut checked = Checked::new();
    let (id, _) = checked.acquire(&at_us(0), 0, "jobs", 1);
    let id = id.unwrap();
    assert_eq!(checked.table.next_overdue(at_us(2000).now_ns), Some(id));
    checked.table.look_again(at_us(2000).now_ns, id, PAUSE_NS);
    assert_eq!(checked.table.next_overdue(at_us(2100).now_ns), None);
    checked.silence(&at_us(2200), id, Reason::AddressLost);
    assert_eq!(checked.table.next_overdue(at_us(2200).now_ns), Some(id));
}
