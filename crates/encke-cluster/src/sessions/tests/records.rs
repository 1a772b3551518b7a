//! Records that are too large, that wait, and that are not needed any more.

use bytes::Bytes;
use encke_core::{Id, SessionOwner};

use super::model::Cluster;
use super::{Answer, decode, id, tag};
use crate::command::{Expected, KeyAnswer, KeyFailure, VALUE_BYTES_MAX};
use crate::sessions::Past;
use crate::sessions::own::{KeyCommand, Outcome, Own};
use crate::sessions::record::{Content, Key, Record};
use crate::sessions::records::Records;
use crate::sessions::unrecorded::{UNRECORDED_AFTER_MS, Unrecorded};

const NOW_MS: u64 = 1_000_000;

fn content(state: &[u8]) -> Content {
    Content { mark: None, state: Bytes::copy_from_slice(state) }
}

/// A session with an owner.
fn owned(session: Id) -> (Id, SessionOwner) {
    (session, SessionOwner::of(7))
}

/// The keys of all commands that may be sent now. All are writes.
fn writes(records: &mut Records, now_ms: u64) -> Vec<(Key, Record)> {
    let next = || records.next(now_ms);
    let write = |command| match command {
        KeyCommand::Write(key, record, _) => (key, record),
        KeyCommand::Read(key) => panic!("a read of {key:?}"),
    };
    std::iter::from_fn(next).map(write).collect()
}

#[test]
fn a_session_that_is_too_large_for_a_record_begins_again_and_delays_no_other() {
    let mut cluster = Cluster::new(2, 1);
    let (large, other) = (id(1, 0), id(2, 0));
    for session in [large, other] {
        cluster.clients.confirmed.insert(session, 0);
        cluster.open(0, session);
    }
    cluster.members[0].here.insert(large, VALUE_BYTES_MAX as u64);
    (0..2).for_each(|_| cluster.tick(0));
    cluster.pass(1_000);
    // Both are late, and their records have to say so before the mark passes.
    cluster.clients.last = 5;
    for _ in 0..6 {
        cluster.tick(0);
        cluster.pass(700);
    }
    let counts = cluster.members[0].sessions.counts();
    assert!(counts.records_too_large > 0 && counts.records_failed == 0, "{counts:?}");
    assert_eq!(
        cluster.members[1].sessions.confirming.mark_of(tag(0)),
        Some(Bytes::copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0]))
    );
    cluster.kill(0);
    for (session, expected) in [(large, Answer::Unknown), (other, Answer::By(1))] {
        let number = cluster.request(1, session);
        cluster.pass(5_000);
        assert_eq!(cluster.answer(number), Some(expected));
    }
}

#[test]
fn a_record_that_the_engine_does_not_take_leaves_an_empty_one_without_a_pause() {
    let mut records = Records::new(tag(0), 1_000, decode);
    records.changed(owned(id(1, 0)), content(b"large"), None);
    let [(key, _)] = writes(&mut records, NOW_MS)[..] else { panic!("one write") };
    assert_eq!(records.answered(NOW_MS, key, &Err(KeyFailure::TooLarge)), None);
    records.changed(owned(id(2, 0)), content(b"small"), None);
    let written = writes(&mut records, NOW_MS);
    let live = |content| Record::Live { node: tag(0), content };
    assert_eq!(written, [(key, live(Content::empty())), (Key::of(&id(2, 0)), live(content(b"small")))]);
    assert_eq!(records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(1))), None);
    assert!(records.is_written(&key) && !records.fails && records.too_large == 1);
    // One that is known to be too large is not even sent.
    records.changed(owned(id(3, 0)), content(&[b'x'; VALUE_BYTES_MAX]), None);
    assert_eq!(writes(&mut records, NOW_MS), [(Key::of(&id(3, 0)), live(Content::empty()))]);
}

/// Writes all that may be written now.
fn answer_all(records: &mut Records, now_ms: u64, revision: &mut u64) -> Vec<(Key, Record)> {
    let written = writes(records, now_ms);
    for (key, _) in &written {
        *revision += 1;
        records.answered(now_ms, *key, &Ok(KeyAnswer::Written(*revision)));
    }
    written
}

