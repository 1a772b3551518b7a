//! The publications of one channel and turn as bytes. All numbers are little-endian.
//!
//! ```text
//!   version 1 · origin 8 · number 8 · extra length 2 · extra · channel length 2 · channel
//!   then once or more: side 1 · messages 4 · bytes 4 · frames
//! ```
//!
//! *Frames* are encoded publications as shards exchange them: whole WebSocket text frames, each with one message in an array.
//! So the receiving node parses and encodes nothing again. It checks lengths, UTF-8 and the ends of each array, because its
//! clients could not read on otherwise. *Extra* is room for what later versions add and others do not need. Its first byte is 1 if the
//! messages are lazy: a node that does not know it delivers them at once.

use std::fmt;

use bayeux::{ChannelKind, ChannelName, Limits};
use encke_core::{Side, crosses_nodes};
use websocket::frame;

/// The version of envelopes.
const VERSION: u8 = 1;
/// The extra of an envelope with lazy messages.
const LAZY: u8 = 1;
/// The bytes of a head without extra and channel.
const HEAD_BYTES: usize = 1 + 8 + 8 + 2 + 2;
/// The bytes of the head of a part.
const PART_BYTES: usize = 1 + 4 + 4;

/// One process of a node. A node that starts again is another origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin(pub(crate) u64);

/// An envelope that has arrived and is valid.
#[derive(Clone, Copy)]
pub struct Envelope<'a> {
    pub(crate) origin: Origin,
    pub(crate) number: u64,
    /// The channel of the publications.
    pub channel: &'a str,
    /// True if its messages are lazy.
    pub(crate) is_lazy: bool,
    parts: &'a [u8],
}

/// Publications of an envelope that one side has made.
pub(crate) struct Part<'a> {
    pub(crate) side: Side,
    pub(crate) messages: u32,
    pub(crate) frames: &'a [u8],
}

/// The reasons why bytes are not an envelope. The node that sent them is at fault, or another program that may write to the
/// subjects of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// It is of another version.
    #[error("an envelope of version {0}, which this node does not know")]
    Version(u8),
    /// A length does not fit.
    #[error("the lengths in an envelope do not fit")]
    Length,
    /// The channel is not one that nodes exchange.
    #[error("an envelope for a channel that nodes do not exchange")]
    Channel,
    /// The frames are not whole text frames with an array each, or not as many as they should be.
    #[error("an envelope with invalid frames")]
    Frames,
}

/// Writes the head of an envelope. Its parts follow.
pub(crate) fn write_head(channel: &str, is_lazy: bool, out: &mut Vec<u8>) {
    out.push(VERSION);
    // The origin and the number are written when it leaves.
    out.extend_from_slice(&[0; 16]);
    let extra: &[u8] = if is_lazy { &[LAZY] } else { &[] };
    out.extend_from_slice(&(extra.len() as u16).to_le_bytes());
    out.extend_from_slice(extra);
    out.extend_from_slice(&(channel.len() as u16).to_le_bytes());
    out.extend_from_slice(channel.as_bytes());
}

/// Writes the origin and the number into an envelope.
pub(crate) fn seal(envelope: &mut [u8], origin: Origin, number: u64) {
    envelope[1..9].copy_from_slice(&origin.0.to_le_bytes());
    envelope[9..17].copy_from_slice(&number.to_le_bytes());
}

/// Appends a part. Returns the position of its head, for [`extend_part`].
pub(crate) fn write_part(side: Side, messages: u32, frames: &[u8], out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.push(u8::from(side == Side::Server));
    out.extend_from_slice(&messages.to_le_bytes());
    out.extend_from_slice(&(frames.len() as u32).to_le_bytes());
    out.extend_from_slice(frames);
    at
}

/// Appends frames to the last part, whose head is at this position.
pub(crate) fn extend_part(at: usize, messages: u32, frames: &[u8], out: &mut Vec<u8>) {
    let add = |out: &mut Vec<u8>, at: usize, by: u32| {
        let number = out[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        out[at..at + 4].copy_from_slice(&(number + by).to_le_bytes());
    };
    add(out, at + 1, messages);
    add(out, at + 5, frames.len() as u32);
    out.extend_from_slice(frames);
}

/// The most bytes of an envelope with one part of this many bytes.
pub(crate) fn bytes_with(channel: &str, frames: usize) -> usize {
    HEAD_BYTES + 1 + channel.len() + PART_BYTES + frames
}

impl<'a> Envelope<'a> {
    /// Reads the head of an envelope. [`Envelope::check`] does the rest.
    ///
    /// # Errors
    /// When the bytes are not the head of an envelope, or its channel is not one that nodes exchange.
    pub fn read(bytes: &'a [u8], limits: &Limits) -> Result<Envelope<'a>, EnvelopeError> {
        let mut rest = Rest(bytes);
        let [version] = rest.array()?;
        if version != VERSION {
            return Err(EnvelopeError::Version(version));
        }
        let origin = Origin(u64::from_le_bytes(rest.array()?));
        let number = u64::from_le_bytes(rest.array()?);
        let extra = usize::from(u16::from_le_bytes(rest.array()?));
        let is_lazy = rest.take(extra)?.first() == Some(&LAZY);
        let channel = usize::from(u16::from_le_bytes(rest.array()?));
        let channel = str::from_utf8(rest.take(channel)?).map_err(|_| EnvelopeError::Channel)?;
        let name = ChannelName::parse(channel, limits).map_err(|_| EnvelopeError::Channel)?;
        if name.kind() != ChannelKind::Broadcast || !crosses_nodes(channel) {
            return Err(EnvelopeError::Channel);
        }
        Ok(Envelope { origin, number, channel, is_lazy, parts: rest.0 })
    }

    /// Checks the parts.
    ///
    /// # Errors
    /// When a client could not read on after these frames, or a length does not fit.
    pub fn check(&self) -> Result<(), EnvelopeError> {
        let mut rest = Rest(self.parts);
        if rest.0.is_empty() {
            return Err(EnvelopeError::Length);
        }
        while !rest.0.is_empty() {
            let part = rest.part()?;
            if part.messages == 0 || count_frames(part.frames) != Some(part.messages) {
                return Err(EnvelopeError::Frames);
            }
        }
        Ok(())
    }

    /// The parts of an envelope that is checked.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'a>> {
        let mut rest = Rest(self.parts);
        std::iter::from_fn(move || rest.part().ok())
    }
}

impl fmt::Debug for Envelope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({} of {:x} on {})", self.number, self.origin.0, self.channel)
    }
}

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], EnvelopeError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(EnvelopeError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(EnvelopeError::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn part(&mut self) -> Result<Part<'a>, EnvelopeError> {
        let [side] = self.array()?;
        let messages = u32::from_le_bytes(self.array()?);
        let bytes = u32::from_le_bytes(self.array()?) as usize;
        let side = match side {
            0 => Side::Client,
            1 => Side::Server,
            _ => return Err(EnvelopeError::Frames),
        };
        Ok(Part { side, messages, frames: self.take(bytes)? })
    }
}

