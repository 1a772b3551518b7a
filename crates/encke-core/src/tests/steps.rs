//! The steps of one event, as [`Shard::steps`](crate::Shard::steps) counts them, have a bound whatever outboxes hold.

use crate::application::NoApplication;
use crate::events::SocketKey;
use crate::settings::{ChannelRule, Settings, SlowConsumer};
use crate::shard::tests::{NOW, Rig};
use crate::shard::{STEPS_PER_DELIVERY, STEPS_PER_TURN};

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
            let is_end = rig.shard.sessions() == 0;
            let taken = steps(&rig, &mut before);
            assert!(taken <= SESSIONS * STEPS_PER_DELIVERY, "{taken} steps for a publication, {number}");
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

#[test]
fn many_long_queues_that_end_in_one_fan_out_are_freed_in_parts() {
    const SESSIONS: usize = 40;
    const MESSAGES: usize = 10_000;
    let rule = ChannelRule { pattern: "/**".into(), slow_consumer: SlowConsumer::Disconnect, ..ChannelRule::default() };
    let (mut rig, _) = sleepers(SESSIONS, MESSAGES, rule);
    rig.kernel.room = usize::MAX / 2;
    let (other, client) = rig.opened("{}");
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/other"}}"#);
    rig.shard.socket_text(NOW, other, &text);
    rig.flushed(other);
    rig.kernel.room = 0;
    let queues = |rig: &Rig| rig.shard.holdings().iter().find(|held| held.0.contains("ended")).map_or(0, |held| held.1);
    let (mut before, mut most) = (rig.shard.steps(), 0);
    for number in 0..=MESSAGES {
        // A message for another session in between, so that no two are adjacent.
        for channel in ["/other", "/k/a"] {
            rig.shard.publish_now(channel, "1");
            let taken = steps(&rig, &mut before);
            assert!(taken <= SESSIONS as u64 * STEPS_PER_DELIVERY, "{taken} steps for a publication, {number}");
            most = most.max(queues(&rig));
        }
    }
    assert_eq!((rig.shard.sessions(), most), (0, SESSIONS + 1));
    let mut flushes = 0;
    while !rig.shard.is_settled() {
        rig.shard.flush(NOW, &mut rig.kernel, &mut || true);
        rig.shard.take_effects();
        let taken = steps(&rig, &mut before);
        assert!(taken <= STEPS_PER_TURN, "{taken} steps for a flush");
        let (counted, walked) = rig.shard.memory();
        assert_eq!(counted, walked);
        flushes += 1;
    }
    assert!(flushes > 2 && queues(&rig) == 0, "{flushes}");
}

#[test]
fn a_turn_takes_a_bounded_number_of_steps_while_sessions_end_because_all_hold_too_much() {
    const SESSIONS: usize = 40;
    let (max, outbox_messages_max) = (24 << 20, 1 << 20);
    let settings = Settings { sessions_bytes_max: max, outbox_messages_max, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    for number in 0..SESSIONS {
        let (key, client) = rig.opened("{}");
        let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/{number}"}}"#);
        rig.shard.socket_text(NOW, key, &text);
        rig.flushed(key);
    }
    rig.kernel.room = 0;
    let (mut before, mut now, mut most) = (rig.shard.steps(), NOW, 0);
    for round in 0..16_000 {
        for number in 0..SESSIONS {
            rig.shard.publish_now(&format!("/{number}"), "1");
        }
        steps(&rig, &mut before);
        now.ms += 1;
        rig.shard.flush(now, &mut rig.kernel, &mut || true);
        rig.shard.take_effects();
        let taken = steps(&rig, &mut before);
        assert!(taken <= STEPS_PER_TURN, "{taken} steps for a flush, {round}");
        most = most.max(rig.shard.held_bytes());
        if rig.shard.metrics().ended_for_memory.get() > 0 && rig.shard.is_settled() {
            break;
        }
    }
    let held = rig.shard.held_bytes();
    assert!(most < max + max / 4 && held < max && rig.shard.sessions() > SESSIONS / 2, "{most} {held}");
}
