//! What is read from and asked of the machine: time, cores, open files, another process's time and memory.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::problem::Problem;

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident set (`VmRSS`), in bytes.
    pub rss_bytes: u64,
    /// Proportional set (`Pss`), in bytes; 0 where the kernel does not tell.
    pub pss_bytes: u64,
}

/// Another process, watched through `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// Watches process `pid`; fails if there is none.
    pub fn watch(pid: u32) -> Result<Self, Problem> {
        let process = Process { pid };
        process.memory()?;
        Ok(process)
    }

    /// Processor time used so far by all living threads, user and system together.
    ///
    /// Read from `schedstat`, which counts nanoseconds; `stat` counts ticks of 10 ms.
    pub fn cpu(&self) -> Result<Duration, Problem> {
        let folder = format!("/proc/{}/task", self.pid);
        let mut total_ns = 0;
        for entry in fs::read_dir(&folder).map_err(|error| self.gone(&folder, &error))? {
            // A thread may end between listing and reading.
            let text = fs::read_to_string(entry?.path().join("schedstat")).unwrap_or_default();
            total_ns += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(total_ns))
    }

    /// Resident and proportional memory now.
    pub fn memory(&self) -> Result<Memory, Problem> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).map_err(|error| self.gone(&path, &error))?;
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        let rss_bytes = kilobytes(&status, "VmRSS:")
            .ok_or_else(|| Problem::Machine(format!("{path} has no VmRSS: process {} has ended", self.pid)))?;
        Ok(Memory { rss_bytes, pss_bytes: kilobytes(&rollup, "Pss:").unwrap_or(0) })
    }

    fn gone(&self, path: &str, error: &std::io::Error) -> Problem {
        Problem::Machine(format!("process {} cannot be read at {path}: {error}", self.pid))
    }
}

/// Processor time this process has used.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// Processor time that all processes have used on all cores, and what the machine's host took away.
pub fn all_cpu() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user time already.
    let ticks = words.take(8).enumerate().filter(|(index, _)| !matches!(index, 3 | 4));
    let ticks: u64 = ticks.filter_map(|(_, word)| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * MS_PER_TICK)
}

/// Keeps the calling thread on one core.
pub fn pin(core: usize) -> Result<(), Problem> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|error| Problem::Machine(format!("cannot pin to core {core}: {error}")))
}

/// Raises the limit of open files to what the system allows and fails if `wanted` do not fit.
pub fn allow_files(wanted: u64) -> Result<(), Problem> {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    if wanted > allowed {
        return Err(Problem::Machine(format!(
            "{wanted} open files are needed, the system allows {allowed}; raise it (ulimit -Hn) or ask for fewer sessions"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The kernel's `USER_HZ` is 100 on all machines that matter.
const MS_PER_TICK: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_watched() {
        let process = Process::watch(std::process::id()).expect("own process");
        assert!(process.memory().expect("memory").rss_bytes > 0);
        assert!(process.cpu().is_ok());
    }

    #[test]
    fn a_process_that_is_not_there_is_said_so() {
        assert!(matches!(Process::watch(u32::MAX), Err(Problem::Machine(_))));
    }

    #[test]
    fn too_many_files_are_refused_with_the_figure() {
        let Err(Problem::Machine(text)) = allow_files(u64::MAX - 1) else { return };
        assert!(text.contains("open files"));
    }
}
