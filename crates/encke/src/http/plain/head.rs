//! The heads of plain requests: those to the Bayeux endpoint that are complete and as clients write them. hyper reads all others.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Uri};
use httparse::Status;

use crate::http::{routes, stream};
use encke_core::Settings;

/// A plain request, as far as its head tells it.
pub(super) struct Plain {
    pub(super) request: Request<()>,
    /// The bytes of its head.
    pub(super) head_bytes: usize,
    /// The bytes of its body.
    pub(super) body_bytes: usize,
}

impl Plain {
    /// The request that begins with these bytes. None if it is not plain: hyper decides what it is.
    pub(super) fn parse(bytes: &[u8], settings: &Settings) -> Option<Plain> {
        // Empty lines before a request are hyper's.
        let method = match bytes {
            [b'P', ..] => Method::POST,
            [b'G', ..] => Method::GET,
            _ => return None,
        };
        let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut []);
        let Ok(Status::Complete(head_bytes)) = head.parse_with_uninit_headers(bytes, &mut fields) else { return None };
        let is_usual = head.method == Some(method.as_str()) && head.version == Some(1);
        if !is_usual || head_bytes > settings.header_bytes_max {
            return None;
        }
        // All values share one copy.
        let copy = Bytes::copy_from_slice(&bytes[..head_bytes]);
        let shared = |part: &[u8]| {
            let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
            copy.slice(start..start + part.len())
        };
        let uri = Uri::from_maybe_shared(shared(head.path?.as_bytes())).ok()?;
        if uri.authority().is_some() || !routes::is_bayeux(settings, uri.path()) {
            return None;
        }
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        for field in head.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_maybe_shared(shared(field.value)).ok()?);
        }
        let body_bytes = body_bytes(&method, &headers)?;
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
        Some(Plain { request, head_bytes, body_bytes })
    }
}

/// The length of the body. None if a field makes the request unusual.
fn body_bytes(method: &Method, headers: &HeaderMap) -> Option<usize> {
    let (mut upgrade, mut length, mut is_upgrade_named) = (None, None, false);
    for (name, value) in headers {
        let once = if *name == CONTENT_LENGTH {
            length.replace(value)
        } else if *name == UPGRADE {
            upgrade.replace(value)
        } else if *name == CONNECTION {
            for token in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                let is_upgrade = token.eq_ignore_ascii_case(b"upgrade");
                if !is_upgrade && !token.eq_ignore_ascii_case(b"keep-alive") {
                    return None;
                }
                is_upgrade_named |= is_upgrade;
            }
            None
        } else if [TRANSFER_ENCODING, TRAILER, EXPECT].contains(name) {
            return None;
        } else {
            None
        };
        if once.is_some() {
            return None;
        }
    }
    let is_get = *method == Method::GET;
    let is_websocket = |upgrade: &HeaderValue| is_get && upgrade.as_bytes().eq_ignore_ascii_case(b"websocket");
    if upgrade.map_or(is_upgrade_named, |upgrade| !is_websocket(upgrade)) {
        return None;
    }
    if is_get {
        // A stream is the end of HTTP on its connection, and hyper writes its errors.
        return (length.is_none() && stream::wanted(headers).is_none()).then_some(0);
    }
    let length = length?.as_bytes();
    let is_number = !length.is_empty() && length.len() <= LENGTH_DIGITS_MAX && length.iter().all(u8::is_ascii_digit);
    str::from_utf8(length).ok().filter(|_| is_number)?.parse().ok()
}

/// The most header lines of one request.
pub(in crate::http) const HEADERS_MAX: usize = 100;
/// The digits of a length. None is near it: bodies have a limit.
const LENGTH_DIGITS_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Plain> {
        Plain::parse(text.as_bytes(), &Settings::default())
    }

    #[test]
    fn requests_as_clients_write_them_are_plain() {
        let post =
            "POST /cometd/connect HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n[]GET";
        let plain = parse(post).expect("a plain request");
        assert_eq!((plain.head_bytes, plain.body_bytes), (post.len() - 5, 2));
        assert_eq!((plain.request.uri().path(), plain.request.headers().len()), ("/cometd/connect", 3));
        for text in [
            "POST /bayeux HTTP/1.1\r\ncontent-length:0\r\n\r\n",
            "GET /cometd?jsonp=cb&message=[] HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
            "GET /cometd HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\r\n",
        ] {
            assert!(parse(text).is_some(), "{text}");
        }
    }

    #[test]
    fn everything_unusual_is_for_hyper() {
        for head in [
            "\r\nPOST /cometd HTTP/1.1\r\nContent-Length: 2",
            "PUT /cometd HTTP/1.1\r\nContent-Length: 2",
            "PRI * HTTP/2.0",
            "POST /cometd HTTP/1.0\r\nContent-Length: 2",
            "POST /other HTTP/1.1\r\nContent-Length: 2",
            "POST /api/v1/publish HTTP/1.1\r\nContent-Length: 2",
            "POST http://a/cometd HTTP/1.1\r\nContent-Length: 2",
            "POST /cometd HTTP/1.1\r\nHost: a",
            "POST /cometd HTTP/1.1\r\nContent-Length: +2",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2, 2",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2",
            "POST /cometd HTTP/1.1\r\nContent-Length: 9999999999999999",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nConnection: close",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nConnection: keep-alive, x",
            "POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nConnection: upgrade\r\nUpgrade: websocket",
            "POST /cometd HTTP/1.1\r\nContent-Length : 2",
            "POST /cometd HTTP/1.1\r\nA: b\r\n c\r\nContent-Length: 2",
            "GET /cometd HTTP/1.1\r\nContent-Length: 0",
            "GET /cometd HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c",
            "GET /cometd HTTP/1.1\r\nUpgrade: websocket\r\nUpgrade: h2c",
            "GET /cometd/x HTTP/1.1\r\nAccept: text/event-stream",
        ] {
            assert!(parse(&format!("{head}\r\n\r\n[]")).is_none(), "{head}");
        }
        assert!(parse("POST /cometd HTTP/1.1\r\nContent-Length: 2\r\n").is_none(), "incomplete");
        let long = format!("POST /cometd HTTP/1.1\r\nContent-Length: 2\r\nA: {}\r\n\r\n", "b".repeat(70_000));
        assert!(parse(&long).is_none(), "over header_bytes_max");
    }
}
