//! What makes up for a break: the extensions `ack` and `replay`, as the dialog sees them.
//!
//! With `ack`, messages belong to the batch that the next connect reply closes. They are kept back until it is there: a break before
//! that lets them come again, and a program that had seen them would see them twice. With `replay` alone the server cannot know
//! what a broken connection took along, so the session names its places again before anything else.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::{Envelope, Incoming};
use crate::{Error, Message};

use super::replay::{Gap, Place, Replay, Start, Told};
use super::{CONNECT, Change, Dialog, DialogOptions, Event, HANDSHAKE, SUBSCRIBE, State};

/// What a session does about breaks.
#[derive(Debug)]
pub(super) struct Recovery {
    ack: Option<Ack>,
    pub(super) replay: Option<Replay>,
    /// See [`Dialog::repeats`].
    repeats: u64,
}

/// The acknowledgement of batches.
#[derive(Debug, Default)]
struct Ack {
    /// Whether the server of this session does it.
    is_spoken: bool,
    /// The last batch that came whole.
    batch: u64,
    /// Messages of the batch that is open, with the places they told.
    open: Vec<(Message, Option<Told>)>,
}

/// What this client looks at in an `ext`.
#[derive(Deserialize)]
struct Ext<'a> {
    #[serde(borrow, default)]
    ack: Option<&'a RawValue>,
    #[serde(borrow, default)]
    replay: Option<&'a RawValue>,
}

impl Recovery {
    /// None where nothing was asked for.
    pub(super) fn new(options: &mut DialogOptions) -> Option<Box<Recovery>> {
        let (ack, replay) = (options.acknowledge.then(Ack::default), options.replay.take().map(Replay::new));
        (ack.is_some() || replay.is_some()).then(|| Box::new(Recovery { ack, replay, repeats: 0 }))
    }

    /// Writes into the `ext` of what goes out; `again` says that it subscribes to what the session has already.
    pub(super) fn outgoing(&mut self, envelope: &mut Envelope<'_>, again: bool) {
        let (ack, replay) = match envelope.channel {
            HANDSHAKE => {
                (self.ack.as_ref().map(|_| Value::from(true)), self.replay.as_ref().map(|_| Value::from(true)))
            }
            CONNECT => (self.spoken_ack().map(|ack| Value::from(ack.batch)), None),
            SUBSCRIBE => {
                let replay = self.replay.as_mut().filter(|replay| replay.is_spoken);
                (None, replay.map(|replay| replay.positions(envelope.subscription.unwrap_or_default(), again)))
            }
            _ => (None, None),
        };
        for (name, value) in [("ack", ack), ("replay", replay)] {
            if let Some(value) = value {
                envelope.ext.get_or_insert_default().insert(name.into(), value);
            }
        }
    }

    /// The way to the server is gone, and what was open with it.
    pub(super) fn carrier_lost(&mut self) {
        if let Some(ack) = &mut self.ack {
            ack.open = Vec::new();
        }
    }

    fn shaken(&mut self, ext: Option<Ext<'_>>) {
        self.carrier_lost();
        let says_yes = |raw: &RawValue| raw.get() != "false";
        if let Some(ack) = &mut self.ack {
            let is_spoken = ext.as_ref().and_then(|ext| ext.ack).is_some_and(says_yes);
            *ack = Ack { is_spoken, ..Ack::default() };
        }
        if let Some(replay) = &mut self.replay {
            replay.is_spoken = ext.and_then(|ext| ext.replay).is_some_and(says_yes);
        }
    }

    fn spoken_ack(&self) -> Option<&Ack> {
        self.ack.as_ref().filter(|ack| ack.is_spoken)
    }
}

impl Ext<'_> {
    fn read<'a>(message: &Incoming<'a>) -> Option<Ext<'a>> {
        serde_json::from_str(message.ext?.get()).ok()
    }
}

