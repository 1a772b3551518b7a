//! The instructions of a backend: headers that begin with `Grip-`, or a JSON body of the type
//! `application/grip-instruct`.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use encke::Start;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::Deserialize;

use crate::headers::remove_instructions;

/// A response that is held.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) mode: Mode,
    /// The channels, each with the point where it begins.
    pub(crate) channels: Vec<(String, Start)>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keep_alive: Option<KeepAlive>,
}

/// The way in which a response is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// One message is the response.
    Response,
    /// Each message is a part of the response.
    Stream,
}

/// The bytes that keep a silent stream alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeepAlive {
    pub(crate) content: Bytes,
    pub(crate) every: Duration,
}

/// Reads the instructions of an answer, and removes them from it. None if it is not held.
///
/// # Errors
/// The reason why the instructions are invalid.
pub(crate) fn of(response: &mut Response<Bytes>) -> Result<Option<Hold>, &'static str> {
    if response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(INSTRUCT)) {
        return of_json(response);
    }
    let held = of_headers(response.headers());
    if let Some(status) = response.headers().get("grip-status") {
        let status = StatusCode::from_bytes(status.as_bytes()).ok().filter(|status| !status.is_informational());
        *response.status_mut() = status.ok_or("Grip-Status is not a status of a response")?;
    }
    remove_instructions(response.headers_mut());
    held
}

fn of_headers(headers: &HeaderMap) -> Result<Option<Hold>, &'static str> {
    let text = |name: &str| match headers.get(name) {
        Some(value) => value.to_str().map(Some).map_err(|_| "a Grip header is not ASCII"),
        None => Ok(None),
    };
    let mode = match text("grip-hold")? {
        None => return Ok(None),
        Some("response") => Mode::Response,
        Some("stream") => Mode::Stream,
        Some(_) => return Err("Grip-Hold is neither response nor stream"),
    };
    let mut channels = Vec::new();
    for value in headers.get_all("grip-channel") {
        let value = value.to_str().map_err(|_| "Grip-Channel is not ASCII")?;
        for one in value.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let mut parts = one.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let after = parts.find_map(|part| part.strip_prefix("prev-id="));
            channels.push((channel(name), start(after)));
        }
    }
    let timeout = match text("grip-timeout")? {
        None => None,
        Some(seconds) => Some(seconds.trim().parse().map_err(|_| "Grip-Timeout is not a number of seconds")?),
    };
    let keep_alive = text("grip-keep-alive")?.map(keep_alive).transpose()?;
    let hold = Hold { mode, channels, timeout: timeout.map(Duration::from_secs), keep_alive };
    checked(hold).map(Some)
}

/// Reads `CONTENT; format=cstring; timeout=SECONDS`.
fn keep_alive(value: &str) -> Result<KeepAlive, &'static str> {
    let mut parts = value.split(';').map(str::trim);
    let raw = parts.next().unwrap_or_default();
    let (mut content, mut seconds) = (Bytes::copy_from_slice(raw.as_bytes()), KEEP_ALIVE_S);
    for part in parts {
        match part.split_once('=') {
            Some(("format", "raw")) => {}
            Some(("format", "cstring")) => content = unescaped(raw).into(),
            Some(("format", "base64")) => {
                content = BASE64_STANDARD.decode(raw).map_err(|_| "Grip-Keep-Alive is not base64")?.into();
            }
            Some(("timeout", text)) => {
                seconds = text.parse().map_err(|_| "the timeout of Grip-Keep-Alive is not a number of seconds")?;
            }
            _ => return Err("Grip-Keep-Alive has an unknown parameter"),
        }
    }
    Ok(KeepAlive { content, every: Duration::from_secs(seconds) })
}

/// Resolves `\n`, `\r`, `\t` and `\\`.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, byte == b'\\') {
            (_, true) => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                other => other.unwrap_or(b'\\'),
            },
            (byte, false) => byte,
        });
    }
    bytes
}

#[derive(Deserialize)]
struct Instruct {
    hold: Option<HoldJson>,
    response: Option<ResponseJson>,
}

