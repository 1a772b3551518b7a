//! The opening handshake (RFC 6455 §4).

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use websocket::Compression;
use websocket::handshake::{self, HandshakeError, ResponseError};

#[test]
fn section_1_3_the_example_of_the_rfc_is_accepted() {
    assert_eq!(handshake::check(&Method::GET, Version::HTTP_11, &request()), Ok(ACCEPT.into()));
    assert_eq!(handshake::accept(KEY), ACCEPT);
    assert_eq!(handshake::client_key(*b"the sample nonce"), KEY);
}

#[test]
fn section_4_2_1_header_names_and_values_may_vary_in_case_and_spaces() {
    let lists = [("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade")];
    for (name, value) in lists {
        assert!(handshake::check(&Method::GET, Version::HTTP_11, &with(name, value)).is_ok());
    }
    let mut lines = with("connection", "keep-alive");
    lines.append("connection", HeaderValue::from_static("upgrade"));
    assert!(handshake::check(&Method::GET, Version::HTTP_11, &lines).is_ok());
}

#[test]
fn section_4_2_1_a_missing_or_wrong_header_is_named_with_its_status() {
    for (name, value, error, status) in [
        ("host", None, HandshakeError::Host, 400),
        ("upgrade", None, HandshakeError::Upgrade, 400),
        ("upgrade", Some("h2c"), HandshakeError::Upgrade, 400),
        ("connection", None, HandshakeError::Connection, 400),
        ("connection", Some("keep-alive"), HandshakeError::Connection, 400),
        ("sec-websocket-version", None, HandshakeError::Version, 426),
        ("sec-websocket-version", Some("8"), HandshakeError::Version, 426),
        ("sec-websocket-key", None, HandshakeError::Key, 400),
        ("sec-websocket-key", Some(""), HandshakeError::Key, 400),
        ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25jZQ"), HandshakeError::Key, 400),
        ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25jZSE="), HandshakeError::Key, 400),
        ("sec-websocket-key", Some("not base64 at all !!!!!!"), HandshakeError::Key, 400),
    ] {
        let headers = match value {
            Some(value) => with(name, value),
            None => without(name),
        };
        let refused = handshake::check(&Method::GET, Version::HTTP_11, &headers);
        assert_eq!(refused, Err(error), "{name}: {value:?}");
        assert_eq!(error.status().as_u16(), status);
    }
    let mut doubled = request();
    doubled.append("sec-websocket-key", HeaderValue::from_static(KEY));
    let refused = handshake::check(&Method::GET, Version::HTTP_11, &doubled);
    assert_eq!(refused, Err(HandshakeError::Key));
}

#[test]
fn section_4_2_1_only_get_and_http_1_1_will_do() {
    let refused = handshake::check(&Method::POST, Version::HTTP_11, &request());
    assert_eq!(refused, Err(HandshakeError::Method));
    assert_eq!(HandshakeError::Method.status(), StatusCode::METHOD_NOT_ALLOWED);
    let refused = handshake::check(&Method::GET, Version::HTTP_10, &request());
    assert_eq!(refused, Err(HandshakeError::HttpVersion));
}

#[test]
fn section_4_4_a_refused_version_names_the_supported_one() {
    let headers = HandshakeError::Version.headers();
    assert!(headers.contains(&(http::header::SEC_WEBSOCKET_VERSION, "13")));
}

#[test]
fn a_badly_formed_request_still_wants_the_upgrade() {
    assert!(handshake::wants_upgrade(&without("sec-websocket-key")));
    assert!(!handshake::wants_upgrade(&without("upgrade")));
}

#[test]
fn section_4_1_a_client_accepts_only_the_response_to_its_key() {
    let switched = StatusCode::SWITCHING_PROTOCOLS;
    assert_eq!(handshake::check_response(switched, &response(), KEY, false), Ok(None));
    for (name, value, error) in [
        ("upgrade", "h2c", ResponseError::Upgrade),
        ("connection", "close", ResponseError::Connection),
        ("sec-websocket-accept", "AAAA", ResponseError::Accept),
        ("sec-websocket-protocol", "chat", ResponseError::NotOffered),
        ("sec-websocket-extensions", "permessage-deflate", ResponseError::NotOffered),
    ] {
        let headers = set(response(), name, value);
        assert_eq!(handshake::check_response(switched, &headers, KEY, false), Err(error));
    }
    // RFC 7692 §7.1: a client that has offered compression takes the answer to its offer only.
    for (value, is_answer) in [(Compression::OFFER, true), ("permessage-deflate", false), ("foo", false)] {
        let headers = set(response(), "sec-websocket-extensions", value);
        let checked = handshake::check_response(switched, &headers, KEY, true);
        assert_eq!(checked.is_ok_and(|compression| compression.is_some()), is_answer, "{value}");
    }
    let refused = handshake::check_response(StatusCode::OK, &response(), KEY, false);
    assert_eq!(refused, Err(ResponseError::Status(StatusCode::OK)));
}

fn request() -> HeaderMap {
    headers(&[
        ("host", "server.example.com"),
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-key", KEY),
        ("sec-websocket-version", "13"),
    ])
}

fn response() -> HeaderMap {
    headers(&[("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-accept", ACCEPT)])
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().fold(HeaderMap::new(), |headers, (name, value)| set(headers, name, value))
}

fn with(name: &'static str, value: &'static str) -> HeaderMap {
    set(request(), name, value)
}

fn without(name: &'static str) -> HeaderMap {
    let mut headers = request();
    headers.remove(name);
    headers
}

fn set(mut headers: HeaderMap, name: &'static str, value: &'static str) -> HeaderMap {
    headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    headers
}

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
