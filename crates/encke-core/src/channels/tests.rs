//! Tests of the channels of a shard alone.

use super::*;
use crate::channels::lists::Moved;

fn channels() -> Channels {
    Channels::new(&Rc::default())
}

fn name(text: &str) -> ChannelName<'_> {
    ChannelName::known(text)
}

#[test]
fn the_first_subscriber_and_the_last_concern_other_shards() {
    let mut channels = channels();
    assert!(channels.subscribe(1, "/a", Interval::NONE, false).is_first);
    assert!(!channels.subscribe(2, "/a", Interval::NONE, false).is_first);
    assert_eq!(channels.unsubscribe(1, 0, false), None);
    assert_eq!(channels.unsubscribe(2, 0, false).as_deref(), Some("/a"));
    assert_eq!((channels.len(), channels.subscriptions()), (0, 0));
}

#[test]
fn slots_and_positions_stay_valid_in_any_order_of_removal() {
    let mut channels = channels();
    for session in 0..20 {
        for at in 0..5 {
            channels.subscribe(session, &format!("/c/{}", (session + at) % 7), Interval::NONE, false);
        }
    }
    let mut left: Vec<(u32, String)> =
        (0..20).flat_map(|session| (0..5).map(move |at| (session, format!("/c/{}", (session + at) % 7)))).collect();
    while !left.is_empty() {
        let (session, name) = left.swap_remove(left.len() * 7 / 11);
        let slot = channels.slot_of(session, &name).expect("it subscribes");
        channels.unsubscribe(session, slot, false);
        assert_eq!(channels.slot_of(session, &name), None);
        for (session, name) in &left {
            assert!(channels.slot_of(*session, name).is_some_and(|slot| channels.at(*session, slot).0 == *name));
        }
    }
    assert_eq!((channels.len(), channels.subscriptions()), (0, 0));
}

#[test]
fn the_account_has_what_subscriptions_take() {
    let account = Rc::<Account>::default();
    let mut channels = Channels::new(&account);
    channels.subscribe(1, "/a", Interval::NONE, false);
    channels.subscribe(1, "/b/*", Interval::NONE, false);
    assert!(account.bytes() > 0 && account.bytes() == channels.bytes());
    assert!(channels.share_bytes(1) > 0 && channels.share_bytes(2) == 0);
    channels.unsubscribe(1, 0, false);
    channels.unsubscribe(1, 0, false);
    assert_eq!((account.bytes(), channels.count_of(1)), (0, 0));
}

#[test]
fn a_session_receives_a_channel_by_any_of_its_subscriptions() {
    let mut channels = channels();
    let own = channels.subscribe(1, "/a/b", Interval::NONE, false).channel;
    assert!(channels.receives(1, "/a/b"));
    assert!(!channels.receives_beside(1, "/a/b", Some(own)) && !channels.receives(2, "/a/b"));
    channels.subscribe(1, "/a/*", Interval::NONE, false);
    assert!(channels.receives_beside(1, "/a/b", Some(own)));
    assert_eq!((channels.reach(name("/a/b")), channels.reach(name("/a/c")), channels.reach(name("/b"))), (2, 1, 0));
    assert_eq!(channels.names_of(1).collect::<Vec<_>>(), ["/a/b", "/a/*"]);
}

#[test]
fn who_asks_for_positions_later_gets_them_on_all_channels() {
    let mut channels = channels();
    channels.subscribe(1, "/a", Interval::NONE, false);
    channels.subscribe(2, "/a", Interval::NONE, false);
    let wants = |channels: &mut Channels| {
        let lists = channels.route(name("/a"));
        let wants = lists.iter().any(|list| channels.wants_positions(*list));
        channels.reuse(lists);
        wants
    };
    assert!(!wants(&mut channels));
    channels.follow(1);
    assert!(wants(&mut channels));
    channels.unsubscribe(1, 0, true);
    assert!(!wants(&mut channels));
}

#[test]
fn the_newest_position_of_a_channel_stays() {
    let mut channels = channels();
    let received = |offset| LastReceived { serial: 1, epoch: "e".into(), offset };
    channels.subscribe(1, "/a", Interval::NONE, true);
    let lists = channels.route(name("/a"));
    channels.note_fanned_out(&lists, "/a", || received(7));
    channels.note_fanned_out(&lists, "/b", || unreachable!("this list is not of /b"));
    channels.note_received("/a", received(5));
    channels.note_received("/unknown", received(9));
    assert_eq!(channels.at(1, 0), ("/a", Some(&received(7))));
}

