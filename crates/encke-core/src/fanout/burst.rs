//! Publications that follow each other on one channel are handed out together: a burst costs each subscriber one push,
//! however long it is.
//!
//! They gather while one read of a socket is worked through, as long as they lie side by side in the arena, and are handed out
//! by [`super::Shard::fan_out_pending`] before anything that could tell the difference happens.

use bayeux::ChannelName;

use crate::events::{PublishToken, SessionKey};
use crate::outbox::arena::Frames;

/// The publications at hand; mostly none.
#[derive(Debug, Default)]
pub struct Burst {
    channel: String,
    frames: Option<Frames>,
    messages: u32,
    from: Option<SessionKey>,
    token: Option<PublishToken>,
}

impl Burst {
    /// Whether nothing waits to be handed out.
    pub fn is_empty(&self) -> bool {
        self.frames.is_none()
    }

    /// Bytes at hand.
    pub fn bytes(&self) -> usize {
        self.frames.as_ref().map_or(0, Frames::bytes)
    }

    /// Messages at hand.
    pub fn messages(&self) -> usize {
        if self.is_empty() { 0 } else { self.messages as usize }
    }

    /// Adds a publication, if it continues those at hand.
    pub fn take(&mut self, channel: ChannelName<'_>, frames: &Frames, from: Option<SessionKey>) -> bool {
        let continued = self.frames.as_mut().filter(|at_hand| at_hand.is_followed_by(frames));
        match continued {
            Some(at_hand) if self.from == from && self.channel == channel.as_str() => {
                at_hand.end = frames.end;
                self.messages += 1;
                true
            }
            _ => false,
        }
    }

    /// Begins with this publication; `ticket` is what the replies to all that continue it wait for.
    pub fn start(
        &mut self,
        channel: ChannelName<'_>,
        frames: Frames,
        from: Option<SessionKey>,
        token: Option<PublishToken>,
    ) {
        self.channel.clear();
        self.channel.push_str(channel.as_str());
        self.frames = Some(frames);
        self.messages = 1;
        self.from = from;
        self.token = token;
    }

    /// What is at hand, and how many messages it is. The channel and the publisher stay to be asked for.
    pub fn finish(&mut self) -> Option<(Frames, u32)> {
        Some((self.frames.take()?, self.messages))
    }

    /// The frames at hand.
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// Where they were published.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// What the replies to them wait for.
    pub fn token(&self) -> Option<PublishToken> {
        self.token
    }

    /// Who published them, if a session did.
    pub fn from(&self) -> Option<SessionKey> {
        self.from
    }
}
