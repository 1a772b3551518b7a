//! One server takes over from another on the same listening sockets, so that no connection is refused meanwhile.
//!
//! ```text
//!   old: SIGUSR2 ── starts the program again, with the sockets ─▶ new
//!   old ◀── "ready": its configuration and the disk are good ─── new     until here nothing has changed
//!   old: accepts no more connections, drains, saves its sessions, releases the data directory
//!        (new connections wait in the sockets' backlogs)
//!   old ── "released", revoked tokens, keys of TLS tickets ────▶ new: restores histories and sessions, accepts connections
//!   old ◀── "serving" ────────────────────────────────────────── new
//!   old: ends
//! ```
//!
//! Both communicate over a pair of sockets; one end is the new program's standard input. If the new process ends early, the old one
//!
//! - goes on as before, if "ready" has not come;
//! - starts another one, after it has drained, until one serves. It cannot serve itself any more, but it still has the socket, and
//!   the sessions are in their file until a new process has restored them. After the program's file it tries its own version, which
//!   the system retains.
//!
//! If the old process ends early, for any reason, its end of the socket pair closes, which says "released", too. A process that was
//! killed may hold its other files for some milliseconds longer. The open of the data directory waits for that.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use encke::TicketKey;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The command line of the program, so that it can be started again.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// The server that runs until this one is ready.
#[derive(Debug)]
pub(crate) struct Predecessor {
    line: UnixStream,
}

/// The state that travels to the server that takes over, because no file has it.
#[derive(Debug, Default)]
pub(crate) struct Heritage {
    /// The revoked tokens; with a data directory they have a file, too.
    pub(crate) revoked: Vec<RevokedToken>,
    /// The keys of TLS session tickets.
    pub(crate) ticket_keys: Vec<TicketKey>,
}

/// A handover that has begun: the other server is ready.
#[derive(Debug)]
pub(crate) struct Handover {
    program: Program,
    listeners: Vec<OwnedFd>,
    successor: Successor,
}

/// The server that waits for this one.
#[derive(Debug)]
struct Successor {
    child: Child,
    /// Closed when that process ends.
    line: UnixStream,
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
    /// It has ended although it was ready.
    #[error("the new program ended before it served ({0})")]
    EndedLate(std::process::ExitStatus),
    /// It did not answer.
    #[error("the new program was not ready within {} s", READY_WAIT.as_secs())]
    Late,
}

impl Program {
    /// The command line of this program. Call it early: a newer file may later replace this one at the same path.
    pub(crate) fn this() -> io::Result<Program> {
        let path = std::env::var_os(VARIABLE).map(PathBuf::from);
        Ok(Program {
            path: path.map_or_else(std::env::current_exe, Ok)?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }

    /// Starts the program again and gives it the sockets. Returns when it is ready to take over.
    pub(crate) fn hand_over(&self, listeners: &[OwnedFd]) -> Result<Handover, HandoverError> {
        let listeners = listeners.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
        let successor = self.start(&self.path, &listeners)?;
        Ok(Handover { program: self.clone(), listeners, successor })
    }

    /// Starts this version of the program, or the one that the file has now.
    fn start(&self, file: &Path, listeners: &[OwnedFd]) -> Result<Successor, HandoverError> {
        let (line, theirs) = UnixStream::pair()?;
        let mut command = Command::new(file);
        let mut child = command.args(&self.arguments).env(VARIABLE, &self.path).stdin(OwnedFd::from(theirs)).spawn()?;
        // Its end of the pair is only there from now on.
        drop(command);
        match wait_until_ready(&mut child, &line, listeners) {
            Ok(()) => Ok(Successor { child, line }),
            Err(problem) => Err(give_up(&mut child, problem)),
        }
    }
}

impl Handover {
    /// The new process.
    pub(crate) fn process(&self) -> u32 {
        self.successor.child.id()
    }

    /// Lets the new server begin, and returns when it serves: this one has ended, and has released the data directory. If the new one
    /// ends before, starts others. Each gets the heritage.
    ///
    /// # Errors
    /// None of them serves.
    pub(crate) fn complete(self, heritage: &Heritage) -> Result<(), HandoverError> {
        let Handover { program, listeners, successor } = self;
        let message = heritage.message();
        let mut served = successor.serve(&message);
        for attempt in 1..=ATTEMPTS_MAX {
            let Err(problem) = &served else { return Ok(()) };
            tracing::error!("{problem}; another one is started");
            std::thread::sleep(ATTEMPT_PAUSE);
            let file = if attempt % 2 == 1 { &program.path } else { Path::new(THIS_VERSION) };
            served = program.start(file, &listeners).and_then(|successor| successor.serve(&message));
        }
        served
    }
}

impl Successor {
    /// Lets it begin, and waits until it serves.
    fn serve(mut self, message: &[u8]) -> Result<(), HandoverError> {
        let served = self.line.write_all(message).and_then(|()| self.line.read_exact(&mut [0]));
        served.or_else(|_| {
            // It has ended, or is about to.
            let _gone = self.child.kill();
            Err(HandoverError::EndedLate(self.child.wait()?))
        })
    }
}

impl Heritage {
    /// The message that the data directory is released: a byte, a line of JSON for each token and key, and an empty line.
    fn message(&self) -> Vec<u8> {
        let revoked = self.revoked.iter().filter_map(|token| serde_json::to_string(token).ok());
        let keys = self.ticket_keys.iter().filter_map(|key| serde_json::to_string(key).ok());
        let lines: String = revoked.chain(keys).map(|line| line + "\n").collect();
        [&[RELEASED], lines.as_bytes(), b"\n"].concat()
    }

    /// Takes a line. One that a later version has added is left out.
    fn take(&mut self, line: &[u8]) {
        if let Ok(token) = serde_json::from_slice(line) {
            self.revoked.push(token);
        } else if let Ok(key) = serde_json::from_slice(line) {
            self.ticket_keys.push(key);
        }
    }
}

/// Sends the sockets and waits for the answer.
fn wait_until_ready(child: &mut Child, mut line: &UnixStream, listeners: &[OwnedFd]) -> Result<(), HandoverError> {
    send_sockets(line, listeners)?;
    line.set_read_timeout(Some(READY_WAIT))?;
    line.read_exact(&mut [0]).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandoverError::Late,
        _ => HandoverError::Start(error),
    })?;
    line.set_read_timeout(None)?;
    match child.try_wait()? {
        Some(status) => Err(HandoverError::EndedLate(status)),
        None => Ok(()),
    }
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

