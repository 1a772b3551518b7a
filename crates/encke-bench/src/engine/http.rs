//! The part of HTTP/1.1 that long-polling needs: requests with a body, and responses of known length or in chunks.

use crate::engine::target::Target;

/// A response without its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    /// The status line, for error messages.
    pub(super) line: String,
    /// Cookies that it sets, each `name=value`.
    pub(super) cookies: Vec<String>,
    /// True if the server closes the connection after the response.
    pub(super) close: bool,
    /// The length of head and body in bytes.
    pub(super) bytes: usize,
}

/// The framing of the body.
enum Framing {
    Length(usize),
    Chunks,
}

/// Appends a POST with a JSON body.
pub(super) fn post(target: &Target, cookies: &str, body: &[u8], out: &mut Vec<u8>) {
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

/// Parses the response at the start of `bytes` and copies its body to `body`. Returns `None` until it is complete.
///
/// # Errors
/// The bytes are not such a response.
pub(super) fn response(mut bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<Response>, String> {
    let mut skipped = 0;
    loop {
        let Some(end) = head_end(bytes)? else { return Ok(None) };
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "answered with a head that is no text".to_owned())?;
        let (line, status) = status_of(head)?;
        if (100..200).contains(&status) && status != 101 {
            (skipped, bytes) = (skipped + end + 4, &bytes[end + 4..]);
            continue;
        }
        let rest = &bytes[end + 4..];
        let used = match framing(head, status, line)? {
            Framing::Length(length) => rest.get(..length).map(|whole| {
                whole.clone_into(body);
                length
            }),
            Framing::Chunks => dechunk(rest, body)?,
        };
        return Ok(used.map(|used| Response {
            status,
            line: line.to_owned(),
            cookies: values(head, "set-cookie")
                .filter_map(|value| value.split(';').next())
                .map(str::to_owned)
                .collect(),
            close: line.starts_with("HTTP/1.0") || names(head, "connection", "close"),
            bytes: skipped + end + 4 + used,
        }));
    }
}

/// The position of the empty line after a head; `None` until it has arrived.
///
/// # Errors
/// The head does not start as HTTP, or is too long.
pub(super) fn head_end(bytes: &[u8]) -> Result<Option<usize>, String> {
    let begin = &bytes[..bytes.len().min(5)];
    if !b"HTTP/".starts_with(begin) {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]);
        return Err(format!("does not speak HTTP: {text:?}"));
    }
    let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    match head.windows(4).position(|window| window == b"\r\n\r\n") {
        None if bytes.len() >= HEAD_BYTES_MAX => Err(format!("answered with a head over {HEAD_BYTES_MAX} bytes")),
        end => Ok(end),
    }
}

/// The status line and its number.
///
/// # Errors
/// It has none.
pub(super) fn status_of(head: &str) -> Result<(&str, u16), String> {
    let line = head.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|number| number.parse().ok());
    status.map(|status| (line, status)).ok_or_else(|| format!("answered {line:?}"))
}

