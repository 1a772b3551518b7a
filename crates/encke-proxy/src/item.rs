//! A publication as a response, or as a part of a stream: in the formats of GRIP, or as it is.
//!
//! A format decides about status, headers and type of another user's response, so it counts only in publications of the server's
//! side. Data of a client is JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use encke::Side;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::instruct::ResponseJson;

#[derive(Deserialize)]
struct StreamJson {
    content: Option<String>,
    #[serde(rename = "content-bin")]
    content_bin: Option<String>,
    action: Option<String>,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) content: Bytes,
    /// It is the last one.
    pub(crate) closes: bool,
}

/// The value of a format in a publication.
fn format<'a>(data: &'a str, side: Side, name: &str) -> Option<&'a RawValue> {
    if side == Side::Client {
        return None;
    }
    let fields: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(data).ok()?;
    if let Some(formats) = fields.get("formats") {
        let formats: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(formats.get()).ok()?;
        return formats.get(name).copied();
    }
    fields.get(name).copied()
}

/// The response that a publication is. Data without the format `http-response` is the body itself.
pub(crate) fn response(data: &str, side: Side) -> Response<Bytes> {
    let formatted = format(data, side, "http-response");
    let formatted = formatted.and_then(|raw| serde_json::from_str::<ResponseJson>(raw.get()).ok()?.into_response());
    formatted.unwrap_or_else(|| {
        let mut response = Response::new(Bytes::copy_from_slice(data.as_bytes()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    })
}

/// The part of a stream that a publication is. Data without the format `http-stream` is a line.
pub(crate) fn part(data: &str, side: Side) -> Part {
    let formatted = format(data, side, "http-stream").and_then(|raw| {
        let json: StreamJson = serde_json::from_str(raw.get()).ok()?;
        let content = match (json.content_bin, json.content) {
            (Some(bin), _) => BASE64_STANDARD.decode(bin).ok()?.into(),
            (None, content) => Bytes::from(content.unwrap_or_default()),
        };
        Some(Part { content, closes: json.action.as_deref() == Some("close") })
    });
    formatted.unwrap_or_else(|| Part { content: Bytes::from(format!("{data}\n")), closes: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_without_a_format_is_the_body_itself() {
        for data in ["1", "\"http-response\"", "[]", "{\"a\":1}", r#"{"http-response":7}"#] {
            let response = response(data, Side::Server);
            assert_eq!((response.status().as_u16(), &response.body()[..]), (200, data.as_bytes()));
            assert_eq!(part(data, Side::Server), Part { content: format!("{data}\n").into(), closes: false });
        }
    }

    #[test]
    fn a_format_of_a_client_is_data() {
        let data = r#"{"http-response":{"code":201,"headers":{"set-cookie":"a=b"}},"http-stream":{"action":"close"}}"#;
        let response = response(data, Side::Client);
        assert_eq!((response.status().as_u16(), &response.body()[..]), (200, data.as_bytes()));
        assert_eq!(response.headers().get("set-cookie"), None);
        assert_eq!(part(data, Side::Client), Part { content: format!("{data}\n").into(), closes: false });
    }

    #[test]
    fn a_format_decides_status_headers_and_body() {
        let item = r#"{"http-response":{"code":201,"headers":{"x-a":"b","connection":"close"},"body":"done\n"},
            "http-stream":{"content":"part\n"}}"#;
        for data in [item.to_owned(), format!("{{\"id\":\"7\",\"formats\":{item}}}")] {
            let response = response(&data, Side::Server);
            assert_eq!((response.status().as_u16(), &response.body()[..]), (201, &b"done\n"[..]));
            assert_eq!(response.headers().len(), 1);
            assert_eq!(response.headers()["x-a"], "b");
            assert_eq!(part(&data, Side::Server), Part { content: Bytes::from_static(b"part\n"), closes: false });
        }
        let last = part(r#"{"http-stream":{"content-bin":"AP8=","action":"close"}}"#, Side::Server);
        assert_eq!(last, Part { content: Bytes::from_static(b"\x00\xff"), closes: true });
        let listed =
            response(r#"{"http-response":{"headers":[["x-a","1"],["x-a","2"]],"body-bin":"AP8="}}"#, Side::Server);
        assert_eq!((listed.headers().len(), &listed.body()[..]), (2, &b"\x00\xff"[..]));
    }
}
