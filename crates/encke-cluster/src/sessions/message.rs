//! Questions of nodes to each other about sessions, and the answers. A node takes questions only on its own subject, which only nodes may
//! write to; what comes there is checked before anything is done.
//!
//! ```text
//!   Serve    a request of a client, for the node that has its session   ─▶ Served, Unknown, Elsewhere, Full
//!   Settled  the fate of a Served, or its client is gone                ─▶ Done
//!   Release  a session that is to move                                   ─▶ Given, Stays, Unknown, Elsewhere, Busy, Refused, TooLarge
//!   Taken    a session that has been taken over                          ─▶ Done
//!   Open     a WebSocket or stream whose session stays                   ─▶ Done, Full; of a stream also Unknown, TooMany
//!   Carry    bytes of one, when they are written                         ─▶ Done, Unknown
//!   Close    its end                                                     ─▶ Done
//!   Ping     is the node there?                                          ─▶ Done
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use encke_core::{Format, HttpTransport, Id, NodeTag, Opener, Response};

use super::record::Key;
use super::relays::{RelayId, RelayRequest, Visitor};

/// A question of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Process this request.
    Serve(Serve),
    /// A request with this number of this node needs no answer any more, or the answer has a fate.
    Settled(NodeTag, u64, Fate),
    /// Give up a session.
    Release {
        session: Id,
        /// The node that asks.
        node: NodeTag,
        /// The most bytes of the answer.
        bytes_max: u32,
        is_urgent: bool,
        /// The client that has come to that node.
        opener: Opener,
    },
    /// A session has been taken over by this node, which has written this revision of its record.
    Taken(Key, NodeTag, u64),
    /// Serve a WebSocket or a stream.
    Open(RelayId, RelayRequest),
    /// Write bytes to its client, or to its shard.
    Carry(RelayId, Bytes),
    /// Its connection has ended.
    Close(RelayId),
    /// Nothing.
    Ping,
}

/// The fate of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The client is gone.
    Abandoned,
    /// The kernel took the response.
    Taken,
    /// It did not.
    Lost,
}

/// A request of a client of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serve {
    /// The session that it names.
    pub(super) session: Id,
    /// The node that has read it.
    pub(super) node: NodeTag,
    /// Its number there, with [`MULTIPLEXED`]. Older builds take all of it for the number.
    pub(super) number: u64,
    /// The address of the client.
    pub(super) address: Option<IpAddr>,
    /// The browser id in its cookie.
    pub(super) browser: Option<Id>,
    pub(super) transport: HttpTransport,
    pub(super) body: String,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The response.
    Served {
        status: u16,
        set_browser: Option<Id>,
        /// True if its node needs to know the fate of it.
        is_confirmed: bool,
        compresses: bool,
        body: Bytes,
    },
    /// The session, and the revision of its record; 0 if it has none.
    Given(u64, Bytes),
    /// The session is not here.
    Unknown,
    /// It is on this node.
    Elsewhere(NodeTag),
    /// A response with messages is on its way.
    Busy,
    /// The client may not use it.
    Refused,
    /// It stays where it is.
    Stays,
    /// It does not fit into an answer.
    TooLarge,
    /// The node serves as many clients of others as it may, or is about to stop.
    Full,
    /// The browser of this client holds as many streams as it may.
    TooMany,
    /// It is done.
    Done,
}

impl Reply {
    /// The response of a request, without the shard that waits for its fate.
    pub(super) fn of(response: &Response) -> Reply {
        Reply::Served {
            status: response.status,
            set_browser: response.set_browser,
            is_confirmed: response.confirm.is_some(),
            compresses: response.compresses,
            body: response.body.clone(),
        }
    }
}

