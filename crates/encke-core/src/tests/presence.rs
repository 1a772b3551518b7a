//! Tests of presence: the reports of a shard, the service, and the cost for publications.

use std::sync::Arc;

use super::identity::{Doorman, rig as doorman_rig};
use super::{NOW, Rig, member_of};
use crate::application::NoApplication;
use crate::events::{Effect, PresenceEvent, ShardMessage, SocketKey};
use crate::settings::{ChannelRule, Settings};
use crate::shard::Shared;

fn settings(pattern: &str) -> Settings {
    let rule = ChannelRule { pattern: pattern.into(), presence: true, ..ChannelRule::default() };
    Settings { channels: vec![rule], ..Settings::default() }
}

impl Rig {
    /// The reports since the last call, as texts.
    fn reports(&mut self) -> Vec<String> {
        let effects = self.shard.take_effects().into_iter();
        let text = |event: PresenceEvent| match event {
            PresenceEvent::Joined { channel, user, is_new: true, .. } => format!("{user} joins {channel}"),
            PresenceEvent::Joined { channel, user, .. } => format!("{user} is on {channel}"),
            PresenceEvent::Left { channel, user, .. } => format!("{user} leaves {channel}"),
            PresenceEvent::Asked { channel, after, limit, id, .. } => {
                let id = id.as_ref().map_or("none", |id| id.as_str());
                format!("{id}: {limit} of {channel} after {after:?}")
            }
        };
        let event = |effect| if let Effect::Presence(event) = effect { Some(text(*event)) } else { None };
        effects.filter_map(event).collect()
    }

