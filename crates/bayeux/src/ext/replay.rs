//! The replay extension, as Salesforce's clients speak it, with epochs and reports of losses.
//!
//! A client offers it in its handshake, with the form of the positions in messages: see [`PositionForm`]. In each subscribe it
//! may request the position at which a channel begins: `"ext":{"replay":{"/a":-1}}`, see [`ReplayFrom`]. The reply contains the
//! actual position of each channel ([`Recovery`]), each message contains its position
//! ([`PositionStamp`](super::PositionStamp), [`Stamped`]), and connect replies report the position of a silent channel
//! ([`Heartbeat`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::channel::ChannelName;
use crate::error::BayeuxError;
use crate::json::{RawJson, escape_into};

/// The position of a message in the history of its channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position<'a> {
    /// The life of the history: a channel whose history was lost begins a new epoch.
    pub epoch: Cow<'a, str>,
    /// The number of the message; `id` on the wire. Offsets grow within an epoch, with gaps.
    pub offset: u64,
}

/// The point in a channel's history from which a subscription gets messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReplayFrom<'a> {
    /// The messages published from now on: -1 on the wire.
    #[default]
    Latest,
    /// All messages that the server retains: -2 on the wire.
    Earliest,
    /// The latest messages that the server retains, up to this number: `{"last":50}` on the wire.
    Last(u64),
    /// The messages of the time before, in milliseconds, as far as the server retains them: `{"last_ms":60000}` on the wire.
    LastMs(u64),
    /// For a pattern whose channels have their positions in several subscribes: `{"more":true}` on the wire, in all but the last.
    More,
    /// The messages after this one.
    After {
        /// Its offset.
        offset: u64,
        /// Its epoch, if the client knows it. Without it, the server may take an offset of another epoch for one of this epoch.
        epoch: Option<Cow<'a, str>>,
    },
}

/// The positions in the `ext` of a subscribe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positions<'a> {
    lone: Option<ReplayFrom<'a>>,
    named: BTreeMap<Cow<'a, str>, ReplayFrom<'a>>,
}

/// Offsets of messages that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The first of them.
    pub from: u64,
    /// The last one; `None` if the whole history is gone, so that their number is unknown.
    pub to: Option<u64>,
}

/// The answer to a requested position of one channel, in the reply to a subscribe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery<'a> {
    /// True if the client gets all messages that it has missed.
    pub recovered: bool,
    /// The position of the first message that the client gets, which may not exist yet; `None` if the channel has no
    /// history.
    pub from: Option<Position<'a>>,
    /// The offset of the newest message in the history.
    pub latest: Option<u64>,
    /// The messages that are gone, if the server knows them.
    pub lost: Option<Lost>,
}

/// The position of one channel in the reply to a connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// The epoch of its history.
    pub epoch: Cow<'a, str>,
    /// The offset of the last message that the client has received or need not receive; `None` if the history is gone.
    pub offset: Option<u64>,
    /// The messages before it that are gone.
    pub lost: Option<Lost>,
}

/// The member `replay` in the `ext` of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped<'a> {
    /// The position of the message.
    pub position: Position<'a>,
    /// The messages before it that are gone.
    pub lost: Option<Lost>,
}

/// The form in which messages have their positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PositionForm {
    /// In `ext`: `data` is what was published. A client asks for it by `"replay":{"positions":"ext"}`.
    #[default]
    Ext,
    /// In `ext` and in `data.event.replayId`, where Salesforce's clients read it. They offer `"replay":true`, or nothing until
    /// they subscribe.
    Mixed,
    /// As a member of the message, for clients without Bayeux.
    Plain,
}

/// The form of positions that the `ext` of a handshake, or of the reply to it, offers with the replay extension; `None` if it
/// does not offer the extension.
pub fn offers_replay(ext: RawJson<'_>) -> Option<PositionForm> {
    let offer = ext.member("replay")?;
    if offer.as_str() == "true" {
        return Some(PositionForm::Mixed);
    }
    let form = offer.is_object().then(|| offer.member("positions"))??;
    (form.text()? == "ext").then_some(PositionForm::Ext)
}

