//! The services behind the chat page: CometD's demo chat, so that its pages and its tests work here, too.
//!
//! | channel | data | what happens |
//! | --- | --- | --- |
//! | `/service/members` | `{user, room: "/chat/demo"}` | the names in the room are published on `/members/demo`, again when one leaves |
//! | `/service/privatechat` | `{room, user, peer: "ann,bob", chat}` | each peer in the room and the sender get `{chat, user, scope: "private"}` on the room's channel |
//! | `/service/echo` | anything | a remote call answered with the same data |
//! | `/chat/**` | `{user, chat, …}` | markup is escaped, messages with the word "dang" are dropped |

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bayeux::{ChannelKind, ChannelName, Limits, escape_into, json};

use crate::application::{Actions, Application, Publishing, Service, Verdict};

/// The demo's services; all rooms of a server live in one of these.
#[derive(Debug, Default)]
pub struct Demo {
    /// Shared by the shards; held for a few look-ups at a time.
    rooms: Mutex<Rooms>,
}

/// Who is where.
#[derive(Debug, Default)]
struct Rooms {
    /// The members of a room (`/chat/demo`) in the order they came.
    members: HashMap<String, Vec<Member>>,
    /// The rooms of a session, so that the end of one that is in none costs a look-up only.
    joined: HashMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Member {
    session: String,
    user: String,
}

impl Application for Demo {
    fn publish(&self, publishing: &Publishing<'_>) -> Verdict {
        match publishing.data {
            Some(data) if publishing.channel.starts_with("/chat/") => filter(data),
            _ => Verdict::Forward,
        }
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) {
        let data = message.data.unwrap_or("null");
        match message.channel {
            "/service/echo" => actions.reply(data),
            "/service/members" => self.join(message.session, data, actions),
            "/service/privatechat" => self.private(message, data, actions),
            _ => {}
        }
    }