    fn say(&mut self, (key, client): &(SocketKey, String), channel: &str, more: &str) -> String {
        self.shard.socket_text(NOW, *key, &format!(r#"{{"channel":"{channel}","clientId":"{client}",{more}}}"#));
        self.flushed(*key)
    }

    fn subscribes(&mut self, session: &(SocketKey, String), name: &str) -> String {
        self.say(session, "/meta/subscribe", &format!(r#""subscription":"{name}""#))
    }
}

/// Sessions of Ann, who may subscribe below `/ann`, and of nobody.
fn with_ann(settings: Settings) -> (Rig, Doorman, (SocketKey, String), (SocketKey, String)) {
    let (mut rig, doorman) = doorman_rig(settings);
    let ann = rig.opened(r#"{"user":"ann"}"#);
    let none = rig.opened(r#"{"user":""}"#);
    (rig, doorman, ann, none)
}

#[test]
fn a_shard_reports_who_comes_and_goes() {
    let (mut rig, _, ann, none) = with_ann(settings("/ann/**"));
    for name in ["/ann/room", "/ann/*", "/ann/**"] {
        assert!(rig.subscribes(&ann, name).contains("\"successful\":true"));
    }
    rig.subscribes(&none, "/ann/room");
    rig.subscribes(&none, "/other");
    assert_eq!(rig.reports(), ["ann joins /ann/room", " joins /ann/room"], "patterns have no members");
    rig.subscribes(&ann, "/ann/room");
    assert_eq!(rig.reports(), [""; 0], "it has the subscription already");
    rig.say(&none, "/meta/unsubscribe", r#""subscription":"/ann/room""#);
    assert_eq!(rig.reports(), [" leaves /ann/room"]);
    rig.say(&ann, "/meta/disconnect", r#""id":"d""#);
    assert_eq!(rig.reports(), ["ann leaves /ann/room"]);
}

#[test]
fn new_rules_are_applied_to_those_who_are_there() {
    let (mut rig, _, ann, _) = with_ann(settings("/ann/a"));
    ["/ann/a", "/ann/b"].iter().for_each(|name| _ = rig.subscribes(&ann, name));
    assert_eq!(rig.reports(), ["ann joins /ann/a"]);
    rig.shard.message(NOW, ShardMessage::Settings(Arc::new(settings("/ann/b"))));
    assert_eq!(rig.reports(), ["ann leaves /ann/a", "ann is on /ann/b"]);
    rig.shard.message(NOW, ShardMessage::Settings(Arc::new(settings("/ann/b"))));
    assert_eq!(rig.reports(), [""; 0]);
    rig.shard.message(NOW, ShardMessage::Settings(Arc::new(Settings::default())));
    assert_eq!(rig.reports(), ["ann leaves /ann/b"]);
}

#[test]
fn restored_sessions_are_members_that_do_not_join() {
    let mut rig = Rig::new(1, settings("/a"), Box::new(NoApplication));
    let session = rig.opened("{}");
    rig.subscribes(&session, "/a");
    assert_eq!(rig.reports(), [" joins /a"]);
    let saved = rig.shard.save(NOW);
    let mut next = Rig::with(Shared::new(1, Box::new(NoApplication)), settings("/a"));
    next.shard.restore(NOW, &saved);
    assert_eq!(next.reports(), [" is on /a"]);
}

#[test]
fn the_service_answers_those_who_may_subscribe() {
    let (mut rig, _, ann, none) = with_ann(settings("/**"));
    let mut ask = |session: &_, data: &str| {
        let reply = rig.say(session, "/service/presence", &format!(r#""id":"7","data":{data}"#));
        let error = if reply.contains("\"error\"") { member_of(&reply, "error") } else { String::new() };
        (error, rig.reports())
    };
    let asked = |text: &str| (String::new(), vec![text.to_string()]);
    assert_eq!(ask(&ann, r#"{"channel":"/ann/room"}"#), asked(r#"7: 100 of /ann/room after """#));
    let more = r#"{"channel":"/ann/room","after":"bob","limit":1000000}"#;
    assert_eq!(ask(&ann, more), asked(r#"7: 1000 of /ann/room after "bob""#));
    assert_eq!(ask(&none, r#"{"channel":"/b","limit":-1}"#), asked(r#"7: 1 of /b after """#));
    let refused = |error: &str| (error.to_string(), Vec::<String>::new());
    let denied = "403:denied_by_security_policy:subscribe_denied";
    let bobs = ask(&ann, r#"{"channel":"/bob/room"}"#);
    assert_eq!(bobs, refused("403::subscribe_denied"), "not in her patterns");
    assert_eq!(ask(&ann, r#"{"channel":"/meta/connect"}"#), refused(denied));
    assert_eq!(ask(&none, r#"{"channel":"/presence/a"}"#), refused("403:no_presence:subscribe_denied"));
    assert_eq!(ask(&none, r#"{"channel":"/a/*"}"#), refused("403:no_presence:subscribe_denied"));
    for data in ["{}", "[]", "7", "null", r#"{"channel":7}"#, r#"{"channel":"a"}"#, r#"{"channel":"/a/"}"#] {
        let (error, reports) = ask(&none, data);
        assert!(error.starts_with("40") && reports.is_empty(), "{data}: {error}");
    }
}

#[test]
fn one_batch_asks_for_so_many_members() {
    let (mut rig, _, _, (socket, client)) = with_ann(settings("/**"));
    let call =
        format!(r#"{{"channel":"/service/presence","clientId":"{client}","data":{{"channel":"/a","limit":1000}}}}"#);
    for _ in 0..2 {
        rig.shard.socket_text(NOW, socket, &format!("[{}]", vec![&*call; 100].join(",")));
        let refused = rig.flushed(socket).matches("503::calls_waiting_max").count();
        assert_eq!((rig.reports().len(), refused), (10, 90));
    }
}

#[test]
fn clients_cannot_announce_members() {
    let (mut rig, _, _, none) = with_ann(settings("/a"));
    let denied = "403:denied_by_security_policy:publish_denied";
    assert!(rig.say(&none, "/presence/a", r#""data":{"joined":["eve"]}"#).contains(denied));
    assert!(!rig.say(&none, "/presences", r#""data":1"#).contains("error"));
    let mut without = super::rig();
    let session = without.opened("{}");
    assert!(!without.say(&session, "/presence/a", r#""data":1"#).contains("error"), "an ordinary channel");
}

/// A publication to a channel with presence causes the same work, the same effects and the same bytes as without.
#[test]
fn ten_thousand_members_cost_a_publication_nothing() {
    let cost = |settings: Settings| {
        let mut rig = Rig::new(2, settings, Box::new(NoApplication));
        let sessions: Vec<_> = (0..10_000).map(|_| rig.opened("{}")).collect();
        sessions.iter().for_each(|session| _ = rig.subscribes(session, "/a"));
        let joined = rig.shard.take_effects().len();
        let before = rig.shard.work();
        for number in 0..10 {
            rig.publish(number);
        }
        rig.flushed(sessions[0].0);
        (rig.shard.work() - before, rig.shard.take_effects().len(), joined)
    };
    let (with, without) = (cost(settings("/a")), cost(Settings::default()));
    assert_eq!((with.0, with.1), (without.0, without.1));
    assert_eq!((with.2, without.2), (10_000, 0));
}
