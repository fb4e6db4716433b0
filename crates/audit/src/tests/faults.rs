//! What full and failing disks and producers that are too fast leave in the log.

use std::sync::Arc;

use rustix::io::Errno;
use tokio::time::{Duration, timeout};

use super::disk::{A_WHILE, Disk, settle, start};
use super::event;
use crate::line;
use crate::recorder::Entry;
use crate::trouble::REPEAT;
use testkit::audit_lines::{Line, events, lines, lost};
use testkit::diagnostics::Diagnostics;

fn line_bytes(number: u64) -> usize {
    line::format(&Entry::Event(event("a", number))).len()
}

#[tokio::test(start_paused = true)]
async fn an_event_is_written_at_once_and_a_burst_in_one_write() {
    let disk = Disk::new();
    let (_log, mut recorder) = start(&disk, 1_000);
    recorder.record(event("a", 0));
    tokio::task::yield_now().await;
    assert_eq!(lines(&disk.file().bytes), events([0]));
    for number in 1..100 {
        recorder.record(event("a", number));
        tokio::task::yield_now().await;
    }
    settle().await;
    assert_eq!(lines(&disk.file().bytes), events(0..100));
    assert_eq!(disk.file().writes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_log_stands_as_failing_from_a_failed_write_until_one_works() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 8);
    let standing = crate::Standing(Arc::clone(&log.backlog));
    recorder.record(event("a", 0));
    settle().await;
    assert_eq!((standing.fails(), standing.written_total(), standing.unwritten()), (false, 1, 0));
    disk.file().room = 0;
    recorder.record(event("a", 1));
    settle().await;
    assert_eq!((standing.fails(), standing.written_total(), standing.unwritten()), (true, 1, 1));
    disk.file().room = usize::MAX;
    log.finish().await;
    assert_eq!((standing.fails(), standing.written_total(), standing.unwritten()), (false, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_record_stands_where_events_are_missing_and_losing_ends_when_half_of_the_room_is_free() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 8);
    for number in 0..11 {
        recorder.record(event("a", number));
    }
    assert_eq!(log.backlog.dropped(), 3);
    // Four of eight written: not yet more than half.
    disk.file().room = 4 * line_bytes(0);
    settle().await;
    recorder.record(event("a", 11));
    assert_eq!(log.backlog.dropped(), 4);
    disk.file().room = line_bytes(4);
    settle().await;
    recorder.record(event("a", 12));
    // No second run begins before the room is used up again.
    for number in 13..17 {
        recorder.record(event("a", number));
    }
    assert_eq!(log.backlog.dropped(), 4);
    disk.file().room = usize::MAX;
    log.finish().await;
    assert_eq!(lines(&disk.file().bytes), [events(0..8), lost(4), events(12..17)].concat());
}

#[tokio::test(start_paused = true)]
async fn each_producer_has_a_run_of_its_own() {
    let disk = Disk::new();
    let (log, mut a) = start(&disk, 2);
    let mut b = a.clone();
    a.record(event("a", 0));
    b.record(event("b", 0));
    a.record(event("a", 1));
    b.record(event("b", 1));
    b.record(event("b", 2));
    settle().await;
    b.record(event("b", 3));
    settle().await;
    a.record(event("a", 2));
    log.finish().await;
    let b_is = |number| vec![Line::Event { producer: "b".into(), number }];
    let expected = [events([0]), b_is(0), lost(2), b_is(3), lost(1), events([2])].concat();
    assert_eq!(lines(&disk.file().bytes), expected);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_open_when_its_producer_goes_is_written_at_the_end() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 2);
    for number in 0..5 {
        recorder.record(event("a", number));
    }
    drop(recorder);
    log.finish().await;
    assert_eq!(lines(&disk.file().bytes), [events(0..2), lost(3)].concat());
}

