//! Properties of any stream: the way the network cuts it does not matter, and written messages are read back.

use crate::common::*;
use proptest::collection::vec;
use proptest::prelude::*;
use websocket::{CONTROL_BYTES_MAX, Decoder, Opcode, Role, frame};

proptest! {
    #[test]
    fn any_split_of_a_valid_stream_gives_the_same_events(
        messages in vec(message(), 0..8), cuts in vec(1..300_usize, 1..20),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(Sent::frames).collect();
        let events: Vec<Owned> = messages.iter().flat_map(Sent::events).collect();
        prop_assert_eq!(at_once(Role::Server, &stream), (events.clone(), None));
        prop_assert_eq!(in_pieces(Role::Server, &stream, &cuts), (events, None));
    }

    #[test]
    fn any_split_of_a_damaged_stream_gives_the_same_events_and_the_same_error(
        messages in vec(message(), 1..4), damage in any::<prop::sample::Index>(), byte: u8,
        cuts in vec(1..300_usize, 1..20),
    ) {
        let mut stream: Vec<u8> = messages.iter().flat_map(Sent::frames).collect();
        let at = damage.index(stream.len());
        stream[at] = byte;
        let outcome = at_once(Role::Server, &stream);
        prop_assert_eq!(&in_pieces(Role::Server, &stream, &cuts), &outcome);
        prop_assert_eq!(byte_by_byte(Role::Server, &stream), outcome);
    }

    #[test]
    fn any_split_of_arbitrary_bytes_gives_the_same_events_and_the_same_error(
        stream in vec(any::<u8>(), 0..200), cuts in vec(1..20_usize, 1..20),
    ) {
        for role in [Role::Server, Role::Client] {
            prop_assert_eq!(in_pieces(role, &stream, &cuts), at_once(role, &stream));
        }
    }

    #[test]
    fn each_role_reads_the_output_of_the_other(
        text in ".{0,200}", bytes in vec(any::<u8>(), 0..70_000), key: [u8; 4],
    ) {
        let events = vec![Owned::Text(text.clone()), Owned::Binary(bytes.clone())];
        let (mut server, mut client) = (Vec::new(), Vec::new());
        frame::message(Opcode::Text, text.as_bytes(), &mut server);
        frame::message(Opcode::Binary, &bytes, &mut server);
        frame::masked(Opcode::Text, text.as_bytes(), key, &mut client);
        frame::masked(Opcode::Binary, &bytes, key, &mut client);
        prop_assert_eq!(at_once(Role::Client, &server), (events.clone(), None));
        prop_assert_eq!(at_once(Role::Server, &client), (events, None));
    }
}

/// A message as a client sends it: in fragments, each with control frames before it.
#[derive(Debug, Clone)]
struct Sent {
    text: Option<String>,
    bytes: Vec<u8>,
    cuts: Vec<prop::sample::Index>,
    pings: Vec<Vec<u8>>,
}

impl Sent {
    fn frames(&self) -> Vec<u8> {
        let mut cuts: Vec<usize> = self.cuts.iter().map(|cut| cut.index(self.bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(self.bytes.len());
        let mut pings = self.pings.iter();
        let mut out = Vec::new();
        let mut from = 0;
        for (fragment, &to) in cuts.iter().enumerate() {
            let opcode = match (fragment, &self.text) {
                (0, Some(_)) => TEXT,
                (0, None) => BINARY,
                _ => 0,
            };
            let last = fragment + 1 == cuts.len();
            out.extend(raw(opcode | if last { FIN } else { 0 }, &self.bytes[from..to]));
            from = to;
            if !last && let Some(ping) = pings.next() {
                out.extend(raw(FIN | PING, ping));
            }
        }
        out
    }

    fn events(&self) -> Vec<Owned> {
        let sent_pings = self.pings.iter().take(self.cuts.len());
        let mut events: Vec<Owned> = sent_pings.map(|ping| Owned::Ping(ping.clone())).collect();
        events.push(match &self.text {
            Some(text) => Owned::Text(text.clone()),
            None => Owned::Binary(self.bytes.clone()),
        });
        events
    }
}

fn message() -> impl Strategy<Value = Sent> {
    let payload = prop_oneof![
        "[a-zé☺🎈]{0,100}".prop_map(|text| (Some(text.clone()), text.into_bytes())),
        vec(any::<u8>(), 0..1_000).prop_map(|bytes| (None, bytes)),
    ];
    let cuts = vec(any::<prop::sample::Index>(), 0..4);
    let pings = vec(vec(any::<u8>(), 0..=CONTROL_BYTES_MAX), 0..3);
    (payload, cuts, pings).prop_map(|((text, bytes), cuts, pings)| Sent { text, bytes, cuts, pings })
}

/// Decodes a stream that arrives in reads of these lengths, repeated.
fn in_pieces(role: Role, stream: &[u8], lengths: &[usize]) -> Outcome {
    let mut stream = stream.to_vec();
    let mut rest = &mut stream[..];
    let mut reads = Vec::new();
    for &length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (read, after) = rest.split_at_mut(length.min(rest.len()));
        reads.push(read);
        rest = after;
    }
    feed_all(&mut Decoder::new(role, MESSAGE_BYTES_MAX), reads)
}