/// True if the `ext` of a subscribe uses the replay extension. For Salesforce's clients this is the only offer.
pub fn uses_replay(ext: RawJson<'_>) -> bool {
    ext.member("replay").is_some_and(|replay| !matches!(replay.as_str(), "false" | "null"))
}

impl PositionForm {
    /// All forms, in their order.
    pub const ALL: [PositionForm; 3] = [PositionForm::Ext, PositionForm::Mixed, PositionForm::Plain];

    /// The value of `replay` in the `ext` of a handshake that offers this form, and of its reply.
    pub fn offer(self) -> &'static str {
        match self {
            PositionForm::Ext => r#"{"positions":"ext"}"#,
            PositionForm::Mixed => "true",
            PositionForm::Plain => "null",
        }
    }
}

impl Position<'_> {
    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Position<'static> {
        Position { epoch: self.epoch.into_owned().into(), offset: self.offset }
    }
}

impl<'a> ReplayFrom<'a> {
    /// Reads a number, a number as a string, `{"id":…,"epoch":…}`, `{"last":…}`, `{"last_ms":…}` or `{"more":true}`.
    fn read(raw: RawJson<'a>) -> Option<ReplayFrom<'a>> {
        if !raw.is_object() {
            return ReplayFrom::read_offset(raw);
        }
        if let Some(last) = raw.member("last") {
            return last.as_str().parse().ok().map(ReplayFrom::Last);
        }
        if let Some(last_ms) = raw.member("last_ms") {
            return last_ms.as_str().parse().ok().map(ReplayFrom::LastMs);
        }
        if let Some(more) = raw.member("more") {
            return (more.as_str() == "true").then_some(ReplayFrom::More);
        }
        let epoch = match raw.member("epoch").filter(|epoch| !epoch.is_null()) {
            None => None,
            Some(epoch) => Some(epoch.text()?),
        };
        Some(match ReplayFrom::read_offset(raw.member("id")?)? {
            ReplayFrom::After { offset, .. } => ReplayFrom::After { offset, epoch },
            special => special,
        })
    }

    fn read_offset(raw: RawJson<'_>) -> Option<ReplayFrom<'static>> {
        let text = raw.text().unwrap_or(Cow::Borrowed(raw.as_str()));
        match text.parse::<i64>().ok()? {
            -1 => Some(ReplayFrom::Latest),
            -2 => Some(ReplayFrom::Earliest),
            offset => Some(ReplayFrom::After { offset: u64::try_from(offset).ok()?, epoch: None }),
        }
    }

    /// Appends it as [`Positions::read`] reads it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            ReplayFrom::Latest => out.extend_from_slice(b"-1"),
            ReplayFrom::Earliest => out.extend_from_slice(b"-2"),
            ReplayFrom::Last(messages) => out.extend_from_slice(format!("{{\"last\":{messages}}}").as_bytes()),
            ReplayFrom::LastMs(ms) => out.extend_from_slice(format!("{{\"last_ms\":{ms}}}").as_bytes()),
            ReplayFrom::More => out.extend_from_slice(b"{\"more\":true}"),
            ReplayFrom::After { offset, epoch: None } => out.extend_from_slice(offset.to_string().as_bytes()),
            ReplayFrom::After { offset, epoch: Some(epoch) } => {
                out.extend_from_slice(format!("{{\"id\":{offset},\"epoch\":").as_bytes());
                escape_into(epoch, out);
                out.push(b'}');
            }
        }
    }
}

impl ReplayFrom<'_> {
    /// A copy that borrows nothing.
    pub fn to_owned(&self) -> ReplayFrom<'static> {
        match self {
            ReplayFrom::Latest => ReplayFrom::Latest,
            ReplayFrom::Earliest => ReplayFrom::Earliest,
            ReplayFrom::Last(messages) => ReplayFrom::Last(*messages),
            ReplayFrom::LastMs(ms) => ReplayFrom::LastMs(*ms),
            ReplayFrom::More => ReplayFrom::More,
            ReplayFrom::After { offset, epoch } => {
                let epoch = epoch.as_ref().map(|epoch| Cow::Owned(epoch.clone().into_owned()));
                ReplayFrom::After { offset: *offset, epoch }
            }
        }
    }
}

