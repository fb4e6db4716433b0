//! Which CPUs this tool runs on.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Puts the calling thread on one CPU.
pub(crate) fn pin_to(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("running on CPU {cpu}"))
}

/// Puts the calling thread on a CPU that `taken` does not name, the last such one; where there is none it
/// stays free.
pub(crate) fn pin_away_from(taken: &[usize]) -> Result<Option<usize>> {
    let allowed = sched_getaffinity(None)?;
    let free = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu) && !taken.contains(&cpu));
    if let Some(cpu) = free {
        pin_to(cpu)?;
    }
    Ok(free)
}
