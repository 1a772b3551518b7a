//! The decoder: from bytes to messages.

use crate::deflate::Inflater;
use crate::header::{HEADER_BYTES_MAX, Header, Rules};
use crate::{CONTROL_BYTES_MAX, Event, Flow, Opcode, ProtocolError, Role, mask, utf8};

/// Decodes the bytes of one peer.
///
/// It is small when idle, so that a server can keep one per connection. All state of an incomplete frame or message
/// lives behind one pointer and is freed when the message is complete.
#[derive(Debug)]
pub struct Decoder {
    message_bytes_max: usize,
    role: Role,
    /// True if the peer may send compressed messages.
    takes_compressed: bool,
    /// True if the peer has closed or violated the protocol: all further input is ignored.
    ended: bool,
    partial: Option<Box<Partial>>,
}

/// State between two reads. It exists only while something is incomplete.
#[derive(Debug)]
struct Partial {
    reading: Reading,
    message: Option<Message>,
}

/// The point in a frame at which the input ended.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// In the head, or between two fragments (then `have_bytes` is 0).
    Head { bytes: [u8; HEADER_BYTES_MAX], have_bytes: usize },
    /// In the payload of a data frame; the bytes so far are in the message.
    Data { header: Header, have_bytes: usize },
    /// In the payload of a close, ping or pong, which may arrive between the fragments of a message.
    Control { header: Header, bytes: [u8; CONTROL_BYTES_MAX], have_bytes: usize },
}

/// The incomplete message, already unmasked.
#[derive(Debug)]
struct Message {
    text: bool,
    compressed: bool,
    bytes: Vec<u8>,
    /// The number of bytes known to be whole UTF-8 characters (of text that is not compressed).
    valid_bytes: usize,
}

/// The number of input bytes that one step took, and whether the caller wants more.
type Step = Result<(usize, Flow), ProtocolError>;

type OnEvent<'a> = dyn FnMut(Event<'_>) -> Flow + 'a;

/// The receiver of events, and what decompresses for it.
struct Receiver<'a, 'b> {
    on: &'a mut OnEvent<'b>,
    inflater: Option<&'a mut Inflater>,
}

type On<'a, 'b, 'c> = &'a mut Receiver<'b, 'c>;

impl Decoder {
    /// A decoder for the peer of an endpoint that plays `role`.
    ///
    /// `message_bytes_max` is the longest message it accepts, over all its fragments. It also bounds the memory: the
    /// decoder holds at most that and 256 bytes.
    pub fn new(role: Role, message_bytes_max: usize) -> Decoder {
        Decoder { message_bytes_max, role, takes_compressed: false, ended: false, partial: None }
    }

    /// Accepts compressed messages from now on: both ends have agreed on them ([`Compression`](crate::Compression)). The
    /// limit holds for the compressed bytes of a message as for its text.
    pub fn take_compressed(&mut self) {
        self.takes_compressed = true;
    }

    /// True if it accepts compressed messages.
    pub fn takes_compressed(&self) -> bool {
        self.takes_compressed
    }

