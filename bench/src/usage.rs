//! What a process uses: CPU time of its threads, and memory of its own.

use std::collections::BTreeMap;
use std::{fs, io};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

/// CPU time of each thread of a process, at one moment.
pub(crate) struct CpuTime {
    run_ns: BTreeMap<u32, u64>,
}

impl CpuTime {
    /// Reads the scheduler's run time of every thread: exact to the nanosecond, where utime and stime count ticks.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let mut run_ns = BTreeMap::new();
        for tid in threads(pid)? {
            let path = format!("/proc/{pid}/task/{tid}/schedstat");
            match fs::read_to_string(&path) {
                Ok(text) => {
                    let ns = parse_schedstat(&text).with_context(|| format!("{path}: {text:?}"))?;
                    run_ns.insert(tid, ns);
                }
                Err(error) if thread_is_gone(&error) => {}
                Err(error) => return Err(error).context(path),
            }
        }
        Ok(Self { run_ns })
    }

    /// Nanoseconds since `earlier`. The last moments of a thread that ended in between are not known.
    pub(crate) fn since_ns(&self, earlier: &Self) -> u64 {
        let before = |tid| earlier.run_ns.get(tid).copied().unwrap_or(0);
        self.run_ns.iter().map(|(tid, ns)| ns.saturating_sub(before(tid))).sum()
    }
}

/// Bytes of anonymous memory: heap, stacks and private mappings; neither the program file nor the kernel's rings.
pub(crate) fn anonymous_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    parse_anonymous(&text).with_context(|| format!("{path}: no line \"Anonymous:\""))
}

/// The CPUs to which some thread of the process is pinned, one CPU a thread.
pub(crate) fn pinned_cpus(pid: u32) -> Result<Vec<usize>> {
    let mut cpus = Vec::new();
    for tid in threads(pid)? {
        let tid = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw);
        let Ok(allowed) = sched_getaffinity(tid) else { continue };
        if allowed.count() == 1 {
            cpus.extend((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)));
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

fn threads(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&path).with_context(|| path.clone())?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The file disappears with its thread; an open one then reads as ESRCH.
fn thread_is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// `run_ns wait_ns timeslices`.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn parse_anonymous(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_of_schedstat_is_the_run_time() {
        assert_eq!(parse_schedstat("123456789 42 7\n"), Some(123_456_789));
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("x 1 2"), None);
    }

    #[test]
    fn anonymous_memory_is_found_among_the_other_lines() {
        let text = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nPrivate_Dirty: 10 kB\n\
                    Anonymous:            1234 kB\nAnonHugePages:  99 kB\n";
        assert_eq!(parse_anonymous(text), Some(1234 * 1024));
        assert_eq!(parse_anonymous("Rss: 900 kB\nAnonHugePages: 1 kB\n"), None);
    }

    #[test]
    fn a_busy_thread_of_this_process_shows_in_its_cpu_time() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).unwrap();
        let start = std::time::Instant::now();
        while CpuTime::of(pid).unwrap().since_ns(&before) == 0 {
            assert!(start.elapsed().as_secs() < 10, "no run time after ten busy seconds");
        }
        assert!(anonymous_bytes(pid).unwrap() > 0);
    }
}
