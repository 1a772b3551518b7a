//! Reads the input of a request: its query, its body, the names of channels in them. Everything that is not as the API
//! describes it is an error that names the field.

use bayeux::{ChannelKind, ChannelName, Limits};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;

use super::problem::{Kind, Problem};
use crate::http::form;

/// The parameters of a query.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query whose parameters may be these.
    pub(super) fn parse(query: &str, known: &[&str]) -> Result<Query, Problem> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for parameter in form::fields(query.as_bytes()) {
            let Some((name, value)) = parameter else {
                return Err(Problem::new(Kind::INVALID, "the query is not UTF-8"));
            };
            if !known.contains(&name.as_str()) {
                let wanted = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(Problem::parameter(&name, format!("there is no such parameter; there are: {wanted}")));
            }
            if parameters.iter().any(|(other, _)| *other == name) {
                return Err(Problem::parameter(&name, "it is given twice"));
            }
            parameters.push((name, value));
        }
        Ok(Query(parameters))
    }

    /// The value of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, Problem> {
        self.text(name).ok_or_else(|| Problem::parameter(name, "it is missing"))
    }

    /// The value of a parameter that is a whole number in this range.
    pub(super) fn number(&self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| is_plain && range.contains(number));
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| Problem::parameter(name, wanted()))
    }
}

/// Checks that a body is JSON in UTF-8 by its headers.
pub(super) fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |detail| Err(Problem::new(Kind::MEDIA_TYPE, detail).and_close());
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return refused("a body without a content coding");
    }
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default().to_ascii_lowercase());
    let mut parts = kind.as_deref().unwrap_or_default().split(';').map(str::trim);
    if parts.next() != Some("application/json") {
        return refused("Content-Type: application/json");
    }
    let is_utf_8 = |part: &str| part.strip_prefix("charset=").is_none_or(|set| set.trim_matches('"') == "utf-8");
    if parts.all(is_utf_8) { Ok(()) } else { refused("the character set is UTF-8") }
}

/// Reads a JSON body.
pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        Category::Data => wrong_type::<T>(body),
        _ if body.is_empty() => Problem::new(Kind::NOT_JSON, "the body is empty"),
        _ => Problem::new(Kind::NOT_JSON, error.to_string()),
    })
}

/// The error of a body that is not of this type. The body is read again, because following the path of each field costs
/// time. The rest of it may not even be JSON.
fn wrong_type<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Problem {
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(body) {
        return Problem::new(Kind::NOT_JSON, error.to_string());
    }
    let deserializer = &mut serde_json::Deserializer::from_slice(body);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(deserializer) else {
        return Problem::new(Kind::INVALID, "the body is not as the API describes it");
    };
    let mut pointer = String::new();
    for segment in error.path() {
        match segment {
            serde_path_to_error::Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            serde_path_to_error::Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            _ => {}
        }
    }
    let text = error.inner().to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    Problem::field(&shortened_pointer(pointer), &text[..end])
}

/// A pointer that may contain a key of the input, within a limit.
fn shortened_pointer(mut pointer: String) -> String {
    if let Some((end, _)) = pointer.char_indices().nth(POINTER_CHARS_MAX) {
        pointer.truncate(end);
    }
    pointer
}

/// A channel to publish on: no pattern, and none of the protocol or of services.
pub(super) fn broadcast_channel<'a>(name: &'a str, limits: &Limits) -> Result<ChannelName<'a>, String> {
    let channel = any_channel(name, limits)?;
    match channel.kind() {
        _ if channel.is_pattern() => Err(format!("{name:?} is a pattern: a channel such as /stock/GOOG")),
        ChannelKind::Broadcast => Ok(channel),
        _ => Err(format!("{name:?} is no channel for publications: none below /meta/ or /service/")),
    }
}

/// A channel or a pattern.
pub(super) fn any_channel<'a>(name: &'a str, limits: &Limits) -> Result<ChannelName<'a>, String> {
    let wanted = || {
        let (bytes, segments) = (limits.channel_bytes_max, limits.channel_segments_max);
        format!("a name such as /stock/GOOG, of at most {bytes} bytes and {segments} segments")
    };
    ChannelName::parse(name, limits).map_err(|error| format!("{error}: {}", wanted()))
}

