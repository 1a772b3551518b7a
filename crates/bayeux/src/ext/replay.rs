//! The replay extension, as Salesforce's clients speak it, with an epoch and a word about what is lost.
//!
//! A client that offers it at its handshake (`"ext":{"replay":true}`) may say with each subscription from where on it wants a
//! channel's messages: `"ext":{"replay":{"/a":-1}}`. Every message of a channel with a history then says where it stands:
//! `"data":{"event":{"replayId":7},…}`, and the same in `ext.replay` with the epoch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::channel::ChannelName;
use crate::error::BayeuxError;
use crate::json::{decode_string, member, members};

/// From where on a client wants the messages of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position<'a> {
    /// From now on: -1.
    Now,
    /// All that is kept: -2.
    Kept,
    /// What comes after this message.
    After {
        /// Its number.
        id: u64,
        /// The epoch it was heard in, if the client has kept that, too.
        epoch: Option<Cow<'a, str>>,
    },
}

/// The positions in the `ext` of a subscribe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positions<'a> {
    lone: Option<Position<'a>>,
    named: BTreeMap<Cow<'a, str>, Position<'a>>,
}

/// Where a message stands in the history of its channel.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The epoch, of characters that need no escapes.
    pub epoch: &'a str,
    /// Its number.
    pub id: u64,
    /// When it was published, as [`timestamp`](super::timestamp) writes it.
    pub created: &'a str,
    /// The first and the last of the messages before it that the client wanted and that are gone.
    pub lost: Option<(u64, u64)>,
}

/// Whether the raw `ext` of a handshake offers the replay extension.
pub fn offers_replay(raw_ext: &str) -> bool {
    member(raw_ext, "replay") == Some("true")
}

/// Whether the raw `ext` of a subscribe uses the replay extension. For Salesforce's clients this is the only offer.
pub fn uses_replay(raw_ext: &str) -> bool {
    member(raw_ext, "replay").is_some_and(|replay| !matches!(replay, "false" | "null"))
}

impl<'a> Positions<'a> {
    /// The positions in a raw `ext`; none where it has no `replay`, or only says that the client can do it.
    ///
    /// # Errors
    /// [`BayeuxError::ReplayInvalid`] for what is no position, [`BayeuxError::ReplayChannelsMax`] for more than `max`.
    pub fn read(raw_ext: Option<&'a str>, max: usize) -> Result<Positions<'a>, BayeuxError> {
        let mut positions = Positions::default();
        let Some(raw) = raw_ext.and_then(|ext| member(ext, "replay")) else { return Ok(positions) };
        if matches!(raw, "true" | "false" | "null") {
            return Ok(positions);
        }
        if !raw.starts_with('{') {
            positions.lone = Some(position(raw).ok_or(BayeuxError::ReplayInvalid)?);
            return Ok(positions);
        }
        for (at, (name, raw)) in members(raw).enumerate() {
            if at == max {
                return Err(BayeuxError::ReplayChannelsMax);
            }
            let name = name.decode().ok_or(BayeuxError::ReplayInvalid)?;
            positions.named.insert(name, position(raw).ok_or(BayeuxError::ReplayInvalid)?);
        }
        Ok(positions)
    }

    /// The position for a subscription to this channel or pattern.
    pub fn of(&self, name: &str) -> &Position<'a> {
        self.named(name).or(self.lone.as_ref()).unwrap_or(&Position::Now)
    }

    /// The position that stands by this name; of several the last.
    pub fn named(&self, name: &str) -> Option<&Position<'a>> {
        self.named.get(name)
    }

    /// The names that positions stand by and that may be those of channels which this pattern matches: all that do are among them.
    pub fn below(&self, pattern: ChannelName<'_>) -> impl Iterator<Item = &str> {
        let parent = pattern.as_str().trim_end_matches('*').to_owned();
        let from_there = self.named.range::<str, _>((Bound::Included(&*parent), Bound::Unbounded));
        from_there.map(|(name, _)| name.as_ref()).take_while(move |name| name.starts_with(&*parent))
    }
}

