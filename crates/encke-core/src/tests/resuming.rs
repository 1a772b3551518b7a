//! Many sessions of a node that is gone come at once: what that costs the shard in memory and in steps.

use crate::events::{Envelope, ShardMessage};
use crate::id::{Id, kernel_entropy};
use crate::node_messages::{ForNodes, FromNodes};
use crate::settings::{ChannelRule, Settings};
use crate::shard::tests::confirmed::{committed_text, connect, opened, range, rig, rig_with_rule, sent, take, tell};
use crate::shard::tests::{NOW, Rig};

const SESSIONS: usize = 60;
/// 3 MB.
const MESSAGES: usize = 3_000;
const TEXT_BYTES: usize = 1_000;

fn text(number: usize) -> String {
    let text = format!(r#"{{"channel":"/a","data":{number},"x":""}}"#);
    text.replace("\"\"", &format!("\"{}\"", "x".repeat(TEXT_BYTES - text.len())))
}

/// A node whose ring has all messages, and sessions of another one that have come to it.
fn taken(sessions: usize) -> (Rig, Vec<Id>) {
    let (_, saved) = opened(&mut rig());
    let (history_messages, history_bytes) = (2 * MESSAGES, 8 << 20);
    let rule = ChannelRule { pattern: "/a".into(), history_messages, history_bytes, ..ChannelRule::default() };
    let settings = Settings { outbox_messages_max: 5_000, outbox_bytes_max: 8 << 20, ..Settings::default() };
    let mut rig = rig_with_rule(rule, settings);
    (0..MESSAGES).for_each(|number| drop(committed_text(&rig, number, &text(number), None)));
    let mut entropy = kernel_entropy();
    let ids: Vec<Id> = (0..sessions).map(|_| Id::new(0, &mut entropy)).collect();
    for id in &ids {
        let messages = take(&mut rig, *id, saved.clone());
        assert!(messages.iter().any(|message| matches!(message, ForNodes::Resumes { session, .. } if session == id)));
    }
    (rig, ids)
}

fn miss(rig: &mut Rig, id: Id, numbers: std::ops::Range<usize>) {
    let ranges = range(rig, numbers);
    tell(rig, FromNodes::Missed(id, Some(ranges)));
}

/// The sessions that the cluster has been notified of.
fn restored(rig: &mut Rig) -> Vec<Id> {
    let restored = |message| match message {
        ForNodes::Restored(id) => Some(id),
        _ => None,
    };
    sent(rig, 0).into_iter().filter_map(restored).collect()
}

/// Flushes until no session resumes, and what has ended is freed.
fn flush(rig: &mut Rig) {
    while rig.shard.machines.delivery.resuming() > 0 || rig.shard.machines.delivery.has_waste() {
        rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    }
}

#[test]
fn sessions_that_have_missed_the_same_share_its_frames() {
    let (mut rig, ids) = taken(SESSIONS);
    let before = rig.shard.memory().0;
    ids.iter().for_each(|id| miss(&mut rig, *id, 0..MESSAGES));
    assert!(rig.shard.memory().0 < before + (1 << 20), "nothing is copied before its turn");
    let (mut flushes, mut most, mut steps) = (0, 0, rig.shard.steps());
    while rig.shard.machines.delivery.resuming() > 0 {
        rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
        let taken = rig.shard.steps() - steps;
        assert!(taken < 16 * 1_024, "{taken} steps of a flush");
        steps = rig.shard.steps();
        let (counted, walked) = rig.shard.memory();
        assert_eq!(counted, walked);
        (flushes, most) = (flushes + 1, most.max(counted - before));
    }
    // 180 MB of messages.
    assert!(most < 5 << 20, "{most} bytes for {SESSIONS} sessions");
    assert!(flushes > SESSIONS * MESSAGES / (16 * 1_024), "{flushes}");
    assert_eq!(restored(&mut rig).len(), SESSIONS);
    let waiting = |id: &Id| rig.shard.waiting(id).expect("it is there").0;
    assert!(ids.iter().all(|id| waiting(id) == MESSAGES));
    // The index goes some time later, and the frames with their last reader.
    sent(&mut rig, 20_000);
    let (counted, walked) = rig.shard.memory();
    assert_eq!(counted, walked);
}

#[test]
fn sessions_that_come_one_after_another_share_what_the_first_ones_still_hold() {
    let (mut rig, ids) = taken(SESSIONS);
    let before = rig.shard.memory().0;
    for id in &ids {
        miss(&mut rig, *id, 0..MESSAGES);
        flush(&mut rig);
    }
    let (counted, walked) = rig.shard.memory();
    assert_eq!(counted, walked);
    assert!(counted < before + (5 << 20), "{} bytes for {SESSIONS} sessions", counted - before);
    // Nothing is held for those that have left.
    ids.iter().for_each(|id| tell(&mut rig, FromNodes::Leave(*id)));
    flush(&mut rig);
    sent(&mut rig, 20_000);
    let (counted, walked) = rig.shard.memory();
    assert!(counted == walked && counted < before + (1 << 20), "{counted} {walked} {before}");
}

#[test]
fn sessions_with_other_marks_get_what_each_has_missed_and_nobody_gets_own_messages() {
    let (mut rig, ids) = taken(4);
    let own = MESSAGES;
    drop(committed_text(&rig, own, &text(own), Some(ids[1])));
    let missed = [0..20, 7..MESSAGES + 1, MESSAGES - 3..MESSAGES + 1, 5..5];
    for (id, numbers) in ids.iter().zip(&missed) {
        miss(&mut rig, *id, numbers.clone());
    }
    flush(&mut rig);
    assert_eq!(restored(&mut rig).len(), 4);
    for (number, (id, numbers)) in ids.iter().zip(missed).enumerate() {
        let (mut all, mut batch) = (Vec::new(), 0);
        let socket = rig.shard.socket_opened(NOW, None);
        loop {
            let (data, next) = connect(&mut rig, id, socket, batch);
            batch = next;
            if data.is_empty() {
                break;
            }
            all.extend(data);
        }
        let expected: Vec<usize> = numbers.filter(|at| number != 1 || *at != own).collect();
        assert_eq!(all, expected, "lost, doubled or out of order, of session {number}");
    }
}

#[test]
fn what_the_ring_drops_before_a_session_has_it_ends_the_session() {
    let (mut rig, ids) = taken(2);
    ids.iter().for_each(|id| miss(&mut rig, *id, 0..MESSAGES));
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    rig.shard.machines.env.shared.histories.clear_below("/a", u64::MAX, NOW.ms);
    flush(&mut rig);
    assert_eq!((rig.shard.sessions(), rig.shard.metrics().unrestored.get(), restored(&mut rig).len()), (0, 2, 2));
    let (counted, walked) = rig.shard.memory();
    assert_eq!(counted, walked);
}

#[test]
fn a_session_that_ends_before_it_has_all_leaves_nothing() {
    let (mut rig, ids) = taken(2);
    let before = rig.shard.memory().0;
    ids.iter().for_each(|id| miss(&mut rig, *id, 0..MESSAGES));
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    ids.iter().for_each(|id| tell(&mut rig, FromNodes::Leave(*id)));
    flush(&mut rig);
    sent(&mut rig, 20_000);
    let (counted, walked) = rig.shard.memory();
    assert!(counted == walked && counted < before + (1 << 20), "{counted} {walked} {before}");
    assert_eq!((rig.shard.sessions(), rig.shard.machines.delivery.resuming()), (0, 0));
}

#[test]
fn a_session_that_has_not_all_is_not_saved_for_the_next_process() {
    let (mut rig, ids) = taken(2);
    ids.iter().for_each(|id| miss(&mut rig, *id, 0..if *id == ids[0] { 1 } else { MESSAGES }));
    while restored(&mut rig).is_empty() {
        rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    }
    let saved: Vec<Id> = rig.shard.save(NOW).sessions.into_iter().map(|session| session.id).collect();
    assert_eq!(saved, [ids[0]]);
}

/// A shard with a session that has come to it, and so many messages of its channel that some wait for their fan-out. Returns their number.
fn behind() -> (Rig, Id, usize) {
    let (_, saved) = opened(&mut rig());
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 100, ..ChannelRule::default() };
    let mut rig = rig_with_rule(rule, Settings { outbox_messages_max: 40, ..Settings::default() });
    let id = Id::new(0, &mut kernel_entropy());
    take(&mut rig, id, saved);
    let account = rig.shard.machines.env.shared.mailbox.clone();
    let mut number = 0;
    // The budget of fan-outs is spent.
    while rig.shard.machines.admission.waiting() == 0 {
        let text = format!(r#"{{"channel":"/a","data":{number}}}"#);
        let publications = committed_text(&rig, number, &text, None);
        rig.shard.receive(NOW, Envelope::new(&account, ShardMessage::Publication(publications.into())));
        number += 1;
    }
    (rig, id, number)
}

#[test]
fn a_session_ends_that_waits_for_long_on_a_shard_that_is_behind() {
    let (mut rig, id, number) = behind();
    miss(&mut rig, id, 0..number);
    let is_over = |messages: Vec<ForNodes>| messages.iter().any(|message| matches!(message, ForNodes::Restored(_)));
    assert!(!is_over(sent(&mut rig, 4_999)) && rig.shard.sessions() == 1);
    assert!(is_over(sent(&mut rig, 5_000)));
    assert!(rig.shard.machines.admission.waiting() > 0);
    assert_eq!((rig.shard.sessions(), rig.shard.metrics().unrestored.get()), (0, 1));
}

#[test]
fn messages_that_wait_for_their_fan_out_do_not_come_twice() {
    let (mut rig, id, number) = behind();
    miss(&mut rig, id, 0..number);
    assert_eq!(rig.shard.machines.delivery.resuming(), 0, "it waits");
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    assert_eq!(rig.shard.machines.admission.waiting(), 0);
    let asks = sent(&mut rig, 0)
        .into_iter()
        .any(|message| matches!(message, ForNodes::Resumes { session, .. } if session == id));
    assert!(asks, "it asks again");
    miss(&mut rig, id, 0..number);
    flush(&mut rig);
    let socket = rig.shard.socket_opened(NOW, None);
    assert_eq!(connect(&mut rig, &id, socket, 0).0, (0..number).collect::<Vec<_>>());
}

#[test]
fn ranges_that_wait_count_as_memory() {
    let (mut rig, ids) = taken(1);
    let before = rig.shard.memory();
    let ring = range(&rig, 0..1)[0];
    let ranges = vec![ring; 10_000];
    let bytes = size_of_val(&ranges[..]);
    tell(&mut rig, FromNodes::Missed(ids[0], Some(ranges)));
    let after = rig.shard.memory();
    assert!(after.0 >= before.0 + bytes / 2, "{bytes} bytes of ranges count as {}", after.0 - before.0);
}