#[test]
fn the_ends_of_sessions_and_the_changes_that_wait_are_written_in_turns() {
    let mut records = Records::new(tag(0), 10, decode);
    let (mut now_ms, mut revision) = (NOW_MS, 0);
    let logged_out = [id(0, 0), id(1, 0)];
    for session in logged_out {
        records.changed(owned(session), content(b"1"), None);
        assert_eq!(answer_all(&mut records, now_ms, &mut revision).len(), 1);
        now_ms += 100;
    }
    for number in 2..100 {
        records.changed(owned(id(number, 0)), content(b"1"), None);
    }
    // One waits with a change, and the other has none.
    records.changed(owned(logged_out[1]), content(b"2"), None);
    for session in [logged_out[1], logged_out[0]] {
        assert!(records.ended(&session, false));
    }
    for session in [logged_out[1], logged_out[0]] {
        assert_eq!(answer_all(&mut records, now_ms, &mut revision), [(Key::of(&session), Record::Ended)]);
        now_ms += 100;
        let written = answer_all(&mut records, now_ms, &mut revision);
        assert!(matches!(written[..], [(_, Record::Live { .. })]), "then a change: {written:?}");
        now_ms += 100;
    }
    for _ in 2..98 {
        let written = answer_all(&mut records, now_ms, &mut revision);
        assert!(matches!(written[..], [(_, Record::Live { .. })]), "each once: {written:?}");
        now_ms += 100;
    }
    assert_eq!((answer_all(&mut records, now_ms, &mut revision), records.len()), (Vec::new(), (98, 0)));
}

#[test]
fn many_sessions_of_one_owner_that_end_at_once_delay_neither_changes_nor_ends_of_others() {
    let (leaving, other) = (SessionOwner::of(1), SessionOwner::of(2));
    let mut records = Records::new(tag(0), 1_000_000, decode);
    let mut revision = 0;
    let logged_out = id(1_001, 0);
    (0..1_000).for_each(|number| records.changed((id(number, 0), leaving), content(b"1"), None));
    records.changed((logged_out, other), content(b"1"), None);
    while !answer_all(&mut records, NOW_MS, &mut revision).is_empty() {}
    (0..1_000).for_each(|number| assert!(records.ended(&id(number, 0), false)));
    assert!(records.ended(&logged_out, false));
    let changed = id(1_002, 0);
    records.changed((changed, other), content(b"2"), None);
    let written: Vec<Key> = writes(&mut records, NOW_MS + 100).into_iter().map(|(key, _)| key).take(4).collect();
    assert!(written.contains(&Key::of(&changed)) && written.contains(&Key::of(&logged_out)), "{written:?}");
}

#[test]
fn a_large_record_counts_as_several() {
    for (bytes, expected) in [(10, 100..=100), (100_000, 4..=6)] {
        let mut records = Records::new(tag(0), 100, decode);
        for number in 0..200 {
            records.changed(owned(id(number, 0)), content(&vec![b'x'; bytes]), None);
        }
        let mut revision = 0;
        let written = (0..10).map(|window| answer_all(&mut records, NOW_MS + window * 100, &mut revision).len());
        let written: usize = written.sum();
        assert!(expected.contains(&written), "{written} records of {bytes} bytes in a second");
    }
}

#[test]
fn sessions_that_come_and_go_while_the_engine_is_away_leave_no_keys() {
    let mut records = Records::new(tag(0), 1_000, decode);
    records.changed(owned(id(0, 0)), content(b"stays"), None);
    for number in 1..20_000 {
        records.changed(owned(id(number, 0)), content(b"goes"), Some(NOW_MS));
        assert!(!records.ended(&id(number, 0), false));
    }
    let (sessions, waiting) = records.len();
    assert!(sessions == 1 && waiting < 2_000, "{sessions} sessions, and {waiting} keys wait");
    assert!(records.binding.len() < 2_000, "{} wait for a binding write", records.binding.len());
    let written = writes(&mut records, NOW_MS);
    assert!(matches!(&written[..], [(key, _)] if *key == Key::of(&id(0, 0))));
}

