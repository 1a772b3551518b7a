//! Messages that a node of a cluster has missed: the sessions that follow their channel learn what they have lost.

use crate::events::{Effect, ShardMessage};
use crate::history::log_record::Part;
use crate::history::{BeginRestore, Birth, Gap};
use crate::kernel_entropy;
use crate::shard::tests::confirmed::{FIRST, LINEAGE, deliver, rig};
use crate::shard::tests::{NOW, Rig};

/// The ring of `/a` goes on at this message, as that of its owner does.
fn gap_before(rig: &Rig, number: usize) -> Gap {
    let shared = &rig.shard.machines.env.shared;
    let terms = rig.shard.settings().channels[0].history().expect("a history");
    let (room, entropy) = (rig.shard.machines.env.history_room(), &mut kernel_entropy());
    let birth = Birth { channel: "/a", rule: "/a", terms, room, now: NOW, entropy };
    let from = FIRST + number as u64;
    let part = Part { channel: "/a", epoch: "", from, next: from, messages: Vec::new() };
    match shared.histories.begin_restore(birth, LINEAGE, &part) {
        BeginRestore::Begun(Some(gap)) => gap,
        other => panic!("{other:?}"),
    }
}

/// Subscribes at the beginning of `/a`, by this name.
fn follows(rig: &mut Rig, ext: &str, name: &str) -> crate::events::SocketKey {
    let (socket, client) = rig.opened(&format!(r#"{{{ext}"replay":{{"positions":"ext"}}}}"#));
    let replay = format!(r#""ext":{{"replay":{{"{name}":-2}}}}"#);
    let subscribe =
        format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}",{replay}}}"#);
    rig.shard.socket_text(NOW, socket, &format!("[{subscribe}]"));
    let awaited = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::AwaitInterest(_, token) => Some(token.number),
        _ => None,
    });
    rig.shard.message(NOW, ShardMessage::InterestKnown(awaited.into_iter().collect()));
    socket
}

#[test]
fn sessions_that_follow_a_channel_learn_which_messages_their_node_has_missed() {
    let mut rig = rig();
    (0..3).for_each(|number| deliver(&mut rig, number));
    let followers = [follows(&mut rig, "", "/a"), follows(&mut rig, "", "/*")];
    for socket in followers {
        assert_eq!(rig.flushed(socket).matches("\"data\":").count(), 3);
    }
    let gap = gap_before(&rig, 5);
    // The gap is on its way to the shard.
    let late = follows(&mut rig, "", "/a");
    rig.shard.message(NOW, ShardMessage::Gap(gap.into()));
    deliver(&mut rig, 5);
    for (socket, lost) in followers.map(|socket| (socket, true)).into_iter().chain([(late, false)]) {
        let text = rig.flushed(socket);
        assert_eq!(text.matches("\"data\":").count(), 1, "lost or doubled: {text}");
        assert_eq!(text.contains(r#""lost":{"from":103,"to":104}"#), lost, "{text}");
    }
}
