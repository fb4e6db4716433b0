//! Who lives in a process group, by /proc.

use std::fs;

use rustix::process::Pid;

/// Whether somebody in the group is more than a zombie. True when /proc does not tell.
///
/// Where nobody reaps orphans (the first process of many containers), a group that was killed would otherwise
/// never look dead. A process forked during the look may be missed.
pub(crate) fn lives(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    processes.filter_map(Result::ok).any(|process| {
        let is_process = process.file_name().as_encoded_bytes()[0].is_ascii_digit();
        // Who is gone before its file is read lives no more.
        is_process
            && fs::read(process.path().join("stat"))
                .is_ok_and(|stat| is_living_member(&stat, group.as_raw_pid()))
    })
}

/// Reads "pid (name) state parent group …"; the name may hold anything, parentheses too.
fn is_living_member(stat: &[u8], group: i32) -> bool {
    let Some(name_end) = stat.iter().rposition(|&byte| byte == b')') else { return false };
    let rest = String::from_utf8_lossy(&stat[name_end + 1..]);
    let mut fields = rest.split_ascii_whitespace();
    let (state, its_group) = (fields.next(), fields.nth(1));
    !matches!(state, Some("Z" | "X")) && its_group.and_then(|id| id.parse().ok()) == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_member_is_of_the_group_and_no_zombie_whatever_its_name() {
        assert!(is_living_member(b"7 (sh) S 1 42 42 0 -1", 42));
        assert!(is_living_member(b"7 (a) Z 1 7 (b\xff) R 1 42 42 0", 42));
        assert!(!is_living_member(b"7 (sh) S 42 7 42 0", 42));
        assert!(!is_living_member(b"7 (sh) Z 1 42 42 0", 42));
        assert!(!is_living_member(b"", 42));
    }

    #[test]
    fn the_group_of_a_running_test_lives() {
        assert!(lives(rustix::process::getpgrp()));
    }
}