#[test]
fn one_owner_with_many_sessions_that_change_all_the_time_does_not_delay_the_records_of_others() {
    let (hoarder, other) = (SessionOwner::of(1), SessionOwner::of(2));
    let mut records = Records::new(tag(0), 100, decode);
    let (mut now_ms, mut revision, mut version) = (NOW_MS, 0, 0_u64);
    for round in 0..50 {
        for number in 0..2_000 {
            version += 1;
            records.changed((id(number, 0), hoarder), content(&version.to_le_bytes()), None);
        }
        let session = id(10_000 + round, 0);
        records.changed((session, other), content(b"1"), None);
        let written = answer_all(&mut records, now_ms, &mut revision);
        assert!(
            written.iter().any(|(key, _)| *key == Key::of(&session)),
            "it waits behind the others, in round {round}"
        );
        assert_eq!(written.len(), 10, "the window is used");
        now_ms += 100;
    }
    assert!(records.len().1 > 1_000);
}

/// A node that has a session looks at its record, and finds another node in it.
fn finds(own: Own, revision: u64, node: u64, state: &[u8]) -> (Records, Option<Outcome>) {
    let key = Key::of(&own.id);
    let mut records = Records::new(tag(0), 1_000, decode);
    records.taken(own);
    records.look_again();
    assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
    let record = Record::Live { node: tag(node), content: content(state) };
    let outcome = records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((revision, record.write())))));
    (records, outcome)
}

#[test]
fn a_copy_that_was_not_taken_over_from_the_one_here_ends_the_session() {
    let session = id(1, 1);
    let taken = |take_overs| Own { past: Past { take_overs, user_mark: 0 }, ..Own::of(session, 5, None) };
    // Taken over once more.
    let (mut records, outcome) = finds(taken(1), 9, 1, &[2]);
    assert_eq!((outcome, records.next(NOW_MS)), (Some(Outcome::Lost(session, Some(tag(1)))), None));
    // A copy from before, or one that went its own way: the engine had lost its keys.
    for take_overs in [0, 1] {
        let (mut records, outcome) = finds(taken(1), 9, 1, &[take_overs]);
        assert_eq!(outcome, Some(Outcome::Lost(session, None)));
        let key = Key::of(&session);
        assert_eq!(records.next(NOW_MS), Some(KeyCommand::Write(key, Record::Ended, Expected::Revision(9))));
        let outcome = records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(10)));
        assert_eq!(outcome, Some(Outcome::Tell(tag(1), 10)), "the other node has to learn of it");
    }
}

#[test]
fn a_session_that_was_given_with_its_record_stays_where_it_is() {
    let session = id(1, 1);
    let given = Own { past: Past { take_overs: 1, user_mark: 0 }, given_by: Some(tag(1)), ..Own::of(session, 5, None) };
    let (_, outcome) = finds(given, 5, 1, &[1]);
    assert_eq!(outcome, Some(Outcome::Report(session)));
}

/// A session whose record has this revision.
fn recorded(records: &mut Records, session: Id, revision: u64) -> Key {
    records.changed(owned(session), content(b"1"), None);
    let [(key, _)] = writes(records, NOW_MS)[..] else { panic!("one write") };
    records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(revision)));
    key
}

#[test]
fn a_later_revision_that_another_node_reports_during_a_write_is_looked_at_after_it() {
    let mut records = Records::new(tag(0), 1_000, decode);
    let session = id(1, 0);
    recorded(&mut records, session, 1);
    records.changed(owned(session), content(b"2"), None);
    let [(key, _)] = writes(&mut records, NOW_MS)[..] else { panic!("one write") };
    records.may_be_taken(key, 3);
    // It has come before that of the other node.
    records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(2)));
    assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
    let other = Record::Live { node: tag(1), content: content(b"\x012") }.write();
    let lost = records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((3, other)))));
    assert_eq!(lost, Some(Outcome::Lost(session, Some(tag(1)))));
}

