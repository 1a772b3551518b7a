//! Writing and splitting frames (RFC 6455 §5.2), and reading them back.

use crate::common::*;
use websocket::{Opcode, Role, frame};

#[test]
fn heads_use_the_fewest_bytes() {
    for (payload_bytes, head) in [
        (0, vec![0x82, 0]),
        (125, vec![0x82, 125]),
        (126, vec![0x82, 126, 0, 126]),
        (65_535, vec![0x82, 126, 0xff, 0xff]),
        (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let mut out = Vec::new();
        frame::header(Opcode::Binary, payload_bytes, &mut out);
        assert_eq!(out, head);
        assert_eq!(frame::header_bytes(payload_bytes), head.len());
    }
}

#[test]
fn split_walks_over_whole_frames_and_refuses_cut_ones() {
    let mut frames = Vec::new();
    let lengths = [0, 5, 125, 126, 65_535, 65_536];
    for length in lengths {
        frame::message(Opcode::Text, &vec![b'x'; length], &mut frames);
    }
    let mut rest = &frames[..];
    for length in lengths {
        let (head, payload) = frame::split(rest).expect("a whole frame");
        assert_eq!((head, payload), (frame::header_bytes(length), length));
        for cut in [0, 1, head - 1, (head + payload).saturating_sub(1)] {
            assert_eq!(frame::split(&rest[..cut]), None, "{length} bytes cut to {cut}");
        }
        rest = &rest[head + payload..];
    }
    assert_eq!(frame::split(rest), None);
}

#[test]
fn a_close_reason_is_cut_at_a_character() {
    // 122 bytes, then a character of three that does not fit into 123.
    let reason = format!("{}☺", "r".repeat(122));
    let mut out = Vec::new();
    frame::close(1001, &reason, &mut out);
    let close = Owned::Close(Some((1001, "r".repeat(122))));
    assert_eq!(at_once(Role::Client, &out), (vec![close.clone()], None));

    let mut out = Vec::new();
    frame::masked_close(1001, &reason, KEY, &mut out);
    assert_eq!(from_client(&out), (vec![close], None));
}

#[test]
fn a_frame_is_appended_to_what_is_there() {
    let mut out = b"before".to_vec();
    frame::message(Opcode::Pong, b"x", &mut out);
    assert_eq!(out, b"before\x8a\x01x");
    let mut out = b"before".to_vec();
    frame::masked(Opcode::Text, b"Hello", KEY, &mut out);
    assert_eq!(out, b"before\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
}
