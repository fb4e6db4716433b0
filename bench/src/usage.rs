//! What a process uses: CPU time of its threads, and memory of its own.

use std::collections::BTreeMap;
use std::{fs, io};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

/// CPU time of each thread of a process, at one moment.
pub(crate) struct CpuTime {
    threads: BTreeMap<u32, Scheduled>,
}

/// Time that threads spent on a CPU, and ready to run while something else had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scheduled {
    pub(crate) run_ns: u64,
    pub(crate) wait_ns: u64,
}

impl CpuTime {
    /// Reads the scheduler's run time of every thread: exact to the nanosecond, where utime and stime count
    /// ticks.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let mut scheduled = BTreeMap::new();
        for tid in threads(pid)? {
            let path = format!("/proc/{pid}/task/{tid}/schedstat");
            match fs::read_to_string(&path) {
                Ok(text) => {
                    let thread = parse_schedstat(&text).with_context(|| format!("{path}: {text:?}"))?;
                    scheduled.insert(tid, thread);
                }
                Err(error) if thread_is_gone(&error) => {}
                Err(error) => return Err(error).context(path),
            }
        }
        Ok(Self { threads: scheduled })
    }

    /// Since `earlier`, all threads together. The last moments of a thread that ended in between are not
    /// known.
    pub(crate) fn since(&self, earlier: &Self) -> Scheduled {
        let mut sum = Scheduled::default();
        for (tid, now) in &self.threads {
            let before = earlier.threads.get(tid).copied().unwrap_or_default();
            sum.run_ns += now.run_ns.saturating_sub(before.run_ns);
            sum.wait_ns += now.wait_ns.saturating_sub(before.wait_ns);
        }
        sum
    }
}

/// Bytes of anonymous memory: heap, stacks and private mappings; neither the program file nor the kernel's
/// rings.
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
fn parse_schedstat(text: &str) -> Option<Scheduled> {
    let mut fields = text.split_ascii_whitespace();
    let run_ns = fields.next()?.parse().ok()?;
    let wait_ns = fields.next()?.parse().ok()?;
    Some(Scheduled { run_ns, wait_ns })
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
    fn schedstat_starts_with_the_time_on_a_cpu_and_the_time_waiting_for_one() {
        let expected = Scheduled { run_ns: 123_456_789, wait_ns: 42 };
        assert_eq!(parse_schedstat("123456789 42 7\n"), Some(expected));
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("1 x 2"), None);
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
        while CpuTime::of(pid).unwrap().since(&before).run_ns == 0 {
            assert!(start.elapsed().as_secs() < 10, "no run time after ten busy seconds");
        }
        assert!(anonymous_bytes(pid).unwrap() > 0);
    }
}
