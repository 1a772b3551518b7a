//! One request before the measurement, to see that the server answers.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use crate::engine::Target;
use crate::engine::connections::os_message;
use crate::engine::http::{Head, Piece};
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

/// Connects and closes the connection.
///
/// # Errors
/// The target does not answer.
pub(crate) fn reach(target: &Target) -> Result<(), Problem> {
    connect(target).map(drop)
}

/// Requests `path` over HTTP/1.1 and reads the response to its end, or until `is_enough` returns true.
///
/// # Errors
/// The target does not answer, not in time, or not with HTTP.
pub(crate) fn get(target: &Target, path: &str, is_enough: impl Fn(&Answer) -> bool) -> Result<Answer, Problem> {
    get_over(target, path, Exchange::new(false), is_enough)
}

/// As [`get`], over this connection.
pub(super) fn get_over(
    target: &Target,
    path: &str,
    mut exchange: Exchange,
    is_enough: impl Fn(&Answer) -> bool,
) -> Result<Answer, Problem> {
    let tcp = connect(target)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    let mut stream = target.stream(tcp)?;
    let mut out = Vec::new();
    exchange.begin(&mut out);
    let request = exchange.request(target, path);
    exchange.ask(&request, &mut out);
    let (mut buffered, mut answer) = (Vec::new(), Answer::default());
    let end = Instant::now() + TIMEOUT;
    let mut bytes = vec![0; READ_BYTES];
    loop {
        stream.write_all(&out).map_err(|error| unreachable(target, &error))?;
        out.clear();
        let read = match stream.read(&mut bytes) {
            Ok(0) if exchange.ends_with_connection() => return Ok(answer),
            Ok(0) => return Err(Problem::Server(format!("closed the connection within its answer to GET {path}"))),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Problem::Server(format!("does not answer GET {path} within {} s", TIMEOUT.as_secs())));
            }
            Err(error) => return Err(Problem::Server(format!("broke the connection: {}", os_message(&error)))),
        };
        buffered.extend_from_slice(&bytes[..read]);
        while let Some((piece, used)) = exchange.next(&buffered, &mut out).map_err(Problem::Server)? {
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
