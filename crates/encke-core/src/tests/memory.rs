//! Sessions hold about as much memory as their limits allow, however little they read.

use std::sync::Arc;

use crate::admission::budget::Weight;
use crate::application::{Answer, Application, Handshake, NoApplication, Refusal};
use crate::delivery::{Session, Socket};
use crate::events::{Peer, SocketKey};
use crate::id::Id;
use crate::identity::{Head, Identity, Patterns};
use crate::now::Now;
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::{NOW, Rig, member_of};

/// A server whose sessions may hold this many bytes. It checks their memory each time it has grown by a 64th.
fn rig(sessions_bytes_max: usize) -> Rig {
    Rig::new(1, Settings { sessions_bytes_max, ..Settings::default() }, Box::new(NoApplication))
}

/// A WebSocket with a session that subscribes to a channel.
fn subscriber(rig: &mut Rig, ack: bool, channel: &str) -> (SocketKey, String) {
    let key = rig.shard.socket_opened(NOW, None);
    let text = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{{"ack":{ack}}}}}"#);
    rig.shard.socket_text(NOW, key, &text);
    let client = member_of(&rig.flushed(key), "clientId");
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{channel}"}}"#);
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key);
    (key, client)
}

/// Connects, with an immediate reply, without acknowledging anything.
fn connect(rig: &mut Rig, key: SocketKey, client: &str) -> String {
    let text = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key)
}

fn publish(rig: &mut Rig, channel: &str, data: String) {
    rig.shard.publish_now(channel, &data);
}

fn held(rig: &mut Rig, key: SocketKey) -> usize {
    rig.flushed(key);
    rig.shard.advance(NOW);
    let (counted, walked) = rig.shard.memory();
    assert_eq!(counted, walked);
    // The gauge for operators excludes queues.
    let frames = rig.shard.metrics().frame_bytes.get() as usize;
    assert!(frames <= counted);
    rig.shard.held_bytes()
}

/// The numbers in all messages of a text.
fn numbers(text: &str) -> Vec<u64> {
    let after = text.split("{\"n\":").skip(1);
    after.filter_map(|rest| rest.split('}').next()?.parse().ok()).collect()
}

/// The numbers of the messages that a client gets over a new WebSocket, without acknowledging anything.
fn drained(rig: &mut Rig, client: &str) -> Vec<u64> {
    let key = rig.shard.socket_opened(NOW, None);
    let mut all = Vec::new();
    loop {
        let got = numbers(&connect(rig, key, client));
        all.extend(&got);
        if got.is_empty() {
            return all;
        }
    }
}

#[test]
fn a_sleeping_session_does_not_keep_the_traffic_of_others_alive() {
    for (ack, connects) in [(false, false), (true, false), (true, true)] {
        let mut rig = rig(64 << 20);
        let (key, client) = subscriber(&mut rig, ack, "/a");
        if !connects {
            rig.shard.socket_closed(NOW, key);
        }
        let mut most = 0;
        for number in 0..2_000 {
            publish(&mut rig, "/a", format!("{{\"n\":{number}}}"));
            (0..2).for_each(|_| publish(&mut rig, "/b", format!("\"{}\"", "x".repeat(20_000))));
            if connects && number % 10 == 0 {
                connect(&mut rig, key, &client);
            }
            rig.flushed(key);
            most = most.max(rig.shard.held_bytes());
        }
        held(&mut rig, key);
        // A message takes 50 bytes, and the record of a batch of ten about 280 more: 150 KB, while 80 MB were written.
        assert!(most < 4 << 20, "{most} bytes, {ack} {connects}");
        assert_eq!(drained(&mut rig, &client), (0..2_000).collect::<Vec<u64>>(), "{ack} {connects}");
    }
}

