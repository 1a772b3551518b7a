//! Recovery from breaks: the extensions `ack` and `replay`, as the session sees them.
//!
//! With `ack`, messages belong to the batch that the next connect reply closes. They wait until it is there: after a break
//! before that they come again, and a program that had seen them would see them twice. With `replay` alone the server cannot know
//! which messages a broken connection took along, so the session resubscribes at its positions before anything else.

use bayeux::channel::{META_CONNECT, META_HANDSHAKE, META_SUBSCRIBE, covers};
use bayeux::ext::{ExtWriter, Stamped, acknowledged, offers_ack, offers_replay};
use bayeux::{RawJson, ServerMessage};

use crate::Error;
use crate::message::{Gap, Message, Position, ReplayFrom};

use super::replay::{Replay, WirePosition};
use super::{Change, ClientSession, Event, SessionOptions, State};

/// The state of the extensions that recover from breaks.
#[derive(Debug)]
pub(super) struct Recovery {
    ack: Option<Ack>,
    pub(super) replay: Option<Replay>,
    /// See [`ClientSession::repeats`].
    repeats: u64,
}

/// The acknowledgement of batches.
#[derive(Debug, Default)]
struct Ack {
    /// True if the server of this session supports it.
    is_supported: bool,
    /// The last batch that was received whole.
    batch: u64,
    /// Messages of the batch that is not closed yet, with their positions on the wire.
    unconfirmed: Vec<(Message, Option<WirePosition>)>,
    /// Their memory.
    unconfirmed_bytes: usize,
}

impl Recovery {
    /// `None` where both extensions are off.
    pub(super) fn new(options: &mut SessionOptions) -> Option<Box<Recovery>> {
        let positions = std::mem::take(&mut options.positions);
        let (ack, replay) =
            (options.ack.then(Ack::default), options.replay.take().map(|from| Replay::new(from, positions)));
        (ack.is_some() || replay.is_some()).then(|| Box::new(Recovery { ack, replay, repeats: 0 }))
    }

    /// Writes into the `ext` of an outgoing message; `again` says that it subscribes to channels that the session has already.
    pub(super) fn outgoing(&mut self, channel: &str, subscription: &[String], again: bool, ext: &mut ExtWriter) {
        match channel {
            META_HANDSHAKE => {
                if self.ack.is_some() {
                    ext.offer_ack();
                }
                if self.replay.is_some() {
                    ext.offer_replay();
                }
            }
            META_CONNECT => {
                if let Some(ack) = self.supported_ack() {
                    ext.acknowledge(ack.batch);
                }
            }
            META_SUBSCRIBE => {
                if let Some(replay) = self.replay.as_mut().filter(|replay| replay.is_supported) {
                    ext.positions(&replay.positions(subscription, again));
                }
            }
            _ => {}
        }
    }

    /// The connection is gone, and the batch that was not closed with it.
    pub(super) fn connection_lost(&mut self) {
        if let Some(ack) = &mut self.ack {
            (ack.unconfirmed, ack.unconfirmed_bytes) = (Vec::new(), 0);
        }
    }

    /// A new session has begun; its server supports the extensions that `ext` offers.
    fn handshake_replied(&mut self, ext: Option<RawJson<'_>>) {
        self.connection_lost();
        if let Some(ack) = &mut self.ack {
            *ack = Ack { is_supported: ext.is_some_and(offers_ack), ..Ack::default() };
        }
        if let Some(replay) = &mut self.replay {
            replay.is_supported = ext.and_then(offers_replay).is_some();
        }
    }

    fn supported_ack(&self) -> Option<&Ack> {
        self.ack.as_ref().filter(|ack| ack.is_supported)
    }
}

