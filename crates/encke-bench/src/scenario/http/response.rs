//! HTTP responses read piece by piece, as they come (RFC 9112 §6): of any length, also without an end.

/// Reads the responses of one connection, one after another.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    state: State,
}

/// The next piece of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Its head.
    Head(Head),
    /// Some of its body, as it was before it was cut into chunks.
    Body(&'a [u8]),
    /// It is whole.
    End,
}

/// The head of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Status and reason, such as `404 Not Found`.
    pub(crate) reason: String,
    /// True if the connection can be used again.
    pub(crate) keep_alive: bool,
    /// True if the body is chunked.
    pub(crate) chunked: bool,
    /// The cookies that it sets, each `name=value`.
    pub(crate) cookies: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// The remaining bytes of a body of known length.
    Length(u64),
    ChunkSize,
    /// The remaining bytes of a chunk.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// The connection's end is the body's.
    ToTheEnd,
}

impl Responses {
    /// The next piece at the start of `bytes`, and its length; `None` if more data is needed.
    ///
    /// # Errors
    /// The bytes are no response. The text follows "the server".
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Piece<'a>, usize)>, String> {
        match self.state {
            State::Head => self.head(bytes),
            State::Length(0) => {
                self.state = State::Head;
                Ok(Some((Piece::End, 0)))
            }
            State::Length(left) => Ok(some_of(bytes, left).map(|some| {
                self.state = State::Length(left - some.len() as u64);
                (Piece::Body(some), some.len())
            })),
            State::ToTheEnd => Ok(some_of(bytes, u64::MAX).map(|some| (Piece::Body(some), some.len()))),
            _ => self.chunks(bytes),
        }
    }

    /// Returns true if the current response may end with the connection.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == State::ToTheEnd
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Piece<'a>, usize)>, String> {
        let start = &bytes[..bytes.len().min(5)];
        if !b"HTTP/".starts_with(start) {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned();
            return Err(format!("does not speak HTTP: {shown:?}"));
        }
        let looked_at = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        let Some(end) = looked_at.windows(4).position(|window| window == b"\r\n\r\n") else {
            let is_too_long = bytes.len() >= HEAD_BYTES_MAX;
            return if is_too_long { Err(format!("sent a head over {HEAD_BYTES_MAX} bytes")) } else { Ok(None) };
        };
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "sent a head that is no text".to_owned())?;
        let (head, state) = read_head(text)?;
        self.state = state;
        Ok(Some((Piece::Head(head), end + 4)))
    }

    /// RFC 9112 §7.1.
    fn chunks<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Piece<'a>, usize)>, String> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match self.state {
                State::Chunk(0) => self.state = State::ChunkEnd,
                State::Chunk(left) => {
                    let Some(some) = some_of(rest, left) else { return Ok(used_up(at)) };
                    self.state = State::Chunk(left - some.len() as u64);
                    return Ok(Some((Piece::Body(some), at + some.len())));
                }
                _ => {
                    // Short lines only: until one is whole, all of them come again.
                    let Some(line) = line_of(rest)? else { return Ok(used_up(at)) };
                    at += line.len() + 2;
                    match self.state {
                        State::ChunkSize => {
                            let size = size_of(line)?;
                            self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                        }
                        State::Trailers if line.is_empty() => {
                            self.state = State::Head;
                            return Ok(Some((Piece::End, at)));
                        }
                        State::Trailers => {}
                        _ if line.is_empty() => self.state = State::ChunkSize,
                        _ => return Err("sent a chunk that is longer than its length".into()),
                    }
                }
            }
        }
    }
}

fn read_head(text: &str) -> Result<(Head, State), String> {
    let mut lines = text.lines();
    let line = lines.next().unwrap_or_default();
    let (version, reason) = line.split_once(' ').unwrap_or((line, ""));
    let status =
        reason.split(' ').next().and_then(|word| word.parse().ok()).filter(|status| (100..1000).contains(status));
    let status = status.ok_or_else(|| format!("sent the status line {line:?}"))?;
    let mut head = Head { status, reason: reason.into(), keep_alive: version != "HTTP/1.0", ..Head::default() };
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let has = |wanted: &str| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(wanted));
        match name.as_str() {
            "connection" if has("close") => head.keep_alive = false,
            "connection" if has("keep-alive") => head.keep_alive = true,
            "transfer-encoding" => head.chunked |= has("chunked"),
            "content-length" => {
                length = Some(value.parse().map_err(|_| format!("sent a length of {value:?}"))?);
            }
            "set-cookie" => head.cookies.extend(value.split(';').next().map(|pair| pair.trim().to_owned())),
            _ => {}
        }
    }
    let state = match (status, head.chunked, length) {
        // An interim response, before the final one.
        (100..200 | 204 | 304, _, _) => State::Length(0),
        (_, true, _) => State::ChunkSize,
        (_, false, Some(length)) => State::Length(length),
        (_, false, None) => {
            head.keep_alive = false;
            State::ToTheEnd
        }
    };
    Ok((head, state))
}

