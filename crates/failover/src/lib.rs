//! Two real servers and the real keepalived in network namespaces of one machine; something fails, and
//! clients tell how long nobody was served, and whether anything was promised twice.
//!
//! [`lab::Lab`] is what runs, [`crowd`] are the clients, [`history`] judges what they saw, and
//! [`scenarios`] are what happens. All times are CLOCK_BOOTTIME's, which the namespaces share.
#![forbid(unsafe_code)]

pub mod bare;
pub mod crowd;
mod files;
pub mod history;
pub mod lab;
pub mod net;
pub mod report;
mod returns;
pub mod scenarios;
mod standin;
