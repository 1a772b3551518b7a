//! Tests which clients wait at an edge, and which messages of other shards go first.

use std::collections::VecDeque;

use crate::admission::budget::{Usage, Weight};
use crate::application::NoApplication;
use crate::events::{Effect, EncodedPublications, Envelope, ExchangeId, ShardMessage, SocketKey};
use crate::id::Id;
use crate::now::Now;
use crate::settings::Settings;
use crate::shard::tests::{NOW, Rig, post, rig};

const TEN_READERS: usize = 10;

/// Opens sessions that subscribe to a channel, each on a socket.
fn readers(rig: &mut Rig, channel: &str, count: usize) -> Vec<(SocketKey, String)> {
    let open = |_| {
        let (socket, client) = rig.socket();
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{channel}"}}"#);
        rig.shard.socket_text(NOW, socket, &text);
        rig.flushed(socket);
        (socket, client)
    };
    (0..count).map(open).collect()
}

/// A publication from another shard.
fn envelope(rig: &Rig, channel: &str, data: &str) -> Envelope {
    let account = rig.shard.machines.env.shared.mailbox.clone();
    let publication = EncodedPublications::of_server(&account, channel, data);
    Envelope::new(&account, ShardMessage::Publication(publication.into()))
}

fn waiting_bytes(rig: &Rig, client: &str) -> Option<usize> {
    Some(rig.shard.waiting(&Id::parse(client)?)?.1)
}

