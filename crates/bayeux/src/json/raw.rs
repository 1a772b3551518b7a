//! Raw JSON as a type, so that it is never mistaken for text.

use std::borrow::Cow;
use std::fmt;

use super::{JsonError, RawString, decode_string, elements, integer, member, members, validate};

/// One JSON value as in its text, exact to the last byte, without space around it.
///
/// It borrows from that text and builds no tree. A [`Message`](crate::Message) contains such values, and
/// [`Publication`](crate::Publication) and [`Reply`](crate::Reply) splice them into the output.
///
/// ```
/// use bayeux::RawJson;
///
/// let ext = RawJson::parse(r#" {"ack":7,"replay":{"/a":-1}} "#)?;
/// assert_eq!(ext.member("ack").and_then(RawJson::integer), Some(7));
/// assert_eq!(ext.as_str(), r#"{"ack":7,"replay":{"/a":-1}}"#);
/// assert!(RawJson::parse("nonsense").is_err());
/// # Ok::<(), bayeux::json::JsonError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// The value `null`.
    pub const NULL: RawJson<'static> = RawJson("null");

    /// Checks that `text` is one JSON value (RFC 8259).
    ///
    /// # Errors
    /// The text is not one JSON value, or is nested deeper than [`DEPTH_CAP`](super::DEPTH_CAP) levels.
    pub fn parse(text: &'a str) -> Result<RawJson<'a>, JsonError> {
        validate(text, usize::MAX).map(RawJson)
    }

    /// Takes a text that the caller has written or checked, so that it is one JSON value. Any other text would be copied
    /// into messages unchanged, and break them.
    #[inline]
    pub const fn trusted(text: &'a str) -> RawJson<'a> {
        RawJson(text)
    }

    /// The text of the value.
    #[inline]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// True if it is `null`.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// True if it is an object.
    #[inline]
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// The value of a member, see [`member`]; `None` if this is not an object.
    pub fn member(self, key: &str) -> Option<RawJson<'a>> {
        member(self.0, key).map(RawJson)
    }

    /// The members of an object; none if it is not one.
    pub fn members(self) -> impl Iterator<Item = (RawString<'a>, RawJson<'a>)> {
        members(self.0).map(|(key, value)| (key, RawJson(value)))
    }

    /// The elements of an array; none if it is not one.
    pub fn elements(self) -> impl Iterator<Item = RawJson<'a>> {
        elements(self.0).map(RawJson)
    }

    /// The decoded text of a JSON string; see [`decode_string`].
    #[inline]
    pub fn text(self) -> Option<Cow<'a, str>> {
        decode_string(self.0)
    }

    /// The text of a JSON string that has no escapes.
    #[inline]
    pub(crate) fn plain_text(self) -> Option<Cow<'a, str>> {
        Some(Cow::Borrowed(self.0.strip_prefix('"')?.strip_suffix('"')?))
    }

    /// The whole part of a number; see [`integer`].
    pub fn integer(self) -> Option<i64> {
        integer(self.0)
    }
}

impl fmt::Debug for RawJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for RawJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
