//! The position in a message: in `ext.replay` with the epoch, and in `data.event.replayId`, which Salesforce's clients
//! read.

use std::borrow::Cow;

use super::replay::Position;
use crate::json::{RawJson, decode_string, member, members};

/// The position of a message, its time, and the loss before it.
#[derive(Debug, Clone)]
pub struct PositionStamp<'a> {
    /// The position; its epoch needs no escapes.
    pub position: Position<'a>,
    /// The time at which the message was published, as [`timestamp`](super::timestamp) writes it.
    pub created: &'a str,
    /// The first and the last offset of the messages before it that the client wanted and that are gone.
    pub lost: Option<(u64, u64)>,
}

impl PositionStamp<'_> {
    /// Appends `message`, a delivered message as [`Publication`](crate::Publication) writes it, with this position added to its
    /// `data` and `ext`. Everything else stays as it is, to the last byte.
    pub fn write(&self, message: &str, out: &mut Vec<u8>) {
        out.push(b'{');
        let (mut has_data, mut has_ext) = (false, false);
        for (key, value) in members(message) {
            comma(out);
            put(out, &[key.raw(), ":"]);
            match key.raw() {
                "\"data\"" => {
                    has_data = true;
                    self.write_data(value, out);
                }
                "\"ext\"" => {
                    has_ext = true;
                    self.write_ext(value, out);
                }
                _ => put(out, &[value]),
            }
        }
        if !has_data {
            put(out, &[",\"data\":{\"event\":"]);
            self.write_event(out);
            out.push(b'}');
        }
        if !has_ext {
            put(out, &[",\"ext\":"]);
            self.write_ext("{}", out);
        }
        out.push(b'}');
    }

    fn write_data(&self, data: &str, out: &mut Vec<u8>) {
        let is_object = data.starts_with('{');
        let event = if is_object { member(data, "event") } else { None };
        match event {
            None if is_object => {
                put(out, &["{\"event\":"]);
                self.write_event(out);
                put(out, &[separator(data), &data[1..]]);
            }
            Some(event) if event.starts_with('{') && member(event, "replayId").is_none() => {
                // Both are slices of one text.
                let inside = event.as_ptr().addr() - data.as_ptr().addr() + 1;
                let id = self.position.offset.to_string();
                put(out, &[&data[..inside], "\"replayId\":", &id, separator(event), &data[inside..]]);
            }
            _ => {
                put(out, &["{\"event\":"]);
                self.write_event(out);
                put(out, &[",\"payload\":", data, "}"]);
            }
        }
    }

    fn write_event(&self, out: &mut Vec<u8>) {
        put(out, &["{\"replayId\":", &self.position.offset.to_string(), ",\"createdDate\":\"", self.created, "\"}"]);
    }

    fn write_ext(&self, ext: &str, out: &mut Vec<u8>) {
        if member(ext, "replay").is_none() {
            let inside = ext.trim_end().strip_suffix('}').unwrap_or("{");
            put(out, &[inside, separator(ext)]);
        } else {
            // Only the server sets positions.
            out.push(b'{');
            put_others(ext, out);
            comma(out);
        }
        put(out, &["\"replay\":{\"epoch\":\"", &self.position.epoch, "\",\"id\":", &self.position.offset.to_string()]);
        if let Some((from, to)) = self.lost {
            put(out, &[",\"lost\":{\"from\":", &from.to_string(), ",\"to\":", &to.to_string(), "}"]);
        }
        put(out, &["}}"]);
    }
}

/// The `ext` of a publisher as its subscribers may see it: without `replay`, as only the server sets positions.
/// `None` if nothing else is in it.
pub fn without_replay(ext: RawJson<'_>) -> Option<Cow<'_, str>> {
    let raw = ext.as_str();
    // The usual case: its members need not be read. The name may be written with escapes.
    if !raw.contains("replay") && !raw.contains('\\') || ext.member("replay").is_none() {
        return Some(Cow::Borrowed(raw));
    }
    let mut rest = vec![b'{'];
    put_others(raw, &mut rest);
    rest.push(b'}');
    String::from_utf8(rest).ok().filter(|rest| rest.len() > 2).map(Cow::Owned)
}

/// The channel and the position in a message that [`PositionStamp::write`] made, alone in its array.
pub fn position_of(payload: &[u8]) -> Option<(Cow<'_, str>, Position<'_>)> {
    let (message, stamp) = stamped(payload)?;
    let channel = decode_string(member(message, "channel")?)?;
    let epoch = decode_string(member(stamp, "epoch")?)?;
    Some((channel, Position { epoch, offset: member(stamp, "id")?.parse().ok()? }))
}

/// The offset of the first message that such a message reports as lost.
pub fn lost_from(payload: &[u8]) -> Option<u64> {
    member(member(stamped(payload)?.1, "lost")?, "from")?.parse().ok()
}

/// A message alone in its array, and the member `replay` of its `ext`.
fn stamped(payload: &[u8]) -> Option<(&str, &str)> {
    let message = str::from_utf8(payload).ok()?.strip_prefix('[')?;
    Some((message, member(member(message, "ext")?, "replay")?))
}

/// The channel of a message, which may be alone in its array.
pub fn channel_of(payload: &[u8]) -> Option<Cow<'_, str>> {
    let payload = str::from_utf8(payload).ok()?;
    let message = payload.strip_prefix('[').unwrap_or(payload);
    decode_string(member(message, "channel")?)
}

/// Appends the members of an `ext` without its `replay`, with commas between.
fn put_others(ext: &str, out: &mut Vec<u8>) {
    for (key, value) in members(ext).filter(|(key, _)| !key.is("replay")) {
        comma(out);
        put(out, &[key.raw(), ":", value]);
    }
}

