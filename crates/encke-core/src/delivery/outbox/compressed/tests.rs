//! Tests of the compressed forms of frames: what a client decompresses, and what an outbox does between two writes.

use std::collections::HashSet;

use http::HeaderMap;
use http::header::SEC_WEBSOCKET_EXTENSIONS;
use proptest::prelude::*;
use websocket::deflate::Inflater;
use websocket::{Decoder, Event, Flow, Role};

use super::*;
use crate::delivery::outbox::arena::{Arena, Content};
use crate::delivery::outbox::{Latest, Packed, Sweep};
use crate::limits::Capacity;
use crate::memory::Account;

/// The compression on which a client that offers this and the server agree.
fn agreed(offer: &'static str) -> Compression {
    let headers = HeaderMap::from_iter([(SEC_WEBSOCKET_EXTENSIONS, offer.parse().expect("a value"))]);
    Compression::accept(&headers).expect("a valid offer")
}

/// A client that decompresses what it reads.
struct Client {
    decoder: Decoder,
    inflater: Inflater,
    texts: Vec<String>,
}

impl Client {
    fn new() -> Client {
        let mut decoder = Decoder::new(Role::Client, usize::MAX / 2);
        decoder.take_compressed();
        Client { decoder, inflater: Inflater::default(), texts: Vec::new() }
    }

    fn reads(&mut self, mut bytes: Vec<u8>) {
        let texts = &mut self.texts;
        let read = self.decoder.feed_with(&mut bytes, &mut self.inflater, &mut |event| {
            if let Event::Text(text) = event {
                texts.push(text.into());
            }
            Flow::Continue
        });
        assert_eq!(read, Ok(bytes.len()));
    }
}

/// Writes to a kernel that takes `room` bytes. Returns these, and the number of messages that left the outbox.
fn write(outbox: &mut Outbox, compressor: &mut Compressor, compression: Compression, room: usize) -> (Vec<u8>, usize) {
    let mut parts = Parts::default();
    outbox.compress(compressor, compression, (usize::MAX, usize::MAX), &mut parts);
    let slice = |part: &Frames| part.chunk.slice(part.start, part.end).to_vec();
    let mut bytes: Vec<u8> = parts.frames.iter().flat_map(slice).collect();
    bytes.truncate(room);
    let wrote = outbox.wrote_compressed(bytes.len(), &parts);
    (bytes, wrote.messages)
}

fn text(channel: usize, number: usize, length: usize) -> String {
    format!("[{{\"channel\":\"/{channel}\",\"data\":\"{number}{}\"}}]", "xy z".repeat(length / 4))
}

fn push(outbox: &mut Outbox, arena: &mut Arena, text: &str, kind: Kind) {
    let frames = arena.frame(Opcode::Text, text.len(), |bytes| bytes.extend_from_slice(text.as_bytes()));
    outbox.push(&frames, kind);
}

fn number_of(text: &str) -> usize {
    let digits = text.split("\"data\":\"").nth(1).unwrap_or_default().split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap_or_default().parse().expect("a number")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// The kernel takes any number of bytes at a time. Between the writes messages are dropped, packed, and moved to another
    /// connection.
    #[test]
    fn a_client_gets_whole_messages_in_order_whatever_happens_between_the_writes(
        steps in prop::collection::vec((0..8_u8, 0..900_usize), 1..80),
        offer in prop::sample::select(&["permessage-deflate", "permessage-deflate; server_max_window_bits=9"][..]),
    ) {
        let (account, compression, mut compressor) = (Rc::<Account>::default(), agreed(offer), Compressor::new(100));
        let (mut compressible, mut plain) = (Arena::of(Content::Compressible, &account), Arena::new(&account));
        let mut packed = Packed {
            messages: Arena::new(&account), compressible: Arena::of(Content::Compressible, &account), others: Arena::new(&account),
        };
        let (mut outbox, mut client, mut pass) = (Outbox::default(), Client::new(), Latest::default());
        let (mut sent, mut dropped, mut wrote, mut got) = (0, 0, 0, Vec::new());
        for (step, size) in steps {
            match step {
                0 | 1 => {
                    push(&mut outbox, &mut compressible, &text(size % 3, sent, size), Kind::Messages);
                    sent += 1;
                }
                2 if size % 2 == 0 => {
                    push(&mut outbox, &mut plain, &text(3, sent, size), Kind::Messages);
                    sent += 1;
                }
                2 => push(&mut outbox, &mut plain, "[{\"reply\":1}]", Kind::Replies),
                3 | 4 => {
                    let (bytes, messages) = write(&mut outbox, &mut compressor, compression, size);
                    wrote += messages;
                    client.reads(bytes);
                }
                5 => {
                    // The next connection begins with whole messages.
                    outbox.leave_attachment();
                    prop_assert!(outbox.runs.iter().all(|run| run.kind == Kind::Messages));
                    got.append(&mut std::mem::replace(&mut client, Client::new()).texts);
                }
                6 => dropped += match size % 3 {
                    0 => outbox.drop_oldest(size, &Capacity { messages_max: 5, bytes_max: 2_000 }),
                    1 => outbox.filter(|bytes, _| bytes % 3 > 0),
                    _ => {
                        let before = pass.dropped;
                        outbox.keep_latest(&mut pass, 1 + size % 7);
                        pass.dropped - before
                    }
                },
                _ => {
                    let mut sweep = Sweep::new([&packed.messages, &packed.compressible, &packed.others].map(Arena::open).into_iter());
                    outbox.sweep(&mut sweep, &mut packed);
                    sweep.packs = true;
                    outbox.sweep(&mut sweep, &mut packed);
                }
            }
            prop_assert_eq!(outbox.messages(), outbox.runs.iter().map(|run| run.messages as usize).sum::<usize>());
            let queued: usize = outbox.runs.iter().map(|run| run.frames.bytes()).sum();
            prop_assert_eq!(outbox.bytes(), queued - outbox.written as usize);
        }
        while !outbox.is_empty() {
            let (bytes, messages) = write(&mut outbox, &mut compressor, compression, 1_000);
            wrote += messages;
            client.reads(bytes);
        }
        got.append(&mut client.texts);
        prop_assert_eq!((outbox.bytes(), outbox.messages(), wrote + dropped), (0, 0, sent));
        let numbers: Vec<usize> =
            got.iter().filter(|text| !text.contains("reply")).map(|text| number_of(text)).collect();
        prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{:?}", numbers);
        prop_assert_eq!(numbers.len(), wrote);
    }
}

