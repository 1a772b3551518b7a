//! A client that acknowledges, with a session on each node that subscribes to all channels. It confirms now and then. When its node is
//! killed, another one goes on from the mark: what that one does not send again must have been confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use encke_core::NodeTag;
use encke_core::history::partition_of;

use super::model::{Cluster, Member, tag};
use crate::dice::Dice;
use crate::histories::context::Sabotage;

/// The client of a node.
#[derive(Default)]
pub(super) struct Client {
    /// The messages that it has confirmed, of those that have come.
    confirmed: usize,
    /// Ticks that it has not confirmed, with the number of messages that had come before.
    ticks: VecDeque<(u64, usize)>,
    /// The number of nodes that had been there when its node was killed.
    pub(super) nodes: usize,
    /// The marks of other nodes.
    pub(super) marks: BTreeMap<NodeTag, Bytes>,
}

impl Member {
    /// A tick of this node.
    pub(super) fn ticks(&mut self, tick: u64, sabotage: Option<Sabotage>) {
        self.client.ticks.push_back((tick, self.rings.came.len()));
        if sabotage == Some(Sabotage::MarksEarly) {
            self.histories.confirmed(tick, false);
        }
    }

    /// Lets the client confirm some of what has come.
    pub(super) fn confirm(&mut self, dice: &mut Dice) {
        let come = self.rings.came.len();
        if dice.random(4) == 0 {
            self.client.confirmed += dice.random((come - self.client.confirmed) as u64 + 1) as usize;
        }
        let confirmed = self.client.confirmed;
        while let Some((tick, _)) = self.client.ticks.pop_front_if(|(_, count)| *count <= confirmed) {
            self.histories.confirmed(tick, false);
        }
    }
}

/// The outcomes of sessions that nodes have gone on with, and of those that they have not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcomes {
    pub(super) taken: usize,
    pub(super) refused: usize,
}

/// Lets a node go on with the session of each node that was killed.
pub(super) fn check(cluster: &Cluster, channels: &[String]) -> Outcomes {
    let mut outcomes = Outcomes::default();
    if cluster.journals.lose_ends {
        // The numbers of lost entries are given again, so marks of before say nothing.
        return outcomes;
    }
    for (gone, member) in cluster.members.iter().enumerate().filter(|(_, member)| !member.is_alive) {
        let confirmed: BTreeSet<_> = member.rings.came[..member.client.confirmed].iter().collect();
        for node in cluster.alive() {
            let other = &cluster.members[node];
            let since = other.client.marks.get(&tag(gone)).and_then(|mark| other.histories.since(mark));
            for channel in channels {
                let since_ms = since.and_then(|since| since[partition_of(channel)]);
                let Some(since_ms) = since_ms else {
                    // A later node cannot know.
                    outcomes.refused += usize::from(node < member.client.nodes);
                    continue;
                };
                outcomes.taken += 1;
                let seed = other.rings.seed_of(channel).expect("its rings have begun");
                for text in other.rings.texts_before(channel, since_ms) {
                    let message = (seed, text);
                    let is_owed = !member.rings.old.contains(&message) && !confirmed.contains(&message);
                    assert!(
                        !is_owed,
                        "{node} does not send {message:?} of {channel} again, which {gone} had not confirmed"
                    );
                }
            }
        }
    }
    outcomes
}