impl<'a> From<Position<'a>> for ReplayFrom<'a> {
    /// After the message at this position.
    fn from(Position { epoch, offset }: Position<'a>) -> ReplayFrom<'a> {
        ReplayFrom::After { offset, epoch: Some(epoch) }
    }
}

impl<'a> Positions<'a> {
    /// The positions in a raw `ext`; none if it has no `replay`, or only offers the extension.
    ///
    /// # Errors
    /// [`BayeuxError::ReplayInvalid`] for an invalid position, [`BayeuxError::ReplayChannelsMax`] for more than `max`.
    pub fn read(ext: Option<RawJson<'a>>, max: usize) -> Result<Positions<'a>, BayeuxError> {
        let mut positions = Positions::default();
        let Some(raw) = ext.and_then(|ext| ext.member("replay")) else { return Ok(positions) };
        if matches!(raw.as_str(), "true" | "false" | "null") {
            return Ok(positions);
        }
        if !raw.is_object() {
            positions.lone = Some(ReplayFrom::read(raw).ok_or(BayeuxError::ReplayInvalid)?);
            return Ok(positions);
        }
        for (at, (name, raw)) in raw.members().enumerate() {
            if at == max {
                return Err(BayeuxError::ReplayChannelsMax);
            }
            let name = name.decode().ok_or(BayeuxError::ReplayInvalid)?;
            positions.named.insert(name, ReplayFrom::read(raw).ok_or(BayeuxError::ReplayInvalid)?);
        }
        Ok(positions)
    }

    /// The position for a subscription to this channel or pattern.
    pub fn of(&self, name: &str) -> &ReplayFrom<'a> {
        self.requested(name).unwrap_or(&ReplayFrom::Latest)
    }

    /// The same. None if the client says nothing about it.
    pub fn requested(&self, name: &str) -> Option<&ReplayFrom<'a>> {
        self.named(name).or(self.lone.as_ref())
    }

    /// The position given for exactly this name; the last one if there are several.
    pub fn named(&self, name: &str) -> Option<&ReplayFrom<'a>> {
        self.named.get(name)
    }

    /// The names with positions that this pattern may match. It contains all names that match, and possibly others.
    pub fn below(&self, pattern: ChannelName<'_>) -> impl Iterator<Item = &str> {
        let parent = pattern.as_str().trim_end_matches('*').to_owned();
        let from_there = self.named.range::<str, _>((Bound::Included(&*parent), Bound::Unbounded));
        from_there.map(|(name, _)| name.as_ref()).take_while(move |name| name.starts_with(&*parent))
    }
}

impl Lost {
    fn read(raw: RawJson<'_>) -> Option<Lost> {
        Some(Lost { from: unsigned(raw, "from")?, to: unsigned(raw, "to") })
    }

    /// The first and the last offset, if both are known.
    pub fn range(self) -> Option<(u64, u64)> {
        Some((self.from, self.to?))
    }

    fn json(lost: Option<Lost>) -> String {
        lost.map_or_else(null, |Lost { from, to }| format!("{{\"from\":{from},\"to\":{}}}", number(to)))
    }
}