#[test]
fn sessions_with_scattered_messages_share_them() {
    for ack in [false, true] {
        let mut rig = rig(64 << 20);
        let clients: Vec<_> = (0..200)
            .map(|number| {
                let (key, client) = subscriber(&mut rig, ack, ["/x", "/y"][number % 2]);
                rig.shard.socket_closed(NOW, key);
                client
            })
            .collect();
        let (spare, _) = subscriber(&mut rig, false, "/z");
        let mut most = 0;
        for number in 0..10_000 {
            publish(&mut rig, ["/x", "/y"][number % 2], format!("{{\"n\":{number}}}"));
            rig.flushed(spare);
            most = most.max(rig.shard.held_bytes());
        }
        held(&mut rig, spare);
        // Each session has 5,000 messages queued: a queue of 120 KB if none of them are merged, 24 MB for all sessions.
        assert!(most < 8 << 20, "{most} bytes, {ack}");
        assert_eq!(rig.shard.metrics().slow_disconnected.get(), 0);
        for (first, client) in clients.iter().enumerate().take(4) {
            let expected: Vec<u64> = (first as u64 % 2..10_000).step_by(2).collect();
            assert_eq!(drained(&mut rig, client), expected, "{ack}");
        }
    }
}

#[test]
fn a_partly_written_message_survives_packing() {
    let mut rig = rig(16 << 20);
    let (key, client) = subscriber(&mut rig, false, "/a");
    rig.kernel.room = 0;
    for number in 0..50 {
        publish(&mut rig, "/a", format!("{{\"n\":{number}}}"));
        (0..3).for_each(|_| publish(&mut rig, "/b", format!("\"{}\"", "x".repeat(20_000))));
    }
    rig.kernel.room = 70;
    let mut taken = Vec::new();
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    taken.extend(rig.kernel.taken.remove(&key).unwrap_or_default());
    assert_eq!(taken.len(), 70, "one message and a part of the next");
    let sweeps = rig.shard.metrics().sweeps.get();
    for number in 50..1_000 {
        publish(&mut rig, "/a", format!("{{\"n\":{number}}}"));
        (0..3).for_each(|_| publish(&mut rig, "/b", format!("\"{}\"", "x".repeat(20_000))));
        rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
        assert!(rig.shard.held_bytes() < 2 << 20);
    }
    assert!(rig.shard.metrics().sweeps.get() > sweeps);
    rig.kernel.room = usize::MAX / 2;
    rig.shard.socket_writable(NOW, key);
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    taken.extend(rig.kernel.taken.remove(&key).unwrap_or_default());
    let mut rest = &taken[..];
    let mut all = Vec::new();
    while let Some((head, length)) = websocket::frame::split(rest) {
        all.extend(numbers(&String::from_utf8_lossy(&rest[head..head + length])));
        rest = &rest[head + length..];
    }
    assert!(rest.is_empty());
    assert_eq!(all, (0..1_000).collect::<Vec<u64>>(), "{client}");
}

#[test]
fn when_all_sessions_hold_too_much_the_largest_are_ended_and_counted() {
    let mut rig = rig(8 << 20);
    let clients: Vec<_> = (0..20)
        .map(|number| {
            let (key, client) = subscriber(&mut rig, number % 2 == 0, &format!("/own/{number}"));
            rig.shard.socket_closed(NOW, key);
            client
        })
        .collect();
    let (spare, _) = subscriber(&mut rig, false, "/z");
    let mut most = 0;
    for round in 0..1_000 {
        for number in 0..20 {
            // The first few hold little.
            let bytes = if number < 4 { 10 } else { 100 * number };
            publish(&mut rig, &format!("/own/{number}"), format!("\"{}\"", "x".repeat(bytes)));
        }
        let now = Now { ms: NOW.ms + round, ..NOW };
        rig.shard.flush(now, &mut rig.kernel, &mut || false);
        most = most.max(rig.shard.held_bytes());
        assert!(rig.shard.held_bytes() < 9 << 20, "round {round}");
    }
    let ended = rig.shard.metrics().ended_for_memory.get();
    assert!(most > 7 << 20 && ended > 0, "{most} {ended}");
    assert_eq!(rig.shard.metrics().slow_disconnected.get(), ended);
    held(&mut rig, spare);
    let lives = |client: &String| rig.shard.waiting(&Id::parse(client).expect("an id")).is_some();
    assert!(clients[..4].iter().all(lives));
}

