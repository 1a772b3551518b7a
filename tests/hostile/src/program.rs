//! The program under attack: it is started, observed through `/proc`, and always ended.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::attack;
use crate::scenario::Scenario;

/// A running `encke serve` on a free port of loopback. Dropping it kills the program.
pub struct Program {
    child: Child,
    /// The address that is attacked: the one with TLS if the scenario is about that.
    pub address: SocketAddr,
    /// Its URL.
    pub url: String,
    /// The URL of its address with TLS.
    pub tls_url: String,
    log: PathBuf,
}

impl Program {
    /// Starts it with defaults, `shards`, and the settings of a scenario. `role` tells several servers of a scenario apart.
    pub fn start(encke: &Path, scenario: Scenario, shards: usize, role: &str) -> io::Result<Program> {
        let Scenario { name, settings, is_over_tls, .. } = scenario;
        // `listen` is the address with TLS, which every server has beside the one without.
        let mut config = format!("{}{WITHOUT_TLS}", scenario.config);
        if config.contains(BACKEND) {
            config = config.replace(BACKEND, &attack::start_backend()?.to_string());
        }
        let folder = std::env::temp_dir();
        let log = folder.join(format!("encke-hostile-{}-{name}-{shards}-{role}.log", std::process::id()));
        let mut command = Command::new(encke);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENCKE_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--port", "0", "--shards", &shards.to_string(), "--log", "warn"]).current_dir(&folder);
        let file = log.with_extension("toml");
        fs::write(&file, &config)?;
        command.arg("--config").arg(file).args(["--set", "dev_tls=true"]);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let tls_url = line.trim().strip_prefix("encke listening on ").unwrap_or_default().to_owned();
        let with_tls: Option<SocketAddr> = tls_url.strip_prefix("https://").and_then(|address| address.parse().ok());
        running().push(Pid::from_child(&child));
        let mut program = Program { child, address: NOWHERE, url: tls_url.clone(), tls_url, log };
        let with_tls =
            with_tls.ok_or_else(|| io::Error::other(format!("it does not start: {}", program.last_log())))?;
        program.address = with_tls;
        if !is_over_tls {
            let port = program.listens_at()?.into_iter().find(|port| *port != with_tls.port());
            let port = port.ok_or_else(|| io::Error::other("it has no address without TLS"))?;
            program.address.set_port(port);
            program.url = format!("http://{}", program.address);
        }
        Ok(program)
    }

    /// The ports at which it listens. It announces only the first one.
    fn listens_at(&self) -> io::Result<Vec<u16>> {
        let files = fs::read_dir(format!("/proc/{}/fd", self.child.id()))?;
        let files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok()?.into_os_string().into_string().ok());
        let sockets: BTreeSet<String> = files.collect();
        let table = fs::read_to_string("/proc/net/tcp")?;
        let port_of = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let &[_, local, _, LISTENS, _, _, _, _, _, inode, ..] = &fields[..] else { return None };
            let is_its = sockets.contains(&format!("socket:[{inode}]"));
            local.split_once(':').filter(|_| is_its).and_then(|(_, port)| u16::from_str_radix(port, 16).ok())
        };
        Ok(table.lines().filter_map(port_of).collect())
    }

    /// Its resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Its peak resident memory in bytes: the kernel's own count, not a sample.
    pub fn resident_peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// The folder of its threads in `/proc`.
    pub fn tasks(&self) -> PathBuf {
        format!("/proc/{}/task", self.child.id()).into()
    }

    /// The last lines that it logged.
    pub fn last_log(&self) -> String {
        let mut log = String::new();
        // An unreadable log cannot be shown.
        let _ = File::open(&self.log).and_then(|mut file| file.read_to_string(&mut log));
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let process = Pid::from_child(&self.child);
        running().retain(|other| *other != process);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
        let _ = fs::remove_file(self.log.with_extension("toml"));
    }
}

/// The bytes that the kernel holds for clients that do not read: the send queues of the server's sockets, including
/// closed ones.
pub fn kernel_bytes(server: SocketAddr) -> u64 {
    let port = format!(":{:04X}", server.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let queue_of = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _, _, queues) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (send, _) = queues.split_once(':')?;
        local.ends_with(&port).then(|| u64::from_str_radix(send, 16).unwrap_or(0))
    };
    table.lines().filter_map(queue_of).sum()
}

/// Kills all servers of a process that is about to end.
pub fn kill_all() {
    for process in running().drain(..) {
        // A process that is already gone is fine.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// The running servers. The list is consistent after every step.
fn running() -> MutexGuard<'static, Vec<Pid>> {
    static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Polls `is_so` for at most `limit`. Returns the time it took.
pub fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> Option<Duration> {
    let began = Instant::now();
    loop {
        if is_so() {
            return Some(began.elapsed());
        }
        if began.elapsed() > limit {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The configuration of the address without TLS.
const WITHOUT_TLS: &str = "\n[[listeners]]\naddress = \"127.0.0.1:0\"\n";
/// The address of a program that has not started.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";
/// Stands in the configuration of a scenario for the address of a backend.
const BACKEND: &str = "{backend}";
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 5;
