//! The services behind the demo pages. With [`Demo::with_cometd_channels`] they also use the channels of CometD's demo
//! chat, so that its pages and its tests work here.
//!
//! | channel | CometD's | data | effect |
//! | --- | --- | --- | --- |
//! | `/service/demo/members` | `/service/members` | `{user, room}` | the session joins the room under this name; the reply or a publication lists the names |
//! | `/service/demo/privatechat` | `/service/privatechat` | `{room, user, peer: "ann,bob", chat}` | each peer in the room and the sender get `{chat, user, scope: "private"}` on the room's channel |
//! | `/service/echo` | the same | anything | a remote call answered with the same data |
//! | `/service/demo/limits` | none | anything | a remote call answered with `{message_bytes_max}`, the server's limit on a message |
//! | `/service/demo/order` | | `{request, timestamp, execs: [{symbol, qty}], ask}` | a receipt; `ask` may have `delay_ms`, `fails` and `never` |
//! | `/service/demo/sources` | | | the sources that are on, `{sources: [{name, kind, channel}]}` |
//! | `/demo/chat/**` | `/chat/**` | `{user, chat, …}` | markup is escaped, messages with the word "dang" are dropped |
//!
//! A room is a channel such as `/demo/chat/lobby`. A caller gets `{members: [names], version}` as the reply; after that
//! `/demo/members/lobby` carries each change, `{left, joined, version}`. A client that misses a version calls again. In
//! CometD's protocol, for rooms such as `/chat/demo`, all names are published on `/members/demo` each time.

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod filter;
mod mails;
mod orders;
mod pace;
mod rooms;
mod rules;
mod sources;
mod stream;
mod visitor;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bayeux::{ChannelKind, ChannelName, Limits, escape_into, json};

use encke::{Actions, Builder, Call, Data, Publishing, SessionEvent, Verdict};
use filter::{escape_markup, filter};
use orders::{Order, Orders};
use parking_lot::Mutex;
use rooms::{Change, Reporting, Rooms};
use sources::Listing;

pub use mails::example_mails;
pub use rules::with_rules;
pub use sources::Source;
pub use stream::Streams;
pub use visitor::visitor;

/// The demo's services. One instance holds all rooms of a server.
#[derive(Debug)]
pub struct Demo {
    /// Shared by the shards; locked for a few look-ups at a time. The lists are consistent after every step: if a thread panics, the others go on.
    rooms: Mutex<Rooms>,
    orders: Orders,
    sources: Listing,
    answers_as_cometd: bool,
    /// The server's limit on a message, which pages that send pictures ask for.
    message_bytes_max: usize,
    started: Instant,
}

/// The channel names of a kind of room.
struct Names {
    /// The prefix of its rooms.
    rooms: &'static str,
    /// The prefix of the channels that carry the members.
    members: &'static str,
    /// The way its members are published.
    reporting: Reporting,
}

/// The rooms of the demo.
const OWN: Names = Names { rooms: "/demo/chat/", members: "/demo/members/", reporting: Reporting::Changes };
/// The rooms of CometD's demo.
const COMETD: Names = Names { rooms: "/chat/", members: "/members/", reporting: Reporting::Lists };

impl Default for Demo {
    fn default() -> Demo {
        Demo {
            rooms: Mutex::default(),
            orders: Orders::default(),
            sources: Listing::default(),
            answers_as_cometd: false,
            message_bytes_max: encke::Settings::default().message_bytes_max,
            started: Instant::now(),
        }
    }
}

impl Demo {
    /// The demo's services, on their own channels and on those of CometD's demo chat.
    pub fn with_cometd_channels() -> Demo {
        Demo { answers_as_cometd: true, ..Demo::default() }
    }

