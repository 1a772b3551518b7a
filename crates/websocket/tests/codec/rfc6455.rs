//! The decoder against RFC 6455, section by section, with the groups of the Autobahn suite that check the same.
//! Streams are decoded at once and byte by byte (`from_client`), and the two must agree.

use crate::common::*;
use websocket::{CONTROL_BYTES_MAX, Decoder, Event, Flow, ProtocolError, Role};

#[test]
fn section_5_7_the_examples_of_the_rfc_decode() {
    let hello = text("Hello");
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(from_client(&masked), (vec![hello.clone()], None));
    let unmasked = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(at_once(Role::Client, &unmasked), (vec![hello.clone()], None));
    let fragmented = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    assert_eq!(at_once(Role::Client, &fragmented), (vec![hello], None));
    let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(byte_by_byte(Role::Client, &ping), (vec![Owned::Ping(b"Hello".into())], None));
}

#[test]
fn group_1_every_length_class_carries_text_and_bytes() {
    for length in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 70_000] {
        let payload = vec![b'*'; length];
        let stream = [raw(FIN | TEXT, &payload), raw(FIN | BINARY, &payload)].concat();
        let string = String::from_utf8(payload.clone()).expect("ASCII");
        let events = vec![Owned::Text(string), Owned::Binary(payload)];
        assert_eq!(from_client(&stream), (events, None), "{length} bytes");
    }
}

#[test]
fn group_2_pings_and_pongs_up_to_125_bytes_come_through_in_order() {
    for length in [0, 5, CONTROL_BYTES_MAX] {
        let payload = vec![0xfe; length];
        let stream = [raw(FIN | PING, &payload), raw(FIN | PONG, &payload)].concat();
        let events = vec![Owned::Ping(payload.clone()), Owned::Pong(payload)];
        assert_eq!(from_client(&stream), (events, None));
    }
}

#[test]
fn section_5_5_a_control_frame_of_126_bytes_is_refused() {
    for opcode in [CLOSE, PING, PONG] {
        assert_error(&raw(FIN | opcode, &[0; 126]), ProtocolError::ControlTooLong);
    }
}

#[test]
fn section_5_5_a_fragmented_control_frame_is_refused() {
    for opcode in [CLOSE, PING, PONG] {
        assert_error(&raw(opcode, b""), ProtocolError::FragmentedControl);
    }
}

#[test]
fn group_3_a_reserved_bit_is_refused_after_the_events_before_it() {
    for bits in 1..8 {
        for opcode in [TEXT, BINARY, CLOSE, PING, PONG] {
            let stream = [raw(FIN | TEXT, b"fine"), raw(FIN | bits << 4 | opcode, b"")].concat();
            let outcome = (vec![text("fine")], Some(ProtocolError::ReservedBits));
            assert_eq!(from_client(&stream), outcome);
        }
    }
}

#[test]
fn group_4_a_reserved_opcode_is_refused_by_its_first_byte() {
    for opcode in (3..8).chain(11..16) {
        assert_error(&raw(FIN | opcode, b""), ProtocolError::ReservedOpcode);
        assert_error(&[FIN | opcode], ProtocolError::ReservedOpcode);
    }
}

#[test]
fn group_5_fragments_are_joined_and_control_frames_pass_between_them() {
    let stream = [
        raw(TEXT, b"frag"),
        raw(FIN | PING, b"1"),
        raw(0, b""),
        raw(FIN | PONG, b"2"),
        raw(0, b"men"),
        raw(FIN, b"t"),
        raw(FIN | BINARY, b"next"),
    ];
    let events =
        vec![Owned::Ping(b"1".into()), Owned::Pong(b"2".into()), text("fragment"), Owned::Binary(b"next".into())];
    assert_eq!(from_client(&stream.concat()), (events, None));
}

#[test]
fn group_5_a_continuation_without_a_message_is_refused() {
    for first in [0, FIN] {
        assert_error(&raw(first, b"x"), ProtocolError::UnexpectedContinuation);
        let after_whole = [raw(FIN | TEXT, b"whole"), raw(first, b"x")].concat();
        let outcome = (vec![text("whole")], Some(ProtocolError::UnexpectedContinuation));
        assert_eq!(from_client(&after_whole), outcome);
    }
}

#[test]
fn group_5_a_new_message_inside_a_message_is_refused() {
    for first in [TEXT, FIN | TEXT, BINARY, FIN | BINARY] {
        let stream = [raw(TEXT, b"open"), raw(first, b"x")].concat();
        assert_error(&stream, ProtocolError::ExpectedContinuation);
    }
}

