//! The parts of the reply to a handshake that the application adds: members of its `ext`, and fields beside those of the protocol.

use bayeux::{RawJson, escape_into, json};

/// Members of the `ext`, and fields, that the reply to a handshake has beside those of the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeReply {
    /// Members of a JSON object, without its braces.
    ext: String,
    fields: String,
}

/// The reason why a reply does not take a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeReplyError {
    /// The value is not JSON, or nested too deeply.
    #[error("not JSON")]
    Json,
    /// `ext` and fields come as JSON objects.
    #[error("not an object")]
    NotObject,
    /// The protocol sets this field or member itself.
    #[error("it is a name of the protocol")]
    Reserved,
    /// Everything together has more than [`HANDSHAKE_REPLY_BYTES_MAX`] bytes.
    #[error("more than {HANDSHAKE_REPLY_BYTES_MAX} bytes")]
    TooLong,
}

/// The most that an application adds to the reply to a handshake, in bytes.
pub const HANDSHAKE_REPLY_BYTES_MAX: usize = 16 * 1024;

impl HandshakeReply {
    /// Takes the members of JSON objects.
    ///
    /// # Errors
    /// The first member that cannot be taken.
    pub fn of(ext: Option<&str>, fields: Option<&str>) -> Result<HandshakeReply, HandshakeReplyError> {
        let mut reply = HandshakeReply::default();
        for (name, value) in members(ext)? {
            reply.add_ext(&name, value)?;
        }
        for (name, value) in members(fields)? {
            reply.add_field(&name, value)?;
        }
        Ok(reply)
    }

    /// Adds a member of the `ext`, with raw JSON as its value.
    ///
    /// # Errors
    /// The value is not JSON, the name is `ack`, `limits`, `replay` or `timesync`, or the reply is too long.
    pub fn add_ext(&mut self, name: &str, value: &str) -> Result<(), HandshakeReplyError> {
        if RESERVED_EXT.contains(&name) {
            return Err(HandshakeReplyError::Reserved);
        }
        let room = self.room();
        add(&mut self.ext, name, value, room)
    }

    /// Adds a field, with raw JSON as its value.
    ///
    /// # Errors
    /// The value is not JSON, the name is a field of the protocol, or the reply is too long.
    pub fn add_field(&mut self, name: &str, value: &str) -> Result<(), HandshakeReplyError> {
        if RESERVED_FIELDS.contains(&name) {
            return Err(HandshakeReplyError::Reserved);
        }
        let room = self.room();
        add(&mut self.fields, name, value, room)
    }

    /// Its size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.ext.len() + self.fields.len()
    }

    /// The members of the `ext`, without braces; `None` if there are none.
    pub(crate) fn ext_members(&self) -> Option<String> {
        (!self.ext.is_empty()).then(|| self.ext.clone())
    }

    /// The fields, without braces.
    pub(crate) fn fields(&self) -> &str {
        &self.fields
    }

    fn room(&self) -> usize {
        HANDSHAKE_REPLY_BYTES_MAX.saturating_sub(self.bytes())
    }
}

fn add(members: &mut String, name: &str, value: &str, room: usize) -> Result<(), HandshakeReplyError> {
    let depth_max = bayeux::Limits::default().json_depth_max;
    let value = json::validate(value, depth_max).map_err(|_| HandshakeReplyError::Json)?;
    let mut member = Vec::with_capacity(name.len() + value.len() + 4);
    if !members.is_empty() {
        member.push(b',');
    }
    escape_into(name, &mut member);
    member.push(b':');
    member.extend_from_slice(value.as_bytes());
    if member.len() > room {
        return Err(HandshakeReplyError::TooLong);
    }
    members.push_str(&String::from_utf8(member).unwrap_or_default());
    Ok(())
}

/// The members of a JSON object.
fn members(object: Option<&str>) -> Result<Vec<(String, &str)>, HandshakeReplyError> {
    let Some(object) = object else { return Ok(Vec::new()) };
    let object = json::validate(object, bayeux::Limits::default().json_depth_max);
    let object = object.map_err(|_| HandshakeReplyError::Json)?;
    if !object.starts_with('{') {
        return Err(HandshakeReplyError::NotObject);
    }
    let members = RawJson::trusted(object).members();
    let named = members.map(|(name, value)| Some((name.decode()?.into_owned(), value.as_str())));
    named.collect::<Option<_>>().ok_or(HandshakeReplyError::Json)
}

/// The members that the server sets.
const RESERVED_EXT: [&str; 4] = ["ack", "limits", "replay", "timesync"];

/// The fields of a reply in Bayeux 1.0.
const RESERVED_FIELDS: [&str; 13] = [
    "channel",
    "id",
    "clientId",
    "successful",
    "error",
    "subscription",
    "advice",
    "ext",
    "data",
    "version",
    "minimumVersion",
    "supportedConnectionTypes",
    "timestamp",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_added_as_they_are() {
        let mut reply =
            HandshakeReply::of(Some(r#"{"a": 1e400, "b\n":[]}"#), Some(r#"{"colour":"red"}"#)).expect("members");
        reply.add_ext("c", "{}").expect("a member");
        assert_eq!(reply.ext_members().as_deref(), Some(r#""a":1e400,"b\n":[],"c":{}"#));
        assert_eq!(reply.fields(), r#""colour":"red""#);
        assert_eq!(HandshakeReply::default().ext_members(), None);
    }

    #[test]
    fn names_of_the_protocol_and_what_is_no_json_are_refused() {
        for (ext, fields, error) in [
            (Some("{"), None, HandshakeReplyError::Json),
            (Some("[1]"), None, HandshakeReplyError::NotObject),
            (Some(r#"{"ack":true}"#), None, HandshakeReplyError::Reserved),
            (Some(r#"{"limits":{}}"#), None, HandshakeReplyError::Reserved),
            (Some(r#"{"\u0061ck":true}"#), None, HandshakeReplyError::Reserved),
            (None, Some(r#"{"clientId":"x"}"#), HandshakeReplyError::Reserved),
            (None, Some(r#"{"a":1}{}"#), HandshakeReplyError::Json),
        ] {
            assert_eq!(HandshakeReply::of(ext, fields), Err(error), "{ext:?} {fields:?}");
        }
    }

    #[test]
    fn a_reply_has_so_many_bytes_at_most() {
        let mut reply = HandshakeReply::default();
        let long = format!("\"{}\"", "x".repeat(HANDSHAKE_REPLY_BYTES_MAX - 6));
        assert_eq!(reply.add_ext("a", &long), Ok(()));
        assert_eq!(reply.bytes(), HANDSHAKE_REPLY_BYTES_MAX);
        assert_eq!(reply.add_field("b", "1"), Err(HandshakeReplyError::TooLong));
    }
}
