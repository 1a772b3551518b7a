//! HTTP/1.1 as the load needs it: POST requests, and responses read piece by piece as they arrive (RFC 9112), also
//! endless ones. httparse parses heads and chunk sizes.

use httparse::Status;

use crate::engine::target::Target;

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
    /// Some of its body, without the chunks' framing.
    Body(&'a [u8]),
    /// It is complete.
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
    /// The value of `Sec-WebSocket-Accept`.
    pub(crate) websocket_accept: Option<String>,
    /// True if it has `Sec-WebSocket-Extensions`: the server has accepted the only one that was offered.
    pub(crate) has_extension: bool,
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
    /// The body ends with the connection.
    ToTheEnd,
}

/// Appends a POST with a JSON body.
pub(crate) fn post(target: &Target, cookies: &str, body: &[u8], out: &mut Vec<u8>) {
    let Target { authority, path, .. } = target;
    let (before, after) = if cookies.is_empty() { ("", "") } else { ("Cookie: ", "\r\n") };
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\n{before}{cookies}{after}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    out.reserve(head.len() + body.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(body);
}

/// The request for the stream of server-sent events of a session.
pub(crate) fn get_events(target: &Target, cookies: &str, client_id: &str) -> String {
    let Target { authority, path, .. } = target;
    let (before, after) = if cookies.is_empty() { ("", "") } else { ("Cookie: ", "\r\n") };
    format!(
        "GET {path}/{client_id} HTTP/1.1\r\nHost: {authority}\r\n{before}{cookies}{after}Accept: text/event-stream\r\n\r\n"
    )
}

/// Parses the response at the start of `bytes` and copies its body to `body`. Returns its head and length, or `None` until
/// it is complete. Interim responses are skipped.
///
/// # Errors
/// The bytes are no response of known length. The text follows "the server".
pub(crate) fn response(bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<(Head, usize)>, String> {
    let (mut responses, mut head, mut at) = (Responses::default(), Head::default(), 0);
    body.clear();
    while let Some((piece, used)) = responses.next(&bytes[at..])? {
        at += used;
        match piece {
            Piece::Head(found) if responses.ends_with_connection() => {
                return Err(format!("answered {} without a length", found.reason));
            }
            Piece::Head(found) => head = found,
            Piece::Body(part) => body.extend_from_slice(part),
            Piece::End if head.status >= 200 => return Ok(Some((head, at))),
            Piece::End => {}
        }
    }
    Ok(None)
}

/// Parses the head at the start of `bytes`. Returns it with its length, or `None` until it is complete.
///
/// # Errors
/// The bytes are no head, or a head that is too long. The text follows "the server".
pub(crate) fn head(bytes: &[u8]) -> Result<Option<(Head, usize)>, String> {
    Ok(parse_head(bytes)?.map(|(head, _, length)| (head, length)))
}

/// Merges the cookies of a response into `held`, the value of the `Cookie` header.
pub(crate) fn set_cookies(held: &mut String, cookies: &[String]) {
    for cookie in cookies {
        let name = cookie.split('=').next().unwrap_or_default();
        let others = held.split("; ").filter(|other| !other.is_empty() && other.split('=').next() != Some(name));
        *held = others.chain([cookie.as_str()]).collect::<Vec<_>>().join("; ");
    }
}

impl Responses {
    /// The next piece at the start of `bytes`, and its length; `None` if more data is needed.
    ///
    /// # Errors
    /// The bytes are no response. The text follows "the server".
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Piece<'a>, usize)>, String> {
        match self.state {
            State::Head => Ok(parse_head(bytes)?.map(|(head, state, length)| {
                self.state = state;
                (Piece::Head(head), length)
            })),
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
                State::ChunkEnd => {
                    if !b"\r\n".starts_with(&rest[..rest.len().min(2)]) {
                        return Err("sent a chunk that is longer than its length".into());
                    }
                    if rest.len() < 2 {
                        return Ok(used_up(at));
                    }
                    at += 2;
                    self.state = State::ChunkSize;
                }
                State::Trailers => {
                    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
                    match httparse::parse_headers(rest, &mut fields) {
                        Ok(Status::Complete((length, _))) => {
                            self.state = State::Head;
                            return Ok(Some((Piece::End, at + length)));
                        }
                        Ok(Status::Partial) if rest.len() < HEAD_BYTES_MAX => return Ok(used_up(at)),
                        _ => return Err("sent invalid trailers".into()),
                    }
                }
                _ => match httparse::parse_chunk_size(rest) {
                    Ok(Status::Complete((length, size))) if size <= CHUNK_BYTES_MAX => {
                        at += length;
                        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                    }
                    Ok(Status::Partial) if rest.len() < HEAD_BYTES_MAX => return Ok(used_up(at)),
                    _ => return Err(format!("sent an invalid chunk size: {:?}", shown(rest))),
                },
            }
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(Head, State, usize)>, String> {
    if !b"HTTP/".starts_with(&bytes[..bytes.len().min(5)]) {
        return Err(format!("does not speak HTTP: {:?}", shown(bytes)));
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(Status::Partial) => return Err(format!("sent a head over {HEAD_BYTES_MAX} bytes")),
        Err(error) => return Err(format!("sent a head with an error ({error}): {:?}", shown(bytes))),
    };
    let status = response.code.unwrap_or_default();
    let reason = format!("{status} {}", response.reason.unwrap_or_default()).trim_end().to_owned();
    let mut head = Head { status, reason, keep_alive: response.version != Some(0), ..Head::default() };
    let mut body_length = None;
    for field in response.headers {
        let value = String::from_utf8_lossy(field.value);
        let has = |wanted: &str| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(wanted));
        match field.name.to_ascii_lowercase().as_str() {
            "connection" if has("close") => head.keep_alive = false,
            "connection" if has("keep-alive") => head.keep_alive = true,
            "transfer-encoding" => head.chunked |= has("chunked"),
            "content-length" => {
                body_length = Some(value.parse().map_err(|_| format!("sent a length of {value:?}"))?);
            }
            "set-cookie" => head.cookies.extend(value.split(';').next().map(|pair| pair.trim().to_owned())),
            "sec-websocket-extensions" => head.has_extension = true,
            "sec-websocket-accept" => head.websocket_accept = Some(value.into_owned()),
            _ => {}
        }
    }
    let state = match (status, head.chunked, body_length) {
        // An interim response, before the final one.
        (100..200 | 204 | 304, _, _) => State::Length(0),
        (_, true, _) => State::ChunkSize,
        (_, false, Some(length)) => State::Length(length),
        (_, false, None) => {
            head.keep_alive = false;
            State::ToTheEnd
        }
    };
    Ok(Some((head, state, length)))
}

/// Only framing between chunks.
fn used_up<'a>(bytes: usize) -> Option<(Piece<'a>, usize)> {
    (bytes > 0).then_some((Piece::Body(b""), bytes))
}

fn some_of(bytes: &[u8], most: u64) -> Option<&[u8]> {
    let count = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    (count > 0).then(|| &bytes[..count])
}

/// The beginning of bytes that make no sense, for an error.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// The most bytes of a head, and of the framing between chunks.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most header fields of a head, and of trailers.
const FIELDS_MAX: usize = 64;
/// The most bytes of a chunk: no server sends longer ones.
const CHUNK_BYTES_MAX: u64 = 1 << 40;
const SHOWN_BYTES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Head, usize, String)> {
        let mut body = b"from before".to_vec();
        let (head, length) = response(text.as_bytes(), &mut body).expect("valid")?;
        Some((head, length, String::from_utf8(body).expect("text")))
    }

    fn whole_only(text: &str) -> (Head, String) {
        for end in 0..text.len() {
            assert_eq!(parsed(&text[..end]), None, "cut at {end}");
        }
        let (head, length, body) = parsed(text).expect("whole");
        assert_eq!(length, text.len());
        (head, body)
    }

    /// Reads a text that arrives in pieces of `size` bytes: statuses, the body, and the number of ends.
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
    fn a_response_of_known_length_is_taken_when_it_is_complete() {
        let text = "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nset-cookie: c=d\r\ncontent-length: 2\r\n\r\n[]";
        let (head, body) = whole_only(text);
        assert_eq!((head.status, head.reason.as_str(), head.keep_alive), (200, "200 OK", true));
        assert_eq!((head.cookies, body.as_str()), (vec!["a=b".to_owned(), "c=d".to_owned()], "[]"));
    }

    #[test]
    fn chunks_are_put_together() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive, Close\r\n\r\n\
                    3\r\n[{}\r\n00a;x=y\r\n,{\"a\":123}\r\n1\r\n]\r\n0\r\nExpires: now\r\n\r\n";
        let (head, body) = whole_only(text);
        assert_eq!((head.keep_alive, body.as_str()), (false, r#"[{},{"a":123}]"#));
    }

    #[test]
    fn interim_responses_are_skipped() {
        let (head, body) = whole_only("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!((head.status, body.as_str()), (204, ""));
    }

    #[test]
    fn bodies_of_all_kinds_arrive_whole_however_they_are_cut() {
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
    fn a_chunk_arrives_before_the_response_ends() {
        let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\nWelcome\r\n";
        let (_, body, ends, _) = read(text, 1000).expect("valid");
        assert_eq!((body.as_str(), ends), ("Welcome", 0));
    }

    #[test]
    fn the_head_determines_if_a_connection_can_be_used_again() {
        let reusable =
            |text: &str| head(format!("{text}\r\n\r\n").as_bytes()).expect("valid").expect("whole").0.keep_alive;
        assert!(reusable("HTTP/1.1 200 OK\r\ncontent-length: 1"));
        assert!(reusable("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\ncontent-length: 1"));
        assert!(!reusable("HTTP/1.0 200 OK\r\ncontent-length: 1"));
        assert!(!reusable("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1"));
        assert!(!reusable("HTTP/1.1 200 OK"), "the body ends with the connection");
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
            format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(HEAD_BYTES_MAX)),
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;{}", "b".repeat(HEAD_BYTES_MAX)),
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: {}", "b".repeat(HEAD_BYTES_MAX)),
        ] {
            let Err(error) = read(&text, 100) else { panic!("{text} is taken") };
            assert!(error.lines().count() == 1, "{error}");
            assert!(response(text.as_bytes(), &mut Vec::new()).is_err(), "{text}");
        }
        let endless = "HTTP/1.1 200 OK\r\n\r\n";
        let error = response(endless.as_bytes(), &mut Vec::new()).expect_err("no length");
        assert_eq!(error, "answered 200 OK without a length");
    }

    #[test]
    fn a_cookie_replaces_the_one_of_its_name() {
        let mut held = String::new();
        for cookie in ["a=1", "b=2", "a=3"] {
            set_cookies(&mut held, &[cookie.to_owned()]);
        }
        assert_eq!(held, "b=2; a=3");
        let target = Target::resolve("http://127.0.0.1:8080/x", "/", &Default::default()).expect("a URL");
        let mut out = Vec::new();
        post(&target, &held, b"[]", &mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("POST /x HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nCookie: b=2; a=3\r\n"), "{text}");
        assert!(text.ends_with("Content-Length: 2\r\n\r\n[]"), "{text}");
    }
}
