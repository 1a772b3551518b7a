//! One server takes over from another on the same listening socket, so that no connection is refused meanwhile.
//!
//! ```text
//!   old: SIGUSR2 ── starts the program again, with the socket ──▶ new
//!   old ◀── "ready": its configuration and the disk are good ─── new
//!   old: accepts no more connections, drains, saves its sessions, ends
//!        (new connections wait in the socket's backlog)       new: detects the end, restores sessions, accepts connections
//! ```
//!
//! Both communicate over a pair of sockets; one end is the new program's standard input. When the other end closes, the old
//! process has ended or is about to, for any reason. A process that was killed may hold its other files for some milliseconds
//! longer. The open of the data directory waits for that.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::AsyncReadExt;

/// The command line of the program, so that it can be started again.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// The server that runs until this one is ready.
#[derive(Debug)]
pub(crate) struct Predecessor {
    line: UnixStream,
}

/// The server that waits for this one to end.
#[derive(Debug)]
pub(crate) struct Successor {
    /// Its process.
    pub(crate) process: u32,
    /// Closed when this process ends.
    _line: tokio::net::UnixStream,
}

/// The reason why no other server takes over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoverError {
    /// It could not be started, or did not accept a message.
    #[error("the new program cannot be started: {0}")]
    Start(#[from] io::Error),
    /// It has ended. Its log contains the reason.
    #[error("the new program ended before it was ready ({0})")]
    Ended(std::process::ExitStatus),
    /// It did not answer.
    #[error("the new program was not ready within {} s", READY_WAIT.as_secs())]
    Late,
}

impl Program {
    /// The command line of this program. Call it early: a newer file may later replace this one at the same path.
    pub(crate) fn this() -> io::Result<Program> {
        Ok(Program { path: std::env::current_exe()?, arguments: std::env::args_os().skip(1).collect() })
    }

    /// Starts the program again and gives it the socket. Returns when it is ready to take over as soon as this process ends.
    pub(crate) async fn hand_over(&self, listener: &TcpListener) -> Result<Successor, HandoverError> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut child =
            Command::new(&self.path).args(&self.arguments).env(VARIABLE, "1").stdin(OwnedFd::from(theirs)).spawn()?;
        match wait_until_ready(ours, listener).await {
            Ok(line) => Ok(Successor { process: child.id(), _line: line }),
            Err(problem) => Err(give_up(&mut child, problem)),
        }
    }
}

/// Sends the socket and waits for the answer.
async fn wait_until_ready(line: UnixStream, listener: &TcpListener) -> Result<tokio::net::UnixStream, HandoverError> {
    send_socket(&line, listener)?;
    line.set_nonblocking(true)?;
    let mut line = tokio::net::UnixStream::from_std(line)?;
    let answer = tokio::time::timeout(READY_WAIT, line.read_u8()).await;
    answer.map_err(|_| HandoverError::Late)??;
    Ok(line)
}

/// Kills a new program that is late, and waits for its end. One that has closed its socket has ended, or is about to.
fn give_up(child: &mut Child, problem: HandoverError) -> HandoverError {
    if matches!(problem, HandoverError::Late) {
        // It may have ended this very moment.
        let _gone = child.kill();
    }
    match (child.wait(), problem) {
        (Ok(status), HandoverError::Start(_)) => HandoverError::Ended(status),
        (_, problem) => problem,
    }
}

impl Predecessor {
    /// The server that has started this process to take over from it, if one has.
    pub(crate) fn of_environment() -> io::Result<Option<Predecessor>> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let line = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Some(Predecessor { line: line.into() }))
    }

    /// Takes the listening socket.
    pub(crate) fn socket(&self) -> io::Result<TcpListener> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&self.line, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let rights = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        rights.map(TcpListener::from).ok_or_else(|| io::Error::other("there was no socket in the message"))
    }

    /// Reports that this process can take over, and waits until the other has ended, or has begun to close its files.
    pub(crate) fn succeed(mut self) -> io::Result<()> {
        rustix::io::write(&self.line, &[READY])?;
        let mut rest = Vec::new();
        match self.line.read_to_end(&mut rest) {
            // It ended without having read all.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

fn send_socket(line: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    // A message with a file needs a byte to travel with.
    sendmsg(line, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Set for a process that is to take over.
const VARIABLE: &str = "ENCKE_HANDOVER";
/// The message of the new program when it is ready.
const READY: u8 = 1;
/// Longest time until it is ready.
const READY_WAIT: Duration = Duration::from_secs(10);
