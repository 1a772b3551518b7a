//! Requests and responses: the little HTTP that a streaming response needs (RFC 9112).

use std::borrow::Cow;

use httparse::Status;

/// A request, as far as it has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// More is to come.
    Partial,
    /// A stream for this id.
    Stream(String),
    /// Anything else; the whole response.
    Refused(&'static str),
}

/// Reads the head of a request.
pub(super) fn read(bytes: &[u8]) -> Request {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]) {
        Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Request::Partial,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => Request::Refused(TOO_LONG),
        Err(_) => Request::Refused(BAD),
        Ok(Status::Complete(_)) => match (request.method, request.path) {
            (Some("GET"), Some(target)) => stream(target),
            _ => Request::Refused(NOT_GET),
        },
    }
}

fn stream(target: &str) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path != "/comet" {
        return Request::Refused(NOT_FOUND);
    }
    let id = form_urlencoded::parse(query.as_bytes()).find_map(|(name, value)| (name == "id").then_some(value));
    let is_plain = |id: &Cow<'_, str>| {
        (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    id.filter(is_plain).map_or(Request::Refused(NO_ID), |id| Request::Stream(id.into_owned()))
}

/// The head of a stream and its first chunk.
pub(super) fn welcome(id: &str) -> String {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{}", chunk(&format!("Welcome! Your Id: {id}\n")))
}

/// A chunk of a stream.
pub(super) fn line(number: u64, id: &str) -> String {
    chunk(&format!("Chunk {number} for Id: {id}\n"))
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// The response if there are too many connections.
pub(super) const FULL: &str =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 10\r\nconnection: close\r\n\r\n";

const BAD: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const NO_ID: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 35\r\n\
                     connection: close\r\n\r\nan id is letters, digits and dashes";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const NOT_GET: &str = "HTTP/1.1 405 Method Not Allowed\r\nallow: GET\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const TOO_LONG: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Length of a request's head, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The most header fields of a request.
const FIELDS_MAX: usize = 64;
/// Length of an id, in bytes.
const ID_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_asked_for_by_its_id() {
        let request = |line: &str| read(format!("{line}\r\nhost: a\r\n\r\n").as_bytes());
        assert_eq!(request("GET /comet?id=7 HTTP/1.1"), Request::Stream("7".into()));
        assert_eq!(request("GET /comet?a=b&id=x-1 HTTP/1.1"), Request::Stream("x-1".into()));
        assert_eq!(request("GET /comet HTTP/1.1"), Request::Refused(NO_ID));
        assert_eq!(request("GET /comet?id=a%0d%0ab HTTP/1.1"), Request::Refused(NO_ID));
        assert_eq!(request("GET /comets?id=7 HTTP/1.1"), Request::Refused(NOT_FOUND));
        assert_eq!(request("POST /comet?id=7 HTTP/1.1"), Request::Refused(NOT_GET));
        assert_eq!(request("nonsense"), Request::Refused(BAD));
    }

    #[test]
    fn a_head_in_pieces_is_waited_for_up_to_its_limit() {
        assert_eq!(read(b"GET /comet?id=7 HTTP/1.1\r\n"), Request::Partial);
        assert_eq!(read(&vec![b'a'; HEAD_BYTES_MAX]), Request::Refused(TOO_LONG));
    }

    #[test]
    fn texts_are_those_of_the_post() {
        assert!(welcome("7").ends_with("\r\n\r\n14\r\nWelcome! Your Id: 7\n\r\n"), "{}", welcome("7"));
        assert_eq!(line(5, "7"), "14\r\nChunk 5 for Id: 7\n\r\n".replace("14", "12"));
        assert_eq!(NO_ID.split("\r\n\r\n").nth(1).map(str::len), Some(35));
    }
}
