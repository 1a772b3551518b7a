//! The owners of what goes to a cluster: each has a share of what may wait there, and a turn.

use crate::application::{Actions, Answer, Application, Caller, EndReason, Handshake, Pending, Refusal, Service};
use crate::events::{Effect, ShardMessage};
use crate::identity::Identity;
use crate::node_messages::ForNodes;
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::nodes::{opened, reports_of, rig_with};
use crate::shard::tests::{NOW, Rig, member_of};

#[test]
fn what_goes_to_the_cluster_names_the_user_who_has_published() {
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 10, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = rig_with(settings, Box::new(Users));
    let publishers = ["ann", "bob", "ann"].map(|user| {
        let (socket, client) = opened(&mut rig, &format!(r#"{{"user":"{user}"}}"#));
        rig.shard.take_effects();
        rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/a","clientId":"{client}","data":1,"id":"1"}}"#));
        let recorded = |effect| match effect {
            Effect::SendToShard(_, ShardMessage::Record(publications)) => publications.publisher,
            _ => None,
        };
        rig.shard.take_effects().into_iter().find_map(recorded).expect("a publisher")
    });
    assert_eq!(publishers[0], publishers[2]);
    assert_ne!(publishers[0], publishers[1], "another user");
}

#[test]
fn what_a_service_publishes_belongs_to_its_caller() {
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 10, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = rig_with(settings, Box::new(Users));
    let sockets = ["ann", "bob"].map(|user| opened(&mut rig, &format!(r#"{{"user":"{user}"}}"#)));
    rig.shard.take_effects();
    // Both are called before anything is fanned out.
    for (socket, client) in &sockets {
        let call = format!(r#"{{"channel":"/service/a","clientId":"{client}","data":1}}"#);
        rig.shard.socket_text(NOW, *socket, &format!("[{call},{call}]"));
    }
    let recorded = |effect| match effect {
        Effect::SendToShard(_, ShardMessage::Record(publications)) => {
            Some((publications.messages, publications.publisher))
        }
        _ => None,
    };
    let recorded: Vec<_> = rig.shard.take_effects().into_iter().filter_map(recorded).collect();
    let owners: Vec<_> = recorded.iter().map(|(_, owner)| owner.expect("a caller")).collect();
    let session = |index: usize| rig.shard.machines.delivery.find(&sockets[index].1).expect("it is there");
    let of = |index: usize| rig.shard.machines.clients.counted_for(session(index));
    assert!(owners.iter().any(|owner| Some(*owner) == of(0)) && owners.iter().any(|owner| Some(*owner) == of(1)));
    assert_eq!(recorded.iter().map(|(messages, _)| messages).sum::<u32>(), 4);
    assert!(owners.is_sorted_by_key(|owner| Some(*owner) != of(0)), "in the order of the calls: {owners:?}");
}

/// Gives each session the user that its `ext` names. Its services publish.
struct Users;

impl Application for Users {
    fn serves(&self, _channel: &str) -> bool {
        true
    }

    fn service(&self, _message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        actions.publish("/a", "1");
        None
    }

    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(handshake.ext.map(|ext| Identity::of_user(&member_of(ext, "user")))))
    }
}

#[test]
fn a_user_with_many_large_sessions_does_not_delay_the_record_of_another_one() {
    let mut rig = rig_with(Settings::default(), Box::new(Users));
    let names: Vec<String> = (0..900).map(|number| format!("\"/b/{number}\"")).collect();
    for _ in 0..40 {
        let (socket, client) = opened(&mut rig, r#"{"user":"ann"}"#);
        let names = names.join(",");
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":[{names}]}}"#);
        rig.shard.socket_text(NOW, socket, &text);
        rig.flushed(socket);
    }
    let (_, witness) = opened(&mut rig, r#"{"user":"bob"}"#);
    let mut reported = Vec::new();
    for turn in 1..5 {
        let reports = reports_of(&mut rig, 500 * turn).into_iter();
        let changed = reports.filter_map(|message| match message {
            ForNodes::Changed { session, saved, .. } => Some((session, saved.sessions[0].subscriptions.len())),
            _ => None,
        });
        reported.push(changed.collect::<Vec<_>>());
    }
    assert!(reported[0].contains(&(witness, 1)), "its record is one of the first");
    assert!((15..=20).contains(&reported[0].len()), "a turn has an end: {}", reported[0].len());
    assert_eq!(reported.iter().flatten().filter(|(_, names)| *names == 901).count(), 40, "each once");
    assert!(reported[3].is_empty());
}

/// Publishes when a session begins and when it ends.
struct Greeter;

impl Application for Greeter {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Users.handshake(handshake)
    }

    fn opened(&self, _: &Caller<'_>, actions: &mut Actions) {
        actions.publish("/a", "1");
    }

    fn ended(&self, _: &Caller<'_>, _: EndReason, actions: &mut Actions) {
        actions.publish("/a", "2");
    }
}

#[test]
fn what_hooks_publish_when_a_session_begins_and_ends_belongs_to_its_user() {
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 10, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = rig_with(settings, Box::new(Greeter));
    let (socket, client) = opened(&mut rig, r#"{"user":"ann"}"#);
    let key = rig.shard.machines.delivery.find(&client).expect("it is there");
    let user = rig.shard.machines.clients.counted_for(key);
    assert!(user.is_some());
    let published = |rig: &mut Rig| {
        let recorded = |effect| match effect {
            Effect::SendToShard(_, ShardMessage::Record(publications)) => Some(publications.publisher),
            _ => None,
        };
        rig.shard.take_effects().into_iter().filter_map(recorded).collect::<Vec<_>>()
    };
    opened(&mut rig, r#"{"user":"bob"}"#);
    published(&mut rig);
    let disconnect = format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#);
    rig.shard.socket_text(NOW, socket, &disconnect);
    assert_eq!(published(&mut rig), [user], "the end");
    let key = rig.shard.socket_opened(NOW, None);
    let handshake = r#"{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"],"ext":{"user":"ann"}}"#;
    rig.shard.socket_text(NOW, key, handshake);
    assert_eq!(published(&mut rig), [user], "the beginning");
}
