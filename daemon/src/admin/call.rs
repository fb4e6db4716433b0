//! What a request asks for: from its method and target to a call, or to the reason why it is none.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use admin_api::{PAGE_LOCKS_MAX, PATTERN_BYTES_MAX};
use axum::http::{Method, StatusCode, Uri};
use ha::pair::Command;
use percent_encoding::percent_decode_str;
use protocol::{LockName, Token};
use wildmatch::WildMatch;

use super::refusal::Refusal;
use audit::Peer;

/// A call of the API.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    Info,
    List(Filter),
    Inspect(LockName),
    /// Only of the holder with this token, if there is one.
    Release(LockName, Option<Token>),
    Kick(LockName, Peer),
    /// Of one of two nodes.
    Node(NodeCall),
}

/// A call about the node, and about no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeCall {
    Status,
    Command(Command),
    /// A check script's: does nothing where the address is not here.
    Keep(IpAddr),
}

/// Which locks are listed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Filter {
    /// All names when `None`.
    pub(super) pattern: Option<WildMatch>,
    /// Only names that come later than this one.
    pub(super) after: Option<String>,
    /// All locks when `None`; at least 1.
    pub(super) limit: Option<usize>,
}

impl Call {
    pub(super) fn parse(method: &Method, uri: &Uri) -> Result<Self, Refusal> {
        let segments: Vec<&str> = uri.path().split('/').skip(1).collect();
        let (allowed, call): (&[Method], _) = match *segments {
            ["api", "info"] => (READ, Ok(Self::Info)),
            ["api", "locks"] => (READ, Filter::parse(uri.query().unwrap_or_default()).map(Self::List)),
            ["api", "locks", name] => (READ, lock_name(name).map(Self::Inspect)),
            ["api", "locks", name, "release"] => {
                (&[Method::POST], release(name, uri.query().unwrap_or_default()))
            }
            ["api", "ha"] => (READ, Ok(Self::Node(NodeCall::Status))),
            ["api", "ha", "promote"] => (&[Method::POST], promote(uri.query().unwrap_or_default())),
            ["api", "ha", "demote"] => (&[Method::POST], demote(uri.query().unwrap_or_default())),
            ["api", "ha", "switchover"] => (&[Method::POST], Ok(command(Command::Switchover))),
            ["api", "ha", "hold"] => (&[Method::POST], Ok(command(Command::Hold))),
            ["api", "ha", "unhold"] => (&[Method::POST], Ok(command(Command::Unhold))),
            ["api", "locks", name, "waiters", address] => (&[Method::DELETE], kick(name, address)),
            _ => return Err(Refusal::new(StatusCode::NOT_FOUND, UNKNOWN_PATH)),
        };
        if !allowed.contains(method) {
            return Err(Refusal::method_not_allowed(method, allowed));
        }
        let call = call?;
        let takes_parameters = matches!(segments[..], ["api", "ha", "promote" | "demote"]);
        if !(takes_parameters || matches!(call, Self::List(_) | Self::Release(..)))
            && uri.query().is_some_and(|query| !query.is_empty())
        {
            return Err(bad("this call takes no query parameters"));
        }
        Ok(call)
    }
}

/// The methods of a call that changes nothing.
const READ: &[Method] = &[Method::GET, Method::HEAD];

const UNKNOWN_PATH: &str =
    "unknown path; in a lock's name every / is written as %2F, as in /api/locks/nightly%2Fbackup";

impl Filter {
    fn parse(query: &str) -> Result<Self, Refusal> {
        let mut filter = Self::default();
        for (key, value) in parameters(query)? {
            match key {
                "match" => filter.pattern = pattern(&value)?,
                "after" => filter.after = (!value.is_empty()).then_some(value),
                "limit" => filter.limit = Some(limit(&value)?),
                _ => {
                    return Err(bad(format!(
                        "unknown query parameter {key:?}: match, after and limit are known"
                    )));
                }
            }
        }
        Ok(filter)
    }

