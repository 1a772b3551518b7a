//! The WebSocket decoder: however a stream is cut, the same events and the same error come out; and what came out, encoded
//! again, comes out again.
//!
//! Input: one byte for role and limit, one that seeds the cuts, then the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use websocket::{Decoder, Event, Flow, Opcode, ProtocolError, Role, frame};

#[derive(Debug, PartialEq)]
enum Owned {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

fuzz_target!(|input: &[u8]| {
    let [settings, seed, stream @ ..] = input else { return };
    let role = if settings & 1 == 0 { Role::Server } else { Role::Client };
    let message_bytes_max = usize::from(settings >> 1) * 8;
    let decoder = || Decoder::new(role, message_bytes_max);

    let whole = decode(decoder(), stream, stream.len().max(1), 0, Flow::Continue);
    for event in &whole.0 {
        assert!(bytes(event) <= message_bytes_max.max(125));
    }
    assert_eq!(whole, decode(decoder(), stream, 1, 0, Flow::Continue), "byte by byte");
    assert_eq!(whole, decode(decoder(), stream, usize::from(*seed) + 1, *seed, Flow::Continue), "in pieces");
    assert_eq!(whole, decode(decoder(), stream, stream.len().max(1), 0, Flow::Stop), "stopped at each event");
    assert_eq!(whole, decode(decoder(), stream, usize::from(*seed) + 1, *seed, Flow::Stop), "both");

    let (other, encoded) = encode_again(role, &whole.0, [*seed, 1, 2, 3]);
    let again = decode(Decoder::new(other, message_bytes_max), &encoded, encoded.len().max(1), 0, Flow::Continue);
    assert_eq!(again, (whole.0, None), "encoded again");
});

/// Feeds reads of up to `read_bytes_max` bytes, of varying length if there is a seed, and the rest again after each stop.
fn decode(
    mut decoder: Decoder,
    stream: &[u8],
    read_bytes_max: usize,
    seed: u8,
    flow: Flow,
) -> (Vec<Owned>, Option<ProtocolError>) {
    let mut stream = stream.to_vec();
    let mut rest = &mut stream[..];
    let mut events = Vec::new();
    let mut turn = usize::from(seed);
    while !rest.is_empty() {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(usize::from(seed));
        let length = if seed == 0 { read_bytes_max } else { (turn >> 33) % read_bytes_max + 1 };
        let length = length.min(rest.len());
        let fed = decoder.feed(&mut rest[..length], &mut |event| {
            events.push(owned(event));
            flow
        });
        match fed {
            Ok(used) => {
                assert!(used == length || (flow == Flow::Stop && used > 0));
                rest = &mut rest[used..];
            }
            Err(error) => {
                assert!(!decoder.is_partial());
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

/// The stream that the other role would have sent to say the same.
fn encode_again(role: Role, events: &[Owned], key: [u8; 4]) -> (Role, Vec<u8>) {
    let mut out = Vec::new();
    for event in events {
        let (opcode, payload) = match event {
            Owned::Text(text) => (Opcode::Text, text.as_bytes()),
            Owned::Binary(bytes) => (Opcode::Binary, &bytes[..]),
            Owned::Ping(bytes) => (Opcode::Ping, &bytes[..]),
            Owned::Pong(bytes) => (Opcode::Pong, &bytes[..]),
            Owned::Close(None) => (Opcode::Close, &[][..]),
            Owned::Close(Some((code, reason))) => {
                match role {
                    Role::Server => frame::close(*code, reason, &mut out),
                    Role::Client => frame::masked_close(*code, reason, key, &mut out),
                }
                continue;
            }
        };
        let start = out.len();
        match role {
            Role::Server => {
                frame::message(opcode, payload, &mut out);
                let split = frame::split(&out[start..]);
                assert_eq!(split, Some((frame::header_bytes(payload.len()), payload.len())));
            }
            Role::Client => frame::masked(opcode, payload, key, &mut out),
        }
    }
    (if role == Role::Server { Role::Client } else { Role::Server }, out)
}

fn owned(event: Event<'_>) -> Owned {
    match event {
        Event::Text(text) => Owned::Text(text.into()),
        Event::Binary(bytes) => Owned::Binary(bytes.into()),
        Event::Ping(bytes) => Owned::Ping(bytes.into()),
        Event::Pong(bytes) => Owned::Pong(bytes.into()),
        Event::Close(close) => Owned::Close(close.map(|(code, reason)| (code, reason.into()))),
    }
}

fn bytes(event: &Owned) -> usize {
    match event {
        Owned::Text(text) => text.len(),
        Owned::Binary(bytes) | Owned::Ping(bytes) | Owned::Pong(bytes) => bytes.len(),
        Owned::Close(close) => close.as_ref().map_or(0, |(_, reason)| 2 + reason.len()),
    }
}
