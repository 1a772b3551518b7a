//! The opening handshake (RFC 6455 §4), on a head that an HTTP parser has read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HOST, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, StatusCode, Version};
use sha1::{Digest, Sha1};

use crate::Compression;

/// The reason for refusing a client's opening handshake; the client is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Not a GET.
    #[error("the method must be GET")]
    Method,
    /// Not HTTP/1.1.
    #[error("the handshake needs HTTP/1.1")]
    HttpVersion,
    /// No `Host` header.
    #[error("the Host header is missing")]
    Host,
    /// The `Upgrade` header does not name `websocket`.
    #[error("the Upgrade header must name websocket")]
    Upgrade,
    /// The `Connection` header does not name `Upgrade`.
    #[error("the Connection header must name Upgrade")]
    Connection,
    /// An unsupported version of the protocol, or none.
    #[error("only WebSocket version 13 is spoken here")]
    Version,
    /// `Sec-WebSocket-Key` is missing, doubled, or not 16 bytes in base64.
    #[error("the Sec-WebSocket-Key header must hold 16 bytes in base64")]
    Key,
}

/// The reason for refusing a server's handshake response; the server is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// Any status but 101.
    #[error("the server did not switch protocols")]
    Status(StatusCode),
    /// The `Upgrade` header does not name `websocket`.
    #[error("the server's Upgrade header does not name websocket")]
    Upgrade,
    /// The `Connection` header does not name `Upgrade`.
    #[error("the server's Connection header does not name Upgrade")]
    Connection,
    /// `Sec-WebSocket-Accept` does not match the key.
    #[error("the server's Sec-WebSocket-Accept header does not fit the key")]
    Accept,
    /// The server chose an extension or a subprotocol that was not offered.
    #[error("the server chose an extension or a subprotocol that was not offered")]
    NotOffered,
}

impl HandshakeError {
    /// The status of the response: 405, 426 (RFC 6455 §4.2.2) or 400.
    pub fn status(&self) -> StatusCode {
        match self {
            HandshakeError::Method => StatusCode::METHOD_NOT_ALLOWED,
            HandshakeError::Version => StatusCode::UPGRADE_REQUIRED,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The headers that the status requires: `Sec-WebSocket-Version` and `Upgrade` with 426, `Allow` with 405.
    pub fn headers(&self) -> &'static [(HeaderName, &'static str)] {
        match self {
            HandshakeError::Method => &[(http::header::ALLOW, "GET")],
            HandshakeError::Version => &[(SEC_WEBSOCKET_VERSION, VERSION), (UPGRADE, "websocket")],
            _ => &[],
        }
    }
}

/// Checks a client's opening handshake (RFC 6455 §4.2.1) and returns the `Sec-WebSocket-Accept` value for the
/// response.
///
/// # Errors
/// The first error in the request.
pub fn check(method: &Method, version: Version, headers: &HeaderMap) -> Result<String, HandshakeError> {
    if method != Method::GET {
        return Err(HandshakeError::Method);
    }
    if version != Version::HTTP_11 {
        return Err(HandshakeError::HttpVersion);
    }
    if !headers.contains_key(HOST) {
        return Err(HandshakeError::Host);
    }
    if !names(headers, UPGRADE, "websocket") {
        return Err(HandshakeError::Upgrade);
    }
    if !names(headers, CONNECTION, "upgrade") {
        return Err(HandshakeError::Connection);
    }
    if only(headers, SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        return Err(HandshakeError::Version);
    }
    let key = only(headers, SEC_WEBSOCKET_KEY).ok_or(HandshakeError::Key)?;
    let mut decoded = [0; KEY_BYTES + 2];
    match STANDARD.decode_slice(key, &mut decoded) {
        Ok(KEY_BYTES) => Ok(accept(key)),
        _ => Err(HandshakeError::Key),
    }
}

/// True if a request offers a sub-protocol. The names are case-sensitive (RFC 6455 §4.1).
pub fn offers_protocol(headers: &HeaderMap, protocol: &str) -> bool {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|offered| offered.trim() == protocol)
}

/// True if a request asks for a WebSocket at all, well-formed or not: its `Upgrade` header names `websocket`.
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    names(headers, UPGRADE, "websocket")
}

/// The `Sec-WebSocket-Accept` value for a `Sec-WebSocket-Key` (RFC 6455 §4.2.2).
pub fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// The `Sec-WebSocket-Key` of a client that drew `random` (RFC 6455 §4.1).
pub fn client_key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// Checks a server's response to a handshake with `key` (RFC 6455 §4.1), which offers no subprotocol and no extension but
/// [`Compression::OFFER`], if it `offers_compression`. Returns the compression on which the server agrees.
///
/// # Errors
/// The first error in the response.
pub fn check_response(
    status: StatusCode,
    headers: &HeaderMap,
    key: &str,
    offers_compression: bool,
) -> Result<Option<Compression>, ResponseError> {
    use http::header::{SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_PROTOCOL};
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Err(ResponseError::Status(status));
    }
    if !names(headers, UPGRADE, "websocket") {
        return Err(ResponseError::Upgrade);
    }
    if !names(headers, CONNECTION, "upgrade") {
        return Err(ResponseError::Connection);
    }
    if only(headers, SEC_WEBSOCKET_ACCEPT) != Some(accept(key).as_str()) {
        return Err(ResponseError::Accept);
    }
    let compression = match offers_compression {
        true => Compression::check_answer(headers),
        false => (!headers.contains_key(SEC_WEBSOCKET_EXTENSIONS)).then_some(None),
    };
    compression.filter(|_| !headers.contains_key(SEC_WEBSOCKET_PROTOCOL)).ok_or(ResponseError::NotOffered)
}

/// True if a header that holds a list of tokens, possibly over several lines, contains `token` in any case.
pub fn names(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}

/// The value of a header that must occur exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// The only version of the protocol (RFC 6455 §4.1).
const VERSION: &str = "13";

/// The length of a decoded key (RFC 6455 §4.1).
const KEY_BYTES: usize = 16;

/// The string hashed after the key (RFC 6455 §1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
