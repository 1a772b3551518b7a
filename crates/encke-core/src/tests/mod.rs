//! Minimal tests for the defects that the simulator found.

mod ack;
mod attributes;
mod bounds;
mod by_handle;
mod carried;
mod cluster;
pub(super) mod confirmed;
mod conflation;
mod decisions;
mod edges;
mod elsewhere;
mod ending;
mod gaps;
mod identity;
mod limits;
mod memory;
mod moves;
mod newcomers;
mod node_moves;
mod nodes;
mod pending_replies;
mod policies;
mod presence;
mod publishers;
mod replay;
mod responses;
mod resuming;
mod retained;
mod rights;
mod schedule;
mod shares;
mod steps;
mod streams;
mod terms;
mod withdrawals;
mod withheld;

use std::collections::HashMap;
use std::io;
use std::io::IoSlice;
use std::sync::Arc;

use crate::application::{Actions, Application, Caller, EndReason, NoApplication, Pending, Service};
use crate::delivery::Received;
use crate::delivery::Wire;
use crate::events::{
    Closing, Effect, EncodedPublications, ExchangeId, HttpTransport, Peer, Request, Searched, ShardMessage, SocketKey,
};
use crate::history;
use crate::id::{Id, kernel_entropy};
use crate::now::Now;
use crate::settings::Settings;
use crate::shard::{Shard, Shared};
use crate::side::Side;

pub(super) const NOW: Now = Now { ms: 1_000, wall_ms: 1_700_000_000_000 };

/// A shard, and a kernel that takes a limited number of bytes of each socket.
pub(super) struct Rig {
    pub(super) shard: Shard,
    pub(super) kernel: FakeKernel,
    exchanges: u64,
}

#[derive(Default)]
pub(super) struct FakeKernel {
    taken: HashMap<SocketKey, Vec<u8>>,
    pub(super) room: usize,
    /// The number of writes to refuse before it takes bytes again.
    pub(super) refusals: usize,
    /// The number of writes so far.
    pub(super) writes: usize,
}

impl Wire for FakeKernel {
    fn write(&mut self, socket: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writes += 1;
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(self.room).collect();
        self.room -= bytes.len();
        self.taken.entry(socket).or_default().extend_from_slice(&bytes);
        if bytes.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(bytes.len()) }
    }
}

/// A POST of a program.
pub(super) fn post(exchange: ExchangeId, body: String) -> Request {
    let (transport, peer, searched) = (HttpTransport::LongPolling, Peer::default(), Searched::Nobody);
    Request { exchange, transport, browser: None, peer, head: None, body, searched }
}

impl Rig {
    pub(super) fn new(shards: usize, settings: Settings, application: Box<dyn Application>) -> Rig {
        Rig::with(Shared::new(shards, application), settings)
    }

    pub(super) fn with(shared: Shared, settings: Settings) -> Rig {
        let shared = Arc::new(shared);
        let shard = Shard::new(0, shared, Arc::new(settings), kernel_entropy(), NOW);
        Rig { shard, kernel: FakeKernel { room: usize::MAX / 2, ..FakeKernel::default() }, exchanges: 0 }
    }

    /// Another shard of the same server.
    pub(super) fn beside(&self, index: usize, settings: Settings) -> Rig {
        let shard =
            Shard::new(index, self.shard.machines.env.shared.clone(), Arc::new(settings), kernel_entropy(), NOW);
        Rig { shard, kernel: FakeKernel { room: usize::MAX / 2, ..FakeKernel::default() }, exchanges: 0 }
    }

