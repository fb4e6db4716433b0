//! The pair, explored completely.

mod sabotage;
mod search;
mod world;

use ha::fence::Levels;
use sabotage::Sabotage;
use search::{Bound, Found, explore};
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
    let world = World::new([&setup[0], &setup[1]], bound.crashes, bound.faults);
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

#[test]
fn small() {
    let env = |name: &str, or: u64| std::env::var(name).map_or(or, |v| v.parse().unwrap());
    let bound = Bound {
        counter: env("C", 1),
        crashes: env("K", 1) as u8,
        faults: env("F", 0) as u8,
        states: env("S", 3_000_000) as usize,
    };
    for setup in setups() {
        let start = std::time::Instant::now();
        let found = run(&setup, bound, Sabotage::None);
        println!("{:?}", start.elapsed());
        assert!(found.violation.is_none());
    }
}

#[test]
fn every_planted_fault_is_found() {
    let bound = Bound { counter: 3, crashes: 2, faults: 1, states: 1_000_000 };
    for sabotage in Sabotage::ALL {
        let found = setups().iter().any(|setup| run(setup, bound, sabotage).violation.is_some());
        assert!(found, "{sabotage:?}");
    }
}