#[tokio::test(start_paused = true)]
async fn a_finished_log_counts_what_it_is_given_as_dropped() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 2);
    let backlog = Arc::clone(&log.backlog);
    log.finish().await;
    for number in 0..5 {
        recorder.record(event("a", number));
    }
    assert_eq!(backlog.dropped(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_line_torn_by_a_full_disk_is_completed_when_there_is_room() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 100);
    disk.file().room = line_bytes(0) + 10;
    for number in 0..5 {
        recorder.record(event("a", number));
    }
    settle().await;
    assert_eq!(disk.file().bytes.len(), line_bytes(0) + 10);
    disk.file().room = usize::MAX;
    log.finish().await;
    assert_eq!(lines(&disk.file().bytes), events(0..5));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_truncated_after_a_torn_line_gets_that_line_from_its_start() {
    for reopened in [false, true] {
        let disk = Disk::new();
        let (log, mut recorder) = start(&disk, 100);
        disk.file().room = line_bytes(0) + 10;
        for number in 0..3 {
            recorder.record(event("a", number));
        }
        settle().await;
        disk.truncate();
        if reopened {
            log.reopen(disk.destination(1));
        }
        log.finish().await;
        assert_eq!(lines(&disk.file().bytes), events(1..3));
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_appended_stays_apart_from_a_torn_line_and_from_the_next_one() {
    for (others, torn) in [("by hand", true), ("by hand\n", true), ("by hand", false)] {
        let disk = Disk::new();
        let (log, mut recorder) = start(&disk, 100);
        disk.file().room = if torn { line_bytes(0) + 10 } else { line_bytes(0) };
        recorder.record(event("a", 0));
        recorder.record(event("a", 1));
        settle().await;
        disk.file().bytes.extend(others.as_bytes());
        disk.file().room = usize::MAX;
        log.finish().await;
        let text = String::from_utf8(disk.file().bytes.clone()).unwrap();
        let (before, after) = text.split_once("by hand\n").expect("a line's end after it");
        assert_eq!(lines(&before.as_bytes()[..line_bytes(0)]), events([0]));
        assert_eq!(before.len(), line_bytes(0) + if torn { 10 } else { 0 });
        assert_eq!(lines(after.as_bytes()), events([1]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_tried_again_a_few_times_a_second() {
    let disk = Disk::new();
    let (_log, mut recorder) = start(&disk, 100);
    disk.file().room = 0;
    recorder.record(event("a", 0));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = disk.file().writes;
    assert!((60..=600).contains(&writes), "{writes} writes in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_torn_line_is_written_anew_in_another_file_and_completed_in_the_same_one() {
    for is_same in [true, false] {
        let (old, new) = (Disk::new(), Disk::new());
        let (log, mut recorder) = start(&old, 100);
        old.file().room = line_bytes(0) + 10;
        for number in 0..3 {
            recorder.record(event("a", number));
        }
        settle().await;
        old.file().room = usize::MAX;
        let destination = if is_same { old.destination(1) } else { new.destination(2) };
        log.reopen(destination);
        log.finish().await;
        if is_same {
            assert_eq!(lines(&old.file().bytes), events(0..3));
        } else {
            let old = old.file();
            let (whole, torn) = old.bytes.split_at(line_bytes(0));
            assert_eq!(lines(whole), events([0]));
            assert_eq!(torn.len(), 10);
            assert_eq!(lines(&new.file().bytes), events(1..3));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_reader_that_went_away_has_not_read_is_counted_at_once_and_stands_as_lost() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 100);
    recorder.record(event("a", 0));
    settle().await;
    disk.file().error = Some(Errno::PIPE);
    for number in 1..4 {
        recorder.record(event("a", number));
        settle().await;
        assert_eq!(log.backlog.dropped(), number);
    }
    let writes = disk.file().writes;
    settle().await;
    assert_eq!(disk.file().writes, writes, "nothing to write, nothing written");
    disk.file().error = None;
    recorder.record(event("a", 4));
    log.finish().await;
    assert_eq!(lines(&disk.file().bytes), [events([0]), lost(3), events([4])].concat());
}

#[tokio::test(start_paused = true)]
async fn a_line_that_lacks_only_its_newline_when_the_reader_goes_is_not_lost() {
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 100);
    disk.file().room = line_bytes(0) - 1;
    recorder.record(event("a", 0));
    recorder.record(event("a", 1));
    settle().await;
    disk.file().error = Some(Errno::PIPE);
    settle().await;
    assert_eq!(log.backlog.dropped(), 1);
    disk.file().error = None;
    disk.file().room = usize::MAX;
    recorder.record(event("a", 2));
    log.finish().await;
    assert_eq!(lines(&disk.file().bytes), [events([0]), lost(1), events([2])].concat());
}

#[tokio::test(start_paused = true)]
async fn a_log_whose_reader_is_gone_drops_all_at_once_and_finishes() {
    let disk = Disk::new();
    disk.file().error = Some(Errno::PIPE);
    let recorded = 10_000;
    let (log, mut recorder) = start(&disk, recorded);
    let backlog = Arc::clone(&log.backlog);
    for number in 0..recorded {
        recorder.record(event("a", number));
    }
    settle().await;
    assert_eq!(backlog.dropped(), recorded);
    recorder.record(event("a", recorded));
    log.finish().await;
    assert_eq!(backlog.dropped(), recorded + 1);
}

#[tokio::test(start_paused = true)]
async fn a_writer_ends_when_nobody_waits_for_it_any_more() {
    let disk = Disk::new();
    disk.file().room = 0;
    let (log, mut recorder) = start(&disk, 100);
    recorder.record(event("a", 0));
    settle().await;
    timeout(A_WHILE, log.abandon()).await.expect("the writer ends");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_when_it_begins_and_while_it_lasts_and_when_it_ends_with_what_was_lost() {
    let diagnostics = Diagnostics::new();
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 2);
    disk.file().error = Some(Errno::NOSPC);
    recorder.record(event("a", 0));
    settle().await;
    for number in 1..4 {
        recorder.record(event("a", number));
    }
    tokio::time::sleep(REPEAT).await;
    disk.file().error = None;
    settle().await;
    log.abandon().await;
    let fails = "ERROR the audit log cannot be written path=\"disk\" \
                 error=No space left on device (os error 28)";
    let works = " INFO the audit log is written again path=\"disk\" lost=2";
    assert_eq!(diagnostics.lines(), [&format!("{fails} lost=0"), &format!("{fails} lost=2"), works]);
}

#[tokio::test(start_paused = true)]
async fn an_output_that_takes_nothing_for_a_moment_is_no_failure() {
    let diagnostics = Diagnostics::new();
    let disk = Disk::new();
    let (log, mut recorder) = start(&disk, 100);
    disk.file().error = Some(Errno::AGAIN);
    recorder.record(event("a", 0));
    settle().await;
    disk.file().error = None;
    log.finish().await;
    assert_eq!(lines(&disk.file().bytes), events([0]));
    assert_eq!(diagnostics.lines(), [""; 0]);
}