    /// A socket with a session whose handshake had this `ext`.
    pub(super) fn opened(&mut self, ext: &str) -> (SocketKey, String) {
        let key = self.shard.socket_opened(NOW, None);
        let text = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{ext}}}"#);
        self.shard.socket_text(NOW, key, &text);
        let client = member_of(&self.flushed(key), "clientId");
        (key, client)
    }

    /// A socket with a session that subscribes to `/a`.
    pub(super) fn socket(&mut self) -> (SocketKey, String) {
        let (key, client) = self.opened("{}");
        self.shard.socket_text(NOW, key, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
        self.subscribe(key, &client);
        self.flushed(key);
        (key, client)
    }

    pub(super) fn subscribe(&mut self, key: SocketKey, client: &str) {
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/a"}}"#);
        self.shard.socket_text(NOW, key, &text);
    }

    /// Flushes. Returns the text that the kernel took of this socket.
    pub(super) fn flushed(&mut self, key: SocketKey) -> String {
        self.shard.flush(NOW, &mut self.kernel, &mut || false);
        String::from_utf8_lossy(&self.kernel.taken.remove(&key).unwrap_or_default()).into_owned()
    }

    /// Sends a request and returns its number.
    pub(super) fn request(&mut self, body: String) -> ExchangeId {
        self.exchanges += 1;
        let exchange = ExchangeId { shard: 0, number: self.exchanges };
        self.shard.request(NOW, post(exchange, body));
        exchange
    }

    /// The response to a request, if there is one.
    pub(super) fn response(&mut self, wanted: ExchangeId) -> Option<String> {
        self.shard.flush(NOW, &mut self.kernel, &mut || false);
        self.shard.take_effects().into_iter().find_map(|effect| match effect {
            Effect::Respond(exchange, response) if exchange == wanted => {
                Some(String::from_utf8_lossy(&response.body).into_owned())
            }
            _ => None,
        })
    }

    pub(super) fn publish(&mut self, data: usize) {
        self.shard.publish_now("/a", &data.to_string());
    }

    /// A channel whose history another shard owns. The rig has two.
    pub(super) fn channel_of_other_shard(&self) -> &'static str {
        let names = ["/a", "/b", "/c", "/d", "/e", "/f", "/x/1", "/x/2"];
        names.into_iter().find(|name| self.shard.machines.env.shared.histories.owner(name) == 1).expect("one")
    }

    /// A message that the owner of a history has recorded, on its way to this shard.
    pub(super) fn on_its_way(&self, channel: &str, data: usize) -> EncodedPublications {
        let terms = self.shard.settings().channels[0].history().expect("a history");
        let (room, entropy) = (self.shard.machines.env.history_room(), &mut kernel_entropy());
        let birth = history::Birth { channel, rule: "", terms, room, now: NOW, entropy };
        let text = format!(r#"{{"channel":"{channel}","data":{data}}}"#);
        let position = self
            .shard
            .machines
            .env
            .shared
            .histories
            .append(birth, Side::Server, None, [&*text].into_iter())
            .expect("room");
        let mut frames = Vec::new();
        websocket::frame::message(websocket::Opcode::Text, format!("[{text}]").as_bytes(), &mut frames);
        EncodedPublications {
            charge: self.shard.machines.env.shared.mailbox.charge(0),
            channel: channel.into(),
            frames: frames.into(),
            messages: 1,
            side: Side::Server,
            is_lazy: false,
            except: None,
            token: None,
            publisher: None,
            position: Some(position),
        }
    }

    pub(super) fn connect(&mut self, client: &str) -> ExchangeId {
        self.request(format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#))
    }
}

impl Shard {
    /// Broadcasts like an application.
    pub(super) fn publish_now(&mut self, channel: &str, data: &str) {
        self.settle_burst_at(NOW);
        self.publish_from_here(channel, data, None, None, false);
        self.settle_burst().update_gauges();
    }
}

pub(crate) fn rig() -> Rig {
    Rig::new(1, Settings::default(), Box::new(NoApplication))
}

pub(super) fn member_of(text: &str, name: &str) -> String {
    let (_, rest) = text.split_once(&format!("\"{name}\":\"")).expect("it has the member");
    rest.split('"').next().unwrap_or_default().to_owned()
}

/// A session on requests whose first message is in a response that nobody has confirmed.
fn with_a_response_on_its_way() -> (Rig, String, ExchangeId) {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_closed(NOW, socket);
    rig.publish(1);
    let exchange = rig.connect(&client);
    assert!(rig.response(exchange).expect("a response").contains("\"data\":1"));
    (rig, client, exchange)
}

#[test]
fn an_aborted_request_does_not_end_a_newer_connect() {
    let (mut rig, client, answered) = with_a_response_on_its_way();
    rig.connect(&client);
    let id = Id::parse(&client).expect("an id");
    assert_eq!(rig.shard.holds(&id), Some(true));
    rig.shard.abandoned(NOW, answered);
    assert_eq!(rig.shard.holds(&id), Some(true));
}

#[test]
fn a_close_frame_is_sent_on_the_old_socket_of_an_acknowledging_session() {
    let mut rig = rig();
    let (socket, client) = rig.opened(r#"{"ack":true}"#);
    rig.shard.socket_close(NOW, socket, Closing { code: 1001, reason: "server going away" });
    let other = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, other, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    assert!(rig.flushed(socket).contains("server going away"));
}

#[test]
fn messages_older_than_a_session_do_not_arrive_by_a_channel_that_a_pattern_already_covers() {
    let rule = crate::ChannelRule { pattern: "/**".into(), history_messages: 10, ..Default::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(2, settings, Box::new(NoApplication));
    let channel = rig.channel_of_other_shard();
    let publication = rig.on_its_way(channel, 7);
    // The message is on its way from the other shard when the session opens.
    let key = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0","ext":{"replay":true}}"#);
    let client = member_of(&rig.flushed(key), "clientId");
    for name in ["/**", channel] {
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}"}}"#);
        rig.shard.socket_text(NOW, key, &text);
    }
    rig.flushed(key);
    rig.shard.message(NOW, ShardMessage::Publication(publication.into()));
    assert_eq!(rig.flushed(key), "");
}

#[test]
fn newer_messages_of_an_acknowledging_session_do_not_overtake_a_response_when_it_says_disconnect() {
    let mut rig = rig();
    let (socket, client) = rig.opened(r#"{"ack":true}"#);
    rig.subscribe(socket, &client);
    rig.connect(&client);
    rig.publish(1);
    let exchange = rig.connect(&client);
    assert!(rig.response(exchange).expect("a response").contains("\"data\":1"));
    rig.publish(2);
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#));
    let said = rig.flushed(socket);
    assert!(said.contains("/meta/disconnect") && !said.contains("\"data\":2"), "{said}");
}

#[test]
fn messages_of_a_response_that_failed_come_before_newer_ones_on_a_websocket() {
    let (mut rig, client, exchange) = with_a_response_on_its_way();
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.publish(2);
    assert_eq!(rig.flushed(socket), "", "the older message may still come back");
    rig.shard.delivered(NOW, exchange, false);
    let text = rig.flushed(socket);
    let (first, second) = (text.find("\"data\":1"), text.find("\"data\":2"));
    assert!(first.is_some() && first < second, "{text:?}");
}

#[test]
fn a_response_on_its_way_counts_for_the_limit_of_the_outbox() {
    let (mut rig, client, _) = with_a_response_on_its_way();
    rig.publish(2);
    assert_eq!(rig.shard.waiting(&Id::parse(&client).expect("an id")).map(|waiting| waiting.0), Some(2));
}

#[test]
fn a_response_does_not_contain_messages_already_on_a_websocket() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.publish(1);
    rig.kernel.room = 5;
    let begun = rig.flushed(socket);
    let exchange = rig.request(format!(r#"{{"channel":"/b","clientId":"{client}","data":0}}"#));
    let response = rig.response(exchange).expect("a response");
    assert!(!response.contains("\"data\""), "{response}");
    rig.kernel.room = 1_000;
    rig.shard.socket_writable(NOW, socket);
    let frame = begun + &rig.flushed(socket);
    assert!(frame.ends_with(r#"[{"channel":"/a","data":1}]"#), "{frame:?}");
}

#[test]
fn nothing_follows_a_close_frame_and_queued_messages_go_out_on_the_next_socket() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.publish(1);
    rig.shard.socket_close(NOW, socket, Closing { code: 1000, reason: "bye" });
    rig.publish(2);
    let text = rig.flushed(socket);
    assert!(text.contains("\"data\":1") && text.ends_with("bye"), "{text:?}");
    rig.publish(3);
    assert_eq!(rig.flushed(socket), "");
    let next = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, next, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    let text = rig.flushed(next);
    assert!(text.contains("\"data\":2") && text.contains("\"data\":3"), "{text:?}");
}

#[test]
fn writes_queued_for_a_closed_socket_do_not_affect_its_successor() {
    let mut rig = rig();
    let first = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, first, "garbage");
    rig.shard.socket_closed(NOW, first);
    let second = rig.shard.socket_opened(NOW, None);
    assert_eq!(first.index, second.index);
    rig.shard.socket_text(NOW, second, "garbage");
    assert_eq!(rig.flushed(first), "");
    assert!(rig.kernel.taken.contains_key(&second));
}

#[test]
fn a_socket_with_bytes_left_to_write_is_shut_instead_of_moved() {
    let mut rig = Rig::new(2, Settings::default(), Box::new(NoApplication));
    let key = rig.shard.socket_opened(NOW, None);
    let elsewhere = format!(r#"{{"channel":"/meta/connect","clientId":"{}"}}"#, Id::new(1, &mut kernel_entropy()));
    assert_eq!(rig.shard.socket_text(NOW, key, &elsewhere), Received::Elsewhere(1));
    rig.shard.socket_text(NOW, key, "garbage");
    rig.kernel.room = 3;
    rig.flushed(key);
    assert_eq!(rig.shard.socket_text(NOW, key, &elsewhere), Received::Here);
    assert!(matches!(rig.shard.take_effects()[..], [Effect::Close(closed)] if closed == key));
}

/// Publishes a message on these channels when a session ends, as chats do.
struct Mourner(&'static [&'static str]);

impl Application for Mourner {
    fn ended(&self, _: &Caller<'_>, _: EndReason, actions: &mut Actions) {
        for channel in self.0 {
            actions.publish(channel, "\"gone\"");
        }
    }
}

/// Publishes a message and then answers its sender.
struct PublishThenReply;

impl Application for PublishThenReply {
    fn service(&self, _message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        actions.publish("/a", "1");
        actions.reply("2");
        None
    }
}

#[test]
fn a_reply_of_a_service_follows_what_the_service_has_published_before() {
    let mut rig = Rig::new(1, Settings::default(), Box::new(PublishThenReply));
    let (socket, client) = rig.socket();
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/service/a","clientId":"{client}","id":"7"}}"#));
    let text = rig.flushed(socket);
    let at = |data: &str| text.find(data).unwrap_or(text.len());
    assert!(at(r#""data":1"#) < at(r#""data":2"#) && at(r#""data":2"#) < text.len(), "{text}");
}

#[test]
fn sessions_whose_ends_end_each_other_do_not_overflow_the_stack() {
    let settings = Settings { outbox_messages_max: 1, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(Mourner(&["/a"])));
    for _ in 0..20_000 {
        rig.socket();
    }
    rig.publish(1);
    rig.publish(2);
    assert_eq!(rig.shard.sessions(), 0);
}

#[test]
fn publications_of_a_session_end_arrive_after_the_message_that_ended_the_session() {
    let settings = Settings { outbox_messages_max: 2, ..Settings::default() };
    let mut rig = Rig::new(2, settings, Box::new(Mourner(&["/a", "/b", "/a"])));
    let (socket, client) = rig.socket();
    let witness = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, witness, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
    let other = member_of(&rig.flushed(witness), "clientId");
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{other}","subscription":"/b"}}"#);
    rig.shard.socket_text(NOW, witness, &text);
    rig.flushed(witness);
    rig.shard.machines.env.shared.interest.add("/a", 1);
    (1..=3).for_each(|data| rig.publish(data));
    assert!(rig.shard.waiting(&Id::parse(&client).expect("an id")).is_none() && rig.flushed(socket).is_empty());
    let text = rig.flushed(witness);
    assert!(text.contains(r#""data":"gone""#), "{text:?}");
    let mut reported = String::new();
    for effect in rig.shard.take_effects() {
        if let Effect::SendToShard(1, ShardMessage::Publication(publication)) = effect {
            reported += &String::from_utf8_lossy(&publication.frames);
        }
    }
    let positions: Vec<_> = ["1", "2", "3", "\"gone\""].map(|data| reported.find(&format!("\"data\":{data}}}"))).into();
    assert!(positions.is_sorted() && positions.iter().all(Option::is_some), "{reported:?}");
    assert_eq!(reported.matches("gone").count(), 2);
}

#[test]
fn replies_go_to_the_socket_of_their_request() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    let subscribe = format!(r#"{{"channel":"/meta/subscribe","id":"7","clientId":"{client}","subscription":"/b"}}"#);
    rig.shard.socket_text(NOW, socket, &subscribe);
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","id":"8","version":"1.0"}"#);
    let text = rig.flushed(socket);
    assert!(text.find("\"id\":\"7\"") < text.find("\"id\":\"8\"") && text.contains("\"id\":\"7\""), "{text:?}");
}
