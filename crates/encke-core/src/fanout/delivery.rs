//! One fan-out: messages are encoded once, and each subscriber gets a range of bytes.

use std::sync::Arc;

use bayeux::{ChannelName, ext};
use websocket::{Opcode, frame};

use crate::admission::account::MailboxAccount;
use crate::events::{Publication, PublishToken};
use crate::history::Position;
use crate::outbox::arena::Frames;
use crate::sessions::id::Id;
use crate::side::Side;

/// Publications of one channel that are fanned out together.
#[derive(Clone, Copy)]
pub(crate) struct Delivery<'a> {
    pub(crate) channel: ChannelName<'a>,
    pub(crate) frames: &'a Frames,
    pub(crate) messages: u32,
    pub(crate) side: Side,
    /// The index of the channel's rule.
    pub(crate) rule: Option<usize>,
    /// Their position in the history of the channel.
    pub(crate) position: Option<&'a Position>,
    /// The token for which the replies to the publisher wait.
    pub(crate) token: Option<PublishToken>,
}

/// The parameters of one fan-out.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// The number of the fan-out. Each session gets it once.
    pub(crate) stamp: u64,
    /// The index of the session that must not get it.
    pub(crate) except: Option<u32>,
    /// The time by which lazy messages must be sent, in milliseconds. None for messages that are sent at once.
    pub(crate) lazy_due_ms: Option<u64>,
    /// The time now, in milliseconds, if deliveries count as activity.
    pub(crate) active_ms: Option<u64>,
}

impl Delivery<'_> {
    /// Copies the delivery for another shard.
    pub(crate) fn to_publication(self, except: Option<Id>, account: &Arc<MailboxAccount>) -> Publication {
        let frames: Box<[u8]> = self.frames.chunk.slice(self.frames.start, self.frames.end)[..].into();
        Publication {
            charge: Publication::charge(account, self.channel.as_str(), &frames),
            channel: self.channel.as_str().into(),
            frames,
            messages: self.messages,
            side: self.side,
            except,
            position: self.position.cloned(),
            token: self.token,
        }
    }
}

/// Appends a message with its position, as a separate frame. Overwrites `scratch`.
pub(crate) fn write_with_position(
    stamp: &ext::PositionStamp<'_>,
    message: &[u8],
    scratch: &mut Vec<u8>,
    frames: &mut Vec<u8>,
) {
    scratch.clear();
    scratch.push(b'[');
    stamp.write(str::from_utf8(message).unwrap_or_default(), scratch);
    scratch.push(b']');
    frame::message(Opcode::Text, scratch, frames);
}