#[test]
fn while_all_sessions_hold_too_much_heavy_messages_wait_and_light_ones_do_not() {
    let settings = Settings { sessions_bytes_max: 8 << 20, ..Settings::default() };
    let mut rig = Rig::new(2, settings, Box::new(NoApplication));
    let mut admitted = |other_shard_bytes| {
        rig.shard.machines.env.shared.memory.publish(1, other_shard_bytes);
        [Weight::Heavy, Weight::Light].map(|weight| rig.shard.admits(NOW, weight))
    };
    assert_eq!(admitted(7 << 20), [true, true]);
    assert_eq!(admitted(9 << 20), [false, true]);
    assert_eq!(admitted(7 << 20), [true, true]);
}

#[test]
fn when_all_sessions_hold_too_much_replaying_sessions_use_their_histories_and_lose_nothing() {
    let rule = ChannelRule { pattern: "/h".into(), history_messages: 10_000, ..ChannelRule::default() };
    let settings = Settings { sessions_bytes_max: 4 << 20, channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let key = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0","ext":{"replay":true}}"#);
    let client = member_of(&rig.flushed(key), "clientId");
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/h"}}"#);
    rig.shard.socket_text(NOW, key, &text);
    rig.flushed(key);
    rig.shard.socket_closed(NOW, key);
    let padding = "x".repeat(8_000);
    for number in 0..1_000 {
        publish(&mut rig, "/h", format!("[{{\"n\":{number}}},\"{padding}\"]"));
        rig.flushed(key);
        assert!(rig.shard.held_bytes() < 5 << 20, "{number}");
    }
    assert_eq!(rig.shard.metrics().ended_for_memory.get(), 0);
    let key = rig.shard.socket_opened(NOW, None);
    let mut all = Vec::new();
    loop {
        let mut got = numbers(&connect(&mut rig, key, &client));
        while !rig.shard.is_settled() {
            got.extend(numbers(&rig.flushed(key)));
            rig.shard.take_effects();
        }
        if got.is_empty() {
            break;
        }
        all.extend(got);
    }
    assert_eq!(all, (0..1_000).collect::<Vec<u64>>());
}

/// Gives each session a user with as many rights as its `ext` says.
struct Rights;

impl Application for Rights {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let rooms = handshake.ext.and_then(|ext| member_of(ext, "rooms").parse().ok()).unwrap_or(0);
        let subscribe = Patterns::new((0..rooms).map(|room| format!("/room/{room}"))).ok().filter(|_| rooms > 0);
        Answer::Now(Ok(Some(Identity { subscribe, ..Identity::of_user("ann") })))
    }

    fn reads_heads(&self) -> bool {
        true
    }
}

