//! Random producers over a random disk: whatever happens, the log has only whole lines, in order, and what is
//! missing is counted where it is missing.

use std::env;
use std::sync::Arc;

use fastrand::Rng;
use rustix::io::Errno;
use testkit::audit_lines::{Line, line};

use super::disk::{Disk, Log, settle, start};
use super::event;
use crate::recorder::Recorder;

const SEED_VARIABLE: &str = "AUDIT_SEED";

/// About two seconds in a debug build.
const RUNS: u64 = 100;

const STEPS: usize = 150;

/// So few that most runs meet the bound.
const EVENTS_MAX: u64 = 12;

#[test]
fn random_faults_leave_whole_lines_in_order_and_lost_counts_that_add_up() {
    let given = env::var(SEED_VARIABLE).ok().map(|seed| seed.parse().expect("the seed is a number"));
    let seed: u64 = given.unwrap_or_else(|| fastrand::u64(..));
    let runs = if given.is_some() { 1 } else { RUNS };
    let mut runs_with_losses = 0;
    for seed in (0..runs).map(|run| seed.wrapping_add(run)) {
        println!("{SEED_VARIABLE}={seed}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runs_with_losses += u64::from(runtime.block_on(run(Rng::with_seed(seed))));
    }
    assert!(given.is_some() || runs_with_losses > runs / 4, "{runs_with_losses} of {runs} runs lost events");
}

/// One producer with what it has recorded; its name tells it from those before it.
struct Producer {
    recorder: Recorder,
    name: String,
    recorded: u64,
}

struct Run {
    rng: Rng,
    log: Log,
    producers: Vec<Producer>,
    /// All that there were: name and number of events.
    gone: Vec<(String, u64)>,
    /// One after the other; the last is in use.
    disks: Vec<Disk>,
}

/// Whether events were lost.
async fn run(mut rng: Rng) -> bool {
    let disk = Disk::new();
    let (log, recorder) = start(&disk, EVENTS_MAX);
    let producers = (0..rng.usize(1..=3))
        .map(|index| Producer { recorder: recorder.clone(), name: format!("{index}-0"), recorded: 0 })
        .collect();
    drop(recorder);
    let mut run = Run { rng, log, producers, gone: Vec::new(), disks: vec![disk] };
    for _ in 0..STEPS {
        run.step().await;
    }
    run.end().await
}

impl Run {
    async fn step(&mut self) {
        match self.rng.u8(..20) {
            0..10 => {
                let index = self.rng.usize(..self.producers.len());
                for _ in 0..self.rng.usize(1..8) {
                    let producer = &mut self.producers[index];
                    producer.recorder.record(event(&producer.name, producer.recorded));
                    producer.recorded += 1;
                }
            }
            10..13 => settle().await,
            13..17 => self.change_disk(),
            17..19 => self.reopen(),
            _ => self.replace_producer(),
        }
    }

    fn change_disk(&mut self) {
        let rng = &mut self.rng;
        let mut file = self.disks.last().expect("there is one").file();
        file.error =
            rng.choice([None, None, Some(Errno::IO), Some(Errno::PIPE), Some(Errno::AGAIN)]).unwrap();
        file.room = if rng.bool() { usize::MAX } else { rng.usize(..1_000) };
        file.write_max = if rng.bool() { usize::MAX } else { rng.usize(1..200) };
    }

    fn reopen(&mut self) {
        if self.rng.bool() {
            self.disks.push(Disk::new());
        }
        let inode = self.disks.len() as u64;
        self.log.reopen(self.disks.last().expect("there is one").destination(inode));
    }

    fn replace_producer(&mut self) {
        let index = self.rng.usize(..self.producers.len());
        let producer = &mut self.producers[index];
        let name = format!("{index}-{}", self.gone.len() + 1);
        let recorder = producer.recorder.clone();
        let old = std::mem::replace(producer, Producer { recorder, name, recorded: 0 });
        self.gone.push((old.name, old.recorded));
    }

    /// Heals the disk, ends the log and checks all of it.
    async fn end(mut self) -> bool {
        {
            let mut file = self.disks.last().expect("there is one").file();
            (file.error, file.room, file.write_max) = (None, usize::MAX, usize::MAX);
        }
        let alone = self.producers.len() == 1 && self.gone.is_empty();
        self.gone.extend(self.producers.drain(..).map(|producer| (producer.name, producer.recorded)));
        let backlog = Arc::clone(&self.log.backlog);
        settle().await;
        self.log.finish().await;
        let disks = self.disks.iter().rev().enumerate().rev();
        let lines: Vec<Line> = disks.flat_map(|(later, disk)| whole_lines(disk, later == 0)).collect();
        check(&lines, &self.gone, backlog.dropped());
        if alone {
            check_places(&lines, self.gone[0].1);
        }
        backlog.dropped() > 0
    }
}

/// Only the last file must be whole to its end. Half a line that a reader left behind stands on a line of its
/// own, and is none, unless it lacks nothing but its newline.
fn whole_lines(disk: &Disk, is_last: bool) -> Vec<Line> {
    let file = disk.file();
    let text = std::str::from_utf8(&file.bytes).unwrap();
    let deserted = file.deserted_at == Some(text.len());
    let whole = if deserted { text } else { text.rfind('\n').map_or("", |end| &text[..=end]) };
    assert!(!is_last || whole.len() == text.len(), "torn: {text:?}");
    whole.lines().filter(|text| text.ends_with('}')).map(line).collect()
}

/// Each producer's events are in order and none is doubled; what is missing of all is what is counted.
fn check(lines: &[Line], producers: &[(String, u64)], dropped: u64) {
    let mut written = 0;
    for (name, _) in producers {
        let numbers: Vec<u64> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Event { producer, number } if producer == name => Some(*number),
                _ => None,
            })
            .collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{name}: {numbers:?}");
        written += numbers.len() as u64;
    }
    let recorded: u64 = producers.iter().map(|(_, recorded)| recorded).sum();
    let lost: u64 = lines.iter().map(|line| if let Line::Lost { count } = line { *count } else { 0 }).sum();
    assert_eq!(recorded, written + dropped, "what is not written is counted");
    assert_eq!(lost, dropped, "what is counted stands in the log");
}

/// The log of one producer has every event, or a lost record that spans it, in its place.
fn check_places(lines: &[Line], recorded: u64) {
    let mut next = 0;
    for line in lines {
        match line {
            Line::Event { number, .. } => {
                assert_eq!(*number, next);
                next += 1;
            }
            Line::Lost { count } => next += count,
        }
    }
    assert_eq!(next, recorded);
}
