use websocket::Opcode;

use super::*;
use crate::shard::arena::Arena;

fn message(arena: &mut Arena, channel: &str, data: &str) -> Frames {
    let payload = format!("[{{\"channel\":\"{channel}\",\"data\":{data}}}]");
    arena.frame(Opcode::Text, payload.len(), |bytes| bytes.extend_from_slice(payload.as_bytes()))
}

fn waiting(outbox: &mut Outbox) -> Vec<String> {
    let mut all = Vec::new();
    outbox.each_message(|payload| all.push(String::from_utf8_lossy(payload).into_owned()));
    all
}

fn filled(count: usize) -> (Arena, Outbox, usize) {
    let mut arena = Arena::new();
    let mut outbox = Outbox::default();
    let mut bytes = 0;
    for n in 0..count {
        let frames = message(&mut arena, if n % 2 == 0 { "/even" } else { "/odd" }, &n.to_string());
        bytes = frames.bytes();
        outbox.push(&frames, Kind::Messages);
    }
    (arena, outbox, bytes)
}

#[test]
fn neighbours_share_a_run() {
    let (_arena, outbox, _) = filled(8);
    assert_eq!((outbox.runs(), outbox.messages()), (1, 8));
}

#[test]
fn a_lost_carrier_leaves_every_message_it_did_not_get_whole() {
    let (mut arena, mut outbox, _) = filled(4);
    let total = outbox.bytes();
    let frame = message(&mut arena, "/even", "0").bytes();
    outbox.push(&message(&mut arena, "/meta/x", "1"), Kind::Replies);
    outbox.wrote(frame + 3);
    assert!(outbox.is_mid_frame());
    let left = outbox.leave_carrier();
    assert_eq!((left.messages, left.replies.runs()), (1, 1));
    assert_eq!(outbox.messages(), 3);
    assert_eq!(outbox.bytes(), total - frame);
    assert!(waiting(&mut outbox)[0].contains("\"data\":1"));
}

#[test]
fn what_a_failed_response_carried_waits_again_in_order() {
    let (mut arena, mut outbox, _) = filled(3);
    let in_flight = outbox.take_messages();
    let mut body = vec![b'['];
    in_flight.write(&mut body);
    assert!(body.ends_with(b",{\"channel\":\"/even\",\"data\":2}"));
    // They may come back, so they count on.
    assert!(outbox.is_empty() && outbox.messages() == 3);
    outbox.push(&message(&mut arena, "/odd", "3"), Kind::Messages);
    outbox.restore(in_flight);
    let numbers: Vec<bool> =
        waiting(&mut outbox).iter().enumerate().map(|(n, m)| m.contains(&format!(":{n}}}"))).collect();
    assert_eq!(numbers, [true; 4]);
}

#[test]
fn the_oldest_are_taken_up_to_a_limit_and_at_least_one() {
    let (_arena, mut outbox, even) = filled(5);
    let two = outbox.take_oldest(2 * even + 5, true);
    assert_eq!((two.messages(), outbox.messages(), outbox.runs()), (2, 5, 1));
    let one = outbox.take_oldest(1, true);
    assert_eq!((one.messages(), waiting(&mut outbox).len()), (1, 2));
    outbox.settle(&two);
    assert_eq!(outbox.messages(), 3);
    outbox.settle(&one);
    assert_eq!((outbox.messages(), outbox.take_oldest(usize::MAX, true).messages()), (2, 2));
}

#[test]
fn drop_oldest_makes_room_and_spares_a_frame_that_is_half_out() {
    let (_arena, mut outbox, _) = filled(4);
    outbox.wrote(2);
    let capacity = Capacity { messages_max: 3, bytes_max: usize::MAX };
    assert_eq!(outbox.drop_oldest(10, &capacity), 2);
    assert_eq!(outbox.messages(), 2);
    let left: usize = outbox.unwritten().map(|frames| frames.bytes()).sum();
    assert_eq!(left, outbox.bytes());
}

#[test]
fn keep_latest_leaves_one_message_a_channel() {
    let (_arena, mut outbox, _) = filled(9);
    assert_eq!(outbox.keep_latest("/other"), 7);
    let left = waiting(&mut outbox);
    assert!(left[0].contains(":7}") && left[1].contains(":8}"), "{left:?}");
    assert_eq!(outbox.keep_latest("/odd"), 1);
}
