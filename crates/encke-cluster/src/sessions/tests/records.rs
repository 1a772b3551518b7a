//! Records that are too large, that wait, and that are not needed any more.

use bytes::Bytes;

use super::model::Cluster;
use super::{Answer, id, tag};
use crate::command::{KeyAnswer, KeyFailure, VALUE_BYTES_MAX};
use crate::sessions::record::{Content, Key, Record};
use crate::sessions::records::{KeyCommand, Records};

const NOW_MS: u64 = 1_000_000;

fn content(state: &[u8]) -> Content {
    Content { mark: None, state: Bytes::copy_from_slice(state) }
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
    let mut records = Records::new(tag(0), 1_000);
    records.changed(id(1, 0), content(b"large"));
    let [(key, _)] = writes(&mut records, NOW_MS)[..] else { panic!("one write") };
    assert_eq!(records.answered(NOW_MS, key, &Err(KeyFailure::TooLarge)), None);
    records.changed(id(2, 0), content(b"small"));
    let written = writes(&mut records, NOW_MS);
    let live = |content| Record::Live { node: tag(0), content };
    assert_eq!(written, [(key, live(Content::empty())), (Key::of(&id(2, 0)), live(content(b"small")))]);
    assert_eq!(records.answered(NOW_MS, key, &Ok(KeyAnswer::Written(1))), None);
    assert!(records.is_written(&key) && !records.fails && records.too_large == 1);
}
