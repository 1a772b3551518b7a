//! A server that is stopped and started again.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::problem::Problem;
use crate::run::Interrupt;

/// The way in which a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kill {
    /// SIGTERM: it has time to put its things in order.
    Term,
    /// SIGKILL: it has none.
    Kill,
}

/// The command that starts a server, each time alike.
#[derive(Debug)]
pub struct Plan {
    /// The local port it listens on.
    pub port: u16,
    /// Its data directory.
    pub data: PathBuf,
    /// The command; none for this program.
    command: Option<String>,
    /// The directory was made for this run, and goes with it.
    is_scratch: bool,
}

/// A server that runs; it ends with this.
#[derive(Debug)]
pub struct Running {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    interrupt: Interrupt,
}

impl Plan {
    /// Chooses a free port and a new directory unless given.
    ///
    /// # Errors
    /// No port is free, or the directory cannot be created.
    pub fn new(port: Option<u16>, data: Option<&Path>, command: Option<&str>) -> Result<Plan, Problem> {
        let free = || Ok::<u16, Problem>(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
        let port = port.map_or_else(free, Ok)?;
        let scratch = std::env::temp_dir().join(format!("encke-avalanche-{}-{port}", std::process::id()));
        let (data, is_scratch) = data.map_or((scratch, true), |data| (data.into(), false));
        fs::create_dir_all(&data)?;
        Ok(Plan { port, data, command: command.map(String::from), is_scratch })
    }

    /// Starts the server; whether it listens is another question.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, interrupt: &Interrupt) -> Result<Running, Problem> {
        let log = std::env::temp_dir().join(format!("encke-avalanche-{}-{}.log", std::process::id(), self.port));
        let mut command = self.command()?;
        // Ctrl-C in a terminal is for the load, which then ends the server.
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        interrupt.take_along(Some(Pid::from_child(&child)));
        Ok(Running { child, address: (Ipv4Addr::LOCALHOST, self.port).into(), log, interrupt: interrupt.clone() })
    }

    fn command(&self) -> Result<Command, Problem> {
        let data = self.data.display().to_string();
        if let Some(line) = &self.command {
            let line = line.replace("{port}", &self.port.to_string()).replace("{data}", &data);
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exec {line}")]);
            return Ok(command);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--log", "warn", "--port", &self.port.to_string(), "--data", &data, "--set", HISTORY]);
        Ok(command)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        if self.is_scratch {
            // A leftover directory is no reason to fail.
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}

impl Running {
    /// Returns true if it accepts connections.
    ///
    /// # Errors
    /// It has ended; the problem quotes the last line of its log.
    pub fn is_up(&mut self) -> Result<bool, Problem> {
        if let Some(status) = self.child.try_wait()? {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let last = log.lines().last().unwrap_or("its log is empty");
            return Err(Problem::Server(format!("ended instead of listening ({status}): {last}")));
        }
        Ok(TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT).is_ok())
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it the signal to stop.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn signal(&self, kill: Kill) -> Result<(), Problem> {
        let signal = match kill {
            Kill::Term => Signal::TERM,
            Kill::Kill => Signal::KILL,
        };
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Problem> {
        let ended = self.child.try_wait()?;
        if ended.is_some() {
            self.interrupt.take_along(None);
        }
        Ok(ended)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.interrupt.take_along(None);
        let _ = fs::remove_file(&self.log);
    }
}

const HISTORY: &str = r#"channels=[{pattern="/avalanche/**",history_messages=100000}]"#;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
