//! The epochs of rings. In a cluster each channel belongs to a partition, and all rings of a partition have epochs that follow from one
//! seed. So all nodes give a channel the same epoch, even one without messages.

use super::hash_of;
use crate::id::Entropy;

/// The number of partitions. All nodes have the same.
pub const PARTITIONS: usize = 64;

/// The origin of the rings of a partition. Rings of another lineage have other epochs, so no offset of one is an offset of the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The seed of the epochs.
    pub seed: u64,
    /// The offset of the first message of each ring, unless rings have been removed.
    pub first: u64,
}

impl Lineage {
    /// The epoch of a channel.
    pub fn epoch_of(&self, channel: &str) -> String {
        let bits = mixed(self.seed ^ mixed(hash_of(channel)));
        let character = |index: usize| char::from(EPOCH_ALPHABET[(bits >> (5 * index)) as usize & 31]);
        (0..EPOCH_CHARS).map(character).collect()
    }
}

/// The partition of a channel.
pub fn partition_of(channel: &str) -> usize {
    (mixed(hash_of(channel)) % PARTITIONS as u64) as usize
}

/// A hash of a name that is the same in every process.
pub fn hash_of_name(name: &str) -> u64 {
    hash_of(name)
}

/// The finalizer of MurmurHash3: each bit of the result depends on each bit.
pub fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

/// An epoch of a ring that belongs to no cluster.
pub(super) fn random_epoch(entropy: &mut Entropy) -> String {
    let mut bits = [0; EPOCH_CHARS];
    entropy(&mut bits);
    bits.iter().map(|bits| char::from(EPOCH_ALPHABET[usize::from(bits & 31)])).collect()
}

/// Characters of an epoch, each 5 bits.
const EPOCH_CHARS: usize = 8;
const EPOCH_ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn channels_are_spread_over_partitions_and_have_epochs_of_their_seed() {
        let channels: Vec<String> = (0..1_000).map(|number| format!("/a/{number}")).collect();
        let partitions: BTreeSet<usize> = channels.iter().map(|channel| partition_of(channel)).collect();
        assert_eq!(partitions.len(), PARTITIONS);
        let epochs = |seed| channels.iter().map(move |channel| Lineage { seed, first: 1 }.epoch_of(channel));
        let all: BTreeSet<String> = epochs(1).chain(epochs(2)).collect();
        assert!(all.len() == 2_000 && all.iter().all(|epoch| epoch.len() == EPOCH_CHARS));
        assert!(epochs(1).eq(epochs(1)));
    }
}
