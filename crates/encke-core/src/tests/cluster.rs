//! A shard of a node of a cluster: what it sends to the other nodes, and replies that wait for them.

use crate::application::NoApplication;
use crate::events::{Effect, PublishToken, ShardMessage, SocketKey};
use crate::id::{NodeTag, kernel_entropy};
use crate::settings::{ChannelRule, Settings};
use crate::shard::Shared;
use crate::shard::tests::{NOW, Rig};

fn rig() -> Rig {
    let mut shared = Shared::new(1, Box::new(NoApplication));
    shared.node = Some(NodeTag::new(&mut kernel_entropy()));
    let presence = ChannelRule { pattern: "/room".into(), presence: true, ..ChannelRule::default() };
    Rig::with(shared, Settings { channels: vec![presence], ..Settings::default() })
}

/// The channel and the number of messages of all that goes to other nodes.
fn sent(rig: &mut Rig) -> Vec<String> {
    let show = |effect| match effect {
        Effect::SendToNodes(publications) => Some(format!("{} {}", publications.channel, publications.messages)),
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(show).collect()
}

/// The names for which replies wait, and their tokens.
fn awaited(rig: &mut Rig) -> Vec<(Vec<Box<str>>, PublishToken)> {
    let awaited = |effect| match effect {
        Effect::AwaitInterest(names, token) => Some((names, token)),
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(awaited).collect()
}

fn open(rig: &mut Rig) -> (SocketKey, String) {
    let (socket, client) = rig.opened("{}");
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.flushed(socket);
    (socket, client)
}

fn subscribe(client: &str, names: &str) -> String {
    format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","id":"7","subscription":{names}}}"#)
}

#[test]
fn publications_of_this_node_go_to_the_other_nodes_once_and_those_of_others_do_not() {
    let mut rig = rig();
    let (socket, client) = open(&mut rig);
    let publication = format!(r#"{{"channel":"/a","clientId":"{client}","data":1}}"#);
    rig.shard.socket_text(NOW, socket, &format!("[{publication},{publication},{publication}]"));
    assert_eq!(sent(&mut rig), ["/a 3"], "a burst, whether or not somebody here subscribes");
    let mut other = self::rig();
    other.publish(1);
    let arrived = other.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::SendToNodes(publications) => Some(publications),
        _ => None,
    });
    rig.subscribe(socket, &client);
    rig.flushed(socket);
    rig.shard.message(NOW, ShardMessage::Publication(arrived.expect("a publication")));
    assert!(rig.flushed(socket).contains("\"data\":1") && sent(&mut rig).is_empty());
}

#[test]
fn announcements_and_calls_stay_on_their_node() {
    let mut rig = rig();
    let (socket, client) = open(&mut rig);
    rig.shard.socket_text(NOW, socket, &subscribe(&client, "\"/room\""));
    rig.shard.publish_now("/presence/room", "1");
    let call = format!(r#"{{"channel":"/service/a","clientId":"{client}","data":1}}"#);
    rig.shard.socket_text(NOW, socket, &call);
    assert!(sent(&mut rig).is_empty());
}

#[test]
fn the_reply_to_a_subscribe_waits_until_other_nodes_know_all_its_names() {
    let mut rig = rig();
    let (socket, client) = open(&mut rig);
    rig.shard.socket_text(NOW, socket, &subscribe(&client, "[\"/a\",\"/b/**\"]"));
    let awaited = awaited(&mut rig);
    assert_eq!(awaited.len(), 1);
    assert_eq!(awaited[0].0, ["/a".into(), "/b/**".into()]);
    rig.publish(1);
    let text = rig.flushed(socket);
    assert!(text.contains("\"data\":1") && !text.contains("subscribe"), "it gets messages of this node: {text}");
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![awaited[0].1.number]));
    let reply = rig.flushed(socket);
    let expected = r#"{"channel":"/meta/subscribe","id":"7","successful":true,"subscription":["/a","/b/**"]}"#;
    assert!(reply.contains(expected), "{reply}");
}

#[test]
fn the_reply_for_a_name_that_other_nodes_know_leaves_at_once() {
    let mut rig = rig();
    let (socket, client) = open(&mut rig);
    rig.subscribe(socket, &client);
    awaited(&mut rig);
    assert!(rig.shard.machines.env.shared.interest.set_known("/a"));
    let (other, client) = open(&mut rig);
    rig.shard.socket_text(NOW, other, &subscribe(&client, "\"/a\""));
    assert!(awaited(&mut rig).is_empty() && rig.flushed(other).contains("\"id\":\"7\""));
}

#[test]
fn a_request_waits_with_its_subscribe_and_its_replies_keep_their_order() {
    let mut rig = rig();
    let (socket, client) = open(&mut rig);
    rig.shard.socket_closed(NOW, socket);
    let publication = |id: u8| format!(r#"{{"channel":"/c","clientId":"{client}","id":"{id}","data":1}}"#);
    let exchange = rig.request(format!("[{},{},{}]", publication(6), subscribe(&client, "\"/a\""), publication(8)));
    let awaited = awaited(&mut rig);
    assert!(rig.response(exchange).is_none());
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![awaited[0].1.number]));
    let response = rig.response(exchange).expect("a response");
    let ids = ["6", "7", "8"].map(|id| response.find(&format!("\"id\":\"{id}\"")));
    assert!(ids.is_sorted() && ids.iter().all(Option::is_some), "{response}");
}

#[test]
fn a_refused_subscribe_waits_for_nothing() {
    let mut rig = rig();
    let (socket, client) = open(&mut rig);
    rig.shard.socket_text(NOW, socket, &subscribe(&client, "\"/meta/x\""));
    assert!(awaited(&mut rig).is_empty() && rig.flushed(socket).contains("\"successful\":false"));
}
