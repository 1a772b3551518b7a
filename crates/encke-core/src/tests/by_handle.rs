//! Tests of subscriptions that a handle changes for a session.

use std::sync::atomic::Ordering;

use super::{NOW, Rig};
use crate::application::NoApplication;
use crate::events::{Changed, Effect, PresenceEvent, PublishToken, Report, ShardMessage, SocketKey};
use crate::id::Id;
use crate::settings::{ChannelRule, Settings};

const TOKEN: PublishToken = PublishToken { shard: PublishToken::HANDLES, number: 1 };

/// Opens a session whose handshake had this `ext`, and connects it.
fn connected(rig: &mut Rig, ext: &str) -> (SocketKey, Id) {
    let (key, client) = rig.opened(ext);
    rig.shard.socket_text(NOW, key, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.flushed(key);
    (key, Id::parse(&client).expect("an id"))
}

/// Changes a subscription. Returns the outcome, and the presence that was reported.
fn change(rig: &mut Rig, message: ShardMessage) -> (Changed, Vec<&'static str>) {
    rig.shard.message(NOW, message);
    let (mut changed, mut presence) = (None, Vec::new());
    for effect in rig.shard.take_effects() {
        match effect {
            Effect::SendToShard(_, ShardMessage::Report(Report::Changed(_, outcome))) => changed = Some(outcome),
            Effect::Presence(event) if matches!(*event, PresenceEvent::Joined { .. }) => presence.push("joined"),
            Effect::Presence(event) if matches!(*event, PresenceEvent::Left { .. }) => presence.push("left"),
            _ => {}
        }
    }
    (changed.expect("an outcome"), presence)
}

#[test]
fn a_subscription_by_a_handle_counts_and_is_present_like_one_of_the_client() {
    let rule = ChannelRule { pattern: "/b".into(), presence: true, ..ChannelRule::default() };
    let settings = Settings { all_subscriptions_max: 1, channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (_, id) = connected(&mut rig, "{}");
    let counted = |rig: &Rig| rig.shard.machines.env.shared.limits.subscriptions.load(Ordering::Relaxed);
    for _ in 0..2 {
        let subscribe = |name: &str| ShardMessage::Subscribe(id, name.into(), TOKEN);
        assert_eq!(change(&mut rig, subscribe("/b")), (Changed::Done, vec!["joined"]));
        assert_eq!(change(&mut rig, subscribe("/b")), (Changed::Done, vec![]), "it has it");
        assert_eq!(change(&mut rig, subscribe("/c")), (Changed::Full, vec![]), "all_subscriptions_max");
        assert_eq!(counted(&rig), 1);
        let unsubscribe = ShardMessage::Unsubscribe(id, "/b".into(), TOKEN);
        assert_eq!(change(&mut rig, unsubscribe), (Changed::Done, vec!["left"]));
        assert_eq!(counted(&rig), 0);
    }
}

#[test]
fn a_subscription_by_a_handle_begins_behind_the_messages_that_are_on_their_way() {
    let rule = ChannelRule { pattern: "/**".into(), history_messages: 10, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(2, settings, Box::new(NoApplication));
    let channel = rig.channel_of_other_shard();
    let (other, other_id) = connected(&mut rig, r#"{"replay":true}"#);
    let (key, id) = connected(&mut rig, r#"{"replay":true}"#);
    change(&mut rig, ShardMessage::Subscribe(other_id, channel.into(), TOKEN));
    let earlier = rig.on_its_way(channel, 7);
    assert_eq!(change(&mut rig, ShardMessage::Subscribe(id, channel.into(), TOKEN)).0, Changed::Done);
    let later = rig.on_its_way(channel, 8);
    for publication in [earlier, later] {
        rig.shard.message(NOW, ShardMessage::Publication(publication.into()));
    }
    let (first, second) = (rig.flushed(other), rig.flushed(key));
    let datas = |text: &str| ["7", "8"].map(|data| text.matches(&format!("\"payload\":{data}")).count());
    assert_eq!((datas(&first), datas(&second)), ([1, 1], [0, 1]), "{second}");
}