    /// Whether a name is listed.
    pub(super) fn takes(&self, name: &str) -> bool {
        self.after.as_deref().is_none_or(|after| name > after)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

/// The parameters of a query, each at most once.
fn parameters(query: &str) -> Result<Vec<(&str, String)>, Refusal> {
    let mut known: Vec<(&str, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if known.iter().any(|(name, _)| *name == key) {
            return Err(bad(format!("query parameter {key:?} is given twice")));
        }
        // In a query, unlike in a path, + stands for a space.
        known.push((key, decode(&value.replace('+', "%20"))?));
    }
    Ok(known)
}

fn pattern(text: &str) -> Result<Option<WildMatch>, Refusal> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(bad(format!("match is longer than {PATTERN_BYTES_MAX} bytes")));
    }
    Ok((!text.is_empty()).then(|| WildMatch::new(text)))
}

fn limit(text: &str) -> Result<usize, Refusal> {
    let limit = number(text).filter(|limit| (1..=PAGE_LOCKS_MAX).contains(limit));
    limit.ok_or_else(|| bad(format!("limit is a number from 1 to {PAGE_LOCKS_MAX}")))
}

/// Digits alone, without the sign that Rust takes.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn release(name: &str, query: &str) -> Result<Call, Refusal> {
    let mut of = None;
    for (key, value) in parameters(query)? {
        if key != "token" {
            return Err(bad(format!("unknown query parameter {key:?}: token is known")));
        }
        of =
            Some(Token(number(&value).ok_or_else(|| bad("token is a number, as the lock's holder has it"))?));
    }
    Ok(Call::Release(lock_name(name)?, of))
}

fn command(command: Command) -> Call {
    Call::Node(NodeCall::Command(command))
}

/// `mode=auto`, `mode=keep&address=IP` or `mode=unfenced`; by hand without.
fn promote(query: &str) -> Result<Call, Refusal> {
    let (mut mode, mut address) = (None, None);
    for (key, value) in parameters(query)? {
        match key {
            "mode" => mode = Some(value),
            "address" => {
                address = Some(value.parse().map_err(|_| bad("address is an IP address, as in 192.0.2.10"))?);
            }
            _ => return Err(bad(format!("unknown query parameter {key:?}: mode and address are known"))),
        }
    }
    match (mode.as_deref(), address) {
        (None, None) => Ok(command(Command::Promote)),
        (Some("auto"), None) => Ok(command(Command::PromoteAuto)),
        (Some("unfenced"), None) => Ok(command(Command::PromoteUnfenced)),
        (Some("keep"), Some(address)) => Ok(Call::Node(NodeCall::Keep(address))),
        _ => Err(bad("mode is auto or unfenced, or keep with an address")),
    }
}

/// `mode=auto`; by hand without.
fn demote(query: &str) -> Result<Call, Refusal> {
    match &parameters(query)?[..] {
        [] => Ok(command(Command::Demote)),
        [("mode", mode)] if mode == "auto" => Ok(command(Command::DemoteAuto)),
        _ => Err(bad("mode is auto, and there is no other query parameter")),
    }
}

fn lock_name(segment: &str) -> Result<LockName, Refusal> {
    let name = decode(segment)?;
    LockName::new(&name).map_err(|code| bad(format!("the lock's name: {}", code.meaning())))
}

fn kick(name: &str, address: &str) -> Result<Call, Refusal> {
    let address = decode(address)?;
    let address: SocketAddr = address.parse().map_err(|_| {
        bad("the waiter is named by its address and port, as in 192.0.2.1:40000 or [2001:db8::1]:40000")
    })?;
    Ok(Call::Kick(lock_name(name)?, address.into()))
}

fn decode(text: &str) -> Result<String, Refusal> {
    let mut escapes = text.split('%').skip(1).map(str::as_bytes);
    if !escapes.all(|escape| escape.len() >= 2 && escape[..2].iter().all(u8::is_ascii_hexdigit)) {
        return Err(bad("a % is not followed by two hexadecimal digits"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| bad("what is percent-encoded is not valid UTF-8"))
}

fn bad(problem: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, problem)
}
