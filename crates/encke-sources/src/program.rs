//! A program with all processes that it starts.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// A running program, the leader of its process group. Dropping this kills the group.
pub(crate) struct Program {
    pub(crate) child: Child,
    group: Option<Pid>,
}

impl Program {
    /// Starts a program without input, in this environment. Its output and its errors are pipes.
    pub(crate) fn start(
        command: &[String],
        folder: &str,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> io::Result<Program> {
        let (name, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut program = Command::new(name);
        program
            .env_clear()
            .envs(environment)
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !folder.is_empty() {
            program.current_dir(Path::new(folder));
        }
        let child = program.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        Ok(Program { child, group })
    }

    /// Asks all processes of the group to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends all processes of the group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error means that no process of the group is left.
            let _gone = kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
