//! Messages that a node of a cluster has missed: the sessions that follow their channel learn what they have lost.

use crate::events::{ShardMessage, SocketKey};
use crate::history::log_record::Part;
use crate::history::{BeginRestore, Gap};
use crate::shard::tests::confirmed::{FIRST, LINEAGE, awaited, deliver, rig, with_birth};
use crate::shard::tests::{NOW, Rig};

/// The ring of `/a` goes on at this message, as that of its owner does.
fn gap_before(rig: &Rig, number: usize) -> Gap {
    let histories = &rig.shard.machines.env.shared.histories;
    let from = FIRST + number as u64;
    let part = Part { channel: "/a", epoch: "", from, next: from, messages: Vec::new() };
    match with_birth(rig, |birth| histories.begin_restore(birth, LINEAGE, &part)) {
        BeginRestore::Begun(Some(gap)) => gap,
        other => panic!("{other:?}"),
    }
}

/// Subscribes at the beginning of `/a`, by this name.
fn follows(rig: &mut Rig, name: &str) -> SocketKey {
    let (socket, client) = rig.opened(r#"{"replay":{"positions":"ext"}}"#);
    let replay = format!(r#""ext":{{"replay":{{"{name}":-2}}}}"#);
    let subscribe =
        format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}",{replay}}}"#);
    rig.shard.socket_text(NOW, socket, &format!("[{subscribe}]"));
    let number = awaited(rig);
    rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    socket
}

#[test]
fn sessions_that_follow_a_channel_learn_which_messages_their_node_has_missed() {
    let mut rig = rig();
    (0..3).for_each(|number| deliver(&mut rig, number));
    let followers = [follows(&mut rig, "/a"), follows(&mut rig, "/*")];
    for socket in followers {
        assert_eq!(rig.flushed(socket).matches("\"data\":").count(), 3);
    }
    let gap = gap_before(&rig, 5);
    // The gap is on its way to the shard.
    let late = follows(&mut rig, "/a");
    rig.shard.message(NOW, ShardMessage::Gap(gap.into()));
    deliver(&mut rig, 5);
    for (socket, lost) in followers.map(|socket| (socket, true)).into_iter().chain([(late, false)]) {
        let text = rig.flushed(socket);
        assert_eq!(text.matches("\"data\":").count(), 1, "lost or doubled: {text}");
        assert_eq!(text.contains(r#""lost":{"from":103,"to":104}"#), lost, "{text}");
    }
}
