//! Publications on their way to the engine. What one turn has for one channel goes into one envelope, and so does what waits
//! while the engine takes nothing.

use std::collections::{HashMap, VecDeque};

use encke_core::Side;
use foldhash::fast::RandomState;
use websocket::frame;

use crate::envelope::{self, Origin};

/// Envelopes that wait for the engine, within a bound of bytes.
pub(crate) struct Outgoing {
    origin: Origin,
    /// The number of the last envelope.
    number: u64,
    waiting: VecDeque<Waiting>,
    /// The number of the envelopes that have left: the index of the first one that waits.
    left: u64,
    /// The index of the last envelope of each channel.
    latest: HashMap<Box<str>, u64, RandomState>,
    bytes: usize,
    bytes_max: usize,
    envelope_bytes_max: usize,
}

struct Waiting {
    channel: Box<str>,
    bytes: Vec<u8>,
    messages: u32,
    /// True if its messages are lazy.
    is_lazy: bool,
    /// The side of the last part, and where that begins.
    part: (Side, usize),
}

/// An envelope that leaves.
pub(crate) struct Sealed {
    pub(crate) channel: Box<str>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: u32,
}

impl Outgoing {
    /// Nothing waits. `bytes_max`: the bound of what waits.
    pub(crate) fn new(origin: Origin, bytes_max: usize) -> Outgoing {
        Outgoing {
            origin,
            number: 0,
            waiting: VecDeque::new(),
            left: 0,
            latest: HashMap::default(),
            bytes: 0,
            bytes_max,
            envelope_bytes_max: usize::MAX,
        }
    }

    /// Sets the most bytes of an envelope that the engine takes.
    pub(crate) fn set_envelope_bytes_max(&mut self, bytes_max: usize) {
        self.envelope_bytes_max = bytes_max;
    }

    /// Adds publications of this side, lazy ones or others. Returns the number of messages that have no room and are lost.
    pub(crate) fn add(&mut self, channel: &str, manner: (Side, bool), messages: u32, frames: &[u8]) -> u32 {
        if envelope::bytes_with(channel, frames.len()) <= PACKED_BYTES_MAX {
            return self.add_packed(channel, manner, messages, frames);
        }
        let (mut rest, mut lost) = (frames, 0);
        while !rest.is_empty() {
            let (count, bytes) = fitting(channel, rest);
            lost += self.add_packed(channel, manner, count, &rest[..bytes]);
            rest = &rest[bytes..];
        }
        lost
    }

    fn add_packed(&mut self, channel: &str, (side, is_lazy): (Side, bool), messages: u32, frames: &[u8]) -> u32 {
        let more = envelope::bytes_with(channel, frames.len());
        if self.bytes + more + ENTRY_BYTES > self.bytes_max || more > self.envelope_bytes_max {
            return messages;
        }
        let last = self.latest.get(channel).and_then(|index| index.checked_sub(self.left));
        let last = last.and_then(|index| self.waiting.get_mut(index as usize));
        match last.filter(|last| last.is_lazy == is_lazy && last.bytes.len() + more <= PACKED_BYTES_MAX) {
            Some(last) => {
                let before = last.bytes.len();
                if last.part.0 == side {
                    envelope::extend_part(last.part.1, messages, frames, &mut last.bytes);
                } else {
                    last.part = (side, envelope::write_part(side, messages, frames, &mut last.bytes));
                }
                last.messages += messages;
                self.bytes += last.bytes.len() - before;
            }
            None => {
                let mut bytes = Vec::with_capacity(more);
                envelope::write_head(channel, is_lazy, &mut bytes);
                let part = (side, envelope::write_part(side, messages, frames, &mut bytes));
                self.bytes += bytes.len() + ENTRY_BYTES;
                self.latest.insert(channel.into(), self.left + self.waiting.len() as u64);
                self.waiting.push_back(Waiting { channel: channel.into(), bytes, messages, is_lazy, part });
            }
        }
        0
    }

