//! Tests of the queue of a session and its arenas.

use websocket::Opcode;

use super::*;
use crate::delivery::outbox::arena::Arena;

fn message(arena: &mut Arena, channel: &str, data: &str) -> Frames {
    let payload = format!("[{{\"channel\":\"{channel}\",\"data\":{data}}}]");
    arena.frame(Opcode::Text, payload.len(), |bytes| bytes.extend_from_slice(payload.as_bytes()))
}

fn waiting(outbox: &mut Outbox) -> Vec<String> {
    let mut all = Vec::new();
    outbox.filter(|_, payload| {
        all.push(String::from_utf8_lossy(payload).into_owned());
        true
    });
    all
}

fn filled(count: usize) -> (Arena, Outbox, usize) {
    let mut arena = Arena::new(&std::rc::Rc::default());
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
fn contiguous_ranges_share_a_run() {
    let (_arena, outbox, _) = filled(8);
    assert_eq!((outbox.runs(), outbox.messages()), (1, 8));
}

#[test]
fn a_lost_connection_returns_every_message_that_was_not_written_whole() {
    let (mut arena, mut outbox, _) = filled(4);
    let total = outbox.bytes();
    let frame = message(&mut arena, "/even", "0").bytes();
    outbox.push(&message(&mut arena, "/meta/x", "1"), Kind::Replies);
    assert_eq!(outbox.wrote(frame + 3).messages, 1);
    assert!(outbox.is_mid_frame());
    assert_eq!(outbox.leave_attachment().replies.runs(), 1);
    assert_eq!(outbox.messages(), 3);
    assert_eq!(outbox.bytes(), total - frame);
    assert!(waiting(&mut outbox)[0].contains("\"data\":1"));
}

#[test]
fn nothing_is_left_if_all_behind_a_written_message_is_dropped() {
    let drops: [fn(&mut Outbox); 2] = [
        |outbox| _ = outbox.filter(|_, _| false),
        |outbox| _ = outbox.drop_oldest(0, &Capacity { messages_max: 1, bytes_max: 0 }),
    ];
    for drop in drops {
        let (mut arena, mut outbox, _) = filled(3);
        let frame = message(&mut arena, "/even", "0").bytes();
        assert_eq!(outbox.wrote(frame).messages, 1);
        drop(&mut outbox);
        // A write of no bytes would look like a lost connection.
        assert!(outbox.is_empty());
        assert_eq!((outbox.messages(), outbox.bytes()), (0, 0));
    }
}

#[test]
fn messages_of_a_failed_response_wait_again_in_order() {
    let (mut arena, mut outbox, _) = filled(3);
    let in_flight = outbox.take_messages();
    let mut body = vec![b'['];
    in_flight.write(&mut body);
    assert!(body.ends_with(b",{\"channel\":\"/even\",\"data\":2}"));
    // They may come back, so they still count.
    assert!(outbox.is_empty() && outbox.messages() == 3);
    outbox.push(&message(&mut arena, "/odd", "3"), Kind::Messages);
    outbox.restore(in_flight);
    let numbers: Vec<bool> =
        waiting(&mut outbox).iter().enumerate().map(|(n, m)| m.contains(&format!(":{n}}}"))).collect();
    assert_eq!(numbers, [true; 4]);
}

#[test]
fn the_queue_of_ranges_that_never_join_counts_for_the_outbox_even_in_a_response() {
    let mut arena = Arena::new(&std::rc::Rc::default());
    let mut outbox = Outbox::default();
    let capacity = Capacity { messages_max: usize::MAX, bytes_max: 64 * 1024 };
    let next = message(&mut arena, "/a", "1").bytes();
    while !outbox.is_full(1, next, &capacity) {
        outbox.push(&message(&mut arena, "/a", "1"), Kind::Messages);
        // A message for other sessions separates this one from the next.
        message(&mut arena, "/b", "1");
    }
    assert_eq!(outbox.runs(), outbox.messages());
    assert!(outbox.bytes() + outbox.runs() * RUN_BYTES <= capacity.bytes_max);
    let taken = outbox.take_messages();
    assert!(outbox.is_full(1, next, &capacity), "they may come back");
    outbox.settle(&taken);
    assert!(!outbox.is_full(1, next, &capacity));
}

#[test]
fn a_drop_that_skips_many_replies_makes_room_for_more_than_one_message() {
    let mut arena = Arena::new(&std::rc::Rc::default());
    let mut outbox = Outbox::default();
    for number in 0..2_600 {
        let (channel, kind) = if number < 1_600 { ("/meta/x", Kind::Replies) } else { ("/a", Kind::Messages) };
        outbox.push(&message(&mut arena, channel, "1"), kind);
        message(&mut arena, "/b", "1");
    }
    let capacity = Capacity { messages_max: 1_000, bytes_max: usize::MAX };
    assert_eq!(outbox.drop_oldest(1, &capacity), 1_600 / 16);
    assert_eq!((outbox.messages(), outbox.runs()), (900, 2_500));
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
fn drop_oldest_makes_room_and_spares_a_partly_written_frame() {
    let (_arena, mut outbox, _) = filled(4);
    outbox.wrote(2);
    let capacity = Capacity { messages_max: 3, bytes_max: usize::MAX };
    assert_eq!(outbox.drop_oldest(10, &capacity), 2);
    assert_eq!(outbox.messages(), 2);
    let left: usize = outbox.unwritten().map(|frames| frames.bytes()).sum();
    assert_eq!(left, outbox.bytes());
}

#[test]
fn a_pass_leaves_the_latest_message_of_each_channel() {
    for steps_max in [1, 3, usize::MAX] {
        let (_arena, mut outbox, bytes) = filled(9);
        let mut pass = Latest::default();
        while !outbox.keep_latest(&mut pass, steps_max).1 {}
        assert_eq!((pass.dropped, outbox.messages(), outbox.bytes()), (7, 2, 2 * bytes - 1));
        let left = waiting(&mut outbox);
        assert!(left[0].contains(":7}") && left[1].contains(":8}"), "{left:?}");
    }
}

/// Between two parts of a pass the client reads, messages arrive, and a response fails.
#[test]
fn a_pass_in_parts_drops_only_messages_that_a_newer_one_supersedes() {
    for seed in 0..200_usize {
        let (mut arena, mut outbox) = (Arena::new(&std::rc::Rc::default()), Outbox::default());
        let channel = |number: usize| format!("/{}", number.wrapping_mul(seed + 7) % 23);
        let mut next = |outbox: &mut Outbox, number: usize| {
            outbox.push(&message(&mut arena, &channel(number), &format!("{number:5}")), Kind::Messages);
            if number.is_multiple_of(1 + seed % 5) {
                // A message for other sessions separates this one from the next.
                message(&mut arena, "/b", "1");
            }
        };
        (0..100).for_each(|number| next(&mut outbox, number));
        let (mut pass, mut number, mut all) = (Latest::default(), 100, (0..100).collect::<Vec<usize>>());
        while !outbox.keep_latest(&mut pass, 1 + seed % 13).1 {
            match (number + seed) % 4 {
                0 => {
                    next(&mut outbox, number);
                    all.push(number);
                }
                1 if number < 120 => _ = outbox.wrote(100),
                2 if !outbox.is_mid_frame() => {
                    outbox.leave_attachment();
                    let response = outbox.take_oldest(200, true);
                    outbox.restore(response);
                }
                _ => _ = outbox.leave_attachment(),
            }
            number += 1;
        }
        outbox.leave_attachment();
        let left = waiting(&mut outbox);
        assert_eq!(outbox.messages(), left.len());
        let number_of = |text: &String| text.split(":").nth(2)?.trim_matches(['}', ']', ' ']).parse::<usize>().ok();
        let numbers: Vec<usize> = left.iter().filter_map(number_of).collect();
        assert!(numbers.is_sorted() && numbers.len() == left.len());
        for (nth, number) in all.iter().enumerate() {
            let is_latest = all[nth + 1..].iter().all(|newer| channel(*newer) != channel(*number));
            let is_read = numbers[0] > *number;
            assert!(is_read || !is_latest || numbers.contains(number), "seed {seed}: {number} is gone, {left:?}");
        }
        assert!(left.len() < 23 + (number - 100) / 2 + 2, "seed {seed}: {} are left", left.len());
    }
}

/// Tests many ways to fill an outbox: the runs in front may be replies, or partly written.
#[test]
fn drop_oldest_removes_only_as_much_as_needed_and_preserves_replies_and_order() {
    let lengths = |outbox: &Outbox| outbox.unwritten().map(|frames| frames.bytes()).sum::<usize>();
    for (written, at_reply) in [(0, 0), (0, 3), (5, 0), (5, 9), (60, 2), (200, 1)] {
        let (mut arena, mut outbox) = (Arena::new(&std::rc::Rc::default()), Outbox::default());
        for n in 0..12 {
            if n == at_reply {
                outbox.push(&message(&mut arena, "/meta/connect", "0"), Kind::Replies);
            }
            let frames = message(&mut arena, "/a", &format!("\"{n}{}\"", "x".repeat(n)));
            outbox.push(&frames, Kind::Messages);
        }
        outbox.wrote(written);
        let untouched = waiting(&mut outbox);
        for bytes_max in (0..=outbox.held_bytes()).rev().step_by(7) {
            let (before, bytes) = (waiting(&mut outbox), outbox.held_bytes());
            let dropped = outbox.drop_oldest(0, &Capacity { messages_max: 11, bytes_max });
            let after = waiting(&mut outbox);
            assert_eq!(after[..], before[dropped..]);
            assert_eq!((lengths(&outbox), outbox.reply_bytes() > 0), (outbox.bytes(), written < 200));
            let fits = outbox.messages() <= 10 && outbox.held_bytes() <= bytes_max;
            assert!(fits || after.is_empty(), "{written} {at_reply} {bytes_max}");
            if outbox.messages() < 10 && dropped > 0 {
                let last = before[dropped - 1].len() + 2 + RUN_BYTES;
                assert!(bytes - outbox.held_bytes() < bytes - bytes_max + last, "one less would not have done");
            }
        }
        assert!(waiting(&mut outbox).is_empty() && untouched.len() >= 7);
    }
}

#[test]
fn bytes_of_replies_are_counted_until_they_are_written() {
    let (mut arena, mut outbox, _) = filled(2);
    let bytes = outbox.bytes();
    let reply = message(&mut arena, "/meta/connect", "1");
    outbox.push(&reply, Kind::Replies);
    outbox.push(&reply, Kind::Close);
    assert_eq!(outbox.reply_bytes(), 2 * reply.bytes());
    outbox.filter(|_, _| true);
    outbox.wrote(bytes + 3);
    assert_eq!(outbox.reply_bytes(), 2 * reply.bytes());
    outbox.wrote(reply.bytes() - 3);
    assert_eq!(outbox.reply_bytes(), reply.bytes());
    // Written bytes count until the limit is reached.
    let bytes = reply.bytes();
    assert!(!outbox.has_too_many_replies(bytes, 3 * bytes) && !outbox.has_too_many_replies(2 * bytes, 4 * bytes - 1));
    assert!(outbox.has_too_many_replies(2 * bytes, 2 * bytes));
    let left = outbox.leave_attachment();
    assert_eq!((outbox.reply_bytes(), left.replies.reply_bytes()), (0, bytes));
}

#[test]
fn messages_in_a_response_are_not_inherited() {
    let (_arena, mut outbox, even) = filled(3);
    let all = outbox.bytes();
    let _taken = outbox.take_oldest(even, true);
    let mut heir = Outbox::default();
    heir.append(outbox);
    assert_eq!((heir.messages(), heir.bytes()), (2, all - even));
}

#[test]
fn written_messages_are_not_inherited_behind_waiting_ones() {
    let (mut arena, mut outbox, odd) = filled(4);
    let even = odd + 1;
    assert_eq!(outbox.wrote(even).messages, 1);
    assert!(!outbox.is_mid_frame() && outbox.runs() == 1);
    let (rest, pong) = (outbox.bytes(), message(&mut arena, "/meta/x", "1"));
    let mut heir = Outbox::default();
    heir.push(&pong, Kind::Replies);
    heir.append(outbox);
    let left: usize = heir.unwritten().map(|frames| frames.bytes()).sum();
    assert_eq!((left, heir.bytes(), heir.messages()), (pong.bytes() + rest, pong.bytes() + rest, 3));
    assert!(waiting(&mut heir)[0].contains("\"data\":1"));
}

#[test]
fn what_goes_first_stands_behind_the_rest_of_a_frame_and_before_all_else() {
    for written in [0, 3] {
        let (mut arena, mut outbox, _) = filled(3);
        let (total, first) = (outbox.bytes(), message(&mut arena, "/even", "0").bytes());
        outbox.wrote(if written > 0 { written } else { first });
        let reply = message(&mut arena, "/meta/x", "1");
        outbox.push_first(&reply, Kind::Replies);
        let gone = if written > 0 { written } else { first };
        assert_eq!(outbox.bytes(), total - gone + reply.bytes());
        let text: Vec<u8> =
            outbox.unwritten().flat_map(|part| part.chunk.slice(part.start, part.end).to_vec()).collect();
        let text = String::from_utf8_lossy(&text).into_owned();
        let order = ["\"data\":0", "/meta/x", "/odd", "\"data\":2"].map(|part| text.find(part));
        let order = if written > 0 { &order[..] } else { &order[1..] };
        assert!(order.is_sorted() && order.iter().all(Option::is_some), "{text}");
    }
}
