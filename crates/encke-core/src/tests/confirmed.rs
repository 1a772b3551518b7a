//! A session that acknowledges in a cluster: what its clients have confirmed, and what it gets when its node is gone.

use crate::application::NoApplication;
use crate::events::{Effect, EncodedPublications, Envelope, OTHER_NODES, ShardMessage, SocketKey};
use crate::history::{Appended, Birth, Lineage, MissedRange, PARTITIONS, Stamp};
use crate::id::{Id, NodeTag, kernel_entropy};
use crate::node_messages::{ForNodes, FromNodes, Restored, Since};
use crate::now::Now;
use crate::saved::Saved;
use crate::settings::{ChannelRule, Settings};
use crate::shard::Shared;
use crate::shard::tests::{NOW, Rig};
use crate::side::Side;

/// A shard of a node whose channel `/a` has a history.
pub(super) fn rig_with(settings: Settings) -> Rig {
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 100, ..ChannelRule::default() };
    rig_with_rule(rule, settings)
}

/// The same with this rule.
pub(super) fn rig_with_rule(rule: ChannelRule, settings: Settings) -> Rig {
    let mut shared = Shared::new(1, Box::new(NoApplication));
    shared.node = Some(NodeTag::new(&mut kernel_entropy()));
    shared.histories.begin_in_cluster();
    (0..PARTITIONS).for_each(|partition| shared.histories.begin_partition(partition, LINEAGE));
    Rig::with(shared, Settings { channels: vec![rule], ..settings })
}

pub(super) fn rig() -> Rig {
    rig_with(Settings::default())
}

pub(super) const LINEAGE: Lineage = Lineage { seed: 7, first: FIRST };
/// The offset of the first message.
pub(super) const FIRST: u64 = 100;

