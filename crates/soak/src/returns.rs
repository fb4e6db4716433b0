//! How clients came back to a server that was restarted.

use std::collections::BTreeMap;

use crate::logs::history::{End, History, Life};

/// The clients that a server's end cut off, and how long after the next one listened each was answered again:
/// sorted. Those that were killed or stopped meanwhile are left out.
pub(crate) fn returns_ns(history: &History, life: usize) -> Vec<Option<u64>> {
    let (Some(before), Life { listening_ns, ended_ns, .. }) =
        (life.checked_sub(1).map(|before| history.lives[before]), history.lives[life])
    else {
        return Vec::new();
    };
    let Some((signal_ns, _)) = before.signal else { return Vec::new() };
    let mut cut: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for claim in history.claims.values() {
        let was_cut = claim.answered_ns().is_some_and(|answered_ns| answered_ns < signal_ns)
            && matches!(claim.end, Some((end_ns, End::Lost(_))) if (signal_ns..ended_ns).contains(&end_ns));
        if was_cut {
            cut.insert(claim.id.client, None);
        }
    }
    for claim in history.claims.values() {
        let Some(first) = cut.get_mut(&claim.id.client) else { continue };
        if let Some(answered_ns) = claim.answered_ns().filter(|_| history.life_of(claim) == Some(life)) {
            *first = Some(first.map_or(answered_ns, |first| first.min(answered_ns)));
        }
    }
    cut.retain(|client, first| {
        let until_ns = first.unwrap_or(ended_ns);
        let fate = history.fates.get(client);
        fate.is_none_or(|fate| {
            fate.killed_ns.is_none_or(|killed_ns| killed_ns > until_ns)
                && !fate.was_stopped_within(signal_ns, until_ns)
        })
    });
    let mut returns: Vec<_> =
        cut.into_values().map(|first| first.map(|first_ns| first_ns.saturating_sub(listening_ns))).collect();
    // Those that never came back last.
    returns.sort_by_key(|first| first.unwrap_or(u64::MAX));
    returns
}
