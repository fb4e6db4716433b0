//! What a history tells: its figures, and each broken promise with the two logs side by side.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::checks::{self, Agreement, UNWRITTEN_MAX_MS, Violation, Writes};
use crate::logs::audit::What;
use crate::logs::entry::{Answer, ClaimId, ClientLine, Seen};
use crate::logs::history::{End, History};
use crate::logs::names::client_log;
use crate::logs::{Unreadable, lines};
use crate::returns::returns_ns;

/// Lines of a claim that are shown: how it began, and how it ended.
const FIRST_SHOWN: usize = 4;
const LAST_SHOWN: usize = 8;

/// The width of one of two columns.
const COLUMN: usize = 62;

/// The figures of a history, in lines.
pub fn figures(history: &History) -> String {
    let mut lines = Vec::from(of_clients(history));
    lines.extend(of_audit(history));
    lines.extend((1..history.lives.len()).filter_map(|life| of_restart(history, life)));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// What clients saw, and what was done to them.
fn of_clients(history: &History) -> [String; 5] {
    let claims = history.claims.values();
    let granted = claims.clone().filter(|claim| claim.grant.is_some()).count();
    let mut by_lock: BTreeMap<_, usize> = BTreeMap::new();
    for claim in claims.clone().filter(|claim| claim.grant.is_some()) {
        *by_lock.entry((history.life_of(claim), claim.lock)).or_default() += 1;
    }
    let handovers: usize = by_lock.values().map(|grants| grants - 1).sum();
    let sent = claims.clone().filter(|claim| claim.sent_ns.is_some()).count();
    let kills = history.fates.values().filter(|fate| fate.killed_ns.is_some()).count();
    let stops: usize = history.fates.values().map(|fate| fate.stops.len()).sum();
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for (_, end) in claims.clone().filter_map(|claim| claim.end) {
        *ends.entry(shown_end(end)).or_default() += 1;
    }
    let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
    let Writes { accepted, stale_within_a_life, stale_across_lives } = checks::replay(history);
    let longest_ns = claims
        .filter_map(|claim| Some(claim.grant?.read_ns.saturating_sub(claim.queued_ns?)))
        .max()
        .unwrap_or_default();
    let restarts = history.lives.len().saturating_sub(1);
    [
        format!("claims {sent}  grants {granted}  handovers {handovers}"),
        format!("kills {kills} (all that were left at the end included)  stops {stops}  restarts {restarts}"),
        format!("ends: {}", ends.join("  ")),
        format!(
            "guarded writes: accepted {accepted}  refused as stale: {stale_within_a_life} within a server's life, \
             {stale_across_lives} across lives"
        ),
        format!("longest wait {} ms", longest_ns / 1_000_000),
    ]
}

/// What is in the audit log, and what came of the administrator's deeds.
fn of_audit(history: &History) -> [String; 3] {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<_, usize> = BTreeMap::new();
    for event in history.audit.lives.iter().flatten() {
        let kind = match event.what {
            What::Granted { .. } => "granted",
            What::Released { reason, .. } => {
                *reasons.entry(reason).or_default() += 1;
                "released"
            }
            What::ForceRelease { .. } => "force_release",
            What::KickWaiter => "kick_waiter",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let reasons: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{} {count}", format!("{reason:?}").to_lowercase()))
        .collect();
    let Agreement { unread, unwritten, .. } = checks::compare(history);
    let count = |is: fn(&Answer) -> bool| {
        history.deeds.iter().filter(|deed| deed.answer.as_ref().is_some_and(|(_, answer)| is(answer))).count()
    };
    [
        format!("audit log: {} ({})", kinds.join("  "), reasons.join("  ")),
        format!(
            "audit log: grants that no client read {unread}  \
             events of the last {UNWRITTEN_MAX_MS} ms before a SIGKILL that are not in it {unwritten}"
        ),
        format!(
            "administrator: deeds {}  force-releases that hit {}  kicks that hit {}",
            history.deeds.len(),
            count(|answer| matches!(answer, Answer::Released(_))),
            count(|answer| matches!(answer, Answer::Kicked(_)))
        ),
    ]
}

fn shown_end(end: End) -> String {
    match end {
        End::Unreachable => "unreachable".into(),
        End::Released => "released".into(),
        End::Crashed => "crashed".into(),
        End::Lost(cause) => format!("lost/{cause}"),
    }
}

/// How clients came back to a server that was restarted.
fn of_restart(history: &History, life: usize) -> Option<String> {
    let (signal_ns, was_killed) = history.lives[life - 1].signal?;
    let gap_ns = history.lives[life].listening_ns.saturating_sub(signal_ns);
    let how = if was_killed { "SIGKILL" } else { "SIGTERM" };
    Some(restart(how, gap_ns, &returns_ns(history, life)))
}

/// One line about a restart: how long nothing listened, and when those that it cut off were answered again.
/// `returns_ns` has one entry for each of them, sorted, in nanoseconds since the next listening; those that
/// never came back are last.
pub fn restart(how: &str, gap_ns: u64, returns_ns: &[Option<u64>]) -> String {
    let ms = |ns: u64| ns / 1_000_000;
    let back: Vec<u64> = returns_ns.iter().flatten().copied().collect();
    let mut text =
        format!("restart by {how}: {} ms to the next listening; of {}", ms(gap_ns), returns_ns.len());
    let _ = match (back.last(), back.len()) {
        (None, _) => write!(text, " nobody was answered again"),
        (Some(&last), count) => {
            let at = |share: usize| ms(back[(count - 1) * share / 100]);
            write!(
                text,
                " {count} queued again: 1% within {} ms, 50% {}, 90% {}, all {} ms",
                at(1),
                at(50),
                at(90),
                ms(last)
            )
        }
    };
    text
}

/// A broken promise, and what the logs in `dir` say about its claims, side by side.
///
/// # Errors
///
/// The logs cannot be read any more.
pub fn shown(violation: &Violation, dir: &Path) -> Result<String, Unreadable> {
    let mut text = format!("\nBROKEN: {}\n", violation.what);
    let mut columns = violation.claims.iter().map(|&claim| excerpt(claim, dir));
    let left = columns.next().unwrap_or_else(|| Ok(Vec::new()))?;
    let right = columns.next().unwrap_or_else(|| Ok(Vec::new()))?;
    for row in 0..left.len().max(right.len()) {
        let cell = |column: &[String]| column.get(row).cloned().unwrap_or_default();
        let _ = writeln!(text, "  {:<COLUMN$}  {}", cell(&left), cell(&right));
    }
    Ok(text)
}

/// What the log of a claim's client says about it. Writes are left out: they may be many.
fn excerpt(claim: ClaimId, dir: &Path) -> Result<Vec<String>, Unreadable> {
    let path = client_log(dir, claim.client);
    let log: Vec<ClientLine> = if path.exists() { lines(&path)? } else { Vec::new() };
    let own =
        log.iter().filter(|line| line.number == claim.number && !matches!(line.seen, Seen::Write { .. }));
    let all: Vec<String> = own.map(ClientLine::to_string).collect();
    let mut shown = vec![format!("claim {claim}")];
    if all.len() <= FIRST_SHOWN + LAST_SHOWN {
        shown.extend(all);
    } else {
        shown.extend_from_slice(&all[..FIRST_SHOWN]);
        shown.push(format!("… {} more", all.len() - FIRST_SHOWN - LAST_SHOWN));
        shown.extend_from_slice(&all[all.len() - LAST_SHOWN..]);
    }
    Ok(shown)
}
