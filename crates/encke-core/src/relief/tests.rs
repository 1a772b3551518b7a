//! Tests of the relief alone.

use super::*;
use crate::delivery::Holder;
use crate::events::SessionKey;

const MAX: usize = 64_000;

fn relief() -> Relief {
    let mut relief = Relief::default();
    assert!(!relief.check(10_000, 10_000, MAX), "the first check only notes what is there");
    relief
}

fn session(index: u32) -> Holder {
    Holder::Session(SessionKey { index, generation: 1 })
}

#[test]
fn a_sweep_begins_when_the_memory_has_doubled() {
    let mut relief = relief();
    assert!(!relief.check(19_999, 19_999, MAX) && relief.check(20_000, 20_000, MAX));
    relief.begin(Sweep::default());
    assert!(!relief.check(30_000, 30_000, MAX), "one is under way");
    assert!(relief.take_sweep().is_some());
    relief.end_sweep(15_000, MAX);
    assert!(!relief.check(29_999, 29_999, MAX) && relief.check(30_000, 30_000, MAX));
}

#[test]
fn a_check_is_due_when_much_was_added() {
    let relief = relief();
    assert_eq!(relief.check_from, 11_000);
    assert!(!relief.needs_care(10_000) && relief.needs_care(10_001));
}

#[test]
fn a_sweep_keeps_up_with_what_is_added() {
    let mut relief = relief();
    relief.begin(Sweep::default());
    assert_eq!(relief.runs(), SWEEP_RUNS);
    let mut bytes = 10_000;
    while !relief.is_behind() {
        bytes += SWEEP_RUNS_MAX * RUN_BYTES;
        relief.check(bytes, bytes, MAX);
    }
    assert!(relief.is_acting() && relief.runs() == SWEEP_RUNS_MAX);
    while relief.is_behind() {
        let mut sweep = relief.take_sweep().expect("it is under way");
        sweep.looked_at = SWEEP_RUNS_MAX;
        relief.go_on_later(sweep);
    }
    assert!(!relief.is_acting() && relief.needs_care(bytes));
}

#[test]
fn sessions_end_only_when_everything_is_packed() {
    let mut relief = relief();
    assert!(relief.set_short(true) && !relief.set_short(true));
    relief.begin(Sweep::default());
    assert!(!relief.may_end_sessions(0));
    assert!(relief.take_sweep().is_some());
    assert!(relief.may_end_sessions(0) && !relief.is_ending_sessions());
    let mut holders = relief.take_search();
    holders.set_excess(|| 1);
    relief.search_later(holders);
    assert!(relief.is_ending_sessions() && relief.is_acting());
    assert!(!relief.set_short(false) && !relief.is_ending_sessions());
}

#[test]
fn sessions_that_are_left_get_time() {
    let mut relief = relief();
    relief.end_search(1_000, 10_000, MAX);
    assert!(!relief.may_end_sessions(1_009) && relief.may_end_sessions(1_010));
}

#[test]
fn the_largest_end_first_until_enough_is_free() {
    let mut holders = Holders::default();
    let sizes = [5, 100, 0, 40, 30];
    while let Some(slot) = holders.next_slot(sizes.len()) {
        holders.add(session(slot as u32), sizes[slot]);
    }
    holders.set_excess(|| 60);
    let first = holders.largest().expect("one");
    assert_eq!(first, (100, session(1)));
    assert!(!holders.takes(first, 35), "it has got much of its queue");
    let second = holders.largest().expect("one");
    assert!(second == (40, session(3)) && holders.takes(second, 40));
    holders.has_ended();
    let third = holders.largest().expect("one");
    assert!(third == (35, session(1)) && holders.takes(third, 35));
    holders.has_ended();
    assert_eq!((holders.largest(), holders.outcome()), (None, (2, 75)));
}

#[test]
fn tables_are_shrunk_at_intervals() {
    let mut relief = relief();
    assert!(relief.gives_room_back(5) && !relief.gives_room_back(1_004) && relief.gives_room_back(1_005));
}
