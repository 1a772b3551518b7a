//! Compression of messages (permessage-deflate, RFC 7692), without context takeover: a message refers to no other one.
//!
//! So neither end holds anything between two messages. One [`Deflater`] and one [`Inflater`] serve all connections of a
//! thread, and a compressed message may be sent to any number of peers.
//!
//! A message may be made of parts that were compressed separately, each once: [`Deflater::block`] ends at the border of a
//! byte and refers to nothing before it. [`stored`] adds bytes as they are. [`END`] ends the message:
//!
//! ```text
//!   stored "["   block of a message   stored ","   block of another message   stored "]"   END
//! ```

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::ProtocolError;

/// Compresses texts. It has no memory before the first one.
#[derive(Debug, Default)]
pub struct Deflater {
    stream: Option<Box<Compress>>,
    blocks: u64,
}

/// Decompresses messages. It has no memory before the first one.
#[derive(Debug, Default)]
pub struct Inflater {
    stream: Option<Box<Decompress>>,
    /// The text of the last message, and the rest of the buffer behind it.
    text: Vec<u8>,
}

impl Deflater {
    /// Appends a text as deflate blocks that end at the border of a byte and refer to nothing before them.
    pub fn block(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.blocks += 1;
        let begin = out.len();
        if self.compress(text, out).is_none() {
            out.truncate(begin);
            stored(text, out);
        }
    }

    /// The number of texts compressed since the start.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// None if the library refuses, which it does not.
    fn compress(&mut self, mut text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let stream = self.stream.get_or_insert_with(|| Box::new(Compress::new(Compression::new(LEVEL), false)));
        stream.reset();
        loop {
            out.reserve(text.len() + STORED_BYTES);
            let before = stream.total_in();
            stream.compress_vec(text, out, FlushCompress::Sync).ok()?;
            text = &text[(stream.total_in() - before) as usize..];
            // All is flushed if there is room left.
            if text.is_empty() && out.len() < out.capacity() {
                return Some(());
            }
        }
    }
}

impl Inflater {
    /// The message of a payload that the peer has compressed. It takes no memory beyond `bytes_max`, whatever the payload
    /// would become.
    ///
    /// # Errors
    /// The message is longer than `bytes_max`, or the payload is no deflate data.
    pub fn inflate(&mut self, payload: &[u8], bytes_max: usize) -> Result<&[u8], ProtocolError> {
        let mut stream = self.stream.take().unwrap_or_else(|| Box::new(Decompress::new(false)));
        stream.reset(false);
        let mut bytes = 0;
        let mut ended = self.take(&mut stream, payload, &mut bytes, bytes_max);
        if ended == Ok(None) {
            ended = self.take(&mut stream, ENDING, &mut bytes, bytes_max);
        }
        self.stream = Some(stream);
        match ended? {
            // A last block may be followed by the header of an empty one (RFC 7692 §7.2.3.4).
            Some([] | [0]) => Ok(&self.text[..bytes]),
            _ => Err(ProtocolError::InvalidDeflate),
        }
    }

    /// Releases a large buffer.
    pub fn give_room_back(&mut self) {
        if self.text.len() > RETAINED_BYTES {
            self.text = Vec::new();
        }
    }

    /// Decompresses input behind the first `bytes` bytes of the text. If the last block ends, returns the input behind it.
    fn take<'i>(
        &mut self,
        stream: &mut Decompress,
        mut input: &'i [u8],
        bytes: &mut usize,
        bytes_max: usize,
    ) -> Result<Option<&'i [u8]>, ProtocolError> {
        loop {
            if *bytes == self.text.len() && *bytes < bytes_max {
                let wanted = (2 * *bytes).max(4 * input.len()).max(STORED_BYTES);
                self.text.reserve_exact(wanted.min(bytes_max) - *bytes);
                self.text.resize(wanted.min(bytes_max), 0);
            }
            // One byte more is too many.
            let mut beyond = [0];
            let end = self.text.len().min(bytes_max);
            let room = if *bytes < end { &mut self.text[*bytes..end] } else { &mut beyond };
            let (taken, made) = (stream.total_in(), stream.total_out());
            let status = stream.decompress(input, room, FlushDecompress::Sync);
            let status = status.map_err(|_| ProtocolError::InvalidDeflate)?;
            input = &input[(stream.total_in() - taken) as usize..];
            let made = (stream.total_out() - made) as usize;
            if made > bytes_max - *bytes {
                return Err(ProtocolError::MessageTooLong);
            }
            let is_full = made == room.len();
            *bytes += made;
            match status {
                Status::StreamEnd => return Ok(Some(input)),
                _ if is_full => {}
                _ if input.is_empty() => return Ok(None),
                _ => return Err(ProtocolError::InvalidDeflate),
            }
        }
    }
}

/// Appends bytes as stored blocks, which refer to nothing before them.
pub fn stored(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.chunks(usize::from(u16::MAX)) {
        let length = part.len() as u16;
        out.push(0);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(part);
    }
}

