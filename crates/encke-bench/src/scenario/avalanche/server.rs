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

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kill {
    /// SIGTERM: it has time to put its things in order.
    Term,
    /// SIGKILL: it has none.
    Kill,
}

/// How a server is started, each time alike.
#[derive(Debug)]
pub struct Plan {
    /// Where it listens, on this machine.
    pub port: u16,
    /// The directory that it keeps its things in.
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
    /// Without a port any free one, without a directory a new one.
    ///
    /// # Errors
    /// The machine's.
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
            // Of no use to anybody, but no reason to fail either.
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}

impl Running {
    /// Whether it takes connections by now.
    ///
    /// # Errors
    /// It has ended; its last words.
    pub fn is_up(&mut self) -> Result<bool, Problem> {
        if let Some(status) = self.child.try_wait()? {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it said nothing");
            return Err(Problem::Server(format!("ended instead of listening ({status}): {last}")));
        }
        Ok(TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT).is_ok())
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to stop.
    ///
    /// # Errors
    /// The machine's.
    pub fn signal(&self, kill: Kill) -> Result<(), Problem> {
        let signal = match kill {
            Kill::Term => Signal::TERM,
            Kill::Kill => Signal::KILL,
        };
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The machine's.
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