    /// Takes the listening sockets, the one of `listen` first.
    pub(crate) fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&self.line, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let sockets = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files.collect()),
            _ => None,
        });
        sockets.ok_or_else(|| io::Error::other("there was no socket in the message"))
    }

    /// Reports that this process can take over, and waits until the other has released the data directory, or has begun to close its
    /// files. Returns the heritage, but what the end of the other has cut off.
    pub(crate) fn succeed(&mut self) -> io::Result<Heritage> {
        self.line.write_all(&[READY])?;
        let mut line = BufReader::new(&self.line);
        let mut heritage = Heritage::default();
        let mut received = line.read(&mut [0]).map(|_| ());
        while received.is_ok() {
            let mut text = Vec::new();
            received = line.read_until(b'\n', &mut text).map(|_| ());
            match text.strip_suffix(b"\n") {
                Some(line) if !line.is_empty() => heritage.take(line),
                _ => break,
            }
        }
        match received {
            // It ended without having read all.
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(heritage),
        }
    }

    /// Reports that this process serves.
    pub(crate) fn serves(mut self) {
        // It may have ended already.
        let _gone = self.line.write_all(&[SERVING]);
    }
}

fn send_sockets(line: &UnixStream, listeners: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = listeners.iter().take(SOCKETS_MAX).map(AsFd::as_fd).collect();
    control.push(SendAncillaryMessage::ScmRights(&files));
    // A message with a file needs a byte to travel with.
    sendmsg(line, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The id of a revoked token, and the time until which it is revoked, in milliseconds since 1970.
type RevokedToken = (Box<str>, u64);

/// The listening sockets that travel: the one of `listen`, and 31 further ones.
const SOCKETS_MAX: usize = 32;
/// Set for a process that is to take over: the path of the program's file.
const VARIABLE: &str = "ENCKE_HANDOVER";
/// The version of the program that runs, also when its file has been replaced.
const THIS_VERSION: &str = "/proc/self/exe";
/// The message of the new program when it is ready.
const READY: u8 = 1;
/// The message of the old one when it has ended its work.
const RELEASED: u8 = 2;
/// The message of the new program when it serves.
const SERVING: u8 = 3;
/// The number of further processes that are started when one has ended early: the file and this version in turn.
const ATTEMPTS_MAX: u32 = 6;
/// The pause before each of them.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// Longest time until it is ready.
const READY_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heritage_arrives_as_it_left_and_unknown_lines_are_left_out() {
        let key = |name: u8| {
            let json =
                serde_json::json!({"name": vec![name; 16], "secret": vec![2; 32], "nonce": vec![3; 12], "made_s": 4});
            serde_json::from_value::<TicketKey>(json).expect("a key")
        };
        let revoked = vec![("a".into(), 1), ("b".into(), u64::MAX)];
        let left = Heritage { revoked, ticket_keys: vec![key(1), key(2)] };
        let message = left.message();
        assert_eq!((message[0], message.ends_with(b"\n\n")), (RELEASED, true));
        let mut arrived = Heritage::default();
        arrived.take(b"{\"later\": 1}");
        message[1..].split(|byte| *byte == b'\n').for_each(|line| arrived.take(line));
        assert_eq!((arrived.revoked, arrived.ticket_keys), (left.revoked, left.ticket_keys));
    }
}