/// The head of an upgrade request, an identity with its rights, and subscriptions with their names.
#[test]
fn what_a_session_holds_beside_its_queues_counts_until_it_ends() {
    let mut rig = Rig::new(1, Settings { sessions_bytes_max: 2 << 20, ..Settings::default() }, Box::new(Rights));
    let (idle, _) = rig.opened(r#"{"rooms":"0"}"#);
    let before = held(&mut rig, idle);
    let mut grows = |more: &dyn Fn(&mut Rig) -> SocketKey, least: usize| {
        let before = held(&mut rig, idle);
        let key = more(&mut rig);
        let grown = held(&mut rig, idle) - before;
        assert!((least..least + 4_096).contains(&grown), "{grown} in place of {least}");
        key
    };
    let with_head = grows(
        &|rig| {
            let key = rig.shard.socket_opened(NOW, None);
            let head = Head::new("/cometd", [("cookie", "c".repeat(15_000).as_bytes())], None);
            rig.shard.socket_is_of(key, Peer::default(), false, Some(Arc::new(head)));
            key
        },
        15_000,
    );
    let with_rights = grows(&|rig| rig.opened(r#"{"rooms":"700"}"#).0, 700 * 13);
    let with_names = grows(
        &|rig| {
            let (key, client) = rig.opened(r#"{"rooms":"0"}"#);
            let names: Vec<_> = (0..100).map(|nth| format!("\"/{}/{nth}\"", "n".repeat(200))).collect();
            let names = names.join(",");
            let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":[{names}]}}"#);
            rig.shard.socket_text(NOW, key, &text);
            rig.shard.socket_text(NOW, key, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
            key
        },
        100 * (205 + 16 + 60),
    );
    [with_head, with_rights, with_names].into_iter().for_each(|key| rig.shard.socket_closed(NOW, key));
    for seconds in 0..60 {
        rig.shard.advance(Now { ms: NOW.ms + seconds * 1_000, ..NOW });
    }
    rig.flushed(idle);
    let (counted, walked) = rig.shard.memory();
    assert!(counted == walked && rig.shard.held_bytes() <= before + 1_024, "{counted} {walked} {before}");
}

/// The sessions with the largest identities end, and small ones live.
#[test]
fn sessions_with_large_rights_end_first_when_all_hold_too_much() {
    let mut rig = Rig::new(1, Settings { sessions_bytes_max: 2 << 20, ..Settings::default() }, Box::new(Rights));
    let small: Vec<_> = (0..20).map(|_| rig.opened(r#"{"rooms":"1"}"#)).collect();
    for _ in 0..400 {
        let (key, _) = rig.opened(r#"{"rooms":"1000"}"#);
        held(&mut rig, key);
    }
    assert!(rig.shard.metrics().ended_for_memory.get() > 10, "{}", rig.shard.metrics().ended_for_memory.get());
    assert!(small.iter().all(|(_, client)| rig.shard.waiting(&Id::parse(client).expect("an id")).is_some()));
}

#[test]
fn closed_sessions_and_sockets_leave_little_memory() {
    let mut rig = rig(64 << 20);
    let sockets: Vec<SocketKey> = (0..10_000)
        .map(|_| {
            let key = rig.shard.socket_opened(NOW, None);
            rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
            key
        })
        .collect();
    assert_eq!(rig.shard.sessions(), 10_000);
    sockets.into_iter().for_each(|key| rig.shard.socket_closed(NOW, key));
    for seconds in 0..60 {
        rig.shard.advance(Now { ms: NOW.ms + seconds * 1_000, ..NOW });
    }
    assert_eq!(rig.shard.sessions(), 0);
    assert!(
        rig.shard.machines.delivery.session_slots() <= 4_096,
        "room for {} sessions",
        rig.shard.machines.delivery.session_slots()
    );
    assert!(
        rig.shard.machines.delivery.socket_slots() <= 4_096,
        "room for {} sockets",
        rig.shard.machines.delivery.socket_slots()
    );
}

/// Most sessions are idle. State that only some of them have is in boxes, which the others do not pay for.
#[test]
fn an_idle_session_and_its_websocket_have_small_records() {
    assert!(size_of::<Session>() <= 352, "{}", size_of::<Session>());
    assert!(size_of::<Socket>() <= 128, "{}", size_of::<Socket>());
    let mut rig = rig(1 << 20);
    for ack in [false, true] {
        let (key, client) = subscriber(&mut rig, ack, "/a");
        connect(&mut rig, key, &client);
        rig.shard.socket_ping(NOW, key, b"alive");
        rig.flushed(key);
        assert!(rig.shard.machines.delivery.socket(key).expect("it is open").has_no_frames(), "ack: {ack}");
    }
}