impl<'a> Recovery<'a> {
    /// Reads the answer of one channel.
    pub fn read(raw: RawJson<'a>) -> Option<Recovery<'a>> {
        let recovered = raw.member("recovered")?.as_str() == "true";
        let epoch = raw.member("epoch").and_then(RawJson::text);
        let from = epoch.zip(unsigned(raw, "from")).map(|(epoch, offset)| Position { epoch, offset });
        Some(Recovery { recovered, from, latest: unsigned(raw, "latest"), lost: lost_in(raw) })
    }

    /// The JSON object. The epoch needs no escapes.
    pub fn to_json(&self) -> String {
        let epoch = self.from.as_ref().map_or_else(null, |from| format!("\"{}\"", from.epoch));
        let (from, latest) = (number(self.from.as_ref().map(|from| from.offset)), number(self.latest));
        let (recovered, lost) = (self.recovered, Lost::json(self.lost));
        format!("{{\"recovered\":{recovered},\"epoch\":{epoch},\"from\":{from},\"latest\":{latest},\"lost\":{lost}}}")
    }
}

impl<'a> Heartbeat<'a> {
    /// Reads the heartbeat of one channel.
    pub fn read(raw: RawJson<'a>) -> Option<Heartbeat<'a>> {
        let epoch = raw.member("epoch")?.text()?;
        Some(Heartbeat { epoch, offset: unsigned(raw, "id"), lost: lost_in(raw) })
    }

    /// The JSON object. The epoch needs no escapes.
    pub fn to_json(&self) -> String {
        let lost = self.lost.map(|lost| format!(",\"lost\":{}", Lost::json(Some(lost)))).unwrap_or_default();
        format!("{{\"id\":{},\"epoch\":\"{}\"{lost}}}", number(self.offset), self.epoch)
    }
}

impl<'a> Stamped<'a> {
    /// Reads the position in the `ext` of a delivery; `None` if it has none.
    pub fn read(ext: RawJson<'a>) -> Option<Stamped<'a>> {
        let raw = ext.member("replay")?;
        let position = Position { epoch: raw.member("epoch")?.text()?, offset: unsigned(raw, "id")? };
        Some(Stamped { position, lost: lost_in(raw) })
    }
}

fn lost_in(raw: RawJson<'_>) -> Option<Lost> {
    raw.member("lost").and_then(Lost::read)
}

fn unsigned(raw: RawJson<'_>, key: &str) -> Option<u64> {
    raw.member(key)?.as_str().parse().ok()
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(null, |number| number.to_string())
}

fn null() -> String {
    "null".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_names_the_form_of_positions() {
        for form in [PositionForm::Ext, PositionForm::Mixed] {
            let ext = format!("{{\"replay\":{}}}", form.offer());
            assert_eq!(offers_replay(RawJson::trusted(&ext)), Some(form));
        }
        for raw in ["false", "null", "1", "{}", r#"{"positions":"data"}"#, r#"{"positions":1}"#, "[]", "\"ext\""] {
            assert_eq!(offers_replay(RawJson::trusted(&format!("{{\"replay\":{raw}}}"))), None, "{raw}");
        }
        assert_eq!(offers_replay(RawJson::trusted("{}")), None);
    }

    #[test]
    fn positions_are_numbers_strings_or_objects() {
        let after = |offset, epoch: Option<&'static str>| ReplayFrom::After { offset, epoch: epoch.map(Cow::Borrowed) };
        for (raw, position) in [
            ("-1", ReplayFrom::Latest),
            ("\"-2\"", ReplayFrom::Earliest),
            ("0", after(0, None)),
            ("\"17\"", after(17, None)),
            (r#"{"id":17,"epoch":"e"}"#, after(17, Some("e"))),
            (r#"{"id":"17"}"#, after(17, None)),
            (r#"{"id":-1,"epoch":null}"#, ReplayFrom::Latest),
            (r#"{"last":50}"#, ReplayFrom::Last(50)),
            (r#"{"last_ms":60000}"#, ReplayFrom::LastMs(60_000)),
            (r#"{"more":true}"#, ReplayFrom::More),
        ] {
            let ext = format!("{{\"replay\":{{\"/a\":{raw},\"/b\":-1}}}}");
            assert_eq!(
                Positions::read(Some(RawJson::trusted(&ext)), 2).map(|p| p.of("/a").clone()),
                Ok(position),
                "{raw}"
            );
        }
        let lone = Positions::read(Some(RawJson::trusted(r#"{"replay":"5"}"#)), 2).expect("a position");
        assert_eq!((lone.of("/x"), lone.named("/x")), (&after(5, None), None));
        for ext in [None, Some("{}"), Some(r#"{"replay":true}"#), Some(r#"{"replay":{}}"#), Some(r#"{"replay":null}"#)]
        {
            assert_eq!(
                Positions::read(ext.map(RawJson::trusted), 2).map(|p| p.of("/a").clone()),
                Ok(ReplayFrom::Latest)
            );
        }
    }

    #[test]
    fn anything_that_is_no_position_is_refused() {
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
            r#"{"last":-1}"#,
            r#"{"last":"5"}"#,
            r#"{"last_ms":-1}"#,
            r#"{"more":false}"#,
            "\"\\ud800\"",
        ] {
            let ext = format!("{{\"replay\":{{\"/a\":{raw}}}}}");
            assert_eq!(Positions::read(Some(RawJson::trusted(&ext)), 2), Err(BayeuxError::ReplayInvalid), "{raw}");
        }
        for raw in ["-3", "[]", "\"x\"", "0.5"] {
            assert_eq!(
                Positions::read(Some(RawJson::trusted(&format!("{{\"replay\":{raw}}}"))), 2),
                Err(BayeuxError::ReplayInvalid),
                "{raw}"
            );
        }
        let many = r#"{"replay":{"/a":1,"/b":1,"/c":1}}"#;
        assert_eq!(Positions::read(Some(RawJson::trusted(many)), 2), Err(BayeuxError::ReplayChannelsMax));
    }

    #[test]
    fn positions_read_back() {
        for from in [
            ReplayFrom::Latest,
            ReplayFrom::Earliest,
            ReplayFrom::Last(3),
            ReplayFrom::LastMs(5),
            ReplayFrom::More,
            ReplayFrom::After { offset: 7, epoch: None },
            ReplayFrom::from(Position { epoch: "\"e\\".into(), offset: 8 }),
        ] {
            let mut out = br#"{"replay":{"/a":"#.to_vec();
            from.write(&mut out);
            out.extend_from_slice(b"}}");
            let text = String::from_utf8(out).expect("text");
            let positions = Positions::read(Some(RawJson::parse(&text).expect("JSON")), 1).expect("positions");
            assert_eq!(positions.of("/a"), &from);
            assert_eq!(from.to_owned(), from);
        }
    }

    #[test]
    fn recoveries_and_heartbeats_read_back() {
        let position = |offset| Some(Position { epoch: "e".into(), offset });
        for (recovery, json) in [
            (
                Recovery { recovered: true, from: position(5), latest: Some(9), lost: None },
                r#"{"recovered":true,"epoch":"e","from":5,"latest":9,"lost":null}"#,
            ),
            (
                Recovery {
                    recovered: false,
                    from: position(5),
                    latest: Some(9),
                    lost: Some(Lost { from: 2, to: Some(4) }),
                },
                r#"{"recovered":false,"epoch":"e","from":5,"latest":9,"lost":{"from":2,"to":4}}"#,
            ),
            (
                Recovery { recovered: false, from: None, latest: None, lost: None },
                r#"{"recovered":false,"epoch":null,"from":null,"latest":null,"lost":null}"#,
            ),
        ] {
            assert_eq!(recovery.to_json(), json);
            assert_eq!(Recovery::read(RawJson::trusted(json)), Some(recovery));
        }
        for (offset, lost, json) in [
            (Some(7), None, r#"{"id":7,"epoch":"e"}"#),
            (Some(7), Some(Lost { from: 3, to: Some(7) }), r#"{"id":7,"epoch":"e","lost":{"from":3,"to":7}}"#),
            (None, Some(Lost { from: 3, to: None }), r#"{"id":null,"epoch":"e","lost":{"from":3,"to":null}}"#),
        ] {
            let heartbeat = Heartbeat { epoch: "e".into(), offset, lost };
            assert_eq!(heartbeat.to_json(), json);
            assert_eq!(Heartbeat::read(RawJson::trusted(json)), Some(heartbeat));
        }
    }
}
