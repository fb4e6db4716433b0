//! Breadth first over all states, and from each of them: does somebody open once faults stop?

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use ha::message::Ask;
use ha::pair::Command;

use crate::sabotage::Sabotage;
use crate::world::{Gate, Step, Violation, World, fingerprint};

/// Keys are fingerprints already.
#[derive(Default)]
pub(crate) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Same64 = BuildHasherDefault<Same>;

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// The highest counter of a term.
    pub(crate) counter: u64,
    /// Crashes of each node.
    pub(crate) crashes: u8,
    /// Lost, doubled or reflected messages in all.
    pub(crate) faults: u8,
    /// Demotions and switchovers in all.
    pub(crate) orders: u8,
    /// From a pair with an open node, not from one that has never run.
    pub(crate) opened: bool,
    /// Whether somebody must open from each state.
    pub(crate) fair: bool,
    /// States, beyond which the search is given up.
    pub(crate) states: usize,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) depth: u32,
    /// Whether the search was given up before the bound was covered.
    pub(crate) complete: bool,
    pub(crate) violation: Option<(Violation, Vec<Step>)>,
}

pub(crate) fn explore(start: World, bound: Bound, sabotage: Sabotage) -> Found {
    let mut parents: HashMap<u64, (u64, Step), Same64> = HashMap::default();
    let mut fair = Fair { sabotage, good: HashSet::default() };
    let mut queue = VecDeque::new();
    let root = fingerprint(&start);
    parents.insert(root, (root, Step::Tick(0)));
    queue.push_back((root, 0u32, start));
    let mut found = Found { states: 0, depth: 0, complete: true, violation: None };
    let trace = |parents: &HashMap<u64, (u64, Step), Same64>, mut at: u64, last: Option<Step>| {
        let mut steps: Vec<Step> = last.into_iter().collect();
        while at != root {
            let (parent, step) = parents[&at];
            steps.push(step);
            at = parent;
        }
        steps.reverse();
        steps
    };
    while let Some((key, depth, world)) = queue.pop_front() {
        found.depth = depth;
        found.states = parents.len();
        // Where a run without faults has a next step, that step leads to a state that is looked at itself.
        let rests = bound.fair && next_fair(&world, true, sabotage).is_none();
        if rests && let Err(violation) = fair.check(&world) {
            found.violation = Some((violation, trace(&parents, key, None)));
            return found;
        }
        if parents.len() > bound.states {
            found.complete = false;
            return found;
        }
        for step in world.steps(sabotage) {
            let mut next = world.clone();
            if let Err(violation) = next.take(step, sabotage) {
                found.violation = Some((violation, trace(&parents, key, Some(step))));
                return found;
            }
            if next.is_beyond(bound.counter) {
                continue;
            }
            let child = fingerprint(&next);
            if let std::collections::hash_map::Entry::Vacant(entry) = parents.entry(child) {
                entry.insert((key, step));
                queue.push_back((child, depth + 1, next));
            }
        }
    }
    found
}

/// One random walk, from a pair that has never run: as many steps, and from where it ends somebody opens.
pub(crate) fn walk(
    start: &World,
    counter_max: u64,
    steps: u32,
    seed: u64,
) -> Result<(), (Violation, Vec<Step>)> {
    let mut world = start.clone();
    let mut taken = Vec::new();
    let mut random = seed;
    for _ in 0..steps {
        let choices = world.steps(Sabotage::None);
        random = fingerprint(&(random, seed));
        let step = choices[usize::try_from(random % choices.len() as u64).unwrap()];
        let mut next = world.clone();
        taken.push(step);
        if let Err(violation) = next.take(step, Sabotage::None) {
            return Err((violation, taken));
        }
        if next.is_beyond(counter_max) {
            taken.pop();
            continue;
        }
        world = next;
    }
    let mut fair = Fair { sabotage: Sabotage::None, good: HashSet::default() };
    fair.check(&world).map_err(|violation| (violation, taken))
}

/// Faults have stopped: messages arrive, disks write, fences work, and keepalived goes on calling.
struct Fair {
    sabotage: Sabotage,
    /// Fingerprints from which somebody opens and stays open.
    good: HashSet<u64, Same64>,
}

/// Longer than any way to an open gate that was seen.
const FAIR_STEPS_MAX: u32 = 400;

/// How often the address's owner is called: `--keep`, then `--auto` (by hand where an operator demoted it),
/// and once more each, since a call may be refused for a term that was lower than the peer's promise.
const CALLS_MAX: u8 = 4;

impl Fair {
    fn check(&mut self, world: &World) -> Result<(), Violation> {
        let mut world = world.clone();
        world.faults = 0;
        world.orders = 0;
        for node in &mut world.nodes {
            node.crashes = 0;
        }
        if !self.good.insert(fingerprint(&world)) {
            return Ok(());
        }
        for owner in 0..2 {
            self.somebody_opens(world.clone(), owner)?;
            if !world.wire.is_empty() {
                let mut lost = world.clone();
                lost.wire.clear();
                self.somebody_opens(lost, owner)?;
            }
            self.fence_opens(&world, owner)?;
        }
        Ok(())
    }