impl Question {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Writer(vec![VERSION]);
        match self {
            Question::Ping => out.byte(0),
            Question::Serve(serve) => {
                out.byte(1);
                out.id(&serve.session);
                out.tag(serve.node);
                out.number(serve.number);
                out.address(serve.address);
                out.option(serve.browser.as_ref());
                match &serve.transport {
                    HttpTransport::LongPolling => out.byte(0),
                    HttpTransport::CallbackPolling(callback) => {
                        out.part(1, &(callback.len() as u16).to_le_bytes());
                        out.0.extend_from_slice(callback.as_bytes());
                    }
                    // Such a request names no session.
                    HttpTransport::Subscription => out.byte(2),
                }
                out.0.extend_from_slice(serve.body.as_bytes());
            }
            Question::Settled(node, number, fate) => {
                out.byte(2);
                out.tag(*node);
                out.number(*number);
                out.byte(*fate as u8);
            }
            Question::Release { session, node, bytes_max, is_urgent, opener } => {
                out.byte(3);
                out.id(session);
                out.tag(*node);
                out.0.extend_from_slice(&bytes_max.to_le_bytes());
                out.byte((*is_urgent).into());
                out.opener(*opener);
            }
            Question::Taken(key, node, revision) => {
                out.part(4, key.bytes());
                out.tag(*node);
                out.number(*revision);
            }
            Question::Open(relay, RelayRequest::WebSocket { opener, address, compression, text }) => {
                out.relay(5, relay);
                out.opener(*opener);
                out.address(*address);
                out.part(*compression, text.as_bytes());
            }
            Question::Open(relay, RelayRequest::Stream(visitor, format)) => {
                out.relay(8, relay);
                out.visitor(visitor);
                out.byte((*format == Format::Lines).into());
            }
            Question::Carry(relay, bytes) => {
                out.relay(6, relay);
                out.0.extend_from_slice(bytes);
            }
            Question::Close(relay) => out.relay(7, relay),
        }
        out.0
    }

    /// Reads a question. None if it is none.
    pub(super) fn read(bytes: &Bytes) -> Option<Question> {
        let mut from = Reader::of(bytes)?;
        let question = match from.byte()? {
            0 => Question::Ping,
            1 => {
                let (session, node, number) = (from.id()?, from.tag()?, from.number()?);
                let address = from.address()?;
                let browser = from.option()?;
                let transport = match from.byte()? {
                    0 => HttpTransport::LongPolling,
                    1 => {
                        let length = u16::from_le_bytes(from.take()?);
                        HttpTransport::CallbackPolling(from.text(length.into())?.into())
                    }
                    _ => return None,
                };
                let body = from.text(from.0.len())?.into();
                Question::Serve(Serve { session, node, number, address, browser, transport, body })
            }
            2 => {
                let (node, number) = (from.tag()?, from.number()?);
                let fate = match from.byte()? {
                    0 => Fate::Abandoned,
                    1 => Fate::Taken,
                    2 => Fate::Lost,
                    _ => return None,
                };
                Question::Settled(node, number, fate)
            }
            3 => {
                let (session, node) = (from.id()?, from.tag()?);
                let bytes_max = u32::from_le_bytes(from.take()?);
                let (is_urgent, opener) = (from.flag()?, from.opener()?);
                Question::Release { session, node, bytes_max, is_urgent, opener }
            }
            4 => Question::Taken(Key::from_bytes(&from.take::<16>()?)?, from.tag()?, from.number()?),
            5 => {
                let (relay, opener, address) = (from.relay()?, from.opener()?, from.address()?);
                let (compression, text) = (from.byte()?, from.text(from.0.len())?.into());
                Question::Open(relay, RelayRequest::WebSocket { opener, address, compression, text })
            }
            6 => Question::Carry(from.relay()?, bytes.slice_ref(std::mem::take(&mut from.0))),
            7 => Question::Close(from.relay()?),
            8 => {
                let (relay, visitor) = (from.relay()?, from.visitor()?);
                let format = if from.flag()? { Format::Lines } else { Format::Events };
                Question::Open(relay, RelayRequest::Stream(visitor, format))
            }
            _ => return None,
        };
        from.0.is_empty().then_some(question)
    }
}

impl Reply {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Writer(vec![VERSION]);
        match self {
            Reply::Done => out.byte(0),
            Reply::Served { status, set_browser, is_confirmed, compresses, body } => {
                out.part(1, &status.to_le_bytes());
                out.option(set_browser.as_ref());
                out.byte((*is_confirmed).into());
                out.byte((*compresses).into());
                out.0.extend_from_slice(body);
            }
            Reply::Given(revision, state) => {
                out.part(2, &revision.to_le_bytes());
                out.0.extend_from_slice(state);
            }
            Reply::Unknown => out.byte(3),
            Reply::Elsewhere(node) => out.part(4, node.as_str().as_bytes()),
            Reply::Busy => out.byte(5),
            Reply::TooLarge => out.byte(6),
            Reply::Full => out.byte(7),
            Reply::Refused => out.byte(8),
            Reply::Stays => out.byte(9),
            Reply::TooMany => out.byte(10),
        }
        out.0
    }

    /// Reads an answer. None if it is none.
    pub(super) fn read(bytes: &Bytes) -> Option<Reply> {
        let mut from = Reader::of(bytes)?;
        let rest = |from: &mut Reader<'_>| bytes.slice_ref(std::mem::take(&mut from.0));
        let reply = match from.byte()? {
            0 => Reply::Done,
            1 => {
                let status = u16::from_le_bytes(from.take()?);
                let set_browser = from.option()?;
                let (is_confirmed, compresses) = (from.flag()?, from.flag()?);
                Reply::Served { status, set_browser, is_confirmed, compresses, body: rest(&mut from) }
            }
            2 => Reply::Given(from.number()?, rest(&mut from)),
            3 => Reply::Unknown,
            4 => Reply::Elsewhere(from.tag()?),
            5 => Reply::Busy,
            6 => Reply::TooLarge,
            7 => Reply::Full,
            8 => Reply::Refused,
            9 => Reply::Stays,
            10 => Reply::TooMany,
            _ => return None,
        };
        from.0.is_empty().then_some(reply)
    }
}

