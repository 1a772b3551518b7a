//! The members of a group that have had what waits for it, by the names of channels.

use std::collections::HashMap;
use std::rc::Rc;

use bayeux::ChannelName;
use foldhash::fast::RandomState;

/// The notes of a group: a member has had the messages that wait on the channels of a name.
///
/// A message looks up its channel and the patterns of that, so it walks no notes of other channels. A note goes with the messages that it is
/// about.
#[derive(Default)]
pub(super) struct Notes {
    /// The members by name.
    names: HashMap<Rc<str>, HashMap<u32, Note, RandomState>, RandomState>,
    /// The names of each member, the latest last.
    members: HashMap<u32, Vec<Rc<str>>, RandomState>,
    bytes: usize,
}

/// A member has had the messages up to a number.
#[derive(Clone, Copy)]
pub(super) struct Note {
    /// The number of the last publication that it has had.
    pub(super) number: u64,
    /// The time by which the interval of all these messages is over, in milliseconds.
    pub(super) until_ms: u64,
}

impl Notes {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a note in place of an older one of the same name.
    pub(super) fn add(&mut self, session: u32, name: &str, note: Note) {
        let own = self.members.entry(session).or_default();
        let known = own.iter().position(|other| **other == *name).map(|at| own.remove(at));
        let oldest = (known.is_none() && own.len() == NOTES_MAX).then(|| own.remove(0));
        let shared = || self.names.get_key_value(name).map_or_else(|| Rc::from(name), |(name, _)| name.clone());
        self.bytes += if known.is_none() { bytes_of(name) } else { 0 };
        let name = known.unwrap_or_else(shared);
        own.push(name.clone());
        self.names.entry(name).or_default().insert(session, note);
        if let Some(oldest) = oldest {
            self.remove(session, &oldest);
        }
    }

    /// Removes all notes of a member.
    pub(super) fn left(&mut self, session: u32) {
        for name in self.members.remove(&session).unwrap_or_default() {
            self.remove(session, &name);
        }
        self.give_room_back();
    }

    /// The members that have had the message of a channel with this number, which goes now, and the number of notes that were looked at.
    /// Removes the notes of this channel, and those of its patterns that are about nothing any more: `first_ms` is the time at which the
    /// next interval of all channels is over.
    pub(super) fn take(&mut self, channel: ChannelName<'_>, number: u64, first_ms: u64) -> (Vec<u32>, usize) {
        let (mut had, mut steps) = (Vec::new(), 0);
        if self.names.is_empty() {
            return (had, steps);
        }
        let mut look = |name: &str| {
            self.retain(name, |session, note| {
                steps += 1;
                had.extend((number <= note.number).then_some(session));
                name != channel.as_str() && note.until_ms >= first_ms
            });
        };
        look(channel.as_str());
        channel.patterns(&mut String::new(), look);
        self.give_room_back();
        (had, steps)
    }

    /// Removes the notes of a channel on which nothing waits.
    pub(super) fn remove_all_of(&mut self, channel: &str) {
        self.retain(channel, |_, _| false);
        self.give_room_back();
    }

    /// True if a member has had the message of a channel with this number.
    pub(super) fn has(&self, session: u32, channel: ChannelName<'_>, number: u64) -> bool {
        let mut names = self.members.get(&session).into_iter().flatten();
        let covers = |name: &Rc<str>| {
            let note = self.names.get(name).and_then(|members| members.get(&session));
            note.is_some_and(|note| number <= note.number) && ChannelName::known(name).matches(channel)
        };
        names.any(covers)
    }

    /// Retains the notes of a name for which `stays` returns true.
    fn retain(&mut self, name: &str, mut stays: impl FnMut(u32, &Note) -> bool) {
        let Some(of_name) = self.names.get_mut(name) else { return };
        let (members, bytes) = (&mut self.members, &mut self.bytes);
        of_name.retain(|session, note| {
            let stays = stays(*session, note);
            if !stays {
                *bytes -= bytes_of(name);
                if let Some(own) = members.get_mut(session) {
                    own.retain(|other| **other != *name);
                    if own.is_empty() {
                        members.remove(session);
                    }
                }
            }
            stays
        });
        if of_name.is_empty() {
            self.names.remove(name);
        }
    }

    /// Removes a note that its member does not list any more.
    fn remove(&mut self, session: u32, name: &str) {
        let Some(of_name) = self.names.get_mut(name) else { return };
        if of_name.remove(&session).is_some() {
            self.bytes -= bytes_of(name);
        }
        if of_name.is_empty() {
            self.names.remove(name);
        }
    }

    fn give_room_back(&mut self) {
        if self.members.is_empty() && self.members.capacity() > ROOM_RETAINED {
            *self = Notes::default();
        }
    }
}

/// The bytes of a note.
fn bytes_of(name: &str) -> usize {
    NOTE_BYTES + name.len()
}

/// The most notes of a member. With more, a message that waits comes twice.
const NOTES_MAX: usize = 16;
/// The bytes of a note in both tables.
const NOTE_BYTES: usize = 160;
/// Empty tables retain room for so many members.
const ROOM_RETAINED: usize = 64;