/// A comma, unless something has just begun.
fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

/// The text between a new member and those of this object.
fn separator(object: &str) -> &'static str {
    if members(object).next().is_some() { "," } else { "" }
}

fn put(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_7: PositionStamp<'_> =
        PositionStamp { position: Position { epoch: Cow::Borrowed("e"), offset: 7 }, created: "T", lost: None };

    fn stamped(message: &str) -> String {
        let mut out = Vec::new();
        AT_7.write(message, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_position_is_added_to_data_and_ext_and_nothing_else_changes() {
        let event = r#""event":{"replayId":7,"createdDate":"T"}"#;
        let ext = r#""replay":{"epoch":"e","id":7}"#;
        for (message, data, ext) in [
            (
                r#"{"channel":"/a","data":{"n":12345678901234567890}}"#,
                format!("{{{event},\"n\":12345678901234567890}}"),
                format!("{{{ext}}}"),
            ),
            (r#"{"channel":"/a","data":{}}"#, format!("{{{event}}}"), format!("{{{ext}}}")),
            (r#"{"channel":"/a","data":{ }}"#, format!("{{{event} }}"), format!("{{{ext}}}")),
            (r#"{"channel":"/a","data":null}"#, format!("{{{event},\"payload\":null}}"), format!("{{{ext}}}")),
            (r#"{"channel":"/a","data":[1]}"#, format!("{{{event},\"payload\":[1]}}"), format!("{{{ext}}}")),
            (r#"{"channel":"/a"}"#, format!("{{{event}}}"), format!("{{{ext}}}")),
            (
                r#"{"channel":"/a","data":{"event":{"x":1},"y":2}}"#,
                r#"{"event":{"replayId":7,"x":1},"y":2}"#.into(),
                format!("{{{ext}}}"),
            ),
            (r#"{"channel":"/a","data":{"event":{}}}"#, r#"{"event":{"replayId":7}}"#.into(), format!("{{{ext}}}")),
            (
                r#"{"channel":"/a","data":{"\u0065vent":{}}}"#,
                r#"{"\u0065vent":{"replayId":7}}"#.into(),
                format!("{{{ext}}}"),
            ),
            (
                r#"{"channel":"/a","data":{"event":3}}"#,
                format!("{{{event},\"payload\":{{\"event\":3}}}}"),
                format!("{{{ext}}}"),
            ),
            (
                r#"{"channel":"/a","data":{"event":{"replayId":1}}}"#,
                format!("{{{event},\"payload\":{{\"event\":{{\"replayId\":1}}}}}}"),
                format!("{{{ext}}}"),
            ),
            (
                r#"{"channel":"/a","data":{},"ext":{"b":[1.50] }}"#,
                format!("{{{event}}}"),
                format!("{{\"b\":[1.50] ,{ext}}}"),
            ),
            (
                r#"{"channel":"/a","data":{},"ext":{"replay":9,"b":1}}"#,
                format!("{{{event}}}"),
                format!("{{\"b\":1,{ext}}}"),
            ),
            (r#"{"channel":"/a","data":{},"ext":{"replay":9}}"#, format!("{{{event}}}"), format!("{{{ext}}}")),
        ] {
            assert_eq!(stamped(message), format!("{{\"channel\":\"/a\",\"data\":{data},\"ext\":{ext}}}"));
        }
        let custom = r#"{"channel":"/a","data":{},"timestamp":"t","id":"4","x":1e400}"#;
        assert_eq!(
            stamped(custom),
            format!(
                "{{\"channel\":\"/a\",\"data\":{{{event}}},\"timestamp\":\"t\",\"id\":\"4\",\"x\":1e400,\"ext\":{{{ext}}}}}"
            )
        );
    }

    #[test]
    fn a_position_reads_back() {
        let payload = format!("[{}]", stamped(r#"{"channel":"/a","data":1,"ext":{"replay":{"epoch":"x","id":1}}}"#));
        assert_eq!(position_of(payload.as_bytes()), Some(("/a".into(), AT_7.position)));
        assert_eq!(position_of(br#"[{"channel":"/a","data":1}]"#), None);
    }

    #[test]
    fn an_ext_loses_its_replay_and_nothing_else() {
        for (ext, rest) in [
            ("{}", Some("{}")),
            (r#"{"a":"replay"}"#, Some(r#"{"a":"replay"}"#)),
            (r#"{"a\\":{"replay":1}}"#, Some(r#"{"a\\":{"replay":1}}"#)),
            (r#"{"replay":{"id":7}}"#, None),
            (r#"{"r\u0065play":7 , "a":1}"#, Some(r#"{"a":1}"#)),
            (r#"{"a":[1.50],"replay":7,"replay":8,"b":"\n"}"#, Some(r#"{"a":[1.50],"b":"\n"}"#)),
        ] {
            assert_eq!(without_replay(RawJson::trusted(ext)).as_deref(), rest, "{ext}");
        }
    }

    #[test]
    fn a_loss_is_reported_with_the_next_message() {
        let mut out = Vec::new();
        PositionStamp { lost: Some((3, 6)), ..AT_7 }.write(r#"{"channel":"/a","data":1}"#, &mut out);
        assert!(
            String::from_utf8_lossy(&out)
                .ends_with(r#""ext":{"replay":{"epoch":"e","id":7,"lost":{"from":3,"to":6}}}}"#)
        );
        assert_eq!(lost_from(format!("[{}]", String::from_utf8_lossy(&out)).as_bytes()), Some(3));
    }
}
