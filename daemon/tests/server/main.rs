//! The real server, seen from outside: one module for each part of what it promises.
#![forbid(unsafe_code)]

mod addresses;
mod admin;
mod audit;
mod check_config;
mod errors;
mod floods;
mod frames;
mod health;
mod leases;
mod limits;
mod manager;
mod network;
mod ops;
mod partition;
mod queue;
mod reload;
mod secured;
mod setups;
mod shutdown;
mod signals;
mod start;
mod stays;
mod threads;
mod tls;
mod tokens;

use testkit::harness;