/// Only the lines between chunks.
fn used_up<'a>(bytes: usize) -> Option<(Piece<'a>, usize)> {
    (bytes > 0).then_some((Piece::Body(b""), bytes))
}

fn some_of(bytes: &[u8], most: u64) -> Option<&[u8]> {
    let count = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    (count > 0).then(|| &bytes[..count])
}

/// The line at the start of `bytes` without its end; none until it is whole.
fn line_of(bytes: &[u8]) -> Result<Option<&[u8]>, String> {
    let looked_at = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match looked_at.windows(2).position(|window| window == b"\r\n") {
        Some(end) => Ok(Some(&bytes[..end])),
        None if bytes.len() >= LINE_BYTES_MAX => Err(format!("sent a chunk's line over {LINE_BYTES_MAX} bytes")),
        None => Ok(None),
    }
}

fn size_of(line: &[u8]) -> Result<u64, String> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    let size = u64::from_str_radix(digits, 16).ok().filter(|size| *size <= CHUNK_BYTES_MAX);
    size.ok_or_else(|| format!("sent a chunk of length {digits:?}"))
}

/// Longest head of a response, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Longest line between chunks, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Longest chunk, in bytes: no server has longer ones.
const CHUNK_BYTES_MAX: u64 = 1 << 40;
const SHOWN_BYTES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a text that comes in pieces of `size` bytes: statuses, the body, and how many ends there were.
    fn read(text: &str, size: usize) -> Result<(Vec<u16>, String, usize, Responses), String> {
        let (mut responses, mut buffered) = (Responses::default(), Vec::new());
        let (mut statuses, mut body, mut ends) = (Vec::new(), Vec::new(), 0);
        for piece in text.as_bytes().chunks(size) {
            buffered.extend_from_slice(piece);
            while let Some((piece, used)) = responses.next(&buffered)? {
                match piece {
                    Piece::Head(head) => statuses.push(head.status),
                    Piece::Body(bytes) => body.extend_from_slice(bytes),
                    Piece::End => ends += 1,
                }
                buffered.drain(..used);
            }
        }
        Ok((statuses, String::from_utf8(body).expect("text"), ends, responses))
    }

    #[test]
    fn bodies_of_all_kinds_come_whole_however_they_are_cut() {
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello\
                    HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n\
                    HTTP/1.1 100 Continue\r\n\r\n\
                    HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n, w\r\n00d;x=y\r\norld, and all\r\n0\r\na: b\r\n\r\n\
                    HTTP/1.0 404 Not Found\r\n\r\n the rest";
        for size in 1..text.len() {
            let (statuses, body, ends, responses) = read(text, size).expect("valid");
            assert_eq!(statuses, [200, 304, 100, 200, 404], "{size}");
            assert_eq!((body.as_str(), ends), ("hello, world, and all the rest", 4), "{size}");
            assert!(responses.ends_with_connection());
        }
    }

    #[test]
    fn a_chunk_is_there_before_the_response_ends() {
        let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\nWelcome\r\n";
        let (_, body, ends, _) = read(text, 1000).expect("valid");
        assert_eq!((body.as_str(), ends), ("Welcome", 0));
    }

    #[test]
    fn whether_a_connection_can_be_used_again_is_read_from_the_head() {
        let keeps = |text: &str| read_head(text).expect("a head").0.keep_alive;
        assert!(keeps("HTTP/1.1 200 OK\r\ncontent-length: 1"));
        assert!(keeps("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\ncontent-length: 1"));
        assert!(!keeps("HTTP/1.0 200 OK\r\ncontent-length: 1"));
        assert!(!keeps("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1"));
        assert!(!keeps("HTTP/1.1 200 OK"), "the body ends with the connection");
    }

    #[test]
    fn cookies_are_taken_without_their_attributes() {
        let head = read_head("HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nset-cookie: c=d").expect("a head").0;
        assert_eq!(head.cookies, ["a=b", "c=d"]);
    }

    #[test]
    fn invalid_responses_are_errors_of_one_line() {
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
            "HTTP/1.1 many\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n".to_owned(),
            format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(5_000)),
        ] {
            let Err(error) = read(&text, 100) else { panic!("{text} is taken") };
            assert!(error.lines().count() == 1, "{error}");
        }
    }
}
