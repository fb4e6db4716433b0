//! What the API says of one of two nodes, and what it has that node do.

use admin_api::{Commanded, NodeStatus, PeerStatus, json};
use axum::body::Bytes;
use axum::http::StatusCode;
use ha::message::GateState;
use ha::pair::{Command, Outcome, Role};
use httpd::Remote;
use tracing::warn;

use super::call::NodeCall;
use super::refusal::Refusal;
use crate::clock;
use crate::ha::{Node, Seen};

const NS_PER_MS: u64 = 1_000_000;

/// The peer's wall clock is read once a second, half-way through a question: so far apart is no accident.
const CLOCK_OFFSET_MS_MAX: i64 = 100;

/// The body of the answer. Waits for as long as the command does.
pub(super) async fn answer(node: Option<&Node>, call: NodeCall, by: Remote) -> Result<Bytes, Refusal> {
    let Some(node) = node else {
        let problem = "this server has no standby and is none: it was started without -standby";
        return Err(Refusal::new(StatusCode::NOT_FOUND, problem));
    };
    let outcome = match call {
        NodeCall::Status => return Ok(json::line(&status(node.names(), &node.seen())).into()),
        NodeCall::Keep(address) if !node.watch_address(address) => {
            return Ok(line(0, format!("{address} is not here: nothing was done")));
        }
        NodeCall::Keep(_) => node.command(Command::PromoteKeep).await,
        NodeCall::Command(command) => {
            let outcome = node.command(command).await;
            let result = outcome.as_ref().map_or_else(|| "no answer".into(), Outcome::to_string);
            warn!(%by, result, "{}", name(command));
            outcome
        }
    };
    let outcome = outcome.ok_or_else(|| Refusal::unavailable("the server shuts down"))?;
    Ok(line(outcome.exit_status(), outcome.to_string()))
}

fn line(status: u8, result: String) -> Bytes {
    json::line(&Commanded { status, result }).into()
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Promote => "promote",
        Command::PromoteAuto => "promote --auto",
        Command::PromoteKeep => "promote --keep",
        Command::PromoteUnfenced => "promote --force-unfenced",
        Command::Demote => "demote",
        Command::DemoteAuto => "demote --auto",
        Command::Switchover => "switchover",
        Command::Hold => "ha hold",
        Command::Unhold => "ha unhold",
    }
}

fn gate(state: GateState) -> String {
    match state {
        GateState::Open => "open",
        GateState::Closing => "closing",
        GateState::Closed => "closed",
    }
    .into()
}

fn status((node, peer): (String, String), seen: &Seen) -> NodeStatus {
    let Seen { status, stored, last_fence, silence, answer, .. } = seen;
    let role = match status.role {
        Role::Active => "active",
        Role::Standby => "standby",
        Role::FencePending => "fence_pending",
    };
    let text = |term: &Option<ha::term::Term>| term.as_ref().map(ToString::to_string);
    let said = answer.as_ref().map(|answered| &answered.answer.said);
    let peer = PeerStatus {
        node: peer,
        answered_ms_ago: answer
            .as_ref()
            .map(|answered| clock::boot_ns().saturating_sub(answered.sent_ns) / NS_PER_MS),
        silence: silence.clone(),
        gate: said.map(|said| gate(said.gate)),
        term: said.and_then(|said| text(&said.promise)),
        sessions: answer.as_ref().map(|answered| answered.answer.facts.sessions),
        clock_ahead_ms: answer.as_ref().map(|answered| answered.clock_ahead_ns / 1_000_000),
    };
    NodeStatus {
        role: role.into(),
        gate: gate(status.gate),
        node,
        term: text(&status.promise),
        opened: text(&stored.opened),
        hold: status.held,
        demoted: status.demoted,
        reason: seen.reason.as_ref().map(ToString::to_string),
        last_fence: last_fence.clone(),
        fencers: seen.fencers.clone(),
        token_ceiling: stored.ceiling.ceiling.0,
        warnings: warnings(seen, &peer),
        peer,
    }
}

fn warnings(seen: &Seen, peer: &PeerStatus) -> Vec<String> {
    let mut warnings = Vec::new();
    if seen.status.role == Role::FencePending {
        warnings.push("fence pending: this node wants to be active and may not yet".into());
    }
    if let Some(silence) = &seen.silence {
        warnings.push(format!("the peer gives no answer, which proves nothing: {silence}"));
    }
    if let Some(answered) = &seen.answer {
        let differences = seen.own_facts.differences(&answered.answer.facts);
        if !differences.is_empty() {
            warnings.push(format!("the two nodes differ in: {}", differences.join(", ")));
        }
    }
    if let Some(ms) = peer.clock_ahead_ms.filter(|ms| ms.abs() > CLOCK_OFFSET_MS_MAX) {
        warnings.push(format!("the peer's wall clock is {ms} ms ahead of ours"));
    }
    warnings
}