    /// Takes bytes as read from the socket, unmasks them in place, and calls `on` for each complete event in order. A
    /// complete unfragmented frame inside `input` is passed on without a copy.
    ///
    /// Returns the number of bytes of `input` consumed: all of them, unless `on` returned [`Flow::Stop`]. The rest is
    /// then untouched, and the caller feeds it later. After a close, and after an error, all input is consumed and
    /// ignored.
    ///
    /// # Errors
    /// The peer violated the protocol. The events before it have been delivered.
    pub fn feed(&mut self, input: &mut [u8], on: &mut dyn FnMut(Event<'_>) -> Flow) -> Result<usize, ProtocolError> {
        self.decode(input, &mut Receiver { on, inflater: None })
    }

    /// As [`Decoder::feed`] does, with an inflater for compressed messages. Nothing of them stays in it, so many
    /// decoders may share one.
    ///
    /// # Errors
    /// The peer violated the protocol. The events before it have been delivered.
    pub fn feed_with(
        &mut self,
        input: &mut [u8],
        inflater: &mut Inflater,
        on: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<usize, ProtocolError> {
        self.decode(input, &mut Receiver { on, inflater: Some(inflater) })
    }

    fn decode(&mut self, input: &mut [u8], on: On<'_, '_, '_>) -> Result<usize, ProtocolError> {
        let mut at = 0;
        while at < input.len() {
            if self.ended {
                return Ok(input.len());
            }
            match self.step(&mut input[at..], on) {
                Ok((used, Flow::Continue)) => at += used,
                Ok((used, Flow::Stop)) => return Ok(at + used),
                Err(error) => {
                    self.ended = true;
                    self.partial = None;
                    return Err(error);
                }
            }
        }
        Ok(at)
    }

    /// True if the input so far ended inside a frame or a message. Then the decoder holds memory, and the end of the
    /// stream would cut something off.
    pub fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// The number of bytes held for incomplete input.
    pub fn held_bytes(&self) -> usize {
        let message = |partial: &Partial| partial.message.as_ref().map_or(0, |message| message.bytes.capacity());
        self.partial.as_deref().map_or(0, |partial| size_of::<Partial>() + message(partial))
    }

    /// Frees incomplete input, and ignores all further input.
    pub fn end(&mut self) {
        self.ended = true;
        self.partial = None;
    }

    /// Takes one frame, or as much of it as there is. `input` is not empty.
    fn step(&mut self, input: &mut [u8], on: On<'_, '_, '_>) -> Step {
        match self.partial.as_deref().map(|partial| &partial.reading) {
            None | Some(Reading::Head { have_bytes: 0, .. }) => match Header::parse(input, &self.rules())? {
                Some((header, used)) => self.payload(header, used, input, on),
                None => self.keep_head(input),
            },
            Some(&Reading::Head { bytes, have_bytes }) => self.more_head(bytes, have_bytes, input, on),
            Some(&Reading::Data { header, have_bytes }) => self.more_data(header, have_bytes, input, on),
            Some(&Reading::Control { header, bytes, have_bytes }) => {
                self.more_control(header, bytes, have_bytes, input, on)
            }
        }
    }

    fn rules(&self) -> Rules {
        let message = self.partial.as_ref().and_then(|partial| partial.message.as_ref());
        Rules {
            role: self.role,
            takes_compressed: self.takes_compressed,
            message_bytes_max: self.message_bytes_max,
            open_message_bytes: message.map(|message| message.bytes.len()),
        }
    }

    fn keep_head(&mut self, input: &[u8]) -> Step {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[..input.len()].copy_from_slice(input);
        self.partial().reading = Reading::Head { bytes, have_bytes: input.len() };
        Ok((input.len(), Flow::Continue))
    }

    /// Continues a head of which `have_bytes` came earlier.
    fn more_head(
        &mut self,
        mut bytes: [u8; HEADER_BYTES_MAX],
        have_bytes: usize,
        input: &mut [u8],
        on: On<'_, '_, '_>,
    ) -> Step {
        let added = input.len().min(HEADER_BYTES_MAX - have_bytes);
        let filled = have_bytes + added;
        bytes[have_bytes..filled].copy_from_slice(&input[..added]);
        match Header::parse(&bytes[..filled], &self.rules())? {
            Some((header, header_bytes)) => self.payload(header, header_bytes - have_bytes, input, on),
            None => {
                self.partial().reading = Reading::Head { bytes, have_bytes: filled };
                Ok((added, Flow::Continue))
            }
        }
    }

    /// Takes the payload of a frame whose head ended `from` bytes into the input.
    fn payload(&mut self, header: Header, from: usize, input: &mut [u8], on: On<'_, '_, '_>) -> Step {
        let rest = &mut input[from..];
        let whole = rest.len() >= header.payload_bytes;
        if whole && (header.opcode.is_control() || (header.fin && header.opcode != Opcode::Continuation)) {
            let payload = &mut rest[..header.payload_bytes];
            mask::apply(payload, header.key, 0);
            self.frame_done();
            let flow = self.deliver(header.opcode, header.compressed, payload, on)?;
            return Ok((from + header.payload_bytes, flow));
        }
        let (used, flow) = if header.opcode.is_control() {
            self.more_control(header, [0; CONTROL_BYTES_MAX], 0, rest, on)?
        } else {
            self.more_data(header, 0, rest, on)?
        };
        Ok((from + used, flow))
    }

    /// Continues a data frame of which `have_bytes` came earlier.
    fn more_data(&mut self, header: Header, have_bytes: usize, input: &mut [u8], on: On<'_, '_, '_>) -> Step {
        let used = input.len().min(header.payload_bytes - have_bytes);
        let piece = &mut input[..used];
        mask::apply(piece, header.key, have_bytes);
        let have_bytes = have_bytes + used;
        let left_bytes = header.payload_bytes - have_bytes;
        let done = header.fin && left_bytes == 0;

        let message_bytes_max = self.message_bytes_max;
        let partial = self.partial();
        let text = header.opcode == Opcode::Text;
        let message = partial.message.get_or_insert_with(|| Message {
            text,
            compressed: header.compressed,
            bytes: Vec::new(),
            valid_bytes: 0,
        });
        let whole_bytes = message.bytes.len() + used + left_bytes;
        message.push(piece, if header.fin { whole_bytes } else { message_bytes_max });
        if !done {
            message.check_so_far()?;
            partial.reading = if left_bytes == 0 { Reading::START } else { Reading::Data { header, have_bytes } };
            return Ok((used, Flow::Continue));
        }
        let opcode = if message.text { Opcode::Text } else { Opcode::Binary };
        let (compressed, bytes) = (message.compressed, std::mem::take(&mut message.bytes));
        self.partial = None;
        Ok((used, self.deliver(opcode, compressed, &bytes, on)?))
    }

    /// Continues a control frame of which `have_bytes` came earlier.
    fn more_control(
        &mut self,
        header: Header,
        mut bytes: [u8; CONTROL_BYTES_MAX],
        have_bytes: usize,
        input: &[u8],
        on: On<'_, '_, '_>,
    ) -> Step {
        let used = input.len().min(header.payload_bytes - have_bytes);
        let filled = have_bytes + used;
        bytes[have_bytes..filled].copy_from_slice(&input[..used]);
        if filled < header.payload_bytes {
            self.partial().reading = Reading::Control { header, bytes, have_bytes: filled };
            return Ok((used, Flow::Continue));
        }
        let payload = &mut bytes[..filled];
        mask::apply(payload, header.key, 0);
        self.frame_done();
        Ok((used, self.deliver(header.opcode, false, payload, on)?))
    }

    fn deliver(
        &mut self,
        opcode: Opcode,
        compressed: bool,
        payload: &[u8],
        on: On<'_, '_, '_>,
    ) -> Result<Flow, ProtocolError> {
        let Receiver { on, inflater } = on;
        let payload = match inflater {
            Some(inflater) if compressed => inflater.inflate(payload, self.message_bytes_max)?,
            None if compressed => return Err(ProtocolError::ReservedBits),
            _ => payload,
        };
        Ok(on(match opcode {
            Opcode::Text => Event::Text(utf8::whole(payload)?),
            Opcode::Binary | Opcode::Continuation => Event::Binary(payload),
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Pong(payload),
            Opcode::Close => {
                let close = parse_close(payload)?;
                self.ended = true;
                self.partial = None;
                Event::Close(close)
            }
        }))
    }

    /// Ends a frame that was not part of a message: the decoder is between frames again, and retains nothing unless a
    /// message is open.
    fn frame_done(&mut self) {
        match &mut self.partial {
            Some(partial) if partial.message.is_some() => partial.reading = Reading::START,
            _ => self.partial = None,
        }
    }

    fn partial(&mut self) -> &mut Partial {
        self.partial.get_or_insert_with(|| Box::new(Partial { reading: Reading::START, message: None }))
    }
}

impl Reading {
    const START: Reading = Reading::Head { bytes: [0; HEADER_BYTES_MAX], have_bytes: 0 };
}

impl Message {
    /// Appends `piece`. The buffer grows by doubling, so that many small fragments stay cheap, but never beyond
    /// `bytes_most`, the longest that the message can become.
    fn push(&mut self, piece: &[u8], bytes_most: usize) {
        let need = self.bytes.len() + piece.len();
        if need > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).max(MESSAGE_BYTES_FIRST);
            self.bytes.reserve_exact(doubled.min(bytes_most).max(need) - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Fails as soon as the text so far cannot become UTF-8 any more. It checks each byte once, except for the at
    /// most three of an incomplete character.
    fn check_so_far(&mut self) -> Result<(), ProtocolError> {
        if self.text && !self.compressed {
            self.valid_bytes += utf8::valid_bytes(&self.bytes[self.valid_bytes..])?;
        }
        Ok(())
    }
}

/// Parses the payload of a close frame: nothing, or a code and a reason (RFC 6455 §5.5.1).
fn parse_close(payload: &[u8]) -> Result<Option<(u16, &str)>, ProtocolError> {
    match payload {
        [] => Ok(None),
        [_] => Err(ProtocolError::CloseTooShort),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !may_be_sent(code) {
                return Err(ProtocolError::CloseCode);
            }
            Ok(Some((code, utf8::whole(reason)?)))
        }
    }
}

/// True if a close frame may carry `code`: one that RFC 6455 §7.4.1 or the IANA registry defines for the wire, or one
/// of the ranges for libraries (3000–3999) and applications (4000–4999).
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// The first capacity of a message's buffer.
const MESSAGE_BYTES_FIRST: usize = 64;

#[cfg(test)]
mod tests {
    use super::{Decoder, Partial};
    use crate::{Flow, Role};

    #[test]
    fn an_idle_decoder_is_small_and_a_partial_one_adds_what_the_docs_say() {
        assert!(size_of::<Decoder>() <= 64);
        assert!(size_of::<Partial>() <= 256);
    }

    #[test]
    fn an_ended_decoder_holds_nothing_and_accepts_nothing() {
        let mut decoder = Decoder::new(Role::Client, 100_000);
        let mut input = [&[0x82, 126, 0x10, 0x00][..], &[0; 4_000]].concat();
        assert_eq!(decoder.feed(&mut input, &mut |_| Flow::Continue), Ok(input.len()));
        assert!((4_096..5_000).contains(&decoder.held_bytes()));
        decoder.end();
        assert_eq!((decoder.held_bytes(), decoder.is_partial()), (0, false));
        let mut events = 0;
        let mut count = |_: crate::Event<'_>| {
            events += 1;
            Flow::Continue
        };
        assert_eq!(decoder.feed(&mut [0x81, 1, b'x'], &mut count), Ok(3));
        assert_eq!(events, 0);
    }

    #[test]
    fn many_tiny_fragments_grow_one_buffer_a_few_times_and_never_past_the_limit() {
        const MESSAGE_BYTES_MAX: usize = 100_000;
        let mut decoder = Decoder::new(Role::Client, MESSAGE_BYTES_MAX);
        let mut capacities = Vec::new();
        for fragment in 0..MESSAGE_BYTES_MAX {
            let first = if fragment == 0 { 1 } else { 0 };
            // One byte of text, then an empty fragment.
            let mut input = [first, 1, b'x', 0, 0];
            assert_eq!(decoder.feed(&mut input, &mut |_| Flow::Stop), Ok(input.len()));
            capacities.push(buffered(&decoder));
        }
        capacities.dedup();
        assert!(capacities.len() <= 12, "{capacities:?}");
        assert!(capacities.iter().all(|&capacity| capacity <= MESSAGE_BYTES_MAX));
        assert_eq!(decoder.feed(&mut [0x80, 0], &mut |_| Flow::Continue), Ok(2));
        assert!(decoder.partial.is_none());
    }

    #[test]
    fn a_partial_frame_uses_no_more_memory_than_its_head_announced() {
        let mut decoder = Decoder::new(Role::Client, 100_000);
        let mut input = [&[0x82, 126, 0x10, 0x00][..], &[0; 4_000]].concat();
        assert_eq!(decoder.feed(&mut input, &mut |_| Flow::Continue), Ok(input.len()));
        for _ in 0..95 {
            assert!(buffered(&decoder) <= 4_096);
            assert_eq!(decoder.feed(&mut [0], &mut |_| Flow::Continue), Ok(1));
        }
        assert!(decoder.partial.is_some());
        assert_eq!(decoder.feed(&mut [0], &mut |_| Flow::Continue), Ok(1));
        assert!(decoder.partial.is_none());
    }

    fn buffered(decoder: &Decoder) -> usize {
        let message = decoder.partial.as_ref().and_then(|partial| partial.message.as_ref());
        message.map_or(0, |message| message.bytes.capacity())
    }
}