/// Writes a message.
struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A kind with its bytes.
    fn part(&mut self, kind: u8, bytes: &[u8]) {
        self.byte(kind);
        self.0.extend_from_slice(bytes);
    }

    fn id(&mut self, id: &Id) {
        self.0.extend_from_slice(id.as_str().as_bytes());
    }

    fn option(&mut self, id: Option<&Id>) {
        self.byte(id.is_some().into());
        id.into_iter().for_each(|id| self.id(id));
    }

    fn tag(&mut self, tag: NodeTag) {
        self.0.extend_from_slice(tag.as_str().as_bytes());
    }

    fn address(&mut self, address: Option<IpAddr>) {
        match address {
            None => self.byte(0),
            Some(IpAddr::V4(address)) => self.part(4, &address.octets()),
            Some(IpAddr::V6(address)) => self.part(6, &address.octets()),
        }
    }

    fn opener(&mut self, opener: Opener) {
        self.byte((opener == Opener::Program).into());
        self.option(opener.browser().as_ref());
    }

    fn relay(&mut self, kind: u8, relay: &RelayId) {
        self.byte(kind);
        self.tag(relay.node);
        self.number(relay.number);
    }

    fn visitor(&mut self, visitor: &Visitor) {
        self.id(&visitor.session);
        self.opener(visitor.opener);
        self.address(visitor.address);
        self.byte(visitor.is_multiplexed.into());
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }
}

/// The bytes of a message that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The bytes behind the version. None for another version.
    fn of(bytes: &'a [u8]) -> Option<Reader<'a>> {
        bytes.strip_prefix(&[VERSION]).map(Reader)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, bytes: usize) -> Option<&'a str> {
        let (text, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }

    fn id(&mut self) -> Option<Id> {
        Id::parse(self.text(ID_BYTES)?)
    }

    fn option(&mut self) -> Option<Option<Id>> {
        if self.flag()? { self.id().map(Some) } else { Some(None) }
    }

    fn address(&mut self) -> Option<Option<IpAddr>> {
        match self.byte()? {
            0 => Some(None),
            4 => Some(Some(Ipv4Addr::from(self.take::<4>()?).into())),
            6 => Some(Some(Ipv6Addr::from(self.take::<16>()?).into())),
            _ => None,
        }
    }

    fn opener(&mut self) -> Option<Opener> {
        match (self.flag()?, self.option()?) {
            (true, None) => Some(Opener::Program),
            (false, None) => Some(Opener::Page),
            (false, Some(browser)) => Some(Opener::Browser(browser)),
            (true, Some(_)) => None,
        }
    }

    fn visitor(&mut self) -> Option<Visitor> {
        let (session, opener, address) = (self.id()?, self.opener()?, self.address()?);
        Some(Visitor { session, opener, address, is_multiplexed: self.flag()? })
    }

    fn relay(&mut self) -> Option<RelayId> {
        Some(RelayId { node: self.tag()?, number: self.number()? })
    }

    fn tag(&mut self) -> Option<NodeTag> {
        NodeTag::parse(self.text(TAG_BYTES)?)
    }
}

const VERSION: u8 = 1;
const ID_BYTES: usize = 32;
const TAG_BYTES: usize = 4;
/// The bit in the number of a request whose connection carries several requests at the same time (HTTP/2).
pub(super) const MULTIPLEXED: u64 = 1 << 63;
/// The most bytes of a message beside its body or state.
pub(super) const HEAD_BYTES_MAX: usize = 2 * 1024;

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
