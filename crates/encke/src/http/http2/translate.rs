//! Requests of HTTP/2 as those of HTTP/1.1, and their responses back: what differs between the two is known here only.

use std::time::SystemTime;

use h2::RecvStream;
use h2::ext::Protocol;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, DATE, HOST, HeaderMap, HeaderName, HeaderValue, LINK, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::Either;
use websocket::handshake;

use crate::entropy::kernel_entropy;
use crate::fallback::RequestBody;
use crate::http::of_status;
use crate::stream_body::StreamBody;

/// The request as one of HTTP/1.1. Of one that asks for a WebSocket (RFC 8441 §4), also the bytes that the client sends on it.
pub(super) fn request(request: Request<RecvStream>) -> (Request<RequestBody>, Option<RecvStream>) {
    let (mut head, stream) = request.into_parts();
    let headers = &mut head.headers;
    if let Some(authority) = head.uri.authority().map(|authority| authority.as_str()) {
        // A request that names two hosts is refused (RFC 9113 §8.3.1).
        let is_same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
        if !headers.get_all(HOST).iter().any(is_same)
            && let Ok(authority) = HeaderValue::from_str(authority)
        {
            headers.append(HOST, authority);
        }
    }
    join_cookies(headers);
    if let Some(target) = head.uri.path_and_query() {
        head.uri = Uri::from(target.clone());
    }
    let protocol = head.extensions.remove::<Protocol>();
    if head.method != Method::CONNECT || protocol.is_none_or(|protocol| protocol.as_str() != "websocket") {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        return (Request::from_parts(head, Either::Right(Either::Left(StreamBody::new(Some(stream), length)))), None);
    }
    // The handshake of RFC 6455, whose key is of no use here: the response never shows the digest.
    let mut random = [0; 16];
    kernel_entropy()(&mut random);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(key) = HeaderValue::try_from(handshake::client_key(random)) {
        headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    (head.method, head.version) = (Method::GET, Version::HTTP_11);
    (Request::from_parts(head, Either::Right(Either::Left(StreamBody::new(None, Some(0))))), Some(stream))
}

/// Joins the fields into which a client has split its cookies (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The head of Early Hints (RFC 8297): the status 103 with these links.
pub(super) fn early_hints(links: HeaderValue) -> Response<()> {
    let mut response = of_status(StatusCode::EARLY_HINTS, Response::new(()));
    response.headers_mut().insert(LINK, links);
    response
}

/// The head of a response whose body has this length: without the fields that are about a connection (RFC 9113 §8.2.2), and with its length
/// and date. A switch of protocols is a success (RFC 8441 §5).
pub(super) fn response(head: &mut http::response::Parts, length: Option<u64>) {
    match head.status {
        StatusCode::SWITCHING_PROTOCOLS => {
            head.status = StatusCode::OK;
            head.headers.remove(SEC_WEBSOCKET_ACCEPT);
        }
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => {}
        _ => {
            if let Some(length) = length {
                head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
            }
        }
    }
    let others = ["keep-alive", "proxy-connection"].map(HeaderName::from_static);
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE].iter().chain(&others) {
        head.headers.remove(name);
    }
    let date = || HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()));
    if !head.headers.contains_key(DATE)
        && let Ok(date) = date()
    {
        head.headers.insert(DATE, date);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crumbs_of_cookies_are_one_field() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=b", "c=d; e=f"] {
            headers.append(COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=b; c=d; e=f"]);
    }
}
