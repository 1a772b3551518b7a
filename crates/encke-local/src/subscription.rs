//! A subscription of the program itself: a stream of messages, from histories first and then from its queue.
//!
//! The queue is registered before histories are read. So a message is in the history, in the queue, or in both; offsets
//! tell those that are in both.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bayeux::{ChannelKind, ChannelName, Limits};
use bytes::Bytes;
use futures_core::Stream;

use crate::cursor::Cursor;
use crate::message::{Gap, Message};
use crate::positions::{CHANNELS_MAX, Position, Positions, Start};
use crate::queue::Queue;
use crate::registry::Registry;
use encke_core::{Granted, Right, Settings};

/// The messages of a channel or a pattern, as a stream.
///
/// If messages are missing, an item is a [`Gap`], so nothing is lost silently. The stream ends when the server has
/// stopped. Dropping it ends the subscription.
pub struct Subscription {
    registry: Arc<Registry>,
    number: u64,
    name: Box<str>,
    queue: Arc<Queue>,
    /// Items that come before those of the queue.
    ready: VecDeque<Item>,
    /// The channels with positions, by name. Requests that wait on the same pattern share them.
    cursors: Arc<Vec<Cursor>>,
    /// The number of cursors with messages that were not read from their history yet.
    behind: usize,
    /// False if more channels have positions than a subscription remembers.
    knows_all: bool,
}

type Item = Result<Message, Gap>;

/// The reason why a subscription in the process failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// Not a channel for broadcasts, nor a pattern of them.
    #[error("{0} is no channel or pattern to subscribe to")]
    Channel(String),
    /// A position without the name of its channel, for a pattern; or positions of channels that the pattern does not
    /// match.
    #[error("the positions do not fit the channel or pattern")]
    Positions,
    /// More than 256 channels with a history match the pattern, so it cannot begin in the past.
    #[error("the pattern matches too many channels with a history")]
    TooManyChannels,
}

impl Registry {
    /// Subscribes to a channel or a pattern.
    ///
    /// # Errors
    /// The name is none to subscribe to, or the start does not fit it.
    pub fn subscribe(
        self: &Arc<Registry>,
        settings: &Settings,
        pattern: &str,
        start: &Start,
        granted: Granted,
    ) -> Result<Subscription, SubscribeError> {
        granted.use_for(Right::Subscribe);
        let name = ChannelName::parse(pattern, &Limits::from(settings)).ok();
        let Some(name) = name.filter(|name| name.kind() == ChannelKind::Broadcast) else {
            return Err(SubscribeError::Channel(pattern.into()));
        };
        // Before histories are read: a message that is not in them yet comes to the queue.
        let (number, queue) = self.open(settings, pattern);
        Subscription::begin(self.clone(), number, name, queue, start)
    }
}

impl Subscription {
    /// Begins at positions in the histories. The queue is registered already.
    fn begin(
        registry: Arc<Registry>,
        number: u64,
        name: ChannelName<'_>,
        queue: Arc<Queue>,
        start: &Start,
    ) -> Result<Subscription, SubscribeError> {
        let mut subscription = Subscription {
            registry,
            number,
            name: name.as_str().into(),
            queue,
            ready: VecDeque::new(),
            cursors: Arc::default(),
            behind: 0,
            knows_all: true,
        };
        subscription.check(name, start)?;
        if !name.is_pattern() {
            subscription.begin_at(name.as_str(), start);
            return Ok(subscription);
        }
        let channels = subscription.registry.shared.histories.matching(name, None, CHANNELS_MAX + 1, |_| true);
        if channels.len() > CHANNELS_MAX {
            subscription.knows_all = false;
            return if *start == Start::Latest { Ok(subscription) } else { Err(SubscribeError::TooManyChannels) };
        }
        for channel in &channels {
            subscription.begin_at(channel, start);
        }
        if let Start::After(positions) = start {
            let gone = positions.named.keys().filter(|channel| !channels.contains(channel));
            subscription.ready.extend(gone.map(|channel| Err(Gap::Gone { channel: (**channel).into() })));
        }
        // A message releases all requests that wait on the pattern, so those that wait have the same positions.
        if subscription.behind == 0 {
            subscription.registry.share(&subscription.name, &mut subscription.cursors);
        }
        Ok(subscription)
    }

    /// Checks that positions are those of channels that the name matches.
    fn check(&self, name: ChannelName<'_>, start: &Start) -> Result<(), SubscribeError> {
        let Start::After(positions) = start else { return Ok(()) };
        let fits =
            |channel: &str| !bayeux::channel::is_pattern(channel) && bayeux::channel::covers(&self.name, channel);
        let is_lone = positions.lone.is_some() && name.is_pattern();
        if is_lone || !positions.named.keys().all(|channel| fits(channel)) {
            return Err(SubscribeError::Positions);
        }
        Ok(())
    }