#[derive(Deserialize)]
struct HoldJson {
    mode: Mode,
    timeout: Option<u64>,
    #[serde(default)]
    channels: Vec<ChannelJson>,
    #[serde(rename = "keep-alive")]
    keep_alive: Option<KeepAliveJson>,
}

#[derive(Deserialize)]
struct ChannelJson {
    name: String,
    #[serde(rename = "prev-id")]
    prev_id: Option<String>,
}

#[derive(Deserialize)]
struct KeepAliveJson {
    content: Option<String>,
    #[serde(rename = "content-bin")]
    content_bin: Option<String>,
    timeout: Option<u64>,
}

/// A response in JSON: that of an instruction, or of a publication.
#[derive(Default, Deserialize)]
pub(crate) struct ResponseJson {
    code: Option<u16>,
    headers: Option<HeadersJson>,
    body: Option<String>,
    #[serde(rename = "body-bin")]
    body_bin: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HeadersJson {
    List(Vec<(String, String)>),
    Map(std::collections::BTreeMap<String, String>),
}

impl ResponseJson {
    /// The response. None if a part is invalid.
    pub(crate) fn into_response(self) -> Option<Response<Bytes>> {
        let body = match (self.body, self.body_bin) {
            (_, Some(bin)) => BASE64_STANDARD.decode(bin).ok()?.into(),
            (Some(body), None) => Bytes::from(body),
            (None, None) => Bytes::new(),
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.code.unwrap_or(200)).ok().filter(|code| !code.is_informational())?;
        let headers = match self.headers {
            Some(HeadersJson::List(list)) => list,
            Some(HeadersJson::Map(map)) => map.into_iter().collect(),
            None => Vec::new(),
        };
        for (name, value) in headers {
            response.headers_mut().append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
        }
        crate::headers::remove_hop_by_hop(response.headers_mut());
        response.headers_mut().remove(CONTENT_LENGTH);
        Some(response)
    }
}

fn of_json(response: &mut Response<Bytes>) -> Result<Option<Hold>, &'static str> {
    let invalid = "the body is not an instruction";
    let instruct: Instruct = serde_json::from_slice(response.body()).map_err(|_| invalid)?;
    *response = instruct.response.unwrap_or_default().into_response().ok_or(invalid)?;
    let Some(hold) = instruct.hold else { return Ok(None) };
    let keep_alive = hold.keep_alive.map(|keep| {
        let content = match (keep.content_bin, keep.content) {
            (Some(bin), _) => BASE64_STANDARD.decode(bin).map_err(|_| invalid)?,
            (None, content) => content.unwrap_or_default().into_bytes(),
        };
        let every = Duration::from_secs(keep.timeout.unwrap_or(KEEP_ALIVE_S));
        Ok::<_, &'static str>(KeepAlive { content: content.into(), every })
    });
    let channels = hold.channels.into_iter();
    checked(Hold {
        mode: hold.mode,
        channels: channels.map(|one| (channel(&one.name), start(one.prev_id.as_deref()))).collect(),
        timeout: hold.timeout.map(Duration::from_secs),
        keep_alive: keep_alive.transpose()?,
    })
    .map(Some)
}

fn checked(hold: Hold) -> Result<Hold, &'static str> {
    if hold.channels.is_empty() {
        return Err("a held response names no channel");
    }
    if hold.keep_alive.as_ref().is_some_and(|keep| keep.every.is_zero()) {
        return Err("the timeout of a keep-alive is 0");
    }
    Ok(hold)
}

/// The channel of a GRIP name, which needs no slash.
fn channel(name: &str) -> String {
    if name.starts_with('/') { name.to_owned() } else { format!("/{name}") }
}

/// The beginning after a `prev-id`. One that is no position of ours is ignored, as that of a channel without a history.
fn start(prev_id: Option<&str>) -> Start {
    prev_id.and_then(|id| id.parse().ok()).unwrap_or_default()
}

const INSTRUCT: &[u8] = b"application/grip-instruct";
/// The interval of a keep-alive that names none, in seconds.
const KEEP_ALIVE_S: u64 = 55;