#[test]
fn sessions_whose_subscriptions_wait_for_a_record_are_named_until_it_is_written() {
    let mut records = Records::new(tag(0), 1_000, decode);
    let sessions = [id(1, 0), id(2, 0), id(3, 0)];
    let keys = [1, 2].map(|revision| recorded(&mut records, sessions[revision - 1], revision as u64));
    let named = |records: &mut Records, now_ms: u64| {
        let unrecorded = records.unrecorded(now_ms);
        sessions.map(|session| unrecorded.may_have(&Key::of(&session)))
    };
    // The first has subscribed, the second has not; the third has no record at all.
    let late_ms = NOW_MS + UNRECORDED_AFTER_MS;
    records.changed(owned(sessions[0]), content(b"2"), Some(NOW_MS));
    records.changed(owned(sessions[1]), content(b"2"), None);
    assert_eq!(named(&mut records, late_ms - 1), [false; 3], "a write takes a while");
    assert_eq!(named(&mut records, late_ms), [true, false, false]);
    assert_eq!(writes(&mut records, NOW_MS).len(), 2);
    records.changed(owned(sessions[2]), content(b"2"), Some(NOW_MS));
    assert_eq!(named(&mut records, late_ms), [true, false, false]);
    // It subscribes again while the first write is on its way: that one does not have it.
    records.changed(owned(sessions[0]), content(b"3"), Some(late_ms));
    records.answered(late_ms, keys[0], &Ok(KeyAnswer::Written(3)));
    assert_eq!(named(&mut records, late_ms), [true, false, false]);
    assert_eq!(writes(&mut records, late_ms).len(), 2);
    records.answered(late_ms, keys[0], &Ok(KeyAnswer::Written(4)));
    assert_eq!(named(&mut records, late_ms + 10_000), [false, false, true], "the last one may have been written");
}

#[test]
fn no_node_goes_on_with_a_session_that_its_node_has_named() {
    let mut cluster = Cluster::new(2, 1);
    let (named, other) = (id(1, 0), id(2, 0));
    for session in [named, other] {
        cluster.clients.confirmed.insert(session, 0);
        cluster.open(0, session);
    }
    (0..3).for_each(|_| cluster.tick(0));
    cluster.pass(1_000);
    let sessions = &mut cluster.members[1].sessions;
    let mark = sessions.confirming.mark_of(tag(0)).expect("a mark");
    sessions.note_report(tag(0), mark, &Unrecorded::of([(Key::of(&named), SessionOwner::of(1))].into_iter()).write());
    cluster.kill(0);
    for (session, expected) in [(named, Answer::Unknown), (other, Answer::By(1))] {
        let number = cluster.request(1, session);
        cluster.pass(5_000);
        assert_eq!(cluster.answer(number), Some(expected));
    }
}

#[test]
fn a_session_that_comes_back_with_its_node_and_ends_at_once_leaves_its_end_in_the_record_of_before() {
    for is_compared in [false, true] {
        let mut records = Records::new(tag(0), 1_000, decode);
        let session = id(1, 0);
        records.loaded(&[session]);
        let key = Key::of(&session);
        let before = Record::Live { node: tag(0), content: content(b"1") }.write();
        if is_compared {
            assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
            assert!(records.ended(&session, true));
        } else {
            assert!(records.ended(&session, true));
            assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
        }
        assert_eq!(records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((7, before))))), None);
        let end = KeyCommand::Write(key, Record::Ended, Expected::Revision(7));
        assert_eq!(records.next(NOW_MS), Some(end), "{is_compared}");
        assert_eq!(records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(8))), None);
        assert_eq!((records.next(NOW_MS), records.len()), (None, (0, 0)));
    }
}

#[test]
fn an_end_that_binds_still_does_when_an_old_value_of_the_record_was_read() {
    let mut records = Records::new(tag(0), 1_000, decode);
    let session = id(1, 0);
    let key = recorded(&mut records, session, 7);
    records.may_be_taken(key, 0);
    assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
    assert!(records.ended(&session, true));
    let live = |node, state| Record::Live { node: tag(node), content: content(state) }.write();
    assert_eq!(records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((7, live(0, b"1")))))), None);
    let end = |revision| Some(KeyCommand::Write(key, Record::Ended, Expected::Revision(revision)));
    assert_eq!(records.next(NOW_MS), end(7));
    assert_eq!(records.answered(NOW_MS, key, &Err(KeyFailure::Conflict)), None);
    assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
    assert_eq!(records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((9, live(1, b"\x012")))))), None);
    assert_eq!(records.next(NOW_MS), end(9), "that node has taken it, and it ends there, too");
}