impl ClientSession {
    /// True if the server of the open session supports acknowledgement: then a break loses nothing while the session lives.
    pub fn acknowledges(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.supported_ack().is_some())
    }

    /// The session's position in the history of a channel; `None` if the channel has none, or the session does not replay.
    pub fn position(&self, channel: &str) -> Option<&Position> {
        self.recovery.as_ref()?.replay.as_ref()?.position(channel)
    }

    /// The session's positions in the histories of the channels that these names cover.
    pub fn positions<N: AsRef<str>>(&self, names: &[N]) -> Vec<(String, Position)> {
        let replay = self.recovery.as_ref().and_then(|recovery| recovery.replay.as_ref());
        replay.map_or_else(Vec::new, |replay| replay.known_of(names))
    }

    /// The number of messages that came although the program had them already, and that it did not get again. After a break that
    /// may be; without one the server sent them twice.
    pub fn repeats(&self) -> u64 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.repeats)
    }

    /// As [`ClientSession::subscribe`], to one channel or pattern from another point than [`SessionOptions::replay`]. Without that
    /// option it is a plain subscribe.
    pub fn subscribe_from(&mut self, channel: &str, from: ReplayFrom) -> u64 {
        if let Some(replay) = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut()) {
            replay.begin(channel, from, &self.subscriptions);
        }
        self.change_subscriptions(Change::Subscribe, &[channel.into()])
    }

    /// As [`ClientSession::subscribe_from`], to a channel or pattern whose channels begin after these positions, the others at
    /// `default`. The positions of channels that the session receives already are ignored.
    pub fn subscribe_from_positions(
        &mut self,
        name: &str,
        positions: impl IntoIterator<Item = (String, Position)>,
        default: ReplayFrom,
    ) -> u64 {
        if let Some(replay) = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut()) {
            let of_name = positions.into_iter().filter(|(channel, _)| covers(name, channel));
            of_name.for_each(|(channel, position)| replay.begin_at(&channel, position));
        }
        self.subscribe_from(name, default)
    }

    /// A message that is no reply has come.
    pub(super) fn delivered(&mut self, message: ServerMessage<'_>) {
        let is_disconnected = matches!(self.state, State::Disconnected);
        let Some(recovery) = &mut self.recovery else {
            self.events.push_back(Event::Message(Message::new(message)));
            return;
        };
        let replay = recovery.replay.as_ref().filter(|replay| replay.is_supported);
        let stamped = replay.and_then(|_| Stamped::read(message.ext?)).map(WirePosition::from);
        let message = Message::new(message);
        match &mut recovery.ack {
            // It comes again.
            Some(ack) if ack.is_supported && is_disconnected => {}
            Some(ack) if ack.is_supported => {
                ack.unconfirmed_bytes += message.bytes();
                ack.unconfirmed.push((message, stamped));
                let (messages, bytes) = (ack.unconfirmed.len(), ack.unconfirmed_bytes);
                let SessionOptions { unacknowledged_messages_max, unacknowledged_bytes_max, .. } = self.options;
                // The next attempt would bring the same batch.
                if messages > unacknowledged_messages_max {
                    self.finish(Error::TooManyUnacknowledged(unacknowledged_messages_max));
                } else if bytes > unacknowledged_bytes_max {
                    self.finish(Error::TooManyUnacknowledgedBytes(unacknowledged_bytes_max));
                }
            }
            _ => self.deliver(message, stamped),
        }
    }

    /// Hands a message to the program, unless it has it.
    fn deliver(&mut self, mut message: Message, stamped: Option<WirePosition>) {
        let replay = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut());
        match (replay, stamped) {
            (Some(replay), Some(stamped)) => {
                let mut names = self.resubscribes.iter().flat_map(|resubscribe| &resubscribe.channels);
                if names.any(|name| replay.comes_again(name, &message.channel)) {
                    return;
                }
                let Some((position, gap)) = replay.advance(&message.channel, stamped) else {
                    return self.note_repeats(1);
                };
                self.events.extend(gap.map(Event::Gap));
                message.position = Some(position);
            }
            (Some(replay), None) => replay.received_without_history(&message.channel, &self.subscriptions),
            (None, _) => {}
        }
        self.events.push_back(Event::Message(message));
    }

    fn note_repeats(&mut self, messages: usize) {
        if let Some(recovery) = &mut self.recovery {
            recovery.repeats += messages as u64;
        }
    }

    /// Takes over the batch numbers and positions of a successful reply of the protocol.
    pub(super) fn take_ext(&mut self, message: &ServerMessage<'_>) {
        let Some(recovery) = self.recovery.as_mut().filter(|_| message.successful == Some(true)) else { return };
        let ext = message.ext;
        match &*message.channel {
            META_HANDSHAKE if matches!(self.state, State::Handshaking(_)) => recovery.handshake_replied(ext),
            META_CONNECT => {
                if let Some(ack) = recovery.ack.as_mut().filter(|ack| ack.is_supported) {
                    let batch = ext.and_then(acknowledged).and_then(|batch| u64::try_from(batch).ok());
                    let unconfirmed = std::mem::take(&mut ack.unconfirmed);
                    ack.unconfirmed_bytes = 0;
                    let is_new = batch.is_none_or(|batch| batch > ack.batch);
                    ack.batch = batch.unwrap_or(ack.batch).max(ack.batch);
                    if is_new {
                        unconfirmed.into_iter().for_each(|(message, stamped)| self.deliver(message, stamped));
                    } else {
                        self.note_repeats(unconfirmed.len());
                    }
                }
                // Until the resubscribes have their replies the positions of the server are older ones.
                let heartbeats = ext.and_then(|ext| ext.member("replay")).filter(|_| self.resubscribes.is_empty());
                if let (Some(heartbeats), Some(replay)) = (heartbeats, self.replay()) {
                    let gaps = replay.heartbeats(heartbeats);
                    self.events.extend(gaps.into_iter().map(Event::Gap));
                }
            }
            META_SUBSCRIBE => {
                let Some(replay) = &mut recovery.replay else { return };
                let gaps = ext.and_then(|ext| ext.member("replay")).map(|recoveries| replay.recovered(recoveries));
                self.events.extend(gaps.into_iter().flatten().map(Event::Gap));
            }
            _ => {}
        }
    }

    /// The session is open again: reports the subscriptions that may miss messages which nothing brings back.
    pub(super) fn report_gaps(&mut self, resumed: bool) {
        let is_whole = resumed && self.acknowledges();
        let Some(recovery) = self.recovery.as_ref().filter(|_| !is_whole) else { return };
        let replay = recovery.replay.as_ref().filter(|replay| replay.is_supported);
        let missing = self.subscriptions.iter().filter(|name| !replay.is_some_and(|replay| replay.covers_breaks(name)));
        self.events.extend(missing.map(|name| Event::Gap(Gap::unknown(name))));
    }

    pub(super) fn replay(&mut self) -> Option<&mut Replay> {
        self.recovery.as_mut()?.replay.as_mut()
    }
}
