//! Signals that a parent has blocked: unblocked here, and given back to children.

use std::io;

use inherited::unblock;
use nix::sys::signal::{SigSet, Signal};
use std::process::Command;
use std::thread;

/// The mask of a process that this thread starts.
fn mask_of_a_child() -> io::Result<String> {
    let output = Command::new("grep").args(["SigBlk", "/proc/self/status"]).output()?;
    Ok(String::from_utf8(output.stdout).unwrap().trim_start_matches("SigBlk:").trim().into())
}

#[test]
fn what_is_relied_on_is_unblocked_also_in_later_threads_and_a_child_gets_what_the_parent_had_blocked() {
    // The mask is this thread's alone: other tests do not see it.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTERM);
    blocked.add(Signal::SIGUSR2);
    blocked.thread_set_mask().unwrap();
    let parents = unblock(&[rustix::process::Signal::TERM, rustix::process::Signal::CHILD]).unwrap();
    let later = thread::spawn(|| SigSet::thread_get_mask().unwrap()).join().unwrap();
    assert!(!later.contains(Signal::SIGTERM) && later.contains(Signal::SIGUSR2));
    assert_eq!(mask_of_a_child().unwrap(), "0000000000000800");
    assert_eq!(parents.lend(mask_of_a_child).unwrap(), "0000000000004800");
    assert_eq!(SigSet::thread_get_mask().unwrap(), later, "the mask is taken back");
}
