//! Actions of the application for sessions that other nodes of a cluster may have.

use std::sync::Arc;

use crate::application::NoApplication;
use crate::events::{Effect, OTHER_NODES, ShardMessage};
use crate::id::{Id, NodeTag, kernel_entropy};
use crate::node_messages::{Elsewhere, ForNodes};
use crate::protocol::batch::message_frame;
use crate::settings::Settings;
use crate::shard::Shared;
use crate::shard::tests::{NOW, Rig};

fn rig(is_clustered: bool) -> Rig {
    let mut shared = Shared::new(1, Box::new(NoApplication));
    shared.node = is_clustered.then(|| NodeTag::new(&mut kernel_entropy()));
    Rig::with(shared, Settings::default())
}

/// The actions for other nodes among the effects.
fn elsewhere(rig: &mut Rig) -> Vec<Elsewhere> {
    let of = |effect| match effect {
        Effect::SendToShard(shard, ShardMessage::ForNodes(ForNodes::Elsewhere(action, None)))
            if shard == usize::from(OTHER_NODES) =>
        {
            Some(action)
        }
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(of).collect()
}

#[test]
fn what_is_for_a_session_of_another_node_goes_there() {
    let mut rig = rig(true);
    let (_, client) = rig.opened("{}");
    let here = Id::parse(&client).expect("an id");
    let there = Id::of_node(0, NodeTag::new(&mut kernel_entropy()), &mut kernel_entropy());
    let message: Arc<[u8]> = message_frame("/a", "1", None, None).into();
    rig.shard.message(NOW, ShardMessage::Deliver(here, message.clone(), None));
    assert_eq!(elsewhere(&mut rig), []);
    rig.shard.message(NOW, ShardMessage::Deliver(there, message.clone(), None));
    rig.shard.message(NOW, ShardMessage::Disconnect(there, None));
    assert_eq!(elsewhere(&mut rig), [Elsewhere::Deliver(there, message), Elsewhere::Disconnect(there)]);
    rig.shard.message(NOW, ShardMessage::Disconnect(here, None));
    assert_eq!(elsewhere(&mut rig), [], "it was here");
}

#[test]
fn without_a_cluster_nothing_leaves_the_node() {
    let mut rig = rig(false);
    let gone = Id::new(0, &mut kernel_entropy());
    rig.shard.message(NOW, ShardMessage::Deliver(gone, message_frame("/a", "1", None, None).into(), None));
    rig.shard.message(NOW, ShardMessage::Disconnect(gone, None));
    assert_eq!(elsewhere(&mut rig), []);
}
