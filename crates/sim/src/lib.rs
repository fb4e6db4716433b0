//! Deterministic simulation: the real lock table and real client claims over a virtual network and clock.
#![forbid(unsafe_code)]

mod agenda;
mod checks;
mod clients;
mod clock;
mod cluster;
mod faults;
mod figures;
mod network;
mod plan;
mod planted;
mod register;
mod sabotage;
mod server;
mod trace;
mod turn;
mod world;

pub use checks::{Rule, Violation};
pub use faults::Fault;
pub use figures::Figures;
pub use sabotage::Sabotage;
pub use trace::Tracing;
pub use world::Outcome;

/// Runs one seed to its end, or to the first broken promise.
pub fn run(seed: u64, sabotage: Sabotage, tracing: Tracing) -> Outcome {
    world::World::new(seed, sabotage, tracing).run()
}