    fn ended(&self, session: &str, actions: &mut Actions) {
        let mut rooms = self.rooms();
        for room in rooms.leave(session) {
            actions.publish(&members_channel(&room), &rooms.names(&room));
        }
    }
}

impl Demo {
    /// A mutex is poisoned when a thread panicked inside; the lists are whole after every step, so going on is safe.
    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, session: &str, data: &str, actions: &mut Actions) {
        let (Some(room), Some(user)) = (text(data, "room"), text(data, "user")) else {
            return actions.fail(r#""members needs a room and a user""#);
        };
        if !is_room(&room) || user.is_empty() || user.len() > NAME_BYTES_MAX {
            return actions.fail(r#""a room is a channel below /chat/, a user has 1 to 64 bytes""#);
        }
        let mut rooms = self.rooms();
        if !rooms.join(session, &room, &escape_markup(&user)) {
            return actions.fail(r#""the room is full""#);
        }
        actions.publish(&members_channel(&room), &rooms.names(&room));
    }

    fn private(&self, message: &Service<'_>, data: &str, actions: &mut Actions) {
        let field = |name| text(data, name);
        let (Some(room), Some(user), Some(peers), Some(chat)) =
            (field("room"), field("user"), field("peer"), field("chat"))
        else {
            return actions.fail(r#""privatechat needs a room, a user, a peer and a chat""#);
        };
        let rooms = self.rooms();
        let here = rooms.members.get(&room).map_or(&[][..], Vec::as_slice);
        let named = |member: &&Member| peers.split(',').any(|peer| peer.trim() == member.user);
        let mut sessions: Vec<&str> = here.iter().filter(named).map(|member| member.session.as_str()).collect();
        // As in CometD: a message that reaches nobody is not shown to its sender either.
        if sessions.is_empty() {
            return;
        }
        sessions.retain(|session| *session != message.session);
        sessions.push(message.session);
        let data = format!(
            r#"{{"chat":{},"user":{},"scope":"private"}}"#,
            quoted(&escape_markup(&chat)),
            quoted(&escape_markup(&user))
        );
        for session in sessions {
            actions.deliver(session, &room, &data, message.id);
        }
    }
}

impl Rooms {
    /// Puts a session into a room, under a new name if it was there already. `false` where there is no more space.
    fn join(&mut self, session: &str, room: &str, user: &str) -> bool {
        if !self.members.contains_key(room) && self.members.len() >= ROOMS_MAX {
            return false;
        }
        let joined = self.joined.get(session).map_or(0, Vec::len);
        let members = self.members.entry(room.into()).or_default();
        if let Some(member) = members.iter_mut().find(|member| member.session == session) {
            member.user = user.into();
            return true;
        }
        if members.len() >= ROOM_MEMBERS_MAX || joined >= SESSION_ROOMS_MAX {
            if members.is_empty() {
                self.members.remove(room);
            }
            return false;
        }
        members.push(Member { session: session.into(), user: user.into() });
        self.joined.entry(session.into()).or_default().push(room.into());
        true
    }

    /// Takes a session out of its rooms and returns them.
    fn leave(&mut self, session: &str) -> Vec<String> {
        let rooms = self.joined.remove(session).unwrap_or_default();
        for room in &rooms {
            if let Some(members) = self.members.get_mut(room) {
                members.retain(|member| member.session != session);
                if members.is_empty() {
                    self.members.remove(room);
                }
            }
        }
        rooms
    }

    /// The names in a room as a JSON array, each once.
    fn names(&self, room: &str) -> String {
        let members = self.members.get(room).map_or(&[][..], Vec::as_slice);
        let mut names: Vec<&str> = Vec::new();
        for member in members {
            if !names.contains(&member.user.as_str()) {
                names.push(&member.user);
            }
        }
        let quoted: Vec<String> = names.into_iter().map(quoted).collect();
        format!("[{}]", quoted.join(","))
    }
}

/// What becomes of a chat message: markup in its texts is escaped, a bad word drops it, all else stays byte for byte.
fn filter(data: &str) -> Verdict {
    if data.starts_with('"') {
        return match filter_text(data) {
            Some(text) if text == data => Verdict::Forward,
            Some(text) => Verdict::Replace(text),
            None => Verdict::Delete,
        };
    }
    if !data.starts_with('{') {
        return Verdict::Forward;
    }
    let mut clean = Vec::new();
    let mut changed = false;
    for (key, value) in json::members(data) {
        let value = if value.starts_with('"') {
            let Some(text) = filter_text(value) else { return Verdict::Delete };
            changed |= text != value;
            text
        } else {
            value.to_string()
        };
        clean.push(format!("{}:{value}", key.raw()));
    }
    if changed { Verdict::Replace(format!("{{{}}}", clean.join(","))) } else { Verdict::Forward }
}

/// A raw JSON string whose markup is escaped; `None` if it holds the bad word, or half a surrogate pair, which is no text at all.
fn filter_text(raw: &str) -> Option<String> {
    let text = json::decode_string(raw)?;
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    if words.any(|word| word.eq_ignore_ascii_case("dang")) {
        return None;
    }
    let escaped = escape_markup(&text);
    Some(if escaped == text { raw.to_string() } else { quoted(&escaped) })
}

/// Turns `<` and `>` into entities, as CometD's `NoMarkupFilter` does: a page that shows HTML shows them as text, and no text is lost.
fn escape_markup(text: &str) -> String {
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// A member of an object that is a text.
fn text(data: &str, key: &str) -> Option<String> {
    json::decode_string(json::member(data, key)?).map(|text| text.into_owned())
}

fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    escape_into(text, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Whether a name is a channel below `/chat/` that can be published to.
fn is_room(room: &str) -> bool {
    let name = ChannelName::parse(room, &Limits::default());
    name.is_ok_and(|name| room.starts_with("/chat/") && name.kind() == ChannelKind::Broadcast && !name.is_pattern())
}

/// Where the names of a room are published: `/members/demo` for `/chat/demo`.
fn members_channel(room: &str) -> String {
    room.replacen("/chat/", "/members/", 1)
}

/// Rooms with a member, of the whole server.
const ROOMS_MAX: usize = 1_000;

/// Members of one room: each join sends the names to all of them.
const ROOM_MEMBERS_MAX: usize = 500;

/// Rooms of one session.
const SESSION_ROOMS_MAX: usize = 16;

/// Length of a name, in bytes.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Action;

    fn call(demo: &Demo, session: &str, channel: &str, data: &str) -> Vec<Action> {
        let mut actions = Actions::default();
        demo.service(&Service { session, channel, id: Some("7"), data: Some(data) }, &mut actions);
        actions.0
    }

    fn join(demo: &Demo, session: &str, user: &str) -> Vec<Action> {
        call(demo, session, "/service/members", &format!(r#"{{"user":"{user}","room":"/chat/demo"}}"#))
    }

    fn members(names: &str) -> Vec<Action> {
        vec![Action::Publish { channel: "/members/demo".into(), data: names.into() }]
    }

    #[test]
    fn the_names_are_published_when_one_comes_and_when_one_leaves() {
        let demo = Demo::default();
        assert_eq!(join(&demo, "s1", "ann"), members(r#"["ann"]"#));
        assert_eq!(join(&demo, "s2", "bob"), members(r#"["ann","bob"]"#));
        let mut actions = Actions::default();
        demo.ended("s1", &mut actions);
        demo.ended("a session that never joined", &mut actions);
        assert_eq!(actions.0, members(r#"["bob"]"#));
    }

    #[test]
    fn joining_again_changes_the_name() {
        let demo = Demo::default();
        join(&demo, "s1", "ann");
        assert_eq!(join(&demo, "s1", "anna"), members(r#"["anna"]"#));
    }

    #[test]
    fn a_private_message_reaches_its_peers_and_its_sender_only() {
        let demo = Demo::default();
        for (session, user) in [("s1", "ann"), ("s2", "bob"), ("s3", "cid"), ("s4", "dan")] {
            join(&demo, session, user);
        }
        let data = r#"{"room":"/chat/demo","user":"ann","peer":"bob, cid","chat":"a \"<b>word</b>\""}"#;
        let got = call(&demo, "s1", "/service/privatechat", data);
        let deliver = |session: &str| Action::Deliver {
            session: session.into(),
            channel: "/chat/demo".into(),
            data: r#"{"chat":"a \"&lt;b&gt;word&lt;/b&gt;\"","user":"ann","scope":"private"}"#.into(),
            id: Some("7".into()),
        };
        assert_eq!(got, [deliver("s2"), deliver("s3"), deliver("s1")]);
    }

    #[test]
    fn a_private_message_to_nobody_here_goes_nowhere() {
        let demo = Demo::default();
        join(&demo, "s1", "ann");
        let data = r#"{"room":"/chat/demo","user":"ann","peer":"nobody","chat":"x"}"#;
        assert_eq!(call(&demo, "s1", "/service/privatechat", data), []);
    }

    #[test]
    fn an_echo_is_byte_exact() {
        let data = r#"{"n": 12345678901234567890}"#;
        let got = call(&Demo::default(), "s1", "/service/echo", data);
        assert_eq!(got, [Action::Reply { data: data.into(), successful: true }]);
    }

    #[test]
    fn a_call_that_makes_no_sense_is_told_so() {
        let demo = Demo::default();
        let wrong = [
            r#"{"user":"ann","room":"/members/demo"}"#,
            r#"{"user":"ann","room":"/chat/*"}"#,
            r#"{"user":"ann","room":"/chat//"}"#,
            r#"{"user":7,"room":"/chat/demo"}"#,
            r#"{"user":"","room":"/chat/demo"}"#,
            "[]",
            "null",
        ];
        for data in wrong {
            let got = call(&demo, "s1", "/service/members", data);
            assert!(matches!(got.as_slice(), [Action::Reply { successful: false, .. }]), "{data}: {got:?}");
        }
        let got = call(&demo, "s1", "/service/privatechat", "{}");
        assert!(matches!(got.as_slice(), [Action::Reply { successful: false, .. }]));
    }

    #[test]
    fn a_full_room_takes_no_more() {
        let demo = Demo::default();
        for number in 0..ROOM_MEMBERS_MAX {
            join(&demo, &format!("s{number}"), "ann");
        }
        let got = join(&demo, "one more", "bob");
        assert!(matches!(got.as_slice(), [Action::Reply { successful: false, .. }]));
    }

    #[test]
    fn markup_in_chat_messages_is_escaped() {
        let filtered = filter(r#"{"user":"ann","chat":"\u003cb>hi</b> 1 < 2","n":12345678901234567890}"#);
        assert_eq!(
            filtered,
            Verdict::Replace(
                r#"{"user":"ann","chat":"&lt;b&gt;hi&lt;/b&gt; 1 &lt; 2","n":12345678901234567890}"#.into()
            )
        );
        assert_eq!(filter(r#""<i>x</i>""#), Verdict::Replace(r#""&lt;i&gt;x&lt;/i&gt;""#.into()));
    }

    #[test]
    fn a_clean_message_stays_as_it_is() {
        for data in [r#"{ "chat" : "hi", "n":1.0 }"#, "7", "null", r#"["<b>"]"#, r#""x""#] {
            assert_eq!(filter(data), Verdict::Forward, "{data}");
        }
    }

    #[test]
    fn a_message_with_the_bad_word_is_deleted() {
        assert_eq!(filter(r#"{"chat":"well, Dang!"}"#), Verdict::Delete);
        assert_eq!(filter(r#"{"chat":"dangerous"}"#), Verdict::Forward);
    }

    #[test]
    fn only_the_chat_is_filtered() {
        let publishing = Publishing { session: "s", channel: "/other", data: Some(r#"{"chat":"dang"}"#), ext: None };
        assert_eq!(Demo::default().publish(&publishing), Verdict::Forward);
    }
}