    fn somebody_opens(&mut self, mut world: World, owner: usize) -> Result<(), Violation> {
        let mut path = Vec::new();
        let mut calls = 0;
        for _ in 0..FAIR_STEPS_MAX {
            let key = fingerprint(&(&world, owner, calls));
            if self.good.contains(&key) {
                self.good.extend(path);
                return Ok(());
            }
            path.push(key);
            if let Some(step) = next_fair(&world, true, self.sabotage) {
                world.take(step, self.sabotage)?;
            } else if let Some(open) = world.nodes.iter().position(|node| node.gate == Gate::Open) {
                self.stays_open(&world, open)?;
                self.good.extend(path);
                return Ok(());
            } else if calls < CALLS_MAX {
                let demoted = world.nodes[owner].pair.as_ref().is_some_and(|pair| pair.status().demoted);
                let command = match (calls % 2, demoted) {
                    (0, _) => Command::PromoteKeep,
                    (_, true) => Command::Promote,
                    (_, false) => Command::PromoteAuto,
                };
                calls += 1;
                world.take(Step::Command(owner, command), self.sabotage)?;
            } else {
                return Err(format!("nobody opens, with the address on node {owner}"));
            }
        }
        Err("the pair goes on for ever without a result".into())
    }

    /// `promote --keep` comes on both nodes (the address may be on both): the open one stays open, in its
    /// term.
    fn stays_open(&mut self, world: &World, open: usize) -> Result<(), Violation> {
        let mut world = world.clone();
        let promise =
            |world: &World| world.nodes[open].pair.as_ref().map(|pair| pair.stored().promise.clone());
        let before = promise(&world);
        for node in [1 - open, open] {
            world.take(Step::Command(node, Command::PromoteKeep), self.sabotage)?;
            for _ in 0..FAIR_STEPS_MAX {
                let Some(step) = next_fair(&world, true, self.sabotage) else { break };
                world.take(step, self.sabotage)?;
            }
        }
        // The next read of the peer's status, whatever it tells.
        world.take(Step::Read(open), self.sabotage)?;
        while let Some(step) = next_fair(&world, true, self.sabotage) {
            world.take(step, self.sabotage)?;
        }
        if world.nodes[open].gate != Gate::Open || promise(&world) != before {
            return Err("a call on the other node closes the open one".into());
        }
        Ok(())
    }

    /// The other node is gone for good: a node that may shoot it opens.
    fn fence_opens(&mut self, world: &World, alive: usize) -> Result<(), Violation> {
        let mut world = world.clone();
        world.die(1 - alive, true);
        world.wire.clear();
        let mut called = false;
        for _ in 0..FAIR_STEPS_MAX {
            let key = fingerprint(&(&world, alive, called, "alone"));
            if !self.good.insert(key) {
                return Ok(());
            }
            if let Some(step) = next_fair(&world, false, self.sabotage) {
                world.take(step, self.sabotage)?;
                continue;
            }
            let node = &world.nodes[alive];
            let Some(pair) = &node.pair else {
                world.take(Step::Start(alive, true), self.sabotage)?;
                continue;
            };
            let may = !node.setup.levels.is_peer_only()
                && !pair.status().demoted
                && pair.stored().peer.heard.is_some_and(|heard| heard.own_boot == pair.stored().boot);
            if node.gate == Gate::Open || !may {
                return Ok(());
            }
            if called {
                return Err(format!("node {alive} may shoot its dead peer and does not open"));
            }
            called = true;
            world.take(Step::Command(alive, Command::PromoteAuto), self.sabotage)?;
        }
        Err(format!("node {alive} goes on for ever beside its dead peer"))
    }
}

/// The next step of a run without faults. `both`: a node that is down starts again.
pub(crate) fn next_fair(world: &World, both: bool, sabotage: Sabotage) -> Option<Step> {
    let nodes = &world.nodes;
    let node = |holds: &dyn Fn(usize) -> bool| (0..2).find(|&i| holds(i));
    if let Some(i) = node(&|i| both && nodes[i].pair.is_none()) {
        return Some(Step::Start(i, true));
    }
    if let Some(i) = node(&|i| nodes[i].writing.is_some()) {
        return Some(Step::Synced(i));
    }
    if let Some(i) = node(&|i| nodes[i].gate == Gate::Closing) {
        return Some(Step::Closed(i));
    }
    if let Some(i) = node(&|i| sabotage == Sabotage::OpensLate && nodes[i].opening) {
        return Some(Step::LateOpening(i));
    }
    if !world.wire.is_empty() {
        return Some(Step::Deliver(0));
    }
    if let Some(i) = node(&|i| nodes[i].fence.is_some()) {
        let done = nodes[i].fence.as_ref().is_some_and(|fence| fence.done);
        return Some(if done { Step::FenceEnds(i) } else { Step::FenceWorks(i, true) });
    }
    if let Some(i) = node(&|i| world.reads(i)) {
        return Some(Step::Read(i));
    }
    if let Some(i) = node(&|i| !nodes[i].asked.is_empty()) {
        return Some(Step::TimeOut(i, 0));
    }
    node(&|i| {
        nodes[i].pair.is_some() && nodes[i].asked != [Ask::Status] && {
            let mut next = world.clone();
            next.take(Step::Tick(i), sabotage).is_err() || next != *world
        }
    })
    .map(Step::Tick)
}