#[test]
fn a_subscription_that_ends_hands_its_age_over() {
    let mut channels = channels();
    let old = channels.subscribe(1, "/a", Interval::NONE, true).channel;
    channels.set_older(old, [3].into());
    let young = channels.subscribe(1, "/*", Interval::NONE, true).channel;
    channels.set_older(young, [8].into());
    assert!(channels.began_after(young, 0, 5) && !channels.began_after(old, 0, 5));
    channels.hand_over(1, 0);
    assert!(!channels.began_after(young, 0, 5) && channels.began_after(young, 0, 3));
}

#[test]
fn sessions_that_are_gone_leave_little_memory() {
    let mut channels = channels();
    (0..10_000).for_each(|session| _ = channels.subscribe(session, "/a", Interval::NONE, false));
    (10..10_000).rev().for_each(|session| _ = channels.unsubscribe(session, 0, false));
    channels.give_room_back();
    assert!(channels.sessions.capacity() <= ROOM_RETAINED, "{}", channels.sessions.capacity());
    assert_eq!(channels.subscribers_of("/a"), 10);
    assert_eq!(channels.in_slot(0), Some(("/a", 10)));
}

#[test]
fn a_publication_goes_to_its_channel_and_the_patterns_that_match() {
    let mut channels = channels();
    for (session, name) in ["/a/b", "/a/*", "/a/**", "/**", "/a", "/a/b/*", "/*"].into_iter().enumerate() {
        channels.add_subscriber(name, Subscriber { session: session as u32, slot: 0 }, Interval::NONE, false);
    }
    let lists = channels.route(name("/a/b"));
    let mut sessions: Vec<u32> = lists.iter().flat_map(|list| channels.subscribers(*list)).map(|s| s.session).collect();
    sessions.sort_unstable();
    assert_eq!(sessions, [0, 1, 2, 3]);
}

#[test]
fn patterns_are_found_as_long_as_somebody_subscribes_to_one() {
    let mut channels = channels();
    let lists = |channels: &mut Channels| channels.route(name("/a/b")).len();
    channels.add_subscriber("/a/b", Subscriber { session: 0, slot: 0 }, Interval::NONE, false);
    let one = channels.add_subscriber("/a/*", Subscriber { session: 1, slot: 0 }, Interval::NONE, false).0;
    let other = channels.add_subscriber("/**", Subscriber { session: 2, slot: 0 }, Interval::NONE, false).0;
    assert_eq!(lists(&mut channels), 3);
    channels.remove_subscriber(one, false);
    assert_eq!(lists(&mut channels), 2);
    channels.remove_subscriber(other, false);
    assert_eq!(lists(&mut channels), 1);
    channels.add_subscriber("/a/**", Subscriber { session: 1, slot: 0 }, Interval::NONE, false);
    assert_eq!(lists(&mut channels), 2);
}

#[test]
fn removed_channels_leave_little_memory() {
    let mut channels = channels();
    let subscribe = |channels: &mut Channels, number: u32| {
        channels
            .add_subscriber(&format!("/a/{number}"), Subscriber { session: number, slot: 0 }, Interval::NONE, false)
            .0
    };
    let all: Vec<_> = (0..100_000).map(|number| subscribe(&mut channels, number)).collect();
    all[10..].iter().for_each(|subscription| _ = channels.remove_subscriber(*subscription, false));
    channels.give_lists_back();
    assert!(channels.channels.capacity() <= 64 && channels.names.capacity() <= 64, "{}", channels.names.capacity());
    assert!((0..10).all(|number| channels.find(&format!("/a/{number}")).is_some()));
}

#[test]
fn the_last_unsubscribe_removes_the_channel_and_other_positions_stay_valid() {
    let mut channels = channels();
    let (first, new) = channels.add_subscriber("/a", Subscriber { session: 1, slot: 0 }, Interval::NONE, false);
    let (second, again) = channels.add_subscriber("/a", Subscriber { session: 2, slot: 7 }, Interval::NONE, true);
    assert!(channels.wants_positions(first.channel));
    assert!(new && !again);
    let (moved, gone) = channels.remove_subscriber(first, false);
    assert_eq!((moved, gone), (Some(Moved { session: 2, slot: 7, position: 0 }), None));
    let (moved, gone) = channels.remove_subscriber(Subscription { position: 0, ..second }, true);
    assert_eq!((moved, gone.as_deref()), (None, Some("/a")));
    assert_eq!((channels.len(), channels.subscriptions(), channels.find("/a")), (0, 0, None));
}