/// A session that acknowledges, connected and subscribed to `/a`, and its record.
pub(super) fn opened(rig: &mut Rig) -> (Id, Saved) {
    let (socket, client) = rig.opened(r#"{"ack":true}"#);
    rig.connect(&client);
    rig.subscribe(socket, &client);
    rig.flushed(socket);
    let id = Id::parse(&client).expect("an id");
    let reports = sent(rig, 1_000).into_iter().find_map(|message| match message {
        ForNodes::Changed { session, saved, since: Since::Common, .. } if session == id => Some(*saved),
        _ => None,
    });
    (id, reports.expect("a record"))
}

/// Messages of the shard for the cluster, later.
pub(super) fn sent(rig: &mut Rig, after_ms: u64) -> Vec<ForNodes> {
    rig.shard.advance(Now { ms: NOW.ms + after_ms, ..NOW });
    let sent = |effect| match effect {
        Effect::SendToShard(shard, ShardMessage::ForNodes(message)) if shard == usize::from(OTHER_NODES) => {
            Some(message)
        }
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(sent).collect()
}

pub(super) fn tell(rig: &mut Rig, message: FromNodes) {
    rig.shard.message(NOW, ShardMessage::FromNodes(message));
}

/// Tells a shard a tick. Returns the sessions that it reports, and what all others have confirmed.
fn tick(rig: &mut Rig, tick: u64) -> (Vec<Since>, Option<(u64, bool)>) {
    tell(rig, FromNodes::Tick(tick));
    let (mut late, mut confirmed) = (Vec::new(), None);
    for message in sent(rig, 0) {
        match message {
            ForNodes::Changed { since, .. } => late.push(since),
            ForNodes::Confirmed { shard: 0, tick, has_late } => confirmed = Some((tick, has_late)),
            _ => {}
        }
    }
    (late, confirmed)
}

fn text(number: usize) -> String {
    format!(r#"{{"channel":"/a","data":{number}}}"#)
}

/// A message in the ring of `/a`, on its way to the shard.
pub(super) fn committed(rig: &Rig, number: usize) -> EncodedPublications {
    committed_text(rig, number, &text(number), None)
}

/// The same with this text, and the session that published it.
pub(super) fn committed_text(rig: &Rig, number: usize, text: &str, except: Option<Id>) -> EncodedPublications {
    appended(rig, (LINEAGE, FIRST + number as u64), text, except)
}

/// A publication at this offset of a lineage.
pub(super) fn committed_at(rig: &Rig, lineage: Lineage, offset: u64) -> EncodedPublications {
    appended(rig, (lineage, offset), &text(0), None)
}

/// Calls `with` with the data for the ring of `/a`.
pub(super) fn with_birth<T>(rig: &Rig, with: impl FnOnce(Birth<'_>) -> T) -> T {
    let terms = rig.shard.settings().channels[0].history().expect("a history");
    let (room, entropy) = (rig.shard.machines.env.history_room(), &mut kernel_entropy());
    with(Birth { channel: "/a", rule: "/a", terms, room, now: NOW, entropy })
}

fn appended(rig: &Rig, (lineage, first): (Lineage, u64), text: &str, except: Option<Id>) -> EncodedPublications {
    let shared = &rig.shard.machines.env.shared;
    let stamp = Stamp { now: NOW, side: Side::Client, except };
    let appended =
        with_birth(rig, |birth| shared.histories.append_at(birth, lineage, first, &stamp, [text].into_iter()));
    let Appended::At(position, 0) = appended else { panic!("{appended:?}") };
    let mut frames = Vec::new();
    websocket::frame::message(websocket::Opcode::Text, format!("[{text}]").as_bytes(), &mut frames);
    EncodedPublications {
        charge: shared.mailbox.charge(0),
        channel: "/a".into(),
        frames: frames.into(),
        messages: 1,
        side: Side::Client,
        is_lazy: false,
        except,
        token: None,
        publisher: None,
        position: Some(position),
    }
}

pub(super) fn deliver(rig: &mut Rig, number: usize) {
    let publications = committed(rig, number);
    rig.shard.message(NOW, ShardMessage::Publication(publications.into()));
}

/// The range of these messages, which are in the ring of `/a`.
pub(super) fn range(rig: &Rig, numbers: std::ops::Range<usize>) -> Vec<MissedRange> {
    let ring = rig.shard.machines.env.shared.histories.find("/a", 0).expect("a ring").ring;
    vec![MissedRange { ring, first: FIRST + numbers.start as u64, end: FIRST + numbers.end as u64 }]
}

/// A session has missed these messages. Its shard reads them.
fn miss(rig: &mut Rig, id: Id, numbers: std::ops::Range<usize>) {
    let ranges = range(rig, numbers);
    tell(rig, FromNodes::Missed(id, Some(ranges)));
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
}

/// The number of the token for which something waits until publications of other nodes arrive.
pub(super) fn awaited(rig: &mut Rig) -> u64 {
    let number = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::AwaitInterest(_, token) => Some(token.number),
        _ => None,
    });
    number.expect("it waits until publications arrive")
}

/// Takes a session to a shard. Returns the shard's messages.
pub(super) fn take(rig: &mut Rig, id: Id, saved: Saved) -> Vec<ForNodes> {
    let restored = Restored { saved, is_whole: false, has_mark: true, origins: [0, 5] };
    tell(rig, FromNodes::Restore(id, Box::new(restored)));
    let number = awaited(rig);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    sent(rig, 0)
}

/// Restores a session on a shard. Returns the channels of which it needs the messages that it has missed.
fn restore(rig: &mut Rig, id: Id, saved: Saved) -> Vec<Box<str>> {
    let messages = take(rig, id, saved);
    let is_taken = |message: &ForNodes| matches!(message, ForNodes::Changed { session, since: Since::Taken, .. } if *session == id);
    assert!(messages.iter().any(is_taken), "its record has the mark with which it was taken: {messages:?}");
    let needed = messages.into_iter().find_map(|message| match message {
        ForNodes::Resumes { session, names, .. } if session == id => Some(names),
        ForNodes::Restored(_) => panic!("it has not what it has missed"),
        _ => None,
    });
    needed.expect("it resumes")
}

/// Connects, and confirms a batch. Returns the data that comes, and the number of the next batch.
pub(super) fn connect(rig: &mut Rig, client: &Id, socket: SocketKey, ack: u64) -> (Vec<usize>, u64) {
    let connect = format!(
        r#"{{"channel":"/meta/connect","clientId":"{client}","ext":{{"ack":{ack}}},"advice":{{"timeout":0}}}}"#
    );
    rig.shard.socket_text(NOW, socket, &connect);
    let text = rig.flushed(socket);
    let numbers = |after: &str| {
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
        text.split(after).skip(1).map(|rest| digits(rest).parse().expect("a number")).collect::<Vec<usize>>()
    };
    (numbers("\"data\":"), *numbers("\"ack\":").last().expect("a batch") as u64)
}

#[test]
fn a_session_resumes_with_what_it_has_missed_and_goes_on_with_what_comes_then() {
    let (id, saved) = opened(&mut rig());
    let mut other = rig();
    assert_eq!(restore(&mut other, id, saved), ["/a".into()]);
    // They come before the subscription, between it and the reading of the histories, and after that.
    (1..4).for_each(|number| drop(committed(&other, number)));
    (4..6).for_each(|number| deliver(&mut other, number));
    miss(&mut other, id, 1..6);
    assert!(sent(&mut other, 0).iter().any(|message| matches!(message, ForNodes::Restored(of) if *of == id)));
    (6..8).for_each(|number| deliver(&mut other, number));
    let socket = other.shard.socket_opened(NOW, None);
    let (data, batch) = connect(&mut other, &id, socket, 3);
    assert_eq!(data, (1..8).collect::<Vec<_>>(), "lost, doubled or out of order");
    assert!(batch > 1 << 32, "above all numbers that its client may have seen");
}

#[test]
fn a_session_ends_whose_missed_messages_are_unknown_or_too_many() {
    for (is_known, outbox_messages_max) in [(false, 100), (true, 10)] {
        let (id, saved) = opened(&mut rig());
        let mut other = rig_with(Settings { outbox_messages_max, ..Settings::default() });
        restore(&mut other, id, saved);
        (0..20).for_each(|number| drop(committed(&other, number)));
        match is_known {
            true => miss(&mut other, id, 0..20),
            false => tell(&mut other, FromNodes::Missed(id, None)),
        }
        let messages = sent(&mut other, 0);
        assert!(
            matches!(&messages[..], [ForNodes::Ended { session: of, binds: false, reply: None }, ForNodes::Restored(_)] if *of == id),
            "{messages:?}"
        );
        assert_eq!((other.shard.sessions(), other.shard.metrics().unrestored.get()), (0, 1));
    }
}

#[test]
fn a_session_that_has_not_confirmed_a_tick_is_reported_by_itself() {
    let mut rig = rig();
    let (id, _) = opened(&mut rig);
    let socket = rig.shard.socket_opened(NOW, None);
    let (_, batch) = connect(&mut rig, &id, socket, 0);
    assert_eq!(tick(&mut rig, 5), (vec![], Some((4, false))));
    deliver(&mut rig, 1);
    assert_eq!(tick(&mut rig, 6), (vec![], Some((5, false))), "the message came after tick 5");
    assert_eq!(tick(&mut rig, 7), (vec![Since::Tick(5)], Some((6, true))));
    let (data, next) = connect(&mut rig, &id, socket, batch);
    assert_eq!((data, tick(&mut rig, 8)), (vec![1], (vec![], Some((7, true)))), "sent, and not confirmed");
    connect(&mut rig, &id, socket, next);
    assert_eq!(tick(&mut rig, 17), (vec![Since::Common], Some((16, false))));
}

#[test]
fn a_session_that_resumes_is_reported_as_taken_until_its_client_has_confirmed_what_it_has_missed() {
    let (id, saved) = opened(&mut rig());
    let mut other = rig();
    restore(&mut other, id, saved);
    assert_eq!(tick(&mut other, 20), (vec![], Some((19, true))), "it has nothing to confirm, and does not count");
    (1..3).for_each(|number| drop(committed(&other, number)));
    miss(&mut other, id, 1..3);
    sent(&mut other, 0);
    assert_eq!(tick(&mut other, 31), (vec![], Some((30, true))));
    let socket = other.shard.socket_opened(NOW, None);
    let (_, batch) = connect(&mut other, &id, socket, 0);
    assert_eq!(tick(&mut other, 32), (vec![], Some((31, true))));
    connect(&mut other, &id, socket, batch);
    assert_eq!(tick(&mut other, 33), (vec![Since::Common], Some((32, false))));
}

#[test]
fn a_tick_waits_for_messages_that_came_before_it() {
    let settings = Settings { outbox_messages_max: 8, ..Settings::default() };
    let mut rig = rig_with(settings);
    let (id, _) = opened(&mut rig);
    assert_eq!(tick(&mut rig, 1), (vec![], Some((0, false))));
    let account = rig.shard.machines.env.shared.mailbox.clone();
    let mut number = 0;
    // The budget of fan-outs is spent.
    while rig.shard.machines.admission.waiting() == 0 {
        let publications = committed(&rig, number);
        rig.shard.receive(NOW, Envelope::new(&account, ShardMessage::Publication(publications.into())));
        number += 1;
    }
    assert_eq!(tick(&mut rig, 2), (vec![], None), "a message waits");
    let socket = rig.shard.socket_opened(NOW, None);
    let (_, batch) = connect(&mut rig, &id, socket, 0);
    assert_eq!(rig.shard.machines.admission.waiting(), 0);
    rig.shard.advance(NOW);
    let (data, batch) = connect(&mut rig, &id, socket, batch);
    assert!(!data.is_empty() && batch > 0, "{data:?}");
    assert!(sent(&mut rig, 0).iter().any(|message| matches!(message, ForNodes::Confirmed { tick: 1, .. })));
}

#[test]
fn other_sessions_have_nothing_to_confirm() {
    let mut rig = rig();
    for ext in ["{}", r#"{"ack":true,"replay":true}"#] {
        let (socket, client) = rig.opened(ext);
        rig.connect(&client);
        rig.subscribe(socket, &client);
    }
    sent(&mut rig, 1_000);
    deliver(&mut rig, 1);
    (1..20).for_each(|number| assert_eq!(tick(&mut rig, number), (vec![], Some((number - 1, false)))));
    // One that has ended is forgotten, also if no tick comes.
    let mut rig = self::rig();
    let (id, _) = opened(&mut rig);
    let disconnect = format!(r#"{{"channel":"/meta/disconnect","clientId":"{id}"}}"#);
    assert!(!rig.shard.machines.env.confirmed.is_empty());
    rig.request(disconnect);
    assert!(rig.shard.machines.env.confirmed.is_empty());
    // Without a cluster nobody asks.
    let mut alone = crate::shard::tests::rig();
    let (_, client) = alone.opened(r#"{"ack":true}"#);
    alone.connect(&client);
    assert!(alone.shard.machines.env.confirmed.is_empty());
}

/// A shard with a session of another node that has missed three messages, its id, and their ranges.
fn missing() -> (Rig, Id, Vec<MissedRange>) {
    let (id, saved) = opened(&mut rig());
    let mut other = rig();
    restore(&mut other, id, saved);
    (1..4).for_each(|number| drop(committed(&other, number)));
    let ranges = range(&other, 1..4);
    (other, id, ranges)
}

#[test]
fn a_session_that_ends_while_it_resumes_ends_the_search() {
    for by_client in [false, true] {
        let (mut other, id, ranges) = missing();
        tell(&mut other, FromNodes::Missed(id, Some(ranges)));
        if by_client {
            other.request(format!(r#"{{"channel":"/meta/disconnect","clientId":"{id}"}}"#));
        } else {
            tell(&mut other, FromNodes::Leave(id));
        }
        assert_eq!(other.shard.sessions(), 0);
        other.shard.flush(NOW, &mut other.kernel, &mut || false);
        let messages = sent(&mut other, 0);
        let is_over = messages.iter().any(|message| matches!(message, ForNodes::Restored(of) if *of == id));
        assert!(is_over, "by the client: {by_client}: {messages:?}");
    }
}

// The first request waits in the search for the session; another one of the client comes to the shard that has it.
#[test]
fn a_second_request_while_a_session_resumes_gets_nothing_out_of_order() {
    let (mut other, id, ranges) = missing();
    tell(&mut other, FromNodes::Missed(id, Some(ranges)));
    (4..6).for_each(|number| deliver(&mut other, number));
    let connect = |ack: u64| {
        format!(r#"{{"channel":"/meta/connect","clientId":"{id}","ext":{{"ack":{ack}}},"advice":{{"timeout":0}}}}"#)
    };
    let exchange = other.request(connect(3));
    let mut all = other.response(exchange).unwrap_or_default();
    other.shard.flush(NOW, &mut other.kernel, &mut || false);
    let ack =
        all.split("\"ack\":").last().map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let exchange = other.request(connect(ack.and_then(|ack| ack.parse().ok()).unwrap_or(3)));
    all += &other.response(exchange).unwrap_or_default();
    let numbers: Vec<&str> = all.split("\"data\":").skip(1).map(|rest| &rest[..1]).collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5"], "{all}");
}

#[test]
fn missed_messages_that_come_twice_are_queued_once() {
    let (mut other, id, ranges) = missing();
    tell(&mut other, FromNodes::Missed(id, Some(ranges.clone())));
    tell(&mut other, FromNodes::Missed(id, Some(ranges)));
    other.shard.flush(NOW, &mut other.kernel, &mut || false);
    let socket = other.shard.socket_opened(NOW, None);
    let (data, _) = connect(&mut other, &id, socket, 3);
    assert_eq!(data, [1, 2, 3]);
}

#[test]
fn a_connect_that_is_held_while_a_session_resumes_gets_all_in_order_when_it_has_all() {
    for by_socket in [false, true] {
        let (id, saved) = opened(&mut rig());
        let mut other = rig();
        restore(&mut other, id, saved);
        let socket = other.shard.socket_opened(NOW, None);
        let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{id}","ext":{{"ack":3}}}}"#);
        let exchange = (!by_socket).then(|| other.request(connect.clone()));
        if by_socket {
            other.shard.socket_text(NOW, socket, &connect);
        }
        (1..4).for_each(|number| drop(committed(&other, number)));
        (4..6).for_each(|number| deliver(&mut other, number));
        let text = |rig: &mut Rig| match exchange {
            Some(exchange) => rig.response(exchange).unwrap_or_default(),
            None => rig.flushed(socket),
        };
        assert_eq!(text(&mut other), "", "before it is known what it has missed");
        miss(&mut other, id, 1..6);
        other.shard.flush(NOW, &mut other.kernel, &mut || false);
        let all = text(&mut other);
        let numbers: Vec<&str> = all.split("\"data\":").skip(1).map(|rest| &rest[..1]).collect();
        assert_eq!(numbers, ["1", "2", "3", "4", "5"], "by a WebSocket: {by_socket}: {all}");
    }
}

#[test]
fn what_waits_for_an_interval_comes_once_to_a_session_that_has_missed_it() {
    let (id, saved) = opened(&mut rig());
    let rule =
        ChannelRule { pattern: "/a".into(), history_messages: 100, min_interval_ms: 500, ..ChannelRule::default() };
    let mut other = rig_with_rule(rule, Settings::default());
    restore(&mut other, id, saved);
    (1..3).for_each(|number| deliver(&mut other, number));
    miss(&mut other, id, 1..3);
    let socket = other.shard.socket_opened(NOW, None);
    let (mut data, batch) = connect(&mut other, &id, socket, 3);
    sent(&mut other, 600);
    let (more, _) = connect(&mut other, &id, socket, batch);
    data.extend(more);
    assert_eq!(data, [1, 2], "doubled or out of order");
}