#[test]
fn group_6_characters_may_be_cut_by_fragments() {
    let greeting = "κόσμε 🎈";
    for at in 0..=greeting.len() {
        let (left, right) = greeting.as_bytes().split_at(at);
        let stream = [raw(TEXT, left), raw(0, b""), raw(FIN, right)].concat();
        assert_eq!(from_client(&stream), (vec![text(greeting)], None), "cut at {at}");
    }
}

#[test]
fn group_6_text_that_is_not_utf8_is_refused_whole_and_in_fragments() {
    // A lone continuation, an overlong slash, a surrogate, beyond U+10FFFF, a cut character, and bytes never used.
    let wrongs: [&[u8]; 7] =
        [b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xfe", b"\xff"];
    for wrong in wrongs {
        let payload = [b"before ".as_slice(), wrong].concat();
        assert_error(&raw(FIN | TEXT, &payload), ProtocolError::InvalidUtf8);
        for at in 0..=payload.len() {
            let stream = [raw(TEXT, &payload[..at]), raw(FIN, &payload[at..])].concat();
            assert_error(&stream, ProtocolError::InvalidUtf8);
        }
        let binary = raw(FIN | BINARY, &payload);
        assert_eq!(from_client(&binary), (vec![Owned::Binary(payload)], None));
    }
}

#[test]
fn group_6_4_invalid_text_fails_before_its_message_or_frame_is_whole() {
    let wrong = "κόσμε".as_bytes().iter().copied().chain([0xf4, 0x90]).collect::<Vec<u8>>();
    // Another fragment follows.
    assert_error(&raw(TEXT, &wrong), ProtocolError::InvalidUtf8);
    // The frame announces more bytes than arrived.
    let mut cut = raw(FIN | TEXT, &[&wrong[..], b"\x80\x80more"].concat());
    cut.truncate(cut.len() - 6);
    assert_error(&cut, ProtocolError::InvalidUtf8);
    // One byte less could still be a character.
    cut.truncate(cut.len() - 1);
    assert_eq!(from_client(&cut), (vec![], None));
}

#[test]
fn group_7_a_close_may_be_empty_or_carry_code_and_reason() {
    assert_eq!(from_client(&raw(FIN | CLOSE, b"")), (vec![Owned::Close(None)], None));
    let longest = "r".repeat(CONTROL_BYTES_MAX - 2);
    for reason in ["", "bye ☺", &longest] {
        let stream = raw(FIN | CLOSE, &[b"\x03\xe8", reason.as_bytes()].concat());
        assert_eq!(from_client(&stream), (vec![Owned::Close(Some((1000, reason.into())))], None));
    }
}

#[test]
fn section_5_5_1_a_close_of_one_byte_is_refused() {
    assert_error(&raw(FIN | CLOSE, b"\x03"), ProtocolError::CloseTooShort);
}

#[test]
fn group_7_5_a_close_reason_that_is_not_utf8_is_refused() {
    assert_error(&raw(FIN | CLOSE, b"\x03\xe8\xce"), ProtocolError::InvalidUtf8);
}

#[test]
fn groups_7_7_and_7_9_only_close_codes_that_may_be_sent_pass() {
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1014, 3000, 3999, 4000, 4999] {
        let outcome = (vec![Owned::Close(Some((code, String::new())))], None);
        assert_eq!(from_client(&raw(FIN | CLOSE, &code.to_be_bytes())), outcome, "{code}");
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535_u16] {
        assert_error(&raw(FIN | CLOSE, &code.to_be_bytes()), ProtocolError::CloseCode);
    }
}

#[test]
fn section_5_5_1_everything_after_a_close_is_ignored() {
    let stream = [raw(TEXT, b"open"), raw(FIN | CLOSE, b""), raw(FIN | TEXT, b"late"), vec![0xff]];
    assert_eq!(from_client(&stream.concat()), (vec![Owned::Close(None)], None));
}

#[test]
fn everything_after_an_error_is_ignored() {
    let mut decoder = Decoder::new(Role::Server, MESSAGE_BYTES_MAX);
    let mut bad = [raw(TEXT, b"open"), vec![0xff]].concat();
    let (_, error) = feed_all(&mut decoder, [&mut bad[..]]);
    assert_eq!(error, Some(ProtocolError::ReservedBits));
    assert!(!decoder.is_partial());
    let mut good = raw(FIN | TEXT, b"late");
    assert_eq!(feed_all(&mut decoder, [&mut good[..]]), (vec![], None));
}

