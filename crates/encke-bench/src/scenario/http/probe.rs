//! One request before the measurement, to see that the server answers.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::engine::Target;
use crate::engine::connections::os_message;
use crate::engine::http::{Head, Piece, Responses};
use crate::problem::Problem;

/// An answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    /// The length of the body as far as it was read.
    pub(crate) body_bytes: u64,
    /// Its beginning.
    pub(crate) begin: Vec<u8>,
}

/// A GET request.
pub(crate) fn request(target: &Target, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive\r\n\r\n", target.authority).into_bytes()
}

/// Connects and closes the connection.
///
/// # Errors
/// The target does not answer.
pub(crate) fn reach(target: &Target) -> Result<(), Problem> {
    connect(target).map(drop)
}

/// Requests `path` and reads the response to its end, or until `is_enough` returns true.
///
/// # Errors
/// The target does not answer, not in time, or not with HTTP.
pub(crate) fn get(target: &Target, path: &str, is_enough: impl Fn(&Answer) -> bool) -> Result<Answer, Problem> {
    let tcp = connect(target)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    let mut stream = target.stream(tcp)?;
    stream.write_all(&request(target, path)).map_err(|error| unreachable(target, &error))?;
    let (mut responses, mut buffered, mut answer) = (Responses::default(), Vec::new(), Answer::default());
    let end = Instant::now() + TIMEOUT;
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let read = match stream.read(&mut bytes) {
            Ok(0) if responses.ends_with_connection() => return Ok(answer),
            Ok(0) => return Err(Problem::Server(format!("closed the connection within its answer to GET {path}"))),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Problem::Server(format!("does not answer GET {path} within {} s", TIMEOUT.as_secs())));
            }
            Err(error) => return Err(Problem::Server(format!("broke the connection: {}", os_message(&error)))),
        };
        buffered.extend_from_slice(&bytes[..read]);
        while let Some((piece, used)) = responses.next(&buffered).map_err(Problem::Server)? {
            match piece {
                Piece::Head(head) => answer.head = head,
                Piece::Body(body) => {
                    let room = BEGIN_BYTES_MAX.saturating_sub(answer.begin.len()).min(body.len());
                    answer.begin.extend_from_slice(&body[..room]);
                    answer.body_bytes += body.len() as u64;
                }
                Piece::End if answer.head.status >= 200 => return Ok(answer),
                Piece::End => {}
            }
            buffered.drain(..used);
            if is_enough(&answer) {
                return Ok(answer);
            }
        }
        if Instant::now() > end {
            return Err(Problem::Server(format!("does not end its answer to GET {path}")));
        }
    }
}

fn connect(target: &Target) -> Result<TcpStream, Problem> {
    TcpStream::connect_timeout(&target.address, TIMEOUT).map_err(|error| unreachable(target, &error))
}

fn unreachable(target: &Target, error: &io::Error) -> Problem {
    Problem::Unreachable { address: target.authority.clone(), reason: os_message(error) }
}

const TIMEOUT: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;
/// The most bytes stored of a body.
const BEGIN_BYTES_MAX: usize = 1024;
