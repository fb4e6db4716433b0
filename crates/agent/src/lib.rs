//! x
#![forbid(unsafe_code)]

mod agent;
mod clock;
mod desk;
mod health;
mod link;
mod ports;
mod process;
mod servers;
mod state;
mod vigil;
mod wire;

pub use agent::{Agent, AgentError, Config, Ended};
pub use link::{Link, Question, Standing};
pub use state::{LOCK_FILE, STATE_FILE, STATE_KIND};
pub use wire::Hello;
