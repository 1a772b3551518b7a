//! The rooms of each client, computed alike in every process.

use std::collections::BTreeSet;

use crate::order::Membership;
use crate::random::Rng;

/// The rooms of client `client` of the whole run, rising.
pub(crate) fn rooms_of(membership: &Membership, client: u32) -> Vec<u32> {
    let Membership { rooms, per_client, seed, .. } = *membership;
    match per_client {
        _ if rooms == 0 => Vec::new(),
        0 => Vec::new(),
        1 => vec![client % rooms],
        all if all >= rooms => (0..rooms).collect(),
        some => {
            let (mut rng, mut chosen) = (Rng::new(seed, client), BTreeSet::new());
            while chosen.len() < some as usize {
                chosen.insert(rng.below(rooms.into()) as u32);
            }
            chosen.into_iter().collect()
        }
    }
}

/// The channel of a room.
pub(crate) fn channel_of(membership: &Membership, room: u32) -> String {
    format!("{}/{:05}", membership.channel, membership.first + room)
}

/// Returns true if `channel` is the channel of `room`.
pub(crate) fn is_channel_of(membership: &Membership, room: u32, channel: &str) -> bool {
    let number = channel.strip_prefix(&*membership.channel).and_then(|rest| rest.strip_prefix('/'));
    number.and_then(|number| number.parse().ok()) == Some(membership.first + room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(rooms: u32, per_client: u32) -> Membership {
        Membership { channel: "/bench/a".into(), rooms, per_client, seed: 7, first: 0 }
    }

    #[test]
    fn one_room_each_goes_round() {
        let rooms: Vec<_> = (0..5).flat_map(|client| rooms_of(&membership(3, 1), client)).collect();
        assert_eq!(rooms, [0, 1, 2, 0, 1]);
        assert_eq!(channel_of(&membership(3, 1), 2), "/bench/a/00002");
        let from_one = Membership { first: 1, ..membership(3, 1) };
        assert_eq!(channel_of(&from_one, 2), "/bench/a/00003");
        assert!(is_channel_of(&from_one, 2, "/bench/a/00003"));
        for other in ["/bench/a/00002", "/bench/b/00003", "/bench/a00003", "/bench/a/", "/bench/a/00003/x"] {
            assert!(!is_channel_of(&from_one, 2, other), "{other}");
        }
    }

    #[test]
    fn several_rooms_are_different_and_spread_alike() {
        let membership = membership(100, 10);
        let mut members = [0; 100];
        for client in 0..10_000 {
            let rooms = rooms_of(&membership, client);
            assert_eq!(rooms.len(), 10);
            assert!(rooms.is_sorted_by(|one, other| one < other));
            assert_eq!(rooms, rooms_of(&membership, client), "repeatable");
            rooms.iter().for_each(|room| members[*room as usize] += 1);
        }
        assert!(members.iter().all(|count| (800..1200).contains(count)), "{members:?}");
    }

    #[test]
    fn no_client_is_in_more_rooms_than_exist() {
        assert_eq!(rooms_of(&membership(3, 5), 9), [0, 1, 2]);
        assert!(rooms_of(&membership(3, 0), 9).is_empty() && rooms_of(&membership(0, 1), 9).is_empty());
    }
}
