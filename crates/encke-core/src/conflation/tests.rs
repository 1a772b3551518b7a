//! Conflation by itself: intervals, their bounds, and members with several subscriptions.

use super::*;

const ROOM: Room = Room { channels_max: 100, bytes_max: 100_000 };

fn conflation() -> (Rc<Account>, Conflation) {
    let account = Rc::<Account>::default();
    (account.clone(), Conflation::new(&account))
}

impl Conflation {
    /// Offers a message with these bytes to a group whose interval is 100 ms.
    fn give(&mut self, (group, channel): (Group, &str), text: &str, now_ms: u64, room: Room) -> Offered {
        self.number_next();
        let frame = text.as_bytes();
        let offer = Offer { group, channel, interval_ms: 100, frame, except: None, is_lazy: false };
        self.offer(&offer, now_ms, room)
    }

    /// The messages that are due.
    fn due(&mut self, now_ms: u64) -> Vec<String> {
        let due = std::iter::from_fn(|| self.take_due(now_ms));
        due.map(|due| format!("{} {} {}", due.group, due.channel, String::from_utf8_lossy(&due.message.frame)))
            .collect()
    }
}

#[test]
fn the_first_message_goes_and_the_latest_of_each_interval_follows() {
    let (account, mut conflation) = conflation();
    let offered: Vec<_> = (0..5).map(|at| conflation.give((1, "/a"), &at.to_string(), 1_000 + at, ROOM)).collect();
    assert_eq!(offered, [Offered::Goes, Offered::Waits, Offered::Replaces, Offered::Replaces, Offered::Replaces]);
    assert!(conflation.due(1_099).is_empty());
    assert_eq!(conflation.due(1_100), ["1 /a 4"]);
    assert_eq!(conflation.give((1, "/a"), "5", 1_150, ROOM), Offered::Waits, "the interval began again");
    assert_eq!(conflation.due(1_200), ["1 /a 5"]);
    assert_eq!(account.bytes(), conflation.bytes());
    assert!(conflation.due(1_300).is_empty());
    assert_eq!(
        (conflation.len(), conflation.bytes(), account.bytes()),
        (0, 0, 0),
        "nothing is left of a quiet channel"
    );
    assert_eq!(conflation.give((1, "/a"), "6", 1_300, ROOM), Offered::Goes);
}

#[test]
fn a_message_that_comes_when_the_interval_is_over_goes_instead_of_the_one_that_waits() {
    let (_, mut conflation) = conflation();
    conflation.give((1, "/a"), "1", 0, ROOM);
    conflation.give((1, "/a"), "2", 50, ROOM);
    assert_eq!(conflation.give((1, "/a"), "3", 100, ROOM), Offered::Goes);
    assert!(conflation.due(1_000).is_empty());
}

#[test]
fn channels_and_groups_have_their_own_intervals() {
    let (_, mut conflation) = conflation();
    for number in 0..2 {
        for (group, channel) in [(1, "/a"), (1, "/b"), (2, "/a"), (Conflation::EVERYBODY, "/a")] {
            let offered = conflation.give((group, channel), &number.to_string(), 10 * number, ROOM);
            assert_eq!(offered, if number == 0 { Offered::Goes } else { Offered::Waits });
        }
    }
    assert_eq!(conflation.due(100), ["1 /a 1", "1 /b 1", "2 /a 1", &format!("{} /a 1", u32::MAX)]);
}

#[test]
fn channels_and_bytes_have_a_bound_and_what_has_no_room_is_not_overtaken() {
    let (account, mut conflation) = conflation();
    let few = Room { channels_max: 2, ..ROOM };
    let offered = ["/a", "/b", "/c"].map(|channel| conflation.give((1, channel), "1", 0, few));
    assert_eq!(offered, [Offered::Goes, Offered::Goes, Offered::HasNoRoom]);
    let small = Room { bytes_max: conflation.bytes() + 10, ..ROOM };
    assert_eq!(conflation.give((1, "/a"), "12345", 1, small), Offered::Waits);
    assert_eq!(conflation.give((1, "/b"), "1234567890", 1, small), Offered::HasNoRoom);
    assert_eq!(conflation.give((1, "/a"), "a long message", 1, small), Offered::HasNoRoom);
    assert!(conflation.due(100).is_empty(), "the older one is gone, too");
    assert_eq!(account.bytes(), conflation.bytes());
}

#[test]
fn all_that_waits_goes_at_once_when_the_intervals_end() {
    let (account, mut conflation) = conflation();
    for number in 0..2 {
        for channel in ["/a", "/b"] {
            conflation.give((1, channel), &number.to_string(), 0, ROOM);
        }
    }
    conflation.give((1, "/c"), "0", 0, ROOM);
    assert_eq!(conflation.waiting(1, Some(ChannelName::known("/*"))).0.len(), 2);
    conflation.end_intervals();
    let mut taken = conflation.due(1);
    taken.sort();
    assert_eq!(taken, ["1 /a 1", "1 /b 1"]);
    assert_eq!((conflation.len(), account.bytes()), (0, 0));
}

