//! The position in a message: in `ext.replay` with the epoch, for Salesforce's clients in `data.event.replayId`, too. Clients
//! without Bayeux get a plain position beside `data`.

use std::borrow::Cow;

use super::replay::{Position, PositionForm};
use crate::ext::NO_REPLY;
use crate::json::{RawJson, RawString, decode_string, member, members};

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
    /// Appends `message`, a delivered message as [`Publication`](crate::Publication) writes it, with this position in this form.
    /// Everything else stays as it is, to the last byte.
    pub fn write(&self, form: PositionForm, message: &str, out: &mut Vec<u8>) {
        if form == PositionForm::Plain {
            return self.write_plain(message, out);
        }
        let is_mixed = form == PositionForm::Mixed;
        out.push(b'{');
        let (mut has_data, mut has_ext) = (false, false);
        for (key, value) in members(message) {
            comma(out);
            put(out, &[key.raw(), ":"]);
            match key.raw() {
                "\"data\"" if is_mixed => {
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
        if is_mixed && !has_data {
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

    /// Appends `message` with this position, and the loss before it, behind its other members:
    /// `{"channel":…,"data":…,"position":"EPOCH-OFFSET"}`.
    fn write_plain(&self, message: &str, out: &mut Vec<u8>) {
        let bytes = message.as_bytes();
        out.extend_from_slice(bytes.strip_suffix(b"}").unwrap_or(bytes));
        if let Some((from, to)) = self.lost {
            put(out, &[LOST, &from.to_string(), ",\"to\":", &to.to_string(), "}"]);
        }
        put(out, &[POSITION, &self.position.epoch, "-", &self.position.offset.to_string(), PLAIN_END]);
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
            put_members(ext, |key, _| !key.is("replay"), out);
            comma(out);
        }
        put(out, &["\"replay\":{\"epoch\":\"", &self.position.epoch, "\",\"id\":", &self.position.offset.to_string()]);
        if let Some((from, to)) = self.lost {
            put(out, &[",\"lost\":{\"from\":", &from.to_string(), ",\"to\":", &to.to_string(), "}"]);
        }
        put(out, &["}}"]);
    }
}

/// The `ext` of a publisher as its subscribers may see it: without `replay`, as only the server sets positions, and without
/// `"reply":false`, which is for the server (see [`declines_reply`](super::declines_reply)). `None` if nothing else is in it.
pub fn forwarded(ext: RawJson<'_>) -> Option<Cow<'_, str>> {
    let raw = ext.as_str();
    if raw == NO_REPLY {
        return None;
    }
    let is_for_server = |key: RawString<'_>, value: &str| key.is("replay") || key.is("reply") && value == "false";
    // The usual case: its members need not be read. The names may be written with escapes.
    let may_be = raw.contains("repl") || raw.contains('\\');
    if !may_be || !members(raw).any(|(key, value)| is_for_server(key, value)) {
        return Some(Cow::Borrowed(raw));
    }
    let mut rest = vec![b'{'];
    put_members(raw, |key, value| !is_for_server(key, value), &mut rest);
    rest.push(b'}');
    String::from_utf8(rest).ok().filter(|rest| rest.len() > 2).map(Cow::Owned)
}

/// The channel and the position in a message that [`PositionStamp::write`] made, alone in its array.
pub fn position_of(payload: &[u8]) -> Option<(Cow<'_, str>, Position<'_>)> {
    let Some((message, stamp)) = stamped(payload) else {
        let (epoch, offset) = Plain::of(payload)?.position?.rsplit_once('-')?;
        return Some((channel_of(payload)?, Position { epoch: epoch.into(), offset: offset.parse().ok()? }));
    };
    let channel = decode_string(member(message, "channel")?)?;
    let epoch = decode_string(member(stamp, "epoch")?)?;
    Some((channel, Position { epoch, offset: member(stamp, "id")?.parse().ok()? }))
}

/// The offset of the first message that such a message reports as lost.
pub fn lost_from(payload: &[u8]) -> Option<u64> {
    if let Some(lost) = Plain::of(payload).and_then(|plain| plain.lost) {
        return member(lost, "from")?.parse().ok();
    }
    member(member(stamped(payload)?.1, "lost")?, "from")?.parse().ok()
}

/// A message for a client without Bayeux, with what the server has added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain<'a> {
    /// The message, whole.
    pub message: &'a str,
    /// Its position as text: `EPOCH-OFFSET`.
    pub position: Option<&'a str>,
    /// The offsets of the messages before it that are gone, as an object with `from` and `to`.
    pub lost: Option<&'a str>,
}

impl<'a> Plain<'a> {
    /// A message that is alone in its array.
    pub fn of(payload: &'a [u8]) -> Option<Plain<'a>> {
        // By slices: another use of `str::strip_prefix` would cost the parser of batches its inlined one.
        let bytes = payload.strip_prefix(b"[")?.strip_suffix(b"]")?;
        let message = str::from_utf8(bytes).ok()?;
        let rest = bytes.strip_suffix(PLAIN_END.as_bytes()).map(|rest| &message[..rest.len()]);
        let Some((before, position)) = rest.and_then(|rest| rest.rsplit_once(POSITION)) else {
            return Some(Plain { message, position: None, lost: None });
        };
        let position =
            Some(position).filter(|position| position.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
        let object = LOST.len() - LOST_OBJECT.len();
        let lost = before.rfind(LOST).filter(|_| before.ends_with('}')).map(|at| &before[at + object..]);
        let lost = lost.filter(|lost| position.is_some() && member(lost, "to").is_some());
        Some(Plain { message, position, lost })
    }
}

const POSITION: &str = ",\"position\":\"";
const PLAIN_END: &str = "\"}";
const LOST: &str = ",\"lost\":{\"from\":";
const LOST_OBJECT: &str = "{\"from\":";

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

/// Appends the members of an `ext` that `is_wanted` selects, with commas between.
fn put_members(ext: &str, is_wanted: impl Fn(RawString<'_>, &str) -> bool, out: &mut Vec<u8>) {
    for (key, value) in members(ext).filter(|(key, value)| is_wanted(*key, value)) {
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

    fn stamped_as(form: PositionForm, message: &str) -> String {
        let mut out = Vec::new();
        AT_7.write(form, message, &mut out);
        String::from_utf8(out).expect("text")
    }

    fn stamped(message: &str) -> String {
        stamped_as(PositionForm::Mixed, message)
    }

    #[test]
    fn in_ext_a_position_leaves_the_data_as_they_were_published() {
        for (message, stamped) in [
            (
                r#"{"channel":"/a","data":{"event":{"replayId":1},"n":12345678901234567890}}"#,
                r#"{"channel":"/a","data":{"event":{"replayId":1},"n":12345678901234567890},"ext":{"replay":{"epoch":"e","id":7}}}"#,
            ),
            (
                r#"{"channel":"/a","data":{"payload":5},"ext":{"replay":9,"b":[1.50]},"id":"4"}"#,
                r#"{"channel":"/a","data":{"payload":5},"ext":{"b":[1.50],"replay":{"epoch":"e","id":7}},"id":"4"}"#,
            ),
            (r#"{"channel":"/a","data":5}"#, r#"{"channel":"/a","data":5,"ext":{"replay":{"epoch":"e","id":7}}}"#),
            (r#"{"channel":"/a"}"#, r#"{"channel":"/a","ext":{"replay":{"epoch":"e","id":7}}}"#),
        ] {
            assert_eq!(stamped_as(PositionForm::Ext, message), stamped);
            let payload = format!("[{stamped}]");
            assert_eq!(position_of(payload.as_bytes()), Some(("/a".into(), AT_7.position)));
        }
    }

    #[test]
    fn a_mixed_position_is_added_to_data_and_ext_and_nothing_else_changes() {
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
    fn a_plain_position_stands_behind_everything_and_reads_back() {
        for (message, lost) in [
            (r#"{"channel":"/a","data":{"n":1.50},"position":"x-1"}"#, None),
            (r#"{"channel":"/a","data":[",\"position\":\"y-2\"}]"],"lost":{"from":1}}"#, Some((3, 6))),
        ] {
            let mut out = b"[".to_vec();
            PositionStamp { lost, ..AT_7 }.write(PositionForm::Plain, message, &mut out);
            out.push(b']');
            let plain = Plain::of(&out).expect("a message");
            assert!(plain.message.starts_with(&message[..message.len() - 1]), "{plain:?}");
            assert_eq!(plain.position, Some("e-7"));
            assert_eq!(plain.lost, lost.map(|_| r#"{"from":3,"to":6}"#));
            assert_eq!(position_of(&out), Some(("/a".into(), AT_7.position)));
            assert_eq!(lost_from(&out), lost.map(|(from, _)| from));
        }
        let without = Plain::of(br#"[{"channel":"/a","data":1}]"#).expect("a message");
        assert_eq!([without.position, without.lost], [None; 2]);
    }

    #[test]
    fn an_ext_loses_what_is_for_the_server_and_nothing_else() {
        for (ext, rest) in [
            ("{}", Some("{}")),
            (r#"{"a":"replay"}"#, Some(r#"{"a":"replay"}"#)),
            (r#"{"a\\":{"replay":1}}"#, Some(r#"{"a\\":{"replay":1}}"#)),
            (r#"{"replay":{"id":7}}"#, None),
            (r#"{"r\u0065play":7 , "a":1}"#, Some(r#"{"a":1}"#)),
            (r#"{"a":[1.50],"replay":7,"replay":8,"b":"\n"}"#, Some(r#"{"a":[1.50],"b":"\n"}"#)),
            (NO_REPLY, None),
            (r#"{ "reply" : false }"#, None),
            (r#"{"a":1,"reply":false,"b":{"reply":false},"replay":7}"#, Some(r#"{"a":1,"b":{"reply":false}}"#)),
            (r#"{"rep\u006cy":false,"a":1}"#, Some(r#"{"a":1}"#)),
            (r#"{"reply":"/answers/7"}"#, Some(r#"{"reply":"/answers/7"}"#)),
        ] {
            assert_eq!(forwarded(RawJson::trusted(ext)).as_deref(), rest, "{ext}");
        }
    }

    #[test]
    fn a_loss_is_reported_with_the_next_message() {
        let mut out = Vec::new();
        PositionStamp { lost: Some((3, 6)), ..AT_7 }.write(PositionForm::Ext, r#"{"channel":"/a","data":1}"#, &mut out);
        assert!(
            String::from_utf8_lossy(&out)
                .ends_with(r#""ext":{"replay":{"epoch":"e","id":7,"lost":{"from":3,"to":6}}}}"#)
        );
        assert_eq!(lost_from(format!("[{}]", String::from_utf8_lossy(&out)).as_bytes()), Some(3));
    }
}