/// The values of a header, in order.
pub(super) fn values<'a>(head: &'a str, wanted: &'static str) -> impl Iterator<Item = &'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(move |(name, _)| name.trim().eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

/// Merges the cookies of a response into `held`, the value of the `Cookie` header.
pub(super) fn set_cookies(held: &mut String, cookies: &[String]) {
    for cookie in cookies {
        let name = cookie.split('=').next().unwrap_or_default();
        let others = held.split("; ").filter(|other| !other.is_empty() && other.split('=').next() != Some(name));
        *held = others.chain([cookie.as_str()]).collect::<Vec<_>>().join("; ");
    }
}

fn names(head: &str, header: &'static str, token: &str) -> bool {
    values(head, header).flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}

fn framing(head: &str, status: u16, line: &str) -> Result<Framing, String> {
    if matches!(status, 101 | 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if names(head, "transfer-encoding", "chunked") {
        return Ok(Framing::Chunks);
    }
    let length = values(head, "content-length").next().and_then(|length| length.parse().ok());
    length.map(Framing::Length).ok_or_else(|| format!("answered {line} without a length"))
}

/// Puts a body of chunks together (RFC 9112 §7.1). Returns how many bytes it took; none until the last chunk is there.
fn dechunk(bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<usize>, String> {
    body.clear();
    let mut at = 0;
    loop {
        let Some(line) = line_at(bytes, at) else { return Ok(None) };
        let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let digits = std::str::from_utf8(digits).ok();
        let size = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let size =
            size.filter(|size| *size <= CHUNK_BYTES_MAX).ok_or("answered with a chunk of no or too much length")?;
        at += line.len() + 2;
        if size == 0 {
            break;
        }
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        body.extend_from_slice(&chunk[..size]);
        at += size + 2;
    }
    // Trailers, and the empty line behind them.
    loop {
        let Some(line) = line_at(bytes, at) else { return Ok(None) };
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Some(at));
        }
    }
}

fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    rest.windows(2).position(|window| window == b"\r\n").map(|end| &rest[..end])
}

const HEAD_BYTES_MAX: usize = 16 * 1024;
const CHUNK_BYTES_MAX: usize = 1 << 30;
const SHOWN_BYTES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Response, String)> {
        let mut body = b"from before".to_vec();
        let response = response(text.as_bytes(), &mut body).expect("valid")?;
        Some((response, String::from_utf8(body).expect("text")))
    }

    fn whole_only(text: &str) -> (Response, String) {
        for end in 0..text.len() {
            assert_eq!(parsed(&text[..end]), None, "cut at {end}");
        }
        parsed(text).expect("whole")
    }

    #[test]
    fn a_response_of_known_length_is_taken_when_it_is_whole() {
        let text = "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nSet-Cookie: c=d\r\ncontent-length: 2\r\n\r\n[]";
        let (response, body) = whole_only(text);
        assert_eq!((response.status, response.close, response.bytes), (200, false, text.len()));
        assert_eq!((response.cookies, body.as_str()), (vec!["a=b".to_owned(), "c=d".to_owned()], "[]"));
    }

    #[test]
    fn chunks_are_put_together() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive, Close\r\n\r\n\
                    3\r\n[{}\r\n00a;x=y\r\n,{\"a\":123}\r\n1\r\n]\r\n0\r\nExpires: now\r\n\r\n";
        let (response, body) = whole_only(text);
        assert_eq!((response.close, response.bytes), (true, text.len()));
        assert_eq!(body, r#"[{},{"a":123}]"#);
    }

    #[test]
    fn interim_responses_are_skipped() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        let (response, body) = whole_only(text);
        assert_eq!((response.status, response.bytes, body.as_str()), (204, text.len(), ""));
    }

    #[test]
    fn invalid_http_is_quoted_in_the_error() {
        for text in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 maybe\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
            let error = response(text.as_bytes(), &mut Vec::new()).expect_err(text);
            assert!(error.starts_with("answered") || error.contains("SSH-2.0"), "{error}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(5000));
        assert!(response(endless.as_bytes(), &mut Vec::new()).is_err());
        let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n";
        assert!(response(chunk.as_bytes(), &mut Vec::new()).is_err());
    }

    #[test]
    fn a_cookie_replaces_the_one_of_its_name() {
        let mut held = String::new();
        for cookie in ["a=1", "b=2", "a=3"] {
            set_cookies(&mut held, &[cookie.to_owned()]);
        }
        assert_eq!(held, "b=2; a=3");
        let target = Target::resolve("http://127.0.0.1:8080/x", "/").expect("a URL");
        let mut out = Vec::new();
        post(&target, &held, b"[]", &mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("POST /x HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nCookie: b=2; a=3\r\n"), "{text}");
        assert!(text.ends_with("Content-Length: 2\r\n\r\n[]"), "{text}");
    }
}