#[test]
fn a_record_by_which_another_node_has_taken_the_session_is_no_old_one_though_revisions_have_begun_again() {
    let mut records = Records::new(tag(0), 1_000, decode);
    let session = id(1, 0);
    let key = recorded(&mut records, session, 300);
    let read = |records: &mut Records, state| {
        records.look_again();
        assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
        let record = Record::Live { node: tag(1), content: content(state) }.write();
        records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((5, record)))))
    };
    assert_eq!(read(&mut records, b"\x012"), Some(Outcome::Lost(session, Some(tag(1)))));
    assert_eq!(recorded(&mut records, session, 300), key);
    assert_eq!(read(&mut records, b"\x002"), None, "it may be from before");
}

#[test]
fn a_session_that_comes_back_with_its_node_and_has_ended_elsewhere_ends() {
    let mut records = Records::new(tag(0), 1_000, decode);
    let session = id(1, 0);
    records.loaded(&[session]);
    let key = Key::of(&session);
    assert_eq!(records.next(NOW_MS), Some(KeyCommand::Read(key)));
    let lost = records.answered(NOW_MS, key, &Ok(KeyAnswer::Found(Some((7, Record::Ended.write())))));
    assert_eq!(lost, Some(Outcome::Lost(session, None)));
}

#[test]
fn a_record_has_a_mark_from_the_end_of_its_write_to_the_begin_of_one_without() {
    let mut records = Records::new(tag(0), 1_000, decode);
    let session = id(1, 0);
    let key = recorded(&mut records, session, 1);
    let late = |mark: u8| Content { mark: Some(vec![mark].into()), ..content(b"1") };
    let write = |records: &mut Records, state: Content, revision: u64| {
        records.changed(owned(session), state, None);
        let before = records.has_mark(&key);
        assert_eq!(writes(records, NOW_MS).len(), 1);
        let meanwhile = records.has_mark(&key);
        records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(revision)));
        [before, meanwhile, records.has_mark(&key)]
    };
    assert_eq!(write(&mut records, late(1), 2), [false, false, true]);
    assert_eq!(write(&mut records, late(2), 3), [true; 3]);
    assert_eq!(write(&mut records, content(b"1"), 4), [true, false, false]);
}

#[test]
fn the_first_mark_of_a_session_waits_neither_for_changes_of_its_owner_nor_for_the_bytes_of_its_record() {
    let mut records = Records::new(tag(0), 10, decode);
    let (mut now_ms, mut revision) = (NOW_MS, 0);
    let marked = |mark: u8, state: Vec<u8>| Content { mark: Some(vec![mark].into()), state: state.into() };
    let (late, large) = (id(1_000, 0), id(1_001, 0));
    for session in [late, large] {
        records.changed(owned(session), content(b"1"), None);
        answer_all(&mut records, now_ms, &mut revision);
        now_ms += 100;
    }
    (0..200).for_each(|number| records.changed(owned(id(number, 0)), content(&[1; 20_000]), None));
    // One waits among the changes before it is late.
    records.changed(owned(late), content(b"2"), None);
    records.changed(owned(late), marked(7, b"2".to_vec()), None);
    records.changed(owned(large), marked(7, vec![2; 50_000]), None);
    let keys = [late, large].map(|session| Key::of(&session));
    let mut written = Vec::new();
    while !keys.iter().all(|key| records.has_mark(key)) {
        now_ms += 100;
        written.extend(answer_all(&mut records, now_ms, &mut revision));
    }
    assert!(written.len() < 6, "{} records were written before", written.len());
    let of = |key: Key, written: &[(Key, Record)]| {
        let record = written.iter().rfind(|(written, _)| *written == key).map(|(_, record)| record.clone());
        record.expect("it is written")
    };
    assert_eq!(of(keys[0], &written), Record::Live { node: tag(0), content: marked(7, b"2".to_vec()) });
    assert_eq!(of(keys[1], &written), Record::Live { node: tag(0), content: Content::empty() });
    while !records.is_written(&keys[1]) {
        now_ms += 100;
        written.extend(answer_all(&mut records, now_ms, &mut revision));
    }
    assert_eq!(of(keys[1], &written), Record::Live { node: tag(0), content: marked(7, vec![2; 50_000]) });
    assert!(records.has_mark(&keys[1]));
    assert_eq!(written.iter().filter(|(key, _)| *key == keys[0]).count(), 1, "its key among the changes has no effect");
}
