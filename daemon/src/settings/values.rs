//! What single settings take. An error says what is wrong with the text, without the text itself.

use std::num::NonZeroUsize;
use std::time::Duration;

use cli::{ListenAddress, parse_duration};
use ha::fence::Levels;
use ha::term::NodeId;
use logging::{LogFormat, LogLevel};

/// The most shards: as many CPUs as the kernel's affinity sets of usual size hold.
const SHARDS_MAX: usize = 1024;

pub(super) fn log_level(text: &str) -> Result<LogLevel, String> {
    match text {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        "error" => Ok(LogLevel::Error),
        _ => Err("one of debug, info, warn, error is expected".into()),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("one of text, json is expected".into()),
    }
}

/// A healthy shard sleeps up to 200 ms, and a busy machine may add to that.
const STALL_MIN: Duration = Duration::from_millis(500);

pub(super) fn stall_max(text: &str) -> Result<Duration, String> {
    let stall_max = parse_duration(text)?;
    if stall_max < STALL_MIN {
        return Err(format!(
            "{} ms is the least: a shard without work turns five times a second",
            STALL_MIN.as_millis()
        ));
    }
    Ok(stall_max)
}

pub(super) fn shard_count(text: &str) -> Result<Option<NonZeroUsize>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= SHARDS_MAX);
    count.map(Some).ok_or_else(|| format!("a number from 1 to {SHARDS_MAX} is expected"))
}

/// The other node of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    /// Its name.
    pub(crate) id: NodeId,
    /// Where it is asked, all at once: at least one.
    pub(crate) addresses: Vec<ListenAddress>,
}

pub(super) fn peer(text: &str) -> Result<Option<PeerAddress>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let (id, addresses) = text
        .split_once('=')
        .ok_or("a name, = and addresses are expected, as in b=10.0.0.2:7171,10.1.0.2:7171")?;
    let id = id.parse().map_err(|bad: ha::term::BadNodeId| bad.to_string())?;
    let address = |text: &str| match text.parse::<ListenAddress>() {
        Ok(_) if text.starts_with(':') => Err(format!("{text:?} names no host")),
        parsed => parsed,
    };
    let addresses = addresses.split(',').map(address).collect::<Result<_, _>>()?;
    Ok(Some(PeerAddress { id, addresses }))
}

pub(super) fn node_id(text: &str) -> Result<Option<NodeId>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|bad: ha::term::BadNodeId| bad.to_string())
}

/// Names with commas between them; none for an empty text.
pub(super) fn names(text: &str) -> Result<Vec<String>, String> {
    let names = text.split(',').map(str::trim).filter(|_| !text.is_empty());
    names
        .map(|name| if name.is_empty() { Err("a name is empty".into()) } else { Ok(name.to_owned()) })
        .collect()
}

pub(super) fn levels(text: &str) -> Result<Levels, String> {
    text.parse().map_err(|bad: ha::fence::BadLevels| bad.to_string())
}