#[test]
fn an_outbox_gets_a_part_of_its_capacity_between_two_flushes_whatever_the_number_of_publishers() {
    for asks in [false, true] {
        let mut rig = rig();
        let (_, client) = readers(&mut rig, "/a", 1).remove(0);
        let publishers: Vec<_> = (0..20).map(|_| rig.socket()).collect();
        let data = "x".repeat(900_000);
        let mut left: VecDeque<_> = publishers.into_iter().collect();
        let mut most_bytes = 0;
        while let Some((socket, publisher)) = left.pop_front() {
            if asks && !rig.shard.admits(NOW, Usage::default().weigh(NOW, data.len())) {
                left.push_front((socket, publisher));
                rig.flushed(socket);
                continue;
            }
            let text = format!(r#"{{"channel":"/a","clientId":"{publisher}","data":"{data}"}}"#);
            rig.shard.socket_text(NOW, socket, &text);
            most_bytes = most_bytes.max(waiting_bytes(&rig, &client).unwrap_or(usize::MAX));
        }
        rig.shard.settle_burst();
        // Without asking, the publishers end a reader that had no chance to read.
        assert_eq!(waiting_bytes(&rig, &client).is_some(), asks);
        if asks {
            let outbox_bytes_max = Settings::default().outbox_bytes_max;
            assert!(most_bytes < outbox_bytes_max / 4 + 1_000_000, "{most_bytes}");
            assert_eq!(rig.shard.metrics().slow_disconnected.get(), 0);
        }
    }
}

/// Floods a reader whose kernel takes this many bytes per millisecond. A publisher sends large messages whenever it is
/// admitted. Returns the times when its messages were admitted, in milliseconds from the start, and true if the
/// reader's session is still alive at the end.
fn flood_for_a_reader(settings: Settings, bytes_per_ms: usize, messages: usize) -> (Vec<u64>, bool) {
    flood(&mut Rig::new(1, settings, Box::new(NoApplication)), bytes_per_ms, messages)
}

fn flood(rig: &mut Rig, bytes_per_ms: usize, messages: usize) -> (Vec<u64>, bool) {
    let (reader, _) = readers(rig, "/flood", 1).remove(0);
    let (socket, publisher) = rig.socket();
    let text = format!(r#"{{"channel":"/flood","clientId":"{publisher}","data":"{}"}}"#, "x".repeat(900_000));
    let mut taken = Vec::new();
    for ms in 0..100_000 {
        let now = Now { ms: NOW.ms + ms, ..NOW };
        rig.shard.advance(now);
        rig.kernel.room = bytes_per_ms;
        rig.shard.socket_writable(now, reader);
        // Further flushes, as other clients cause them.
        for _ in 0..4 {
            while taken.len() < messages && rig.shard.admits(now, Weight::Heavy) {
                rig.shard.socket_text(now, socket, &text);
                taken.push(ms);
            }
            rig.shard.flush(now, &mut rig.kernel, &mut || false);
            rig.shard.take_effects();
        }
        if taken.len() == messages {
            break;
        }
    }
    (taken, rig.shard.metrics().slow_disconnected.get() == 0)
}

#[test]
fn publishers_wait_for_a_reader_that_is_behind_and_still_reads() {
    let (taken, lives) = flood_for_a_reader(Settings::default(), 100_000, 200);
    assert!(taken.len() == 200 && lives, "{} messages, lives: {lives}", taken.len());
    // As fast as it reads and no faster: 9 ms each, except for what its outbox holds.
    let last = taken.last().copied().unwrap_or_default();
    assert!((9 * 180..9 * 201).contains(&last), "{last} ms");
}

#[test]
fn publishers_wait_for_a_reader_beside_one_that_replays() {
    let rule = crate::ChannelRule { pattern: "/flood".into(), history_messages: 4, ..Default::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (away, client) = rig.opened(r#"{"replay":true}"#);
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/flood"}}"#);
    rig.shard.socket_text(NOW, away, &text);
    rig.shard.socket_closed(NOW, away);
    let (taken, lives) = flood(&mut rig, 100_000, 200);
    assert!(taken.len() == 200 && lives, "{} messages, lives: {lives}", taken.len());
}

#[test]
fn a_reader_that_reads_nothing_is_ended_by_its_limit_and_delays_publishers_only_briefly() {
    let (taken, lives) = flood_for_a_reader(Settings::default(), 0, 200);
    assert!(taken.len() == 200 && !lives, "{} messages, lives: {lives}", taken.len());
    let pauses = taken.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(pauses.max() <= Some(250));
    assert!(taken.last() <= Some(&1_000), "{taken:?}");
}

#[test]
fn publishers_do_not_wait_for_readers_with_small_outboxes() {
    let settings = Settings { outbox_messages_max: 100, ..Settings::default() };
    let (taken, _) = flood_for_a_reader(settings, 0, 200);
    assert!(taken.last() <= Some(&50), "{taken:?}");
}

#[test]
fn a_reader_that_is_behind_for_long_delays_no_publisher_until_its_outbox_was_empty() {
    let rule = crate::ChannelRule {
        pattern: "/flood".into(),
        slow_consumer: crate::SlowConsumer::DropOldest,
        ..Default::default()
    };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (reader, _) = readers(&mut rig, "/flood", 1).remove(0);
    let (socket, publisher) = rig.socket();
    let text = format!(r#"{{"channel":"/flood","clientId":"{publisher}","data":"{}"}}"#, "x".repeat(900_000));
    let at = |rig: &mut Rig, ms, room| {
        let now = Now { ms: NOW.ms + ms, ..NOW };
        rig.kernel.room = room;
        rig.shard.advance(now);
        if room > 0 {
            rig.shard.socket_writable(now, reader);
            rig.shard.flush(now, &mut rig.kernel, &mut || false);
        }
        rig.kernel.room = 0;
        let taken = (0..100).take_while(|_| {
            rig.shard.admits(now, Weight::Heavy) && {
                rig.shard.socket_text(now, socket, &text);
                rig.shard.flush(now, &mut rig.kernel, &mut || false);
                true
            }
        });
        taken.count()
    };
    assert!(at(&mut rig, 0, 0) < 20, "it is behind");
    for ms in (250..1_000).step_by(250) {
        assert!((1..10).contains(&at(&mut rig, ms, 0)), "at {ms} ms");
    }
    assert_eq!(at(&mut rig, 1_250, 0), 100, "nobody waits for it any more");
    assert!(at(&mut rig, 1_300, usize::MAX / 2) < 20, "it reads again and is waited for again");
}

#[test]
fn small_messages_wait_for_a_flush_when_they_reach_the_message_limit_of_an_outbox() {
    let mut rig = Rig::new(1, Settings { outbox_messages_max: 100, ..Settings::default() }, Box::new(NoApplication));
    readers(&mut rig, "/a", TEN_READERS);
    let (socket, publisher) = rig.socket();
    let mut count = 0;
    while rig.shard.admits(NOW, Weight::Heavy) {
        let text = format!(r#"{{"channel":"/a","clientId":"{publisher}","data":{count}}}"#);
        rig.shard.socket_text(NOW, socket, &text);
        count += 1;
    }
    assert_eq!(count, 25);
    assert!(rig.shard.admits(NOW, Weight::Light), "there is room for others");
    rig.flushed(socket);
    assert!(rig.shard.admits(NOW, Weight::Heavy));
    assert_eq!(rig.shard.metrics().slow_disconnected.get(), 0);
}

#[test]
fn a_client_that_causes_much_work_is_heavy_for_a_while_and_others_never() {
    let at = |ms| Now { ms, ..NOW };
    let mut usage = Usage::default();
    assert_eq!((usage.weigh(NOW, 100), usage.weigh(NOW, 100_000)), (Weight::Light, Weight::Heavy));
    usage.add(at(1_000), 6_000_000);
    assert_eq!((usage.weigh(at(1_001), 1), usage.weigh(at(3_000), 1)), (Weight::Heavy, Weight::Light));
    let mut usage = Usage::default();
    for ms in (0..10_000).step_by(100) {
        usage.add(at(ms), 20_000);
        assert_eq!(usage.weigh(at(ms), 1), Weight::Light);
    }
}

#[test]
fn a_message_on_another_channel_does_not_wait_behind_a_flood_from_another_shard() {
    let mut rig = Rig::new(2, Settings::default(), Box::new(NoApplication));
    readers(&mut rig, "/flood", 12);
    let (socket, client) = readers(&mut rig, "/quiet", 1).remove(0);
    let data = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..60 {
        let envelope = envelope(&rig, "/flood", &data);
        rig.shard.receive(NOW, envelope);
    }
    assert!(rig.shard.metrics().arrivals_delayed.get() > 40);
    let light = envelope(&rig, "/quiet", "\"light\"");
    rig.shard.receive(NOW, light);
    assert!(rig.flushed(socket).contains("\"light\""), "what is light goes past the queues of others");
    // A heavy one has its own queue, and its turn comes after one turn's share of the flood.
    let heavy = envelope(&rig, "/quiet", &format!("\"heavy{}\"", "x".repeat(20_000)));
    rig.shard.receive(NOW, heavy);
    let flushes = (1..).find(|_| rig.flushed(socket).contains("\"heavy")).expect("it comes");
    assert!(flushes <= 3, "{flushes}");
    // A request is processed before anything else is written.
    let connect = rig.connect(&client);
    assert!(rig.shard.machines.admission.waiting() > 10 && rig.response(connect).is_none(), "it is held at once");
    while !rig.shard.is_settled() {
        rig.flushed(socket);
        rig.shard.take_effects();
    }
    assert_eq!(rig.shard.machines.env.shared.mailbox.bytes(), 0);
}

#[test]
fn two_floods_from_another_shard_share_the_work_equally() {
    let mut rig = Rig::new(2, Settings::default(), Box::new(NoApplication));
    let [big, small] = ["/big", "/small"].map(|channel| readers(&mut rig, channel, 6).remove(0).0);
    let data = |bytes| format!("\"{}\"", "x".repeat(bytes));
    for number in 0..400 {
        let (channel, data) = if number % 10 == 0 { ("/big", data(100_000)) } else { ("/small", data(10_000)) };
        let envelope = envelope(&rig, channel, &data);
        rig.shard.receive(NOW, envelope);
    }
    // Receives the messages that arrived while there was room.
    rig.flushed(big);
    rig.flushed(small);
    let (mut bigs, mut smalls) = (0, 0);
    while bigs < 8 {
        bigs += rig.flushed(big).matches("\"data\"").count();
        smalls += rig.flushed(small).matches("\"data\"").count();
    }
    assert!(smalls >= 4 * bigs, "{bigs} of 100 kB, {smalls} of 10 kB");
}

#[test]
fn messages_of_one_channel_from_another_shard_stay_in_order() {
    let mut rig = Rig::new(2, Settings { outbox_messages_max: 40, ..Settings::default() }, Box::new(NoApplication));
    let (socket, _) = readers(&mut rig, "/b", 1).remove(0);
    let mut text = String::new();
    for number in 0..200 {
        // The long ones are heavy; the short ones could overtake them.
        let data = format!("\"{number} {}\"", "x".repeat(if number % 3 == 0 { 10_000 } else { 1 }));
        let envelope = envelope(&rig, "/b", &data);
        rig.shard.receive(NOW, envelope);
        if number % 50 == 0 {
            text += &rig.flushed(socket);
        }
    }
    while !rig.shard.is_settled() {
        text += &rig.flushed(socket);
    }
    let numbers = text.split("\"data\":\"").skip(1).map(|rest| rest.split(' ').next().unwrap_or_default().parse());
    assert_eq!(numbers.collect::<Result<Vec<usize>, _>>(), Ok((0..200).collect()));
}

#[test]
fn no_session_expires_while_the_server_does_not_read_its_connection() {
    let settings = Settings { max_interval_ms: 10_000, websocket_idle_timeout_ms: 20_000, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (socket, client) = rig.socket();
    let (closed, poller) = rig.socket();
    rig.shard.socket_closed(NOW, closed);
    let ids = [&client, &poller].map(|client| Id::parse(client).expect("an id"));
    let mut ms = NOW.ms;
    for _ in 0..200 {
        ms += 256;
        let now = Now { ms, ..NOW };
        rig.shard.socket_waits(now, socket);
        rig.shard.request_waits(now, ids[1]);
        rig.shard.advance(now);
        rig.flushed(socket);
    }
    assert_eq!((rig.shard.sessions(), rig.shard.has_socket(socket)), (2, true));
    for _ in 0..200 {
        ms += 256;
        rig.shard.advance(Now { ms, ..NOW });
        rig.flushed(socket);
    }
    assert_eq!(rig.shard.sessions(), 0);
}

#[test]
fn a_session_does_not_expire_while_its_request_waits_behind_a_flood_from_another_shard() {
    let settings = Settings { max_interval_ms: 10_000, ..Settings::default() };
    let mut rig = Rig::new(2, settings, Box::new(NoApplication));
    readers(&mut rig, "/flood", 12);
    let (closed, client) = rig.socket();
    rig.shard.socket_closed(NOW, closed);
    let data = "x".repeat(60_000);
    for _ in 0..60 {
        let envelope = envelope(&rig, "/flood", &format!("\"{data}\""));
        rig.shard.receive(NOW, envelope);
    }
    let exchange = ExchangeId { shard: 1, number: 1 };
    let body = format!(r#"[{{"channel":"/other","clientId":"{client}","data":"{data}"}}]"#);
    let request = post(exchange, body);
    let account = rig.shard.machines.env.shared.mailbox.clone();
    rig.shard.receive(NOW, Envelope::new(&account, ShardMessage::Request(request.into())));
    assert!(rig.shard.has_waiting(exchange));
    for ms in (0..50_000).step_by(256) {
        rig.shard.advance(Now { ms: NOW.ms + ms, ..NOW });
    }
    assert_eq!(rig.shard.sessions(), 1, "the others were silent");
    while rig.shard.has_waiting(exchange) {
        rig.flushed(closed);
    }
    let answers = |effect| match effect {
        Effect::SendToShard(1, ShardMessage::Response(of, response)) if of == exchange => Some(response.body),
        _ => None,
    };
    let body = rig.shard.take_effects().into_iter().find_map(answers).expect("a response");
    assert!(String::from_utf8_lossy(&body).contains("\"successful\":true"));
}

#[test]
fn a_publication_arrives_even_if_the_limits_of_names_have_changed() {
    let mut rig = Rig::new(2, Settings::default(), Box::new(NoApplication));
    let (socket, _) = readers(&mut rig, "/long/name", 1).remove(0);
    let strict = Settings { channel_bytes_max: 4, channel_segments_max: 1, ..Settings::default() };
    rig.shard.message(NOW, ShardMessage::Settings(strict.into()));
    for record in [false, true] {
        let mut envelope = envelope(&rig, "/long/name", "7");
        if record && let ShardMessage::Publication(publication) = envelope.message {
            envelope.message = ShardMessage::Record(publication);
        }
        rig.shard.receive(NOW, envelope);
        assert!(rig.flushed(socket).contains("\"data\":7"));
    }
}

#[test]
fn an_edge_and_the_publications_of_other_shards_take_turns() {
    let mut rig = Rig::new(2, Settings::default(), Box::new(NoApplication));
    let (socket, publisher) = readers(&mut rig, "/flood", 30).remove(0);
    let data = format!("\"{}\"", "x".repeat(300_000));
    for _ in 0..24 {
        let envelope = envelope(&rig, "/flood", &data);
        rig.shard.receive(NOW, envelope);
    }
    let (mut taken, before) = (0, rig.shard.machines.admission.waiting());
    for _ in 0..8 {
        if rig.shard.admits(NOW, Weight::Heavy) {
            let text = format!(r#"{{"channel":"/flood","clientId":"{publisher}","data":{data}}}"#);
            rig.shard.socket_text(NOW, socket, &text);
            taken += 1;
        }
        rig.flushed(socket);
    }
    let arrived = before - rig.shard.machines.admission.waiting();
    assert!(taken >= 3 && arrived >= 3, "{taken} at the edge, {arrived} from the other shard");
}