#[test]
fn a_message_is_compressed_once_for_all_and_only_if_somebody_needs_it() {
    let account = Rc::<Account>::default();
    let (mut arena, mut compressor) = (Arena::of(Content::Compressible, &account), Compressor::new(256));
    let (all, small) = (agreed("permessage-deflate"), agreed("permessage-deflate; server_max_window_bits=9"));
    let mut outboxes: Vec<Outbox> = std::iter::repeat_with(Outbox::default).take(10).collect();
    let texts = [text(0, 0, 1_000), text(0, 1, 100), text(0, 2, 1_000), text(0, 3, 1_000)];
    let held = account.bytes() - arena.unheld_bytes();
    for (nth, text) in texts.iter().enumerate() {
        let frames = arena.frame(Opcode::Text, text.len(), |bytes| bytes.extend_from_slice(text.as_bytes()));
        // Nobody has the third message.
        outboxes.iter_mut().filter(|_| nth != 2).for_each(|outbox| outbox.push(&frames, Kind::Messages));
    }
    let mut sizes = HashSet::new();
    for (nth, outbox) in outboxes.iter_mut().enumerate() {
        let mut client = Client::new();
        let bytes = write(outbox, &mut compressor, if nth == 9 { small } else { all }, usize::MAX).0;
        sizes.insert(bytes.len());
        client.reads(bytes);
        assert_eq!(client.texts, [&texts[0][..], &texts[1], &texts[3]]);
    }
    // The client with the window of 512 bytes gets long messages as they are.
    let plain: usize = texts.iter().map(|text| text.len() + 4).sum();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().min() < Some(&(plain / 4)), "{sizes:?}");
    assert_eq!(compressor.messages(), 2);
    // The forms count like their frames.
    assert_eq!(account.bytes(), arena.open().recount(&mut HashSet::new()));
    arena.open().drop_unheld_forms();
    assert_eq!(account.bytes(), arena.open().own_bytes());
    assert_eq!(account.bytes() - arena.unheld_bytes(), held);
}

#[test]
fn a_batch_is_made_of_the_same_blocks() {
    let account = Rc::<Account>::default();
    let (mut compressible, mut plain) = (Arena::of(Content::Compressible, &account), Arena::new(&account));
    let (mut compressor, compression) = (Compressor::new(256), agreed("permessage-deflate"));
    let mut outbox = Outbox::default();
    let texts = [text(0, 0, 1_000), text(0, 1, 10), text(0, 2, 2_000), text(1, 3, 300), text(0, 4, 70_000)];
    for (nth, text) in texts.iter().enumerate() {
        push(&mut outbox, if nth == 3 { &mut plain } else { &mut compressible }, text, Kind::Messages);
    }
    let ranges: Vec<Frames> = outbox.message_ranges().cloned().collect();
    let batch = compressor.batch(&ranges, compression, b"{\"ack\":1}");
    let mut client = Client::new();
    client.reads(batch.clone());
    client.reads(compressor.batch(&[], compression, b"{}"));
    let inner: Vec<&str> = texts.iter().map(|text| &text[1..text.len() - 1]).collect();
    assert_eq!(client.texts, [format!("[{},{{\"ack\":1}}]", inner.join(",")), "[{}]".into()]);
    assert!(batch.len() < 2_000, "{}", batch.len());
    // A socket that gets messages as they come shares them.
    write(&mut outbox, &mut compressor, compression, usize::MAX);
    assert_eq!(compressor.messages(), 3);
}

#[test]
fn other_messages_are_compressed_if_that_makes_them_shorter() {
    let (mut compressor, all) = (Compressor::new(3), agreed("permessage-deflate"));
    let small = agreed("permessage-deflate; server_max_window_bits=8");
    let long = "a".repeat(1_000);
    for (text, compression, is_compressed) in [
        ("", all, false),
        ("abcdef", all, false),
        (&long, all, true),
        (&long, small, false),
        (&long[..256], small, true),
    ] {
        let mut client = Client::new();
        let frame = compressor.single(Opcode::Text, text.as_bytes(), compression);
        assert_eq!(frame::is_compressed(&frame), is_compressed, "{text}");
        client.reads(frame);
        assert_eq!(client.texts, [text]);
    }
}