    /// Begins at one channel.
    fn begin_at(&mut self, channel: &str, start: &Start) {
        let histories = &self.registry.shared.histories;
        let position = match start {
            Start::After(positions) => positions.of(channel),
            Start::Latest | Start::Earliest => None,
        };
        let gap = || Err(Gap::Gone { channel: channel.into() });
        let found = histories.find(channel, 0).and_then(|found| {
            histories.with(found.ring, |ring| {
                let (from, has_all) = match (start, position) {
                    (Start::Latest, _) => (ring.next(), true),
                    (Start::Earliest, _) => (ring.oldest(), true),
                    // Its history is newer than the positions.
                    (_, None) => (ring.oldest(), ring.has_all()),
                    (_, Some(at)) if ring.has_all_after(at.offset, Some(&at.epoch)) => (at.offset + 1, true),
                    (_, Some(_)) => (ring.oldest(), false),
                };
                let is_behind = from < ring.next();
                let (channel, epoch) = (channel.into(), found.epoch);
                (Cursor { channel, ring: found.ring, epoch, next: from, is_behind }, has_all)
            })
        });
        match found {
            Some((cursor, has_all)) => {
                self.ready.extend((!has_all).then(gap));
                self.behind += usize::from(cursor.is_behind);
                Arc::make_mut(&mut self.cursors).reserve_exact(1);
                self.put(cursor);
            }
            None if position.is_some() => self.ready.push_back(gap()),
            None => {}
        }
    }

    /// The channel or pattern.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if the next messages come from a history.
    pub fn is_behind(&self) -> bool {
        self.behind > 0
    }

    /// The positions of the last messages that were returned; a later subscription that starts there misses nothing. None
    /// if more than 256 channels have positions.
    pub fn positions(&self) -> Option<Positions> {
        let position = |cursor: &Cursor| {
            let position = Position { epoch: cursor.epoch.clone(), offset: cursor.next.saturating_sub(1) };
            (Box::from(&*cursor.channel), position)
        };
        let named = || self.cursors.iter().map(position).collect();
        self.knows_all.then(|| Positions { lone: None, named: named() })
    }

    /// The next message, or a gap; None when the server has stopped. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Message, Gap>> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if let Ok(message) = &item {
                    self.advance(message);
                }
                return Poll::Ready(Some(item));
            }
            if self.behind > 0 {
                self.read_history();
                continue;
            }
            match self.queue.poll(context) {
                Poll::Ready(Some(Ok(message))) if !self.advance(&message) => {}
                item => return item,
            }
        }
    }

    /// Reads some messages from the history of one channel. All items read before were returned.
    fn read_history(&mut self) {
        let Some(cursor) = Arc::make_mut(&mut self.cursors).iter_mut().find(|cursor| cursor.is_behind) else {
            self.behind = 0;
            return;
        };
        let Cursor { channel, ring: key, epoch, next, .. } = cursor;
        let ready = &mut self.ready;
        let is_behind = self.registry.shared.histories.with(*key, |ring| {
            if ring.oldest() > *next {
                ready.push_back(Err(Gap::Gone { channel: channel.clone() }));
                *next = ring.oldest();
            }
            let mut bytes = 0;
            for entry in ring.from(*next) {
                if bytes >= READ_BYTES {
                    return true;
                }
                bytes += entry.bytes();
                let position = Position { epoch: epoch.clone(), offset: entry.offset };
                let json = Bytes::copy_from_slice(entry.text.as_bytes());
                ready.push_back(Ok(Message::new(channel.clone(), json, entry.side, Some((position, *key)))));
            }
            false
        });
        if is_behind.is_none() {
            // All its messages have expired.
            ready.push_back(Err(Gap::Gone { channel: channel.clone() }));
        }
        cursor.is_behind = is_behind.unwrap_or(false);
        self.behind -= usize::from(!cursor.is_behind);
    }

    /// Notes the position of a message that is about to be returned. False if it was returned before: it was read from
    /// the history, and then came to the queue.
    fn advance(&mut self, message: &Message) -> bool {
        let Some((position, ring)) = message.ring_position() else { return true };
        let next = position.offset + 1;
        match self.find(&message.channel) {
            Ok(at) => {
                let cursor = &mut Arc::make_mut(&mut self.cursors)[at];
                if cursor.ring.serial > ring.serial {
                    // The rest of an earlier life of the history.
                    return true;
                }
                if cursor.ring.serial == ring.serial && position.offset < cursor.next {
                    return false;
                }
                (cursor.ring, cursor.next) = (*ring, next);
                cursor.epoch = position.epoch.clone();
            }
            Err(at) if self.knows_all && self.cursors.len() < CHANNELS_MAX => {
                let (channel, epoch) = (message.channel.clone(), position.epoch.clone());
                Arc::make_mut(&mut self.cursors)
                    .insert(at, Cursor { channel, ring: *ring, epoch, next, is_behind: false });
            }
            Err(_) => self.knows_all = false,
        }
        true
    }

    fn put(&mut self, cursor: Cursor) {
        if let Err(at) = self.find(&cursor.channel) {
            Arc::make_mut(&mut self.cursors).insert(at, cursor);
        }
    }

    fn find(&self, channel: &str) -> Result<usize, usize> {
        self.cursors.binary_search_by(|cursor| (*cursor.channel).cmp(channel))
    }
}

impl Stream for Subscription {
    type Item = Result<Message, Gap>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.registry.remove(&self.name, self.number);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The bytes read from a history at once, beside those of one message.
const READ_BYTES: usize = 32 * 1024;
