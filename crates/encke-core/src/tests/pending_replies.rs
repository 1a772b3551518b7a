//! Replies to publications that wait for the disk.

use crate::application::NoApplication;
use crate::delivery::Received;
use crate::events::{Closing, Effect, PersistRequest, Persisted, ShardMessage};
use crate::id::{Id, kernel_entropy};
use crate::settings::{ChannelRule, Settings};
use crate::shard::Shared;
use crate::shard::tests::{NOW, Rig};

/// A shard whose histories of `/a` and `/b` survive the process. Nothing is persisted until a test says so.
fn rig() -> Rig {
    let rule = |pattern: &str| ChannelRule { pattern: pattern.into(), history_messages: 10, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule("/a"), rule("/b")], history_channels_max: 8, ..Settings::default() };
    let mut shared = Shared::new(1, Box::new(NoApplication));
    shared.is_durable = true;
    Rig::with(shared, settings)
}

/// The shard's persist requests, and its responses.
fn effects(rig: &mut Rig) -> (Vec<PersistRequest>, Vec<String>) {
    let (mut keeps, mut responses) = (Vec::new(), Vec::new());
    for effect in rig.shard.take_effects() {
        match effect {
            Effect::Persist(keep) => keeps.push(keep),
            Effect::Respond(_, response) => responses.push(String::from_utf8_lossy(&response.body).into_owned()),
            _ => {}
        }
    }
    (keeps, responses)
}

fn settle(rig: &mut Rig, keep: &PersistRequest, is_persisted: bool) {
    let token = keep.token.expect("somebody waits");
    rig.shard.message(NOW, ShardMessage::Persisted(vec![Persisted { number: token.number, is_persisted }]));
}