/// The end of a compressed message behind its last block: the header of an empty stored block, whose length the receiver
/// adds (RFC 7692 §7.2.1).
pub const END: u8 = 0;

/// The bytes that a stored block adds to those that it holds (RFC 1951 §3.2.4).
pub const STORED_HEADER_BYTES: usize = 5;

/// The bytes that are missing at the end of each message (RFC 7692 §7.2.2), and an empty last block: only if that is read
/// as one, the message has not ended within a block.
const ENDING: &[u8] = &[0, 0, 0xff, 0xff, 0x03, 0x00];

/// The level of compression. Of 1 kB of JSON the first one leaves 43 %, and takes half the time of the default one, which
/// leaves 33 %. Each publication is compressed only once, but may have a single subscriber.
const LEVEL: u32 = 1;

/// The room for what deflate adds to a text that it cannot compress, and for a flush.
const STORED_BYTES: usize = 256;

/// A buffer of this many bytes is retained between two messages.
const RETAINED_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The payload of a message of these texts, each of them a block, with commas between them.
    fn array(deflater: &mut Deflater, texts: &[Vec<u8>]) -> Vec<u8> {
        let mut payload = Vec::new();
        stored(b"[", &mut payload);
        for (nth, text) in texts.iter().enumerate() {
            stored(if nth == 0 { b"" } else { b"," }, &mut payload);
            deflater.block(text, &mut payload);
        }
        stored(b"]", &mut payload);
        payload.push(END);
        payload
    }

    proptest! {
        #[test]
        fn blocks_that_were_compressed_separately_are_one_message(
            texts in prop::collection::vec(prop::collection::vec(prop::sample::select(&b"ab{}\"\xff"[..]), 0..3_000), 0..6),
        ) {
            let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
            let plain = [b"[", &texts.join(&b',')[..], b"]"].concat();
            let payload = array(&mut deflater, &texts);
            prop_assert_eq!(inflater.inflate(&payload, plain.len()), Ok(&plain[..]));
            // At the limit it is refused, and the next message is none the worse.
            prop_assert_eq!(inflater.inflate(&payload, plain.len() - 1), Err(ProtocolError::MessageTooLong));
            prop_assert_eq!(inflater.inflate(&payload, plain.len()), Ok(&plain[..]));
        }

        #[test]
        fn a_payload_that_is_cut_off_is_no_message(
            text in prop::collection::vec(any::<u8>(), 1..3_000), cut in any::<prop::sample::Index>(),
        ) {
            let plain = text.len() + 2;
            let mut payload = array(&mut Deflater::default(), &[text]);
            payload.truncate(cut.index(payload.len() - 1));
            // Between two blocks a cut is not seen: the message is shorter then.
            let left = Inflater::default().inflate(&payload, plain).map_or(0, <[u8]>::len);
            prop_assert!(left < plain);
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(payload in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut inflater = Inflater::default();
            let bytes = inflater.inflate(&payload, 1_000).map(<[u8]>::len);
            prop_assert!(bytes.is_ok_and(|bytes| bytes <= 1_000) || bytes.is_err());
            prop_assert!(inflater.text.capacity() <= 1_000);
        }
    }

    #[test]
    fn a_bomb_takes_no_memory_beyond_the_limit() {
        let (mut payload, mut inflater) = (Vec::new(), Inflater::default());
        Deflater::default().block(&vec![b' '; 50_000_000], &mut payload);
        assert!(payload.len() < 500_000, "{}", payload.len());
        assert_eq!(inflater.inflate(&payload, 100_000), Err(ProtocolError::MessageTooLong));
        assert!(inflater.text.capacity() <= 100_000);
        inflater.give_room_back();
        assert_eq!(inflater.text.capacity(), 0);
    }

    #[test]
    fn a_last_block_ends_the_message() {
        // RFC 7692 §7.2.3.4: "Hello" in a block with BFINAL.
        let hello = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        let mut inflater = Inflater::default();
        assert_eq!(inflater.inflate(&hello, 5), Ok(&b"Hello"[..]));
        assert_eq!(inflater.inflate(&hello[..7], 5), Ok(&b"Hello"[..]));
        assert_eq!(inflater.inflate(&[&hello[..], b"x"].concat(), 5), Err(ProtocolError::InvalidDeflate));
    }

    #[test]
    fn the_examples_of_the_standard_are_messages() {
        let mut inflater = Inflater::default();
        // RFC 7692 §7.2.3.1, §7.2.3.3, §7.2.3.5 and §7.2.3.6.
        let one_block = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        let uncompressed = [0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
        let two_blocks = [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
        for payload in [&one_block[..], &uncompressed, &two_blocks] {
            assert_eq!(inflater.inflate(payload, 100), Ok(&b"Hello"[..]));
        }
        assert_eq!(inflater.inflate(&[0], 0), Ok(&b""[..]));
        assert_eq!(inflater.inflate(&one_block[..3], 100), Err(ProtocolError::InvalidDeflate));
        assert_eq!(inflater.inflate(&[0xff; 10], 100), Err(ProtocolError::InvalidDeflate));
    }
}
