//! Tests of streams: what they carry in which format, what their connects do, and how their sessions live.

use super::nodes::{reports_of, rig_with};
use super::{NOW, Rig, rig};
use crate::application::NoApplication;
use crate::delivery::Format;
use crate::events::{Effect, Peer, ShardMessage, SocketKey};
use crate::node_messages::ForNodes;
use crate::now::Now;
use crate::settings::Settings;
use crate::shard::{StreamOpener, StreamOpening};

const PROGRAM: StreamOpener = StreamOpener {
    browser: None,
    is_of_page: false,
    peer: Peer { address: None, connection: 0, is_multiplexed: false },
};

/// A session whose handshake had this `ext`, with a stream, subscribed to `/a`.
fn streaming(rig: &mut Rig, ext: &str, format: Format) -> (SocketKey, String) {
    let (socket, client) = rig.opened(ext);
    rig.subscribe(socket, &client);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#);
    rig.shard.socket_text(NOW, socket, &connect);
    rig.flushed(socket);
    rig.shard.socket_closed(NOW, socket);
    (stream(rig, &client, format), client)
}

fn stream(rig: &mut Rig, client: &str, format: Format) -> SocketKey {
    match rig.shard.open_stream(NOW, client, &PROGRAM, format, None) {
        StreamOpening::Here(stream) => stream,
        refused => panic!("{refused:?}"),
    }
}

/// Connects by a request whose reply is expected on the stream. Returns the response to the request.
fn connect(rig: &mut Rig, client: &str, fields: &str) -> String {
    let exchange = rig.request(format!(
        r#"{{"channel":"/meta/connect","id":"7","clientId":"{client}","connectionType":"eventsource"{fields}}}"#
    ));
    rig.response(exchange).expect("a response at once")
}

fn later(ms: u64) -> Now {
    Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms }
}

#[test]
fn messages_of_a_turn_leave_in_one_write_in_the_format_of_the_stream() {
    for (format, text) in [
        (Format::Events, "data: [{\"channel\":\"/a\",\"data\":1}]\n\ndata: [{\"channel\":\"/a\",\"data\":2}]\n\n"),
        (Format::Lines, "[{\"channel\":\"/a\",\"data\":1}]\n[{\"channel\":\"/a\",\"data\":2}]\n"),
    ] {
        let mut rig = rig();
        let (stream, _) = streaming(&mut rig, "{}", format);
        rig.publish(1);
        rig.publish(2);
        assert_eq!(rig.flushed(stream), text);
    }
}

/// Whatever parts the kernel takes, the text arrives once, and no message counts before its last byte is taken.
#[test]
fn a_stream_goes_on_behind_what_the_kernel_has_taken() {
    for room in 1..40 {
        let mut rig = rig();
        let (stream, _) = streaming(&mut rig, "{}", Format::Events);
        let (mut arrived, mut expected) = (String::new(), String::new());
        for data in 0..9 {
            rig.publish(data);
            expected += &format!("data: [{{\"channel\":\"/a\",\"data\":{data}}}]\n\n");
            rig.kernel.room = room;
            arrived += &rig.flushed(stream);
            rig.shard.socket_writable(NOW, stream);
        }
        rig.kernel.room = usize::MAX / 2;
        assert!(rig.shard.metrics().deliveries.get() <= arrived.matches("\n\n").count() as u64, "{room}");
        assert_eq!(arrived + &rig.flushed(stream), expected, "{room}");
        assert_eq!(rig.shard.metrics().deliveries.get(), 9, "{room}");
    }
}

