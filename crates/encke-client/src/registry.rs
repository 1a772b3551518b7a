//! The subscriptions of a client: the receivers of each message, and the channels to subscribe to at the server.

use std::collections::HashMap;
use std::sync::Arc;

use bayeux::channel::{covers, is_pattern};
use tokio::sync::oneshot;

use crate::Error;
use crate::buffer::Buffer;
use crate::command::Kind;
use crate::session::ClientSession;

/// All subscriptions of a client.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    channels: HashMap<Box<str>, Channel>,
    /// The names among them that are patterns.
    patterns: Vec<Box<str>>,
    /// Unsubscribes that a program waits for, by their ids.
    unsubscribes: Vec<(u64, Reply)>,
}

type Reply = oneshot::Sender<Result<(), Error>>;

/// The subscriptions to one channel or pattern.
#[derive(Debug, Default)]
struct Channel {
    subscribers: Vec<Arc<Buffer>>,
    /// Subscriptions without a subscribe to the server.
    listeners: Vec<Arc<Buffer>>,
    /// The subscribe that has no reply yet, and the operations that wait for it.
    pending: Option<(u64, Vec<Reply>)>,
}

impl Registry {
    /// Adds a subscription; `reply` gets the outcome.
    pub(crate) fn subscribe(
        &mut self,
        session: &mut ClientSession,
        name: Box<str>,
        buffer: Arc<Buffer>,
        kind: Kind,
        reply: Reply,
    ) {
        if is_pattern(&name) && !self.channels.contains_key(&name) {
            self.patterns.push(name.clone());
        }
        let channel = self.channels.entry(name.clone()).or_default();
        let id = match kind {
            Kind::Listen => {
                channel.listeners.push(buffer);
                let _gone = reply.send(Ok(()));
                return;
            }
            Kind::From(_) | Kind::FromPositions(..) | Kind::Interval(_) if !channel.subscribers.is_empty() => {
                let _gone = reply.send(Err(Error::AlreadySubscribed(name.into())));
                return;
            }
            Kind::Default if !channel.subscribers.is_empty() => {
                channel.subscribers.push(buffer);
                match &mut channel.pending {
                    Some((_, replies)) => replies.push(reply),
                    None => _ = reply.send(Ok(())),
                }
                return;
            }
            Kind::From(from) => session.subscribe_from(&name, from),
            Kind::FromPositions(positions, default) => session.subscribe_from_positions(&name, positions, default),
            Kind::Interval(ms) => session.subscribe_with_interval(&name, ms),
            Kind::Default => session.subscribe(&[name.into()]),
        };
        channel.subscribers.push(buffer);
        channel.pending = Some((id, vec![reply]));
    }

    /// Removes a subscription. `reply`, if any, gets the outcome.
    pub(crate) fn unsubscribe(&mut self, session: &mut ClientSession, buffer: &Arc<Buffer>, reply: Option<Reply>) {
        buffer.leave();
        let others = |other: &Arc<Buffer>| !Arc::ptr_eq(other, buffer);
        let mut ended = Vec::new();
        for name in &buffer.names {
            let Some(channel) = self.channels.get_mut(name) else { continue };
            let had_subscribers = !channel.subscribers.is_empty();
            channel.subscribers.retain(others);
            channel.listeners.retain(others);
            if had_subscribers && channel.subscribers.is_empty() {
                channel.pending = None;
                ended.push(name.clone().into());
            }
            if channel.subscribers.is_empty() && channel.listeners.is_empty() {
                self.remove(name);
            }
        }
        let id = (!ended.is_empty()).then(|| session.unsubscribe(&ended));
        match (id, reply) {
            (Some(id), Some(reply)) => self.unsubscribes.push((id, reply)),
            (None, Some(reply)) => _ = reply.send(Ok(())),
            (_, None) => {}
        }
    }

    /// The reply to a subscribe or unsubscribe. False if it is to something else.
    pub(crate) fn replied(&mut self, id: u64, outcome: &Result<(), Error>) -> bool {
        if let Some(at) = self.unsubscribes.iter().position(|(unsubscribe, _)| *unsubscribe == id) {
            let _gone = self.unsubscribes.swap_remove(at).1.send(outcome.clone());
            return true;
        }
        let is_it = |channel: &Channel| channel.pending.as_ref().is_some_and(|(pending, _)| *pending == id);
        let found = self.channels.iter_mut().find(|(_, channel)| is_it(channel));
        let Some((name, channel)) = found.map(|(name, channel)| (name.clone(), channel)) else { return false };
        for reply in channel.pending.take().into_iter().flat_map(|(_, replies)| replies) {
            let _gone = reply.send(outcome.clone());
        }
        if outcome.is_err() {
            channel.subscribers = Vec::new();
            if channel.listeners.is_empty() {
                self.remove(&name);
            }
        }
        true
    }

    /// The buffers that a message on this channel goes to, or a gap, whose channel may be a pattern itself.
    pub(crate) fn readers(&self, channel: &str) -> Vec<Arc<Buffer>> {
        let patterns = self.patterns.iter().filter(|pattern| covers(pattern, channel) && ***pattern != *channel);
        let channels = patterns.filter_map(|pattern| self.channels.get(pattern)).chain(self.channels.get(channel));
        let mut readers = Vec::<Arc<Buffer>>::new();
        for buffer in channels.flat_map(|channel| channel.subscribers.iter().chain(&channel.listeners)) {
            // One with several names gets a message once.
            if buffer.names.len() == 1 || !readers.iter().any(|reader| Arc::ptr_eq(reader, buffer)) {
                readers.push(buffer.clone());
            }
        }
        readers
    }

    /// The session has ended: all streams end after the waiting items, and waiting operations get the error.
    pub(crate) fn close(&mut self, error: &Error) {
        for (_, channel) in self.channels.drain() {
            channel.subscribers.iter().chain(&channel.listeners).for_each(|buffer| buffer.close());
            for reply in channel.pending.into_iter().flat_map(|(_, replies)| replies) {
                let _gone = reply.send(Err(error.clone()));
            }
        }
        for (_, reply) in self.unsubscribes.drain(..) {
            let _gone = reply.send(Err(error.clone()));
        }
    }

    fn remove(&mut self, name: &str) {
        self.channels.remove(name);
        self.patterns.retain(|pattern| **pattern != *name);
    }
}