/// Characters of a pointer.
const POINTER_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::super::types::{Publish, PublishBatch};
    use super::*;

    fn error<'a, T: Deserialize<'a>>(body: &'a str) -> serde_json::Value {
        let problem = json::<T>(body.as_bytes()).err().expect(body);
        serde_json::from_slice(&problem.body()).expect("JSON")
    }

    #[test]
    fn data_is_borrowed_as_it_is_written() {
        let body = r#"{"channel":"/a","data":{"n":1e400, "s":"\ud800"}}"#;
        let Publish { channel, data, .. } = json(body.as_bytes()).map_err(|_| ()).expect("valid");
        assert_eq!((&*channel, data.get()), ("/a", r#"{"n":1e400, "s":"\ud800"}"#));
        assert!(matches!(channel, std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn an_error_names_the_field_and_the_right_type() {
        let error =
            error::<PublishBatch<'_>>(r#"{"messages":[{"channels":["/a"],"data":1},{"channels":["/a",7],"data":1}]}"#);
        assert_eq!(error["status"], 400);
        assert_eq!(error["errors"][0]["pointer"], "#/messages/1/channels/1");
        assert_eq!(error["errors"][0]["detail"], "invalid type: integer `7`, expected a string");
    }

    #[test]
    fn every_wrong_field_is_refused() {
        for (body, detail) in [
            (r#"{"data":1}"#, "missing field `channel`"),
            (r#"{"channel":"/a"}"#, "missing field `data`"),
            (r#"{"channel":null,"data":1}"#, "expected a string"),
            (r#"{"channel":["/a"],"data":1}"#, "expected a string"),
            (r#"{"channel":"/a","data":1,"data":2}"#, "duplicate field `data`"),
            (r#"{"channel":"/a","data":1,"clientId":"x"}"#, "unknown field `clientId`"),
            (r#"{"channel":"/a","data":1,"idempotency_key":null}"#, "expected a string"),
            (r#"[1]"#, "invalid"),
            (r#""text""#, "invalid type: string"),
        ] {
            let error = error::<Publish<'_>>(body);
            let found = error["errors"][0]["detail"].as_str().unwrap_or_default();
            assert!(found.contains(detail), "{body}: {error}");
        }
    }

    #[test]
    fn what_is_not_json_is_named_with_its_position() {
        for body in ["", "{", "{]", "nul", r#"{"channel":"/a","data":}"#, r#"{"channel":"\ud800","data":1}"#, "{}x"] {
            let error = error::<Publish<'_>>(body);
            assert_eq!(error["status"], 400, "{body}");
        }
        assert_eq!(error::<Publish<'_>>("")["detail"], "the body is empty");
        assert!(error::<Publish<'_>>("{\"a\"")["detail"].as_str().is_some_and(|detail| detail.contains("line 1")));
        assert!(json::<Publish<'_>>(b"{\"channel\":\"/\xff\",\"data\":1}").is_err());
    }

    #[test]
    fn a_query_has_known_parameters_once() {
        let parse = |query| Query::parse(query, &["limit", "cursor"]);
        let query = parse("limit=7&cursor=a%2Fb").map_err(|_| ()).expect("valid");
        assert_eq!((query.number("limit", 1..=10).ok().flatten(), query.text("cursor")), (Some(7), Some("a/b")));
        for wrong in ["limit=1&limit=2", "other=1", "cursor=%ff"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["limit=0", "limit=11", "limit=", "limit=+1", "limit=1.0", "limit=99999999999999999999"] {
            let query = parse(wrong).map_err(|_| ()).expect("known");
            assert!(query.number("limit", 1..=10).is_err(), "{wrong}");
        }
    }

    #[test]
    fn channels_to_publish_on_are_plain_broadcast_channels() {
        let limits = Limits::default();
        for wrong in ["", "a", "/", "/a/", "/a//b", "/a/*", "/**", "/meta/connect", "/service/x", "/\u{e4}", "/a\n"] {
            assert!(broadcast_channel(wrong, &limits).is_err(), "{wrong:?}");
        }
        assert!(broadcast_channel(&format!("/{}", "x".repeat(256)), &limits).is_err());
        assert!(broadcast_channel("/a/b c", &limits).is_ok());
    }
}