#[test]
fn a_message_that_a_stream_has_in_part_comes_whole_on_the_next_connection() {
    let mut rig = rig();
    let (torn, client) = streaming(&mut rig, "{}", Format::Events);
    rig.publish(1);
    rig.publish(2);
    rig.kernel.room = 45;
    assert_eq!(rig.flushed(torn), "data: [{\"channel\":\"/a\",\"data\":1}]\n\ndata: [{\"c");
    rig.kernel.room = usize::MAX / 2;
    let next = stream(&mut rig, &client, Format::Lines);
    assert_eq!(rig.flushed(next), "[{\"channel\":\"/a\",\"data\":2}]\n");
    let closed = rig.shard.take_effects();
    assert!(matches!(closed[..], [Effect::Close(key)] if key == torn), "{closed:?}");
    rig.shard.socket_closed(NOW, torn);
    rig.publish(3);
    assert_eq!(rig.flushed(next), "[{\"channel\":\"/a\",\"data\":3}]\n");
}

#[test]
fn a_connect_of_a_request_is_held_and_answered_on_the_stream() {
    let mut rig = rig();
    let (stream, client) = streaming(&mut rig, "{}", Format::Events);
    assert_eq!(connect(&mut rig, &client, ""), "[]");
    assert_eq!(rig.flushed(stream), "", "it is held");
    rig.publish(1);
    assert_eq!(rig.flushed(stream), "data: [{\"channel\":\"/a\",\"data\":1}]\n\n", "a message does not end it");
    rig.shard.advance(later(20_000));
    assert!(rig.flushed(stream).starts_with("data: [{\"channel\":\"/meta/connect\",\"id\":\"7\",\"successful\":true"));
}