    /// Takes the next envelope, with its number. The error is the number of messages in one that the engine does not take,
    /// because it takes smaller ones only since it is back.
    pub(crate) fn next(&mut self) -> Option<Result<Sealed, u32>> {
        let Waiting { channel, mut bytes, messages, .. } = self.waiting.pop_front()?;
        self.left += 1;
        self.bytes -= bytes.len() + ENTRY_BYTES;
        if self.latest.get(&channel).is_some_and(|index| *index < self.left) {
            self.latest.remove(&channel);
        }
        if self.waiting.is_empty() && self.latest.capacity() > CHANNELS_RETAINED {
            self.latest = HashMap::default();
        }
        if bytes.len() > self.envelope_bytes_max {
            return Some(Err(messages));
        }
        self.number += 1;
        envelope::seal(&mut bytes, self.origin, self.number);
        Some(Ok(Sealed { channel, bytes, messages }))
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The number and the bytes of the frames that fit into one envelope: one at least.
pub(crate) fn fitting(channel: &str, frames: &[u8]) -> (u32, usize) {
    let (mut count, mut bytes) = (0, 0);
    while bytes < frames.len() {
        let next = bytes + first_frame(&frames[bytes..]);
        if count > 0 && envelope::bytes_with(channel, next) > PACKED_BYTES_MAX {
            break;
        }
        (count, bytes) = (count + 1, next);
    }
    (count, bytes)
}

/// The bytes of the first frame, or all if there is no whole one.
fn first_frame(frames: &[u8]) -> usize {
    frame::split(frames).map_or(frames.len(), |(head, payload)| head + payload)
}

/// An envelope of more bytes has one message only.
const PACKED_BYTES_MAX: usize = 64 * 1024;
/// The bytes that an envelope costs beside its own: the entry in the line, its channel, and the index of that.
const ENTRY_BYTES: usize = 256;
/// An index of at most this many channels keeps its memory.
const CHANNELS_RETAINED: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;
    use crate::envelope::tests::frame_of;

    fn outgoing(bytes_max: usize) -> Outgoing {
        Outgoing::new(Origin(1), bytes_max)
    }

    /// The channel, the number and the messages of each envelope that waits, as texts.
    fn sent(outgoing: &mut Outgoing) -> Vec<String> {
        let sealed = std::iter::from_fn(|| outgoing.next()).filter_map(Result::ok);
        let show = |sealed: Sealed| {
            let envelope = Envelope::read(&sealed.bytes, &bayeux::Limits::default()).expect("valid");
            envelope.check().expect("valid");
            let parts = envelope.parts().map(|part| format!("{:?}{}", part.side, part.messages));
            assert_eq!(envelope.parts().map(|part| part.messages).sum::<u32>(), sealed.messages);
            assert_eq!(envelope.channel, &*sealed.channel);
            let lazy = if envelope.is_lazy { " lazy" } else { "" };
            format!("{} {}{lazy} {}", envelope.number, envelope.channel, parts.collect::<Vec<_>>().join("+"))
        };
        sealed.map(show).collect()
    }

    #[test]
    fn what_a_turn_has_for_a_channel_goes_into_one_envelope_in_order() {
        let mut outgoing = outgoing(1 << 20);
        for number in 0..300 {
            let channel = ["/a", "/b", "/c"][number % 3];
            let side = if number < 290 { Side::Client } else { Side::Server };
            assert_eq!(outgoing.add(channel, (side, false), 1, &frame_of(&number.to_string())), 0);
        }
        assert_eq!(sent(&mut outgoing), ["1 /a Client97+Server3", "2 /b Client97+Server3", "3 /c Client96+Server4"]);
        assert_eq!((outgoing.bytes(), outgoing.latest.len()), (0, 0));
        outgoing.add("/a", (Side::Client, false), 1, &frame_of("1"));
        assert_eq!(sent(&mut outgoing), ["4 /a Client1"]);
    }

    #[test]
    fn a_full_envelope_is_followed_by_another_and_a_burst_is_split_between_frames() {
        let mut outgoing = outgoing(1 << 20);
        let burst: Vec<u8> = (0..5).flat_map(|_| frame_of(&"x".repeat(30_000))).collect();
        assert_eq!(outgoing.add("/a", (Side::Client, false), 5, &burst), 0);
        assert_eq!(outgoing.add("/b", (Side::Client, false), 1, &frame_of("1")), 0);
        assert_eq!(outgoing.add("/a", (Side::Client, false), 1, &frame_of("1")), 0);
        assert_eq!(sent(&mut outgoing), ["1 /a Client2", "2 /a Client2", "3 /a Client2", "4 /b Client1"]);
    }

    #[test]
    fn lazy_messages_have_separate_envelopes_in_order() {
        let mut outgoing = outgoing(1 << 20);
        for (number, is_lazy) in [false, true, true, false].into_iter().enumerate() {
            assert_eq!(outgoing.add("/a", (Side::Server, is_lazy), 1, &frame_of(&number.to_string())), 0);
        }
        assert_eq!(sent(&mut outgoing), ["1 /a Server1", "2 /a lazy Server2", "3 /a Server1"]);
    }

    #[test]
    fn a_large_message_goes_alone_and_one_that_the_engine_does_not_take_is_lost_alone() {
        let mut outgoing = outgoing(1 << 20);
        outgoing.set_envelope_bytes_max(200_000);
        let burst =
            [frame_of("1"), frame_of(&"x".repeat(100_000)), frame_of(&"x".repeat(300_000)), frame_of("2")].concat();
        assert_eq!(outgoing.add("/a", (Side::Client, false), 4, &burst), 1);
        outgoing.set_envelope_bytes_max(50_000);
        let lost: u32 = std::iter::from_fn(|| outgoing.next()).filter_map(Result::err).sum();
        assert_eq!((lost, outgoing.number, outgoing.bytes()), (1, 2, 0));
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut outgoing = outgoing(1_000);
        let lost: u32 =
            (0..1_000).map(|number| outgoing.add("/a", (Side::Client, false), 1, &frame_of(&number.to_string()))).sum();
        assert!((500..1_000).contains(&lost) && outgoing.bytes() <= 1_000, "{lost} of 1000");
        assert_eq!(sent(&mut outgoing), [format!("1 /a Client{}", 1_000 - lost)]);
        assert_eq!(outgoing.add("/a", (Side::Client, false), 1, &frame_of("1")), 0);
    }
}
