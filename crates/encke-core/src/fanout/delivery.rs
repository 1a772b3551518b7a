//! From a publication to outboxes: encoded once, then a range of bytes for each subscriber.

use std::sync::Arc;

use bayeux::{ChannelName, ext};
use websocket::{Opcode, frame};

use crate::connections::account::MailboxAccount;
use crate::events::{Publication, PublishToken};
use crate::history::Position;
use crate::outbox::arena::Frames;
use crate::sessions::id::Id;
use crate::sessions::session::Session;

/// Publications of one channel that are handed out together.
#[derive(Clone, Copy)]
pub(crate) struct Delivery<'a> {
    pub(crate) channel: ChannelName<'a>,
    pub(crate) frames: &'a Frames,
    pub(crate) messages: u32,
    /// The rule for the channel.
    pub(crate) rule: Option<usize>,
    /// Where they stand in the history of the channel.
    pub(crate) position: Option<&'a Position>,
    /// What the replies to their publisher wait for.
    pub(crate) token: Option<PublishToken>,
}

/// How one publication is delivered.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// Its number: each session gets it once.
    pub(crate) stamp: u64,
    /// The index of the session that must not get it.
    pub(crate) except: Option<u32>,
    /// When lazy messages have to go, in milliseconds; None for those that go at once.
    pub(crate) lazy_due_ms: Option<u64>,
    /// The time now, in milliseconds, where deliveries count as activity.
    pub(crate) active_ms: Option<u64>,
}

impl Delivery<'_> {
    /// The same for another shard.
    pub(crate) fn to_publication(self, except: Option<Id>, account: &Arc<MailboxAccount>) -> Publication {
        let frames: Box<[u8]> = self.frames.chunk.slice(self.frames.start, self.frames.end)[..].into();
        Publication {
            charge: Publication::charge(account, self.channel.as_str(), &frames),
            channel: self.channel.as_str().into(),
            frames,
            messages: self.messages,
            except,
            position: self.position.cloned(),
            token: self.token,
        }
    }
}

/// Notes that something waits that should go at once. True if the session has to be put on the list of the dirty.
pub(crate) fn make_urgent(session: &mut Session) -> bool {
    session.urgent = true;
    let wanted = !session.dirty && session.is_reachable();
    session.dirty |= wanted;
    wanted
}

/// Appends a message with its position as a frame of its own. `scratch` is overwritten.
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