#[test]
fn members_with_several_subscriptions_are_known_from_the_next_publication_on() {
    let (_, mut conflation) = conflation();
    conflation.give((1, "/a"), "1", 0, ROOM);
    conflation.overlaps(1, 7, conflation.number());
    conflation.overlaps(1, 8, 0);
    let shared = |conflation: &Conflation, number| {
        let mut shared: Vec<_> = conflation.shared(1, number).collect();
        shared.sort();
        shared
    };
    assert_eq!((shared(&conflation, 1), shared(&conflation, 2)), (vec![8], vec![7, 8]));
    conflation.left(1, 8, false);
    assert_eq!(shared(&conflation, 2), [7]);
    conflation.left(1, 7, true);
    assert!(conflation.overlaps.is_empty() && shared(&conflation, 2).is_empty(), "it is another group");
    assert_eq!((conflation.len(), conflation.bytes()), (0, 0));
    assert_eq!(conflation.give((1, "/a"), "2", 1, ROOM), Offered::Goes);
}

/// The sessions that have had the messages which are due, and the steps to find them.
fn had(conflation: &mut Conflation, now_ms: u64) -> (Vec<u32>, usize) {
    let (mut had, mut steps) = (Vec::new(), 0);
    while let Some(due) = conflation.take_due(now_ms) {
        let of_due = conflation.take_had(due.group, ChannelName::known(&due.channel), due.message.number);
        had.extend(of_due.0);
        steps += of_due.1;
    }
    had.sort();
    (had, steps)
}

#[test]
fn nothing_is_noted_where_nothing_waits() {
    let (account, mut conflation) = conflation();
    conflation.give((1, "/a"), "1", 0, ROOM);
    conflation.give((2, "/b"), "1", 0, ROOM);
    conflation.give((2, "/b"), "2", 0, ROOM);
    let before = conflation.bytes();
    for session in 0..100 {
        for (group, name) in [(1, "/a"), (1, "/*"), (1, "/**"), (2, "/a"), (3, "/*")] {
            conflation.note_had(group, session, name);
        }
    }
    assert_eq!((conflation.bytes(), account.bytes()), (before, before));
}

#[test]
fn a_message_walks_the_notes_of_its_own_channel_and_they_go_with_it() {
    const CHANNELS: u32 = 500;
    let (account, mut conflation) = conflation();
    let room = Room { channels_max: 1_000, bytes_max: 1_000_000 };
    let before = conflation.bytes();
    for number in 0..CHANNELS {
        let channel = format!("/t/{number}");
        for text in ["1", "2"] {
            conflation.give((1, &channel), text, 0, room);
        }
        conflation.note_had(1, number, &channel);
    }
    let (sessions, steps) = had(&mut conflation, 100);
    assert_eq!(sessions, (0..CHANNELS).collect::<Vec<_>>());
    assert_eq!(steps, CHANNELS as usize, "one note each");
    assert_eq!(had(&mut conflation, 200), (vec![], 0));
    assert_eq!((conflation.bytes(), account.bytes()), (before, before));
}

#[test]
fn a_note_of_a_pattern_stays_as_long_as_what_it_is_about() {
    let (_, mut conflation) = conflation();
    for (channel, now_ms) in [("/a", 0), ("/a", 0), ("/b", 50), ("/b", 50)] {
        conflation.give((1, channel), "1", now_ms, ROOM);
    }
    (0..10).for_each(|session| conflation.note_had(1, session, "/*"));
    let all: Vec<u32> = (0..10).collect();
    assert!(conflation.has_had(1, 7, ChannelName::known("/b"), 4));
    assert_eq!(had(&mut conflation, 100), (all.clone(), 10));
    assert_eq!(conflation.give((1, "/a"), "2", 100, ROOM), Offered::Waits);
    assert_eq!(had(&mut conflation, 150), (all, 10), "/b has waited, too");
    assert_eq!(had(&mut conflation, 200), (vec![], 0), "/a 2 is later");
}

#[test]
fn a_member_has_a_bounded_number_of_notes_and_takes_them_along() {
    let (account, mut conflation) = conflation();
    for number in 0..40 {
        let channel = format!("/{number}");
        for text in ["1", "2"] {
            conflation.give((1, &channel), text, 0, ROOM);
        }
    }
    let before = conflation.bytes();
    (0..40).for_each(|number| conflation.note_had(1, 7, &format!("/{number}")));
    let noted = (0..40).filter(|number| conflation.has_had(1, 7, ChannelName::known(&format!("/{number}")), 80));
    assert_eq!(noted.collect::<Vec<_>>(), (24..40).collect::<Vec<_>>(), "the latest ones");
    conflation.left(1, 7, false);
    assert_eq!((conflation.bytes(), account.bytes()), (before, before));
    assert_eq!(had(&mut conflation, 100), (vec![], 0));
}