fn publication(client: &str, channel: &str, id: &str) -> String {
    format!(r#"{{"channel":"{channel}","clientId":"{client}","id":"{id}","data":1}}"#)
}

#[test]
fn messages_are_delivered_at_once_and_their_replies_follow_when_they_are_stored() {
    let mut rig = rig();
    let (subscriber, _) = rig.socket();
    let (socket, client) = rig.socket();
    for id in ["1", "2"] {
        rig.shard.socket_text(NOW, socket, &publication(&client, "/a", id));
    }
    let (keeps, _) = effects(&mut rig);
    assert_eq!(rig.flushed(subscriber).matches("\"data\":1").count(), 2, "nobody waits for a disk");
    assert!(!rig.flushed(socket).contains("successful"));
    let messages: Vec<_> = keeps.iter().filter(|keep| keep.token.is_some()).collect();
    assert_eq!(messages.len(), 1, "one burst, one record");
    settle(&mut rig, messages[0], true);
    let replies = rig.flushed(socket);
    assert!(
        replies
            .contains(r#"[{"channel":"/a","id":"1","successful":true},{"channel":"/a","id":"2","successful":true}]"#)
    );
    assert_eq!(rig.shard.holdings()[7], ("pending publish replies", 0));
}

#[test]
fn nothing_is_pending_for_a_publisher_that_declines_replies() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    let declined = |id| publication(&client, "/a", id).replace('}', r#","ext":{"reply":false}}"#);
    rig.shard.socket_text(NOW, socket, &declined("1"));
    assert_eq!(rig.shard.holdings()[7], ("pending publish replies", 0));
    // It shares a record with one whose reply waits for the disk as always.
    rig.shard.socket_text(NOW, socket, &publication(&client, "/a", "2"));
    rig.request(format!("[{}]", declined("3")));
    let (keeps, responses) = effects(&mut rig);
    assert_eq!(responses, ["[]"], "it does not wait for the disk");
    for keep in keeps.iter().filter(|keep| keep.token.is_some()) {
        settle(&mut rig, keep, true);
    }
    let frames = rig.flushed(socket);
    assert_eq!(frames.matches("successful").count(), 1, "{frames}");
    assert!(frames.contains(r#"[{"channel":"/a","id":"2","successful":true}]"#), "{frames}");
}

#[test]
fn a_publisher_gets_an_error_for_a_message_that_was_not_stored() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_text(NOW, socket, &publication(&client, "/a", "1"));
    let (keeps, _) = effects(&mut rig);
    settle(&mut rig, &keeps[keeps.len() - 1], false);
    assert!(rig.flushed(socket).contains(r#""successful":false,"error":"507:/a:history_not_stored""#));
}

#[test]
fn a_publisher_gets_an_error_at_once_if_there_is_no_room_for_a_history() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    let settings = rig.shard.settings().as_ref().clone();
    rig.shard.socket_text(NOW, socket, &publication(&client, "/a", "1"));
    rig.shard.message(NOW, ShardMessage::Settings(Settings { history_channels_max: 1, ..settings }.into()));
    rig.shard.socket_text(NOW, socket, &publication(&client, "/b", "2"));
    effects(&mut rig);
    let replies = rig.flushed(socket);
    assert!(replies.contains("507:/b:history_not_stored") && !replies.contains("\"id\":\"1\",\"succ"), "{replies}");
}

#[test]
fn a_request_waits_for_all_its_publications_and_has_its_replies_in_order() {
    let mut rig = rig();
    let (_, client) = rig.socket();
    let subscribe = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","id":"2","subscription":"/c"}}"#);
    let messages =
        [publication(&client, "/a", "1"), subscribe, publication(&client, "/b", "3"), publication(&client, "/c", "4")];
    rig.request(format!("[{}]", messages.join(",")));
    let (keeps, responses) = effects(&mut rig);
    assert_eq!((keeps.len(), responses.len()), (2, 0));
    settle(&mut rig, &keeps[1], false);
    assert_eq!(effects(&mut rig).1.len(), 0);
    settle(&mut rig, &keeps[0], true);
    let response = effects(&mut rig).1.remove(0);
    let ids: Vec<_> = response.match_indices("\"id\":\"").map(|(at, text)| &response[at + text.len()..][..1]).collect();
    assert_eq!(ids, ["1", "2", "3", "4"], "{response}");
    assert_eq!(response.matches("\"successful\":true").count(), 3, "{response}");
}

#[test]
fn a_connect_beside_a_publication_is_answered_at_once_and_the_reply_comes_later() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_closed(NOW, socket);
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","id":"9"}}"#);
    rig.request(format!("[{},{connect}]", publication(&client, "/b", "1")));
    let (keeps, responses) = effects(&mut rig);
    assert!(responses[0].contains("\"id\":\"9\"") && !responses[0].contains("\"id\":\"1\""), "{responses:?}");
    settle(&mut rig, &keeps[0], true);
    rig.request(format!("[{connect}]"));
    rig.flushed(socket);
    let response = effects(&mut rig).1.remove(0);
    assert!(response.contains(r#"{"channel":"/b","id":"1","successful":true}"#), "{response}");
}

#[test]
fn a_disconnect_beside_a_connect_is_answered_after_earlier_publications() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_closed(NOW, socket);
    let of_session =
        |name: &str, id: &str| format!(r#"{{"channel":"/meta/{name}","clientId":"{client}","id":"{id}"}}"#);
    let last = [publication(&client, "/b", "1"), of_session("connect", "2"), of_session("disconnect", "3")];
    rig.request(format!("[{}]", last.join(",")));
    let (keeps, responses) = effects(&mut rig);
    assert_eq!(responses, [""; 0], "the reply to the publication would have nowhere to go");
    settle(&mut rig, &keeps[0], true);
    let response = effects(&mut rig).1.remove(0);
    assert_eq!(response.matches("\"successful\":true").count(), 3, "{response}");
}

#[test]
fn a_disconnect_is_answered_after_earlier_publications() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_text(NOW, socket, &publication(&client, "/b", "1"));
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}","id":"2"}}"#));
    let (keeps, _) = effects(&mut rig);
    assert_eq!(rig.flushed(socket), "");
    settle(&mut rig, &keeps[0], true);
    let said = rig.flushed(socket);
    let at = |id: &str| said.find(id).unwrap_or_else(|| panic!("{id} in {said}"));
    assert!(at("\"id\":\"1\"") < at("\"id\":\"2\""));
}

#[test]
fn the_disconnect_replies_of_two_sessions_on_one_socket_are_whole_messages() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_text(NOW, socket, &publication(&client, "/b", "1"));
    let disconnect = |client: &str| format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}","id":"2"}}"#);
    rig.shard.socket_text(NOW, socket, &disconnect(&client));
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
    let said = rig.flushed(socket);
    let second = said.split("\"clientId\":\"").nth(1).expect("an id").split('"').next().expect("an id");
    rig.shard.socket_text(NOW, socket, &disconnect(second));
    let (keeps, _) = effects(&mut rig);
    settle(&mut rig, &keeps[0], true);
    let said = rig.flushed(socket);
    assert_eq!(said.matches("/meta/disconnect").count(), 2, "{said}");
    assert!(!said.contains("}{"), "{said}");
}

#[test]
fn a_reply_to_a_closed_connection_leaves_nothing_behind() {
    let mut rig = rig();
    let (socket, client) = rig.socket();
    rig.shard.socket_text(NOW, socket, &publication(&client, "/a", "1"));
    let exchange = rig.request(format!("[{}]", publication(&client, "/b", "2")));
    let (keeps, _) = effects(&mut rig);
    rig.shard.socket_closed(NOW, socket);
    rig.shard.abandoned(NOW, exchange);
    keeps.iter().filter(|keep| keep.token.is_some()).for_each(|keep| settle(&mut rig, keep, true));
    assert_eq!(rig.shard.holdings()[7].1, 0);
    assert!(!rig.shard.machines.requests.owed.has_late_replies());
}

#[test]
fn pending_replies_follow_a_session_to_its_next_socket() {
    for is_late in [false, true] {
        let mut rig = rig();
        let (first, client) = rig.socket();
        rig.shard.socket_text(NOW, first, &publication(&client, "/b", "1"));
        rig.shard.socket_text(NOW, first, &publication(&client, "/b", "2"));
        let (keeps, _) = effects(&mut rig);
        rig.shard.socket_closed(NOW, first);
        if !is_late {
            settle(&mut rig, &keeps[0], true);
        }
        let next = rig.shard.socket_opened(NOW, None);
        let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","id":"9"}}"#);
        rig.shard.socket_text(NOW, next, &connect);
        if is_late {
            settle(&mut rig, &keeps[0], true);
        }
        let said = rig.flushed(next);
        for id in ["1", "2"] {
            let reply = format!(r#"{{"channel":"/b","id":"{id}","successful":true}}"#);
            assert_eq!(said.matches(&reply).count(), 1, "{said}");
        }
    }
}

#[test]
fn pending_replies_do_not_follow_a_close_frame() {
    let mut rig = rig();
    let (first, client) = rig.socket();
    rig.shard.socket_text(NOW, first, &publication(&client, "/b", "1"));
    let (keeps, _) = effects(&mut rig);
    rig.shard.socket_close(NOW, first, Closing { code: 1001, reason: "" });
    settle(&mut rig, &keeps[0], false);
    rig.flushed(first);
    rig.shard.socket_closed(NOW, first);
    let next = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, next, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}","id":"9"}}"#));
    assert!(rig.flushed(next).contains("507:/b:history_not_stored"));
}

/// A shard of two, and the message of a client whose session lives on the other one.
fn rig_of_two() -> (Rig, String) {
    let rule = ChannelRule { pattern: "/b".into(), history_messages: 10, ..ChannelRule::default() };
    let mut shared = Shared::new(2, Box::new(NoApplication));
    shared.is_durable = true;
    let rig = Rig::with(shared, Settings { channels: vec![rule], ..Settings::default() });
    let other = Id::new(1, &mut kernel_entropy());
    (rig, format!(r#"{{"channel":"/meta/connect","clientId":"{}","id":"7"}}"#, other.as_str()))
}

#[test]
fn a_socket_that_has_lost_its_session_does_not_move_away_from_pending_replies() {
    let (mut rig, of_other_shard) = rig_of_two();
    let (first, client) = rig.socket();
    rig.shard.socket_text(NOW, first, &publication(&client, "/b", "1"));
    let next = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, next, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}","id":"9"}}"#));
    rig.flushed(first);
    rig.flushed(next);
    rig.shard.take_effects();
    assert_eq!(rig.shard.socket_text(NOW, first, &of_other_shard), Received::Here);
    assert!(rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Close(socket) if *socket == first)));
    rig.shard.message(NOW, ShardMessage::Persisted(vec![Persisted { number: 1, is_persisted: true }]));
    assert!(rig.flushed(next).contains(r#"{"channel":"/b","id":"1","successful":true}"#));
    // Without pending replies it moves.
    let third = rig.shard.socket_opened(NOW, None);
    assert_eq!(rig.shard.socket_text(NOW, third, &of_other_shard), Received::Elsewhere(1));
}

#[test]
fn a_socket_with_an_ended_session_and_pending_replies_is_closed_and_not_moved() {
    let (mut rig, of_other_shard) = rig_of_two();
    let (socket, client) = rig.socket();
    rig.shard.socket_text(NOW, socket, &publication(&client, "/b", "1"));
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#));
    rig.flushed(socket);
    assert_eq!(rig.shard.socket_text(NOW, socket, &of_other_shard), Received::Here);
    assert!(rig.shard.take_effects().iter().any(|effect| matches!(effect, Effect::Close(shut) if *shut == socket)));
    rig.shard.socket_closed(NOW, socket);
    rig.shard.message(NOW, ShardMessage::Persisted(vec![Persisted { number: 1, is_persisted: true }]));
    assert_eq!(rig.shard.holdings()[7].1, 0);
}

#[test]
fn an_empty_history_is_stored_when_its_position_is_reported() {
    let mut rig = rig();
    let (key, client) = rig.opened(r#"{"replay":true}"#);
    rig.subscribe(key, &client);
    let (keeps, _) = effects(&mut rig);
    assert_eq!((keeps.len(), keeps[0].token), (1, None));
    rig.subscribe(key, &client);
    assert!(effects(&mut rig).0.is_empty());
}

#[test]
fn a_publisher_that_replays_gets_the_positions_of_its_messages_from_a_history_in_memory_too() {
    for is_durable in [false, true] {
        let mut rig = rig();
        if !is_durable {
            let rule = ChannelRule { pattern: "/a".into(), history_messages: 10, ..ChannelRule::default() };
            let settings = Settings { channels: vec![rule], ..Settings::default() };
            rig = Rig::with(Shared::new(1, Box::new(NoApplication)), settings);
        }
        let (socket, client) = rig.opened(r#"{"replay":true}"#);
        rig.flushed(socket);
        rig.shard.socket_text(NOW, socket, &publication(&client, "/a", "1"));
        let declined = publication(&client, "/a", "2").replace('}', r#","ext":{"reply":false}}"#);
        let batch = format!("[{declined},{},{}]", publication(&client, "/a", "3"), publication(&client, "/b", "4"));
        rig.shard.socket_text(NOW, socket, &batch);
        let (keeps, _) = effects(&mut rig);
        for keep in keeps.iter().filter(|keep| keep.token.is_some()) {
            settle(&mut rig, keep, true);
        }
        let text = rig.flushed(socket);
        let id_of = |id: &str| -> u64 {
            let reply = text.split(&format!(r#""id":"{id}""#)).nth(1).expect("a reply");
            let position = reply.split(r#""replay":{"id":"#).nth(1).expect("a position");
            position.split(',').next().and_then(|id| id.parse().ok()).expect("an offset")
        };
        assert_eq!(id_of("3"), id_of("1") + 2, "{text}");
        if !is_durable {
            assert!(text.contains(r#"{"channel":"/b","id":"4","successful":true}"#), "no history: {text}");
        }
        assert_eq!(rig.shard.holdings()[7], ("pending publish replies", 0));
    }
}