/// The number that confirms messages is in the event that has them.
#[test]
fn messages_to_acknowledge_come_in_one_event_with_their_connect_and_again_on_the_next_stream() {
    let mut rig = rig();
    let (first, client) = streaming(&mut rig, r#"{"ack":true}"#, Format::Events);
    connect(&mut rig, &client, r#","ext":{"ack":1}"#);
    rig.publish(1);
    let text = rig.flushed(first);
    let event =
        text.strip_prefix("data: [{\"channel\":\"/a\",\"data\":1},{\"channel\":\"/meta/connect\"").expect("one event");
    assert!(event.contains("\"ack\":2") && event.matches("\n\n").count() == 1, "{event}");
    rig.shard.socket_closed(NOW, first);
    let second = stream(&mut rig, &client, Format::Events);
    assert_eq!(rig.flushed(second), "", "it waits for a connect");
    connect(&mut rig, &client, r#","ext":{"ack":1}"#);
    assert!(rig.flushed(second).starts_with("data: [{\"channel\":\"/a\",\"data\":1},{"));
    connect(&mut rig, &client, r#","ext":{"ack":3}"#);
    assert_eq!(rig.flushed(second), "", "all is confirmed");
}

#[test]
fn a_session_lives_as_long_as_its_stream_and_waits_after_it() {
    let mut rig = rig();
    let (stream, client) = streaming(&mut rig, "{}", Format::Events);
    let beats = |rig: &mut Rig, until: u64| {
        let mut text = String::new();
        for second in 0..until {
            rig.shard.advance(later(second * 1_000));
            text += &rig.flushed(stream);
        }
        text
    };
    assert_eq!(beats(&mut rig, 61), ":\n\n".repeat(4), "a sign of life");
    rig.shard.socket_closed(later(60_000), stream);
    rig.shard.advance(later(69_000));
    assert!(rig.shard.holds(&crate::id::Id::parse(&client).expect("an id")).is_some());
    for second in 69..75 {
        rig.shard.advance(later(second * 1_000));
    }
    assert!(rig.shard.holds(&crate::id::Id::parse(&client).expect("an id")).is_none());
}

/// Its messages wait for a connect, which its client may never send.
#[test]
fn a_session_that_acknowledges_gets_signs_of_life_beside_its_waiting_messages() {
    let mut rig = rig();
    let (stream, _) = streaming(&mut rig, r#"{"ack":true}"#, Format::Events);
    rig.publish(1);
    let mut text = String::new();
    for second in 0..31 {
        rig.shard.advance(later(second * 1_000));
        text += &rig.flushed(stream);
    }
    assert_eq!(text, ":\n\n".repeat(2));
}

#[test]
fn a_browser_has_as_many_streams_as_its_connection_allows() {
    let settings = Settings { http2_browser_sessions_max: 2, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let browser = crate::id::Id::parse(&"0".repeat(32));
    let ids = [0; 4].map(|_| {
        let socket = rig.shard.socket_opened(NOW, browser);
        rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
        super::member_of(&rig.flushed(socket), "clientId")
    });
    let opener =
        |is_multiplexed| StreamOpener { browser, is_of_page: true, peer: Peer { is_multiplexed, ..Peer::default() } };
    let mut open = |id: &str, is_multiplexed| {
        matches!(rig.shard.open_stream(NOW, id, &opener(is_multiplexed), Format::Events, None), StreamOpening::Here(_))
    };
    let tries = [(0, false), (0, false), (1, false), (1, true), (2, true), (2, false)];
    assert_eq!(tries.map(|(at, multiplexed)| open(&ids[at], multiplexed)), [true, true, false, true, false, false]);
}

#[test]
fn a_session_moves_between_a_stream_and_requests() {
    let mut rig = rig();
    let (stream_key, client) = streaming(&mut rig, "{}", Format::Lines);
    // Its client expects the reply in the response.
    let held = rig.connect(&client);
    assert_eq!(rig.response(held), None);
    rig.publish(1);
    assert!(rig.response(held).expect("a response").starts_with("[{\"channel\":\"/a\",\"data\":1},"));
    assert_eq!(rig.flushed(stream_key), "");
    rig.shard.delivered(NOW, held, true);
    let held = rig.connect(&client);
    let again = stream(&mut rig, &client, Format::Lines);
    let reply = rig.response(held).expect("the stream replaces it");
    assert!(reply.contains("\"successful\":true"), "{reply}");
    rig.publish(2);
    assert_eq!(rig.flushed(again), "[{\"channel\":\"/a\",\"data\":2}]\n");
}

#[test]
fn a_draining_server_tells_streams_when_to_come_back() {
    let mut rig = rig();
    let (stream, client) = streaming(&mut rig, "{}", Format::Events);
    connect(&mut rig, &client, "");
    rig.shard.message(NOW, ShardMessage::Drain);
    let text = rig.flushed(stream);
    assert!(text.contains("\"reconnect\":\"retry\"") && text.contains("\n\nretry: "), "{text}");
    assert!(rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Close(key) if *key == stream)));
    assert!(matches!(rig.shard.open_stream(NOW, &client, &PROGRAM, Format::Events, None), StreamOpening::Draining));
}

#[test]
fn a_stream_ends_after_its_time_and_a_stranger_gets_none() {
    let settings = Settings { stream_max_ms: 30_000, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (stream, _) = streaming(&mut rig, "{}", Format::Lines);
    for second in 0..=40 {
        rig.shard.advance(later(second * 1_000));
    }
    rig.flushed(stream);
    assert!(rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Close(key) if *key == stream)));
    for id in ["", "x", "0".repeat(32).as_str()] {
        assert_eq!(rig.shard.open_stream(NOW, id, &PROGRAM, Format::Lines, None), StreamOpening::Unknown, "{id}");
    }
}

#[test]
fn a_session_whose_stream_is_open_before_its_first_connect_is_recorded_at_that() {
    let mut rig = rig_with(Settings::default(), Box::new(NoApplication));
    let (socket, client) = rig.opened("{}");
    rig.subscribe(socket, &client);
    rig.flushed(socket);
    rig.shard.socket_closed(NOW, socket);
    stream(&mut rig, &client, Format::Events);
    let records = |rig: &mut Rig, after_ms: u64| {
        let is_record = |message: &ForNodes| matches!(message, ForNodes::Changed { .. });
        reports_of(rig, after_ms).iter().filter(|message| is_record(message)).count()
    };
    assert_eq!(records(&mut rig, 1_000), 0, "it has not connected");
    assert_eq!(connect(&mut rig, &client, ""), "[]");
    assert_eq!(records(&mut rig, 2_000), 1);
}
