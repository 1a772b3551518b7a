//! The steps of one event, as [`Shard::steps`](crate::Shard::steps) counts them, have a bound whatever outboxes hold.

use crate::application::NoApplication;
use crate::events::SocketKey;
use crate::settings::{ChannelRule, Settings, SlowConsumer};
use crate::shard::{STEPS_PER_DELIVERY, STEPS_PER_TURN};
use crate::tests::{NOW, Rig};

/// Sessions that read nothing, each with a message of many channels waiting.
fn sleepers(sessions: usize, channels: usize, rule: ChannelRule) -> (Rig, Vec<SocketKey>) {
    let settings = Settings { outbox_messages_max: channels, channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let mut keys = Vec::new();
    for _ in 0..sessions {
        let (key, client) = rig.opened("{}");
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/k/*"}}"#);
        rig.shard.socket_text(NOW, key, &text);
        rig.flushed(key);
        keys.push(key);
    }
    rig.kernel.room = 0;
    (rig, keys)
}

/// The steps since this was asked last.
fn steps(rig: &Rig, before: &mut u64) -> u64 {
    let now = rig.shard.steps();
    now - std::mem::replace(before, now)
}

#[test]
fn an_event_takes_a_bounded_number_of_steps_whatever_outboxes_hold() {
    const SESSIONS: u64 = 20;
    const CHANNELS: usize = 20_000;
    let rule = |slow_consumer, slow_consumer_bytes| ChannelRule {
        pattern: "/k/*".into(),
        slow_consumer,
        slow_consumer_bytes,
        ..ChannelRule::default()
    };
    let rules = [
        rule(SlowConsumer::KeepLatest, 0),
        rule(SlowConsumer::KeepLatest, 100_000),
        rule(SlowConsumer::DropOldest, 0),
        rule(SlowConsumer::Disconnect, 0),
    ];
    for rule in rules {
        let (mut rig, keys) = sleepers(SESSIONS as usize, CHANNELS, rule);
        let (mut before, mut passes) = (rig.shard.steps(), 0);
        for number in 0..CHANNELS * 2 {
            rig.shard.publish_now(&format!("/k/{}", number % CHANNELS), "1");
            // The end of sessions frees what they hold.
            let is_end = rig.shard.sessions() == 0;
            let taken = steps(&rig, &mut before);
            assert!(taken <= SESSIONS * STEPS_PER_DELIVERY || is_end, "{taken} steps for a publication, {number}");
            let mut looks = 0;
            loop {
                let is_left = rig.shard.flush(NOW, &mut rig.kernel, &mut || {
                    looks += 1;
                    true
                });
                let taken = steps(&rig, &mut before);
                assert!(taken <= STEPS_PER_TURN, "{taken} steps for a flush");
                if !is_left {
                    break;
                }
                passes += 1;
            }
            if is_end {
                break;
            }
        }
        let is_latest = rig.shard.settings().channels[0].slow_consumer == SlowConsumer::KeepLatest;
        assert!(!is_latest || (passes > 0 && rig.shard.sessions() == keys.len()), "{passes} {}", rig.shard.sessions());
    }
}
