//! Consecutive publications on one channel are fanned out together: a burst costs each subscriber one push, however
//! many messages it has.
//!
//! A burst grows while one read of a socket is processed, as long as its messages are adjacent in the arena.
//! The [shard](crate::Shard) fans it out before anything that could observe the difference.

use bayeux::ChannelName;

use crate::delivery::Frames;
use crate::events::{PublishToken, SessionKey};
use crate::side::Side;

/// The pending publications. Usually there are none.
#[derive(Debug, Default)]
pub struct Burst {
    channel: String,
    frames: Option<Frames>,
    messages: u32,
    from: Option<SessionKey>,
    token: Option<PublishToken>,
}

impl Burst {
    /// True if no publication waits for its fan-out.
    pub fn is_empty(&self) -> bool {
        self.frames.is_none()
    }

    /// The number of pending bytes.
    pub fn bytes(&self) -> usize {
        self.frames.as_ref().map_or(0, Frames::bytes)
    }

    /// The number of pending messages.
    pub fn messages(&self) -> usize {
        if self.is_empty() { 0 } else { self.messages as usize }
    }

    /// Adds a publication if it continues the burst: same channel, same publisher, adjacent bytes. Returns true if it
    /// did.
    pub fn take(&mut self, channel: ChannelName<'_>, frames: &Frames, from: Option<SessionKey>) -> bool {
        let continued = self.frames.as_mut().filter(|last| last.is_followed_by(frames));
        match continued {
            Some(last) if self.from == from && self.channel == channel.as_str() => {
                last.end = frames.end;
                self.messages += 1;
                true
            }
            _ => false,
        }
    }

    /// Starts a burst with this publication. The replies to all publications of the burst wait for `token`.
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

    /// Takes the frames and the number of messages. The channel and the publisher stay readable.
    pub fn finish(&mut self) -> Option<(Frames, u32)> {
        Some((self.frames.take()?, self.messages))
    }

    /// The pending frames.
    pub fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// The channel of the burst.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The token for which the replies wait.
    pub fn token(&self) -> Option<PublishToken> {
        self.token
    }

    /// The side that has made the burst.
    pub fn side(&self) -> Side {
        if self.from.is_some() { Side::Client } else { Side::Server }
    }

    /// The session that published the burst, if a session did.
    pub fn from(&self) -> Option<SessionKey> {
        self.from
    }
}