/// The number of frames. None if they are not whole text frames in one piece, each with an array in UTF-8.
pub(crate) fn count_frames(frames: &[u8]) -> Option<u32> {
    const WHOLE_TEXT: u8 = 0x81;
    let (mut rest, mut count) = (frames, 0);
    while let [first, ..] = rest {
        let (head, payload) = frame::split(rest).filter(|_| *first == WHOLE_TEXT)?;
        let (frame, others) = rest.split_at_checked(head + payload)?;
        let text = simdutf8::basic::from_utf8(&frame[head..]).ok()?;
        if text.len() < 2 || !text.starts_with('[') || !text.ends_with(']') {
            return None;
        }
        rest = others;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with one message.
    pub(crate) fn frame_of(message: &str) -> Vec<u8> {
        let mut frame = Vec::new();
        websocket::frame::message(websocket::Opcode::Text, format!("[{message}]").as_bytes(), &mut frame);
        frame
    }

    fn envelope(channel: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_head(channel, false, &mut bytes);
        let at = write_part(Side::Client, 1, &frame_of("1"), &mut bytes);
        extend_part(at, 1, &frame_of("\"\u{e4}\""), &mut bytes);
        write_part(Side::Server, 1, &frame_of(&"x".repeat(300)), &mut bytes);
        seal(&mut bytes, Origin(7), 9);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Envelope<'_>, EnvelopeError> {
        let envelope = Envelope::read(bytes, &Limits::default())?;
        envelope.check()?;
        Ok(envelope)
    }

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        let bytes = envelope("/a/b");
        let envelope = read(&bytes).expect("valid");
        assert_eq!((envelope.origin, envelope.number, envelope.channel), (Origin(7), 9, "/a/b"));
        let parts: Vec<_> = envelope.parts().map(|part| (part.side, part.messages, part.frames.len())).collect();
        assert_eq!(parts, [(Side::Client, 2, 5 + 8), (Side::Server, 1, 4 + 302)]);
    }

    #[test]
    fn what_a_later_version_adds_is_skipped() {
        let mut bytes = envelope("/a");
        bytes.splice(17..19, [3, 0, 9, 9, 9]);
        let envelope = read(&bytes).expect("valid");
        assert_eq!((envelope.channel, envelope.is_lazy), ("/a", false));
    }

    #[test]
    fn bytes_that_are_no_envelope_are_refused() {
        let good = envelope("/a");
        for bytes in (0..good.len()).map(|length| &good[..length]) {
            assert!(read(bytes).is_err() || bytes.len() == good.len() - 315, "{} bytes", bytes.len());
        }
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            read(&bytes).err()
        };
        assert_eq!(with(&|bytes| bytes[0] = 2), Some(EnvelopeError::Version(2)));
        assert_eq!(with(&|bytes| bytes[17] = 255), Some(EnvelopeError::Length));
        assert_eq!(with(&|bytes| bytes[21] = b'x'), Some(EnvelopeError::Channel));
        assert_eq!(with(&|bytes| bytes[23] = 2), Some(EnvelopeError::Frames), "an unknown side");
        assert_eq!(with(&|bytes| bytes[24] = 3), Some(EnvelopeError::Frames), "too many messages");
        assert_eq!(with(&|bytes| bytes[32] = 0x82), Some(EnvelopeError::Frames), "a binary frame");
        assert_eq!(with(&|bytes| bytes[34] = b'{'), Some(EnvelopeError::Frames), "no array");
        assert_eq!(with(&|bytes| bytes[35] = 0xff), Some(EnvelopeError::Frames), "no UTF-8");
        for channel in ["/meta/connect", "/service/a", "/presence/a", "a", "/a\n"] {
            assert_eq!(read(&envelope(channel)).err(), Some(EnvelopeError::Channel), "{channel}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_end_in_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            position in 0_usize..400,
            byte in any::<u8>(),
        ) {
            _ = read(&bytes);
            let mut changed = envelope("/a/b");
            if let Some(at) = changed.get_mut(position) {
                *at = byte;
            }
            if let Ok(envelope) = read(&changed) {
                prop_assert!(envelope.parts().count() >= 1);
            }
        }
    }
}
