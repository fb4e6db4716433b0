//! The pair, explored completely.

mod sabotage;
mod search;
mod world;

use ha::fence::Levels;
use sabotage::Sabotage;
use search::{Bound, Found, explore, walk};
use world::World;

fn levels(text: &str) -> Levels {
    text.parse().unwrap()
}

/// Every way to set up two nodes' fences that makes a difference.
fn setups() -> [[Levels; 2]; 3] {
    let (ask, shoot) = (levels("peer"), levels("peer,exec:/off"));
    [[ask.clone(), ask.clone()], [ask, shoot.clone()], [shoot.clone(), shoot]]
}

fn run(setup: &[Levels; 2], bound: Bound, sabotage: Sabotage) -> Found {
    let world = World::new([&setup[0], &setup[1]], bound.crashes, bound.faults, bound.orders, sabotage);
    let world = if bound.opened { world.opened(sabotage) } else { world };
    let found = explore(world, bound, sabotage);
    println!(
        "{sabotage:?}, {} against {}: {} states, depth {}, complete {}",
        setup[0], setup[1], found.states, found.depth, found.complete
    );
    if let Some((violation, steps)) = &found.violation {
        println!("  {violation}:");
        for step in steps {
            println!("    {step:?}");
        }
    }
    found
}

/// One node is open in the first term, and everything else may happen in one term more: explored completely.
const QUIET: Bound =
    Bound { counter: 2, crashes: 0, faults: 0, orders: 0, opened: true, fair: true, states: 2_000_000 };

/// Beyond that each budget is widened by itself, then all at once. What has more than this many states is
/// explored breadth first up to there, and printed as not complete.
fn wider(states: usize) -> [Bound; 6] {
    let bound = Bound { states, ..QUIET };
    [
        Bound { counter: 1, opened: false, ..bound },
        Bound { crashes: 1, ..bound },
        Bound { faults: 1, ..bound },
        Bound { orders: 1, ..bound },
        Bound { counter: 3, ..bound },
        Bound { counter: 3, crashes: 2, faults: 2, orders: 9, ..bound },
    ]
}

/// Explores every setup within these bounds, and returns how many states there were.
fn explore_all(bounds: &[Bound]) -> usize {
    let mut states = 0;
    for bound in bounds {
        println!("{bound:?}");
        for setup in setups() {
            let found = run(&setup, *bound, Sabotage::None);
            assert!(found.violation.is_none(), "see above");
            states += found.states;
        }
    }
    println!("{states} states");
    states
}

#[test]
fn no_state_has_two_open_nodes_or_an_undone_demotion_or_no_way_to_open() {
    explore_all(&[QUIET]);
    explore_all(&wider(20_000));
}

/// In release, by CI: `cargo test --release -p ha --test explore -- --ignored --nocapture`.
#[test]
#[ignore = "minutes; CI runs it in release"]
fn the_same_in_a_wider_bound() {
    explore_all(&wider(500_000));
    walks(50_000);
}

/// How far to go for a planted fault: as far as it takes, so that all are found within seconds.
fn bound_of(sabotage: Sabotage) -> Bound {
    let bound =
        Bound { counter: 3, crashes: 1, faults: 1, orders: 1, opened: true, fair: false, states: 400_000 };
    let quiet = Bound { crashes: 0, faults: 0, orders: 0, ..bound };
    match sabotage {
        Sabotage::PromiseIsOpened => Bound { fair: true, ..bound },
        Sabotage::HidesPowerFencer => quiet,
        // The answer to a first promotion comes in the third: the node between them was open.
        Sabotage::TakesLateAnswers => Bound { counter: 4, states: 1_500_000, ..quiet },
        _ => bound,
    }
}

#[test]
fn every_planted_fault_is_found() {
    let missed = |sabotage: &Sabotage| {
        let bound = bound_of(*sabotage);
        !setups().iter().any(|setup| run(setup, bound, *sabotage).violation.is_some())
    };
    let missed: Vec<Sabotage> = Sabotage::ALL.into_iter().filter(missed).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// The whole bound, by chance: 3 terms, 2 crashes each, 2 lost, doubled or reflected messages, 9 orders.
fn walks(walks: u64) {
    for setup in setups() {
        let start = World::new([&setup[0], &setup[1]], 2, 2, 9, Sabotage::None);
        for seed in 0..walks {
            let steps = 10 + u32::try_from(seed % 90).unwrap();
            if let Err((violation, steps)) = walk(&start, 3, steps, seed) {
                panic!("{} against {}, seed {seed}: {violation}: {steps:#?}", setup[0], setup[1]);
            }
        }
    }
}

#[test]
fn random_walks_through_the_whole_bound_find_nothing() {
    walks(5_000);
}
