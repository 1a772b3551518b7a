//! Owned events, and raw frames that may be invalid.

use websocket::{Decoder, Event, Flow, ProtocolError, Role};

/// An event that outlives the callback.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Owned {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Owned {
        match event {
            Event::Text(text) => Owned::Text(text.into()),
            Event::Binary(bytes) => Owned::Binary(bytes.into()),
            Event::Ping(bytes) => Owned::Ping(bytes.into()),
            Event::Pong(bytes) => Owned::Pong(bytes.into()),
            Event::Close(close) => Owned::Close(close.map(|(code, reason)| (code, reason.into()))),
        }
    }
}

/// The events before the stream ended or failed, and the error.
pub(crate) type Outcome = (Vec<Owned>, Option<ProtocolError>);

pub(crate) fn text(text: &str) -> Owned {
    Owned::Text(text.into())
}

/// Feeds one read after the other.
pub(crate) fn feed_all<'a>(decoder: &mut Decoder, reads: impl IntoIterator<Item = &'a mut [u8]>) -> Outcome {
    let mut events = Vec::new();
    for read in reads {
        let fed = decoder.feed(read, &mut |event| {
            events.push(Owned::from(event));
            Flow::Continue
        });
        match fed {
            Ok(used) => assert_eq!(used, read.len()),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// Decodes a stream that arrives in one read.
pub(crate) fn at_once(role: Role, stream: &[u8]) -> Outcome {
    feed_all(&mut Decoder::new(role, MESSAGE_BYTES_MAX), [&mut stream.to_vec()[..]])
}

/// Decodes a stream that arrives byte by byte.
pub(crate) fn byte_by_byte(role: Role, stream: &[u8]) -> Outcome {
    feed_all(&mut Decoder::new(role, MESSAGE_BYTES_MAX), stream.to_vec().chunks_mut(1))
}

/// Decodes a client's stream in both ways, which must agree.
pub(crate) fn from_client(stream: &[u8]) -> Outcome {
    let outcome = at_once(Role::Server, stream);
    assert_eq!(outcome, byte_by_byte(Role::Server, stream));
    outcome
}

/// A client's frame with any first byte, in the shortest encoding of its length.
pub(crate) fn raw(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        0..126 => out.push(0x80 | payload.len() as u8),
        126..65_536 => {
            out.push(0x80 | 126);
            out.extend((payload.len() as u16).to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend(KEY);
    out.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
pub(crate) const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

pub(crate) const FIN: u8 = 0x80;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