/// A number, a number as a string, or `{"id":…,"epoch":…}`.
fn position(raw: &str) -> Option<Position<'_>> {
    if raw.starts_with('{') {
        let number = numbered(member(raw, "id")?)?;
        let epoch = match member(raw, "epoch") {
            None | Some("null") => None,
            Some(epoch) => Some(decode_string(epoch)?),
        };
        return Some(match number {
            Position::After { id, .. } => Position::After { id, epoch },
            special => special,
        });
    }
    numbered(raw)
}

fn numbered(raw: &str) -> Option<Position<'static>> {
    let text = if raw.starts_with('"') { decode_string(raw)? } else { Cow::Borrowed(raw) };
    match text.parse::<i64>().ok()? {
        -1 => Some(Position::Now),
        -2 => Some(Position::Kept),
        id => Some(Position::After { id: u64::try_from(id).ok()?, epoch: None }),
    }
}

impl Place<'_> {
    /// Appends `message`, a delivered message as [`Publication`](crate::Publication) writes it, with this place told in its
    /// `data` and `ext`. All else stays as it is, to the last byte.
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
                let id = self.id.to_string();
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
        put(out, &["{\"replayId\":", &self.id.to_string(), ",\"createdDate\":\"", self.created, "\"}"]);
    }

    fn write_ext(&self, ext: &str, out: &mut Vec<u8>) {
        if member(ext, "replay").is_none() {
            let inside = ext.trim_end().strip_suffix('}').unwrap_or("{");
            put(out, &[inside, separator(ext)]);
        } else {
            // What is here is the server's word.
            out.push(b'{');
            put_others(ext, out);
            comma(out);
        }
        put(out, &["\"replay\":{\"epoch\":\"", self.epoch, "\",\"id\":", &self.id.to_string()]);
        if let Some((from, to)) = self.lost {
            put(out, &[",\"lost\":{\"from\":", &from.to_string(), ",\"to\":", &to.to_string(), "}"]);
        }
        put(out, &["}}"]);
    }
}

/// The `ext` of a publisher as its subscribers may see it: places are told by the server only, so `replay` is left out. None if
/// nothing else is in it.
pub fn without_place(raw_ext: &str) -> Option<Cow<'_, str>> {
    // Nearly always so, without a look at its members. The name may be written with escapes.
    if !raw_ext.contains("replay") && !raw_ext.contains('\\') || member(raw_ext, "replay").is_none() {
        return Some(Cow::Borrowed(raw_ext));
    }
    let mut rest = vec![b'{'];
    put_others(raw_ext, &mut rest);
    rest.push(b'}');
    String::from_utf8(rest).ok().filter(|rest| rest.len() > 2).map(Cow::Owned)
}

/// The channel, the epoch and the number in a message that [`Place::write`] made, alone in its array.
pub fn place_of(payload: &[u8]) -> Option<(Cow<'_, str>, Cow<'_, str>, u64)> {
    let (message, place) = placed(payload)?;
    let channel = decode_string(member(message, "channel")?)?;
    Some((channel, decode_string(member(place, "epoch")?)?, member(place, "id")?.parse().ok()?))
}

/// The number of the first message that such a message reports as lost.
pub fn lost_from(payload: &[u8]) -> Option<u64> {
    member(member(placed(payload)?.1, "lost")?, "from")?.parse().ok()
}

/// A message alone in its array, and the member `replay` of its `ext`.
fn placed(payload: &[u8]) -> Option<(&str, &str)> {
    let message = str::from_utf8(payload).ok()?.strip_prefix('[')?;
    Some((message, member(member(message, "ext")?, "replay")?))
}

/// The channel of a message that is alone in its array.
pub fn channel_of(payload: &[u8]) -> Option<Cow<'_, str>> {
    let message = str::from_utf8(payload).ok()?.strip_prefix('[')?;
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

