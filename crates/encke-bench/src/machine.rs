//! The machine: time, cores, open files, and the time and memory of another process.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::problem::Problem;
use crate::report;

/// Memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident set (`VmRSS`), in bytes.
    pub rss_bytes: u64,
    /// Proportional set (`Pss`), in bytes; 0 if the kernel does not report it.
    pub pss_bytes: u64,
}

/// Another process, watched through `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// Watches process `pid`.
    ///
    /// # Errors
    /// The process does not exist.
    pub fn watch(pid: u32) -> Result<Self, Problem> {
        let process = Process { pid };
        process.rss_bytes().map_err(|_| Problem::Usage(format!("there is no process {pid} to watch")))?;
        Ok(process)
    }

    /// Finds the process that listens on `port`, unless it is this one or may not be inspected.
    ///
    /// If several share the socket, it is the one with the lowest number.
    pub fn listening_on(port: u16) -> Option<Self> {
        let inodes: Vec<String> =
            ["/proc/net/tcp", "/proc/net/tcp6"].iter().flat_map(|path| listeners(path, port)).collect();
        let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        let ids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        let pid = ids.into_iter().find(|&pid| holds_one_of(pid, &links))?;
        (pid != std::process::id()).then_some(Process { pid })
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Its limit of open files; none if the system does not report it.
    pub fn files_max(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/limits", self.pid)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Processor time used so far by all living threads, user and system together.
    ///
    /// Read from `schedstat`, which counts nanoseconds; `stat` counts ticks of 10 ms.
    ///
    /// # Errors
    /// The process has ended.
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

    /// Resident memory now, in bytes; cheaper than [`Process::memory`].
    ///
    /// # Errors
    /// The process has ended.
    pub fn rss_bytes(&self) -> Result<u64, Problem> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).map_err(|error| self.gone(&path, &error))?;
        kilobytes(&status, "VmRSS:")
            .ok_or_else(|| Problem::Machine(format!("{path} has no VmRSS: process {} has ended", self.pid)))
    }

    /// Resident and proportional memory now.
    ///
    /// # Errors
    /// The process has ended.
    pub fn memory(&self) -> Result<Memory, Problem> {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        let rss_bytes = self.rss_bytes()?;
        Ok(Memory { rss_bytes, pss_bytes: kilobytes(&rollup, "Pss:").unwrap_or(0) })
    }

    fn gone(&self, path: &str, error: &std::io::Error) -> Problem {
        Problem::Machine(format!("process {} cannot be read at {path}: {error}", self.pid))
    }
}

/// Processor time this process has used.
pub fn own_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// Processor time the calling thread has used.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// Processor time of all processes on all cores, including the time taken by the host.
pub fn all_cpu() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user time already.
    let ticks = words.take(8).enumerate().filter(|(index, _)| !matches!(index, 3 | 4));
    let ticks: u64 = ticks.filter_map(|(_, word)| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * MS_PER_TICK)
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// The core does not exist or may not be used.
pub fn pin(core: usize) -> Result<(), Problem> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|error| Problem::Machine(format!("cannot pin to core {core}: {error}")))
}

/// The limit of open files of this process.
pub fn files_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// A description of the machine for a report.
pub fn facts() -> report::Machine {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = line("/proc/sys/kernel/osrelease");
    let cpus = line("/proc/cpuinfo");
    let processor = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    report::Machine {
        system: format!("Linux {release} {}", std::env::consts::ARCH),
        processor: processor.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: kilobytes(&line("/proc/meminfo"), "MemTotal:").unwrap_or(0),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// The share of the machine's memory that is in use, between 0 and 1.
pub fn memory_used_share() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = kilobytes(&text, "MemTotal:").unwrap_or(0);
    let available = kilobytes(&text, "MemAvailable:").unwrap_or(0);
    if total == 0 { 0.0 } else { 1.0 - available as f64 / total as f64 }
}

/// Inodes of the sockets that listen on `port`, from a table as `/proc/net/tcp` is.
fn listeners(path: &str, port: u16) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let local = u16::from_str_radix(words.get(1)?.rsplit(':').next()?, 16).ok()?;
        (local == port && *words.get(3)? == LISTENING).then(|| words.get(9).map(|inode| (*inode).to_owned()))?
    };
    text.lines().filter_map(inode).collect()
}

fn holds_one_of(pid: u32, links: &[String]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.flatten().any(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        links.iter().any(|link| target.as_os_str() == link.as_str())
    })
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The kernel's `USER_HZ` is 100 on all machines that matter.
const MS_PER_TICK: u64 = 10;
/// `TCP_LISTEN` in the kernel's tables.
const LISTENING: &str = "0A";

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
    fn a_missing_process_is_an_error() {
        assert!(matches!(Process::watch(u32::MAX), Err(Problem::Usage(_))));
    }

    #[test]
    fn a_listener_of_this_process_is_not_taken_for_a_server_to_watch() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let inodes = listeners("/proc/net/tcp", port);
        let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        assert_eq!(links.len(), 1);
        assert!(holds_one_of(std::process::id(), &links));
        assert!(Process::listening_on(port).is_none());
    }

    #[test]
    fn the_file_limit_of_a_process_can_be_read() {
        let process = Process::watch(std::process::id()).expect("own process");
        assert!(process.files_max().is_some_and(|files| files > 0));
    }
}
