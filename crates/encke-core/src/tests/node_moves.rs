//! The rate at which sessions move between nodes of a cluster.

use super::nodes::{given, opened, reports_of, restore, rig};
use crate::events::{Peer, ShardMessage};
use crate::id::Id;
use crate::node_messages::{ForNodes, FromNodes, Given, Release};
use crate::now::Now;
use crate::opener::Opener;
use crate::shard::node_moves::{MOVE_BYTES, MOVE_EVERY_MS, OWNER_MOVED_BYTES_PER_S_MAX};
use crate::shard::tests::{NOW, Rig, member_of};

/// Asks a shard for a session after so many milliseconds.
fn release_after(rig: &mut Rig, id: Id, ms: u64) -> Given {
    reports_of(rig, ms);
    let release = Release { number: 7, bytes_max: usize::MAX, is_urgent: true, opener: Opener::Program };
    let message = ShardMessage::FromNodes(FromNodes::Release(id, release));
    rig.shard.message(Now { ms: NOW.ms + ms, ..NOW }, message);
    let released = reports_of(rig, ms).into_iter().find_map(|message| match message {
        ForNodes::Released(7, given) => Some(given),
        _ => None,
    });
    released.expect("an answer")
}

#[test]
fn a_session_that_has_moved_stays_for_a_second_unless_its_node_is_about_to_stop() {
    for drains in [false, true] {
        let mut rig = rig();
        let (_, id) = opened(&mut rig, "{}");
        let saved = given(release_after(&mut rig, id, 0));
        let mut other = self::rig();
        restore(&mut other, id, saved, true);
        assert_eq!(release_after(&mut other, id, MOVE_EVERY_MS - 1), Given::Stays);
        assert_eq!(other.shard.metrics().held_from_nodes.get(), 1);
        let ms = if drains { 0 } else { MOVE_EVERY_MS };
        if drains {
            other.shard.message(NOW, ShardMessage::Drain);
        }
        given(release_after(&mut other, id, ms));
        assert_eq!(other.shard.sessions(), 0);
    }
}

#[test]
fn a_session_that_was_taken_from_a_record_may_move_at_once() {
    let mut rig = rig();
    let (_, id) = opened(&mut rig, "{}");
    let saved = given(release_after(&mut rig, id, 0));
    let mut other = self::rig();
    restore(&mut other, id, saved, false);
    given(release_after(&mut other, id, 1));
}

/// The id of a new session of a client with this address.
fn open_from(rig: &mut Rig, last: u8) -> Id {
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_is_of(socket, Peer { address: Some([10, 0, 0, last].into()), ..Peer::default() }, false, None);
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
    Id::parse(&member_of(&rig.flushed(socket), "clientId")).expect("an id")
}

#[test]
fn the_sessions_of_one_owner_carry_so_many_bytes_in_a_second_and_those_of_others_move() {
    let mut rig = rig();
    let moves_max = OWNER_MOVED_BYTES_PER_S_MAX / MOVE_BYTES;
    let ids: Vec<Id> = (0..moves_max + 2).map(|_| open_from(&mut rig, 1)).collect();
    let moves = ids.iter().take_while(|id| matches!(release_after(&mut rig, **id, 0), Given::Session(_))).count();
    assert_eq!(moves, moves_max);
    let last = *ids.last().expect("an id");
    assert_eq!(release_after(&mut rig, last, 999), Given::Stays);
    let other = open_from(&mut rig, 2);
    given(release_after(&mut rig, other, 999));
    given(release_after(&mut rig, last, 1_000));
}