/// What stands between a new member and those of this object.
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

    fn placed(message: &str) -> String {
        let mut out = Vec::new();
        Place { epoch: "e", id: 7, created: "T", lost: None }.write(message, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_place_is_told_in_data_and_ext_and_nothing_else_changes() {
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
            assert_eq!(placed(message), format!("{{\"channel\":\"/a\",\"data\":{data},\"ext\":{ext}}}"));
        }
        let custom = r#"{"channel":"/a","data":{},"timestamp":"t","id":"4","x":1e400}"#;
        assert_eq!(
            placed(custom),
            format!(
                "{{\"channel\":\"/a\",\"data\":{{{event}}},\"timestamp\":\"t\",\"id\":\"4\",\"x\":1e400,\"ext\":{{{ext}}}}}"
            )
        );
    }

    #[test]
    fn a_place_reads_back() {
        let payload = format!("[{}]", placed(r#"{"channel":"/a","data":1,"ext":{"replay":{"epoch":"x","id":1}}}"#));
        assert_eq!(place_of(payload.as_bytes()), Some(("/a".into(), "e".into(), 7)));
        assert_eq!(place_of(br#"[{"channel":"/a","data":1}]"#), None);
    }

    #[test]
    fn an_ext_loses_its_place_and_nothing_else() {
        for (ext, rest) in [
            ("{}", Some("{}")),
            (r#"{"a":"replay"}"#, Some(r#"{"a":"replay"}"#)),
            (r#"{"a\\":{"replay":1}}"#, Some(r#"{"a\\":{"replay":1}}"#)),
            (r#"{"replay":{"id":7}}"#, None),
            (r#"{"r\u0065play":7 , "a":1}"#, Some(r#"{"a":1}"#)),
            (r#"{"a":[1.50],"replay":7,"replay":8,"b":"\n"}"#, Some(r#"{"a":[1.50],"b":"\n"}"#)),
        ] {
            assert_eq!(without_place(ext).as_deref(), rest, "{ext}");
        }
    }

    #[test]
    fn what_is_lost_is_said_with_the_next_message() {
        let mut out = Vec::new();
        Place { epoch: "e", id: 7, created: "T", lost: Some((3, 6)) }.write(r#"{"channel":"/a","data":1}"#, &mut out);
        assert!(
            String::from_utf8_lossy(&out)
                .ends_with(r#""ext":{"replay":{"epoch":"e","id":7,"lost":{"from":3,"to":6}}}}"#)
        );
        assert_eq!(lost_from(format!("[{}]", String::from_utf8_lossy(&out)).as_bytes()), Some(3));
    }

    #[test]
    fn positions_are_numbers_strings_or_objects() {
        let after = |id, epoch: Option<&'static str>| Position::After { id, epoch: epoch.map(Cow::Borrowed) };
        for (raw, position) in [
            ("-1", Position::Now),
            ("\"-2\"", Position::Kept),
            ("0", after(0, None)),
            ("\"17\"", after(17, None)),
            (r#"{"id":17,"epoch":"e"}"#, after(17, Some("e"))),
            (r#"{"id":"17"}"#, after(17, None)),
            (r#"{"id":-1,"epoch":null}"#, Position::Now),
        ] {
            let ext = format!("{{\"replay\":{{\"/a\":{raw},\"/b\":-1}}}}");
            assert_eq!(Positions::read(Some(&ext), 2).map(|p| p.of("/a").clone()), Ok(position), "{raw}");
        }
        let lone = Positions::read(Some(r#"{"replay":"5"}"#), 2).expect("a position");
        assert_eq!((lone.of("/x"), lone.named("/x")), (&after(5, None), None));
        for ext in [None, Some("{}"), Some(r#"{"replay":true}"#), Some(r#"{"replay":{}}"#), Some(r#"{"replay":null}"#)]
        {
            assert_eq!(Positions::read(ext, 2).map(|p| p.of("/a").clone()), Ok(Position::Now));
        }
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for raw in [
            "-3",
            "1.5",
            "1e3",
            "99999999999999999999",
            "\"\"",
            "\"x\"",
            "[]",
            "true",
            "null",
            "{}",
            r#"{"id":1,"epoch":2}"#,
            "\"\\ud800\"",
        ] {
            let ext = format!("{{\"replay\":{{\"/a\":{raw}}}}}");
            assert_eq!(Positions::read(Some(&ext), 2), Err(BayeuxError::ReplayInvalid), "{raw}");
        }
        for raw in ["-3", "[]", "\"x\"", "0.5"] {
            assert_eq!(
                Positions::read(Some(&format!("{{\"replay\":{raw}}}")), 2),
                Err(BayeuxError::ReplayInvalid),
                "{raw}"
            );
        }
        let many = r#"{"replay":{"/a":1,"/b":1,"/c":1}}"#;
        assert_eq!(Positions::read(Some(many), 2), Err(BayeuxError::ReplayChannelsMax));
    }
}