    /// The same services for a server with this limit on a message.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Demo {
        self.message_bytes_max = bytes;
        self
    }

    /// Lists the sources that are on, whenever a page asks for them.
    #[must_use]
    pub fn sources(mut self, list: impl Fn() -> Vec<Source> + Send + Sync + 'static) -> Demo {
        self.sources = Listing(Box::new(list));
        self
    }

    /// Adds the demo's hooks to a server.
    pub fn install(self, mut server: Builder) -> Builder {
        let demo = Arc::new(self);
        for names in demo.kinds() {
            let of = |message: &Publishing<'_>| message.data().map_or(Verdict::Forward, filter);
            server = server.filter(&format!("{}**", names.rooms), of);
        }
        for service in demo.services() {
            let demo = demo.clone();
            server = server.service(service, move |call: Call| {
                let actions = demo.serve(demo.started.elapsed().as_millis() as u64, &call);
                std::future::ready(actions)
            });
        }
        let orders = demo.clone();
        server = server.service("/service/demo/order", move |Data(order): Data<Order>| {
            let demo = orders.clone();
            async move { demo.orders.answer(order).await }
        });
        let listed = demo.clone();
        server = server.service("/service/demo/sources", move || std::future::ready(listed.sources.answer()));
        server.on_session(move |event: &SessionEvent, actions: &mut Actions| {
            if let SessionEvent::Ended { caller, .. } = event {
                demo.ended(caller.session(), actions);
            }
        })
    }

    fn kinds(&self) -> impl Iterator<Item = &'static Names> + use<> {
        [&OWN, &COMETD].into_iter().take(if self.answers_as_cometd { 2 } else { 1 })
    }

    fn services(&self) -> &'static [&'static str] {
        let all = &[
            "/service/echo",
            "/service/demo/limits",
            "/service/demo/members",
            "/service/demo/privatechat",
            "/service/members",
            "/service/privatechat",
        ];
        if self.answers_as_cometd { all } else { &all[..4] }
    }

    /// Processes a call at this time, in milliseconds.
    fn serve(&self, now_ms: u64, call: &Call) -> Actions {
        let mut actions = Actions::default();
        let data = call.data().unwrap_or("null");
        match call.channel() {
            "/service/demo/members" => self.join(now_ms, call.session(), data, &OWN, &mut actions),
            "/service/members" => self.join(now_ms, call.session(), data, &COMETD, &mut actions),
            "/service/demo/privatechat" | "/service/privatechat" => self.private(call, data, &mut actions),
            "/service/demo/limits" => actions.reply(format!(r#"{{"message_bytes_max":{}}}"#, self.message_bytes_max)),
            _ => actions.reply(data),
        }
        actions
    }

    fn ended(&self, session: &str, actions: &mut Actions) {
        let mut rooms = self.rooms.lock();
        for change in rooms.leave(session) {
            report(&rooms, &change, actions);
        }
    }

    fn join(&self, now_ms: u64, session: &str, data: &str, names: &Names, actions: &mut Actions) {
        let (Some(room), Some(user)) = (text(data, "room"), text(data, "user")) else {
            return actions.fail(r#""members needs a room and a user""#);
        };
        if !is_room(&room, names) || user.is_empty() || user.len() > NAME_BYTES_MAX {
            return actions.fail(format!(r#""a room is a channel below {}, a user has 1 to 64 bytes""#, names.rooms));
        }
        let mut rooms = self.rooms.lock();
        let change = match rooms.join(now_ms, session, &room, &escape_markup(&user), names.reporting) {
            Ok(change) => change,
            Err(why) => return actions.fail(why),
        };
        match names.reporting {
            Reporting::Lists => actions.publish(&members_channel(&room, names), &rooms.names(&room)),
            Reporting::Changes => {
                actions.reply(format!(r#"{{"members":{},"version":{}}}"#, rooms.names(&room), rooms.version(&room)));
                // The caller has the change already.
                change.iter().for_each(|change| report(&rooms, change, actions));
            }
        }
    }

    fn private(&self, call: &Call, data: &str, actions: &mut Actions) {
        let field = |name| text(data, name);
        let (Some(room), Some(user), Some(peers), Some(chat)) =
            (field("room"), field("user"), field("peer"), field("chat"))
        else {
            return actions.fail(r#""privatechat needs a room, a user, a peer and a chat""#);
        };
        let peers: HashSet<&str> = peers.split(',').map(str::trim).take(PEERS_MAX + 1).collect();
        let rooms = self.rooms.lock();
        let mut sessions = rooms.named(&room, &peers);
        // As in CometD: a message that reaches nobody is not shown to its sender either.
        if sessions.is_empty() {
            return;
        }
        if peers.len() > PEERS_MAX || sessions.len() > PEERS_MAX {
            return actions.fail(r#""a private message reaches 16 at most""#);
        }
        sessions.retain(|session| *session != call.session());
        sessions.push(call.session());
        let data = format!(
            r#"{{"chat":{},"user":{},"scope":"private"}}"#,
            quoted(&escape_markup(&chat)),
            quoted(&escape_markup(&user))
        );
        for session in sessions {
            actions.deliver(session, &room, &data, call.id());
        }
    }
}

/// Publishes a change to the members of a room.
fn report(rooms: &Rooms, change: &Change, actions: &mut Actions) {
    let names = if change.room.starts_with(OWN.rooms) { &OWN } else { &COMETD };
    let channel = members_channel(&change.room, names);
    if names.reporting == Reporting::Lists {
        return actions.publish(&channel, &rooms.names(&change.room));
    }
    let name = |name: &Option<String>| name.as_deref().map_or("null".into(), quoted);
    let (left, joined) = (name(&change.left), name(&change.joined));
    actions.publish(&channel, &format!(r#"{{"left":{left},"joined":{joined},"version":{}}}"#, change.version));
}

/// A string member of an object.
fn text(data: &str, key: &str) -> Option<String> {
    json::decode_string(json::member(data, key)?).map(|text| text.into_owned())
}

fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    escape_into(text, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// True for a publishable channel of this kind of room.
fn is_room(room: &str, names: &Names) -> bool {
    let name = ChannelName::parse(room, &Limits::default());
    name.is_ok_and(|name| room.starts_with(names.rooms) && name.kind() == ChannelKind::Broadcast && !name.is_pattern())
}

/// The channel that carries the members of a room: `/demo/members/lobby` for `/demo/chat/lobby`.
fn members_channel(room: &str, names: &Names) -> String {
    room.replacen(names.rooms, names.members, 1)
}

/// The maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The maximum number of sessions that a private message reaches: each gets its own copy.
const PEERS_MAX: usize = 16;

#[cfg(test)]
mod tests;