impl Dialog {
    /// Whether the server of the open session acknowledges with this one: then a break loses nothing while the session lives.
    pub fn acknowledges(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.spoken_ack().is_some())
    }

    /// Where the session stands in the history of a channel; `None` if the channel has none, or the session does not replay.
    pub fn place(&self, channel: &str) -> Option<&Place> {
        self.recovery.as_ref()?.replay.as_ref()?.place(channel)
    }

    /// How many messages came that the program had seen already, and were not shown to it again. After a break that may be; without
    /// one the server sent them twice.
    pub fn repeats(&self) -> u64 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.repeats)
    }

    /// As [`Dialog::subscribe`], to one channel or pattern from somewhere else than
    /// [`DialogOptions::replay`] says. Without that it is a plain subscribe.
    pub fn subscribe_from(&mut self, channel: &str, start: Start) -> u64 {
        if let Some(replay) = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut()) {
            replay.begin(channel, start, &self.subscriptions);
        }
        self.ask(Change::Subscribe, &[channel.into()])
    }

    /// A message that is no reply has come.
    pub(super) fn delivered(&mut self, message: Incoming<'_>) {
        let is_away = matches!(self.state, State::Away);
        let Some(recovery) = &mut self.recovery else {
            self.events.push_back(Event::Message(message.into_message(None)));
            return;
        };
        let replayed = recovery.replay.as_ref().filter(|replay| replay.is_spoken);
        let told = replayed.and_then(|_| Ext::read(&message)?.replay);
        let told = told.and_then(|told| serde_json::from_str(told.get()).ok());
        let message = message.into_message(None);
        match &mut recovery.ack {
            // It comes again.
            Some(ack) if ack.is_spoken && is_away => {}
            Some(ack) if ack.is_spoken => {
                ack.open.push((message, told));
                if ack.open.len() > self.options.batch_messages_max {
                    // The next attempt would bring the same batch.
                    self.finish(Error::Overflow(self.options.batch_messages_max));
                }
            }
            _ => self.pass(message, told),
        }
    }

    /// Shows the program a message, unless it has seen it.
    fn pass(&mut self, mut message: Message, told: Option<Told>) {
        let replay = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut());
        match (replay, told) {
            (Some(replay), Some(told)) => {
                let mut named = self.naming.iter().flat_map(|naming| &naming.channels);
                if named.any(|name| replay.brings_again(name, &message.channel)) {
                    return;
                }
                let Some((place, gap)) = replay.pass(&message.channel, told) else { return self.note_repeats(1) };
                self.events.extend(gap.map(Event::Gap));
                message.place = Some(place);
            }
            (Some(replay), None) => replay.heard_bare(&message.channel, &self.subscriptions),
            (None, _) => {}
        }
        self.events.push_back(Event::Message(message));
    }

    fn note_repeats(&mut self, messages: usize) {
        if let Some(recovery) = &mut self.recovery {
            recovery.repeats += messages as u64;
        }
    }

    /// Takes what a good reply of the protocol says about batches and places.
    pub(super) fn take_ext(&mut self, message: &Incoming<'_>) {
        let Some(recovery) = self.recovery.as_mut().filter(|_| message.successful == Some(true)) else { return };
        let ext = Ext::read(message);
        match &*message.channel {
            HANDSHAKE if matches!(self.state, State::Handshaking(_)) => recovery.shaken(ext),
            CONNECT => {
                if let Some(ack) = recovery.ack.as_mut().filter(|ack| ack.is_spoken) {
                    let batch = ext.as_ref().and_then(|ext| ext.ack?.get().parse().ok());
                    let open = std::mem::take(&mut ack.open);
                    let is_new = batch.is_none_or(|batch| batch > ack.batch);
                    ack.batch = batch.unwrap_or(ack.batch).max(ack.batch);
                    if is_new {
                        open.into_iter().for_each(|(message, told)| self.pass(message, told));
                    } else {
                        self.note_repeats(open.len());
                    }
                }
                let is_named = self.naming.is_empty();
                if let (Some(beat), Some(replay)) = (ext.and_then(|ext| ext.replay).filter(|_| is_named), self.replay())
                {
                    let gaps = replay.heard_beat(beat);
                    self.events.extend(gaps.into_iter().map(Event::Gap));
                }
            }
            SUBSCRIBE => {
                let Some(replay) = &mut recovery.replay else { return };
                let gaps = ext.and_then(|ext| ext.replay).map(|answers| replay.answered(answers));
                self.events.extend(gaps.into_iter().flatten().map(Event::Gap));
            }
            _ => {}
        }
    }

    /// The session is there again: tells which subscriptions may miss something that nothing brings back.
    pub(super) fn tell_gaps(&mut self, resumed: bool) {
        let whole = resumed && self.acknowledges();
        let Some(recovery) = self.recovery.as_ref().filter(|_| !whole) else { return };
        let known = |name: &str| recovery.replay.as_ref().is_some_and(|replay| replay.is_spoken && replay.knows(name));
        let missing = self.subscriptions.iter().filter(|name| !known(name));
        self.events.extend(missing.map(|name| Event::Gap(Gap { channel: name.clone(), lost: None })));
    }

    pub(super) fn replay(&mut self) -> Option<&mut Replay> {
        self.recovery.as_mut()?.replay.as_mut()
    }
}