#[test]
fn section_5_1_a_server_requires_masks_and_a_client_refuses_them() {
    assert_error(&[0x81, 0x05, 0x48], ProtocolError::Unmasked);
    let masked = raw(FIN | TEXT, b"Hello");
    assert_eq!(at_once(Role::Client, &masked), (vec![], Some(ProtocolError::Masked)));
}

#[test]
fn section_5_2_lengths_must_use_the_fewest_bytes() {
    assert_error(&[0x81, 0xfe, 0x00, 0x7d], ProtocolError::LengthNotMinimal);
    let long = [0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    assert_error(&long, ProtocolError::LengthNotMinimal);
}

#[test]
fn section_5_2_a_length_of_2_to_the_63_is_refused() {
    assert_error(&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], ProtocolError::LengthReserved);
    let largest = [0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_error(&largest, ProtocolError::MessageTooLong);
}

#[test]
fn section_10_4_the_message_limit_applies_to_the_head() {
    let limited = |stream: &[u8]| feed_all(&mut Decoder::new(Role::Server, 10), [&mut stream.to_vec()[..]]);
    assert_eq!(limited(&raw(FIN | TEXT, b"ten bytes!")), (vec![text("ten bytes!")], None));
    let too_long = (vec![], Some(ProtocolError::MessageTooLong));
    assert_eq!(limited(&raw(FIN | TEXT, b"eleven byte")[..6]), too_long);
    let fragments = [raw(TEXT, b"ten b"), raw(0, b"ytes"), raw(FIN, b"!")].concat();
    assert_eq!(limited(&fragments), (vec![text("ten bytes!")], None));
    let fragments = [raw(TEXT, b"ten b"), raw(0, b"ytes"), raw(FIN, b"!!")[..6].to_vec()].concat();
    assert_eq!(limited(&fragments), too_long);
    // Control frames have a separate limit.
    let ping = raw(FIN | PING, b"eleven byte");
    assert_eq!(limited(&ping), (vec![Owned::Ping(b"eleven byte".into())], None));
}

#[test]
fn a_stop_leaves_the_rest_of_the_input_untouched() {
    let first = raw(FIN | TEXT, b"first");
    let second = raw(FIN | TEXT, b"second");
    let mut input = [first.clone(), second.clone()].concat();
    let mut decoder = Decoder::new(Role::Server, MESSAGE_BYTES_MAX);
    let mut events = 0;
    let used = decoder.feed(&mut input, &mut |event| {
        assert_eq!(event, Event::Text("first"));
        events += 1;
        Flow::Stop
    });
    assert_eq!((used, events), (Ok(first.len()), 1));
    assert_eq!(input[first.len()..], second);
    // Elsewhere, with another decoder.
    assert_eq!(from_client(&input[first.len()..]), (vec![text("second")], None));
}

#[test]
fn a_stop_in_a_control_frame_keeps_the_open_message() {
    let mut input = [raw(TEXT, b"to"), raw(FIN | PING, b""), raw(FIN, b"gether")].concat();
    let mut decoder = Decoder::new(Role::Server, MESSAGE_BYTES_MAX);
    let used = decoder.feed(&mut input, &mut |_| Flow::Stop).expect("a valid stream");
    assert!(decoder.is_partial());
    assert_eq!(feed_all(&mut decoder, [&mut input[used..]]), (vec![text("together")], None));
    assert!(!decoder.is_partial());
}

#[test]
fn a_whole_frame_is_borrowed_from_the_input() {
    let mut input = raw(FIN | TEXT, b"in place");
    let range = input.as_ptr_range();
    let mut decoder = Decoder::new(Role::Server, MESSAGE_BYTES_MAX);
    let fed = decoder.feed(&mut input, &mut |event| {
        let Event::Text(text) = event else { panic!("{event:?}") };
        assert!(range.contains(&text.as_ptr()));
        Flow::Continue
    });
    assert!(fed.is_ok());
}

#[test]
fn the_close_code_of_an_error_shows_its_kind() {
    assert_eq!(ProtocolError::InvalidUtf8.close_code(), 1007);
    assert_eq!(ProtocolError::MessageTooLong.close_code(), 1009);
    assert_eq!(ProtocolError::Unmasked.close_code(), 1002);
}

/// The stream fails with `error`, at once and byte by byte, without an event before.
fn assert_error(stream: &[u8], error: ProtocolError) {
    assert_eq!(from_client(stream), (vec![], Some(error)), "{stream:02x?}");
}
