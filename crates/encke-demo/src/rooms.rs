//! The rooms of the demo's chat, and their members.

use std::collections::{HashMap, HashSet};

use super::pace::{Allowance, Pace};
use super::quoted;

/// All rooms with a member.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: HashMap<String, Room>,
    /// The sessions that are in a room. The end of any other session costs one look-up.
    visitors: HashMap<String, Visitor>,
}

/// A room (`/demo/chat/lobby`).
#[derive(Debug)]
struct Room {
    /// In the order in which they joined.
    members: Vec<Member>,
    /// The number of changes of the list so far.
    version: u64,
    /// The bytes of lists that may still be sent to each subscriber.
    lists: Allowance,
}

#[derive(Debug)]
struct Member {
    session: String,
    user: String,
}

#[derive(Debug)]
struct Visitor {
    rooms: Vec<String>,
    /// The names that it may still take.
    names: Allowance,
}

/// A change of a room's list. A name that several members use counts once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) room: String,
    /// The name that no member uses any more.
    pub(super) left: Option<String>,
    /// The name that no member used before.
    pub(super) joined: Option<String>,
    /// The version: one more than that of the change before.
    pub(super) version: u64,
}

/// The way in which a room publishes its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reporting {
    /// Each change separately.
    Changes,
    /// The whole list, each time. A change costs the size of the list times the number of subscribers, so changes are
    /// limited.
    Lists,
}

impl Rooms {
    /// Adds a session to a room, under a new name if it was there already. Returns the change, if any.
    ///
    /// # Errors
    /// The reply to its client, as JSON.
    pub(super) fn join(
        &mut self,
        now_ms: u64,
        session: &str,
        room: &str,
        user: &str,
        reporting: Reporting,
    ) -> Result<Option<Change>, &'static str> {
        let is_in = |entry: &Room| entry.members.iter().any(|member| member.session == session);
        let (known, is_member) = match self.rooms.get(room) {
            None if self.rooms.len() >= ROOMS_MAX => return Err(FULL),
            None => (0, false),
            Some(entry) => (entry.members.len(), is_in(entry)),
        };
        let joined = self.visitors.get(session).map_or(0, |visitor| visitor.rooms.len());
        if !is_member && (known >= ROOM_MEMBERS_MAX || joined >= SESSION_ROOMS_MAX) {
            return Err(FULL);
        }
        if self.visitors.get_mut(session).is_some_and(|visitor| !visitor.names.take(now_ms, 1)) {
            return Err(TOO_FAST);
        }
        if reporting == Reporting::Lists
            && let Some(entry) = self.rooms.get_mut(room)
            // The list published now, and the one published when this member leaves.
            && !entry.lists.take(now_ms, 2 * entry.list_bytes(user))
        {
            return Err(TOO_FAST);
        }
        let visitor = self.visitors.entry(session.into()).or_insert_with(|| {
            let mut names = Allowance::new(now_ms, NAMES);
            names.charge(1);
            Visitor { rooms: Vec::new(), names }
        });
        if !is_member {
            visitor.rooms.push(room.into());
        }
        let entry = self.rooms.entry(room.into()).or_insert_with(|| Room {
            members: Vec::new(),
            version: 0,
            lists: Allowance::new(now_ms, LIST_BYTES),
        });
        let before = match entry.members.iter_mut().find(|member| member.session == session) {
            Some(member) => Some(std::mem::replace(&mut member.user, user.into())),
            None => {
                entry.members.push(Member { session: session.into(), user: user.into() });
                None
            }
        };
        Ok(entry.change(room, before, Some(user)))
    }

    /// Removes a session from its rooms. Returns the changes.
    pub(super) fn leave(&mut self, session: &str) -> Vec<Change> {
        let rooms = self.visitors.remove(session).map(|visitor| visitor.rooms).unwrap_or_default();
        let mut changes = Vec::new();
        for room in rooms {
            let Some(entry) = self.rooms.get_mut(&room) else { continue };
            let gone = entry.members.iter().position(|member| member.session == session);
            let user = gone.map(|index| entry.members.remove(index).user);
            changes.extend(entry.change(&room, user, None));
            if entry.members.is_empty() {
                self.rooms.remove(&room);
            }
        }
        changes
    }

    /// The version of a room's list.
    pub(super) fn version(&self, room: &str) -> u64 {
        self.rooms.get(room).map_or(0, |entry| entry.version)
    }

    /// The names in a room as a JSON array, each once.
    pub(super) fn names(&self, room: &str) -> String {
        let mut known = HashSet::new();
        let members = self.rooms.get(room).map_or(&[][..], |entry| &entry.members);
        let names = members.iter().filter(|member| known.insert(&*member.user));
        let quoted: Vec<String> = names.map(|member| quoted(&member.user)).collect();
        format!("[{}]", quoted.join(","))
    }

    /// The sessions in a room that use one of these names.
    pub(super) fn named<'a>(&'a self, room: &str, names: &HashSet<&str>) -> Vec<&'a str> {
        let members = self.rooms.get(room).map_or(&[][..], |entry| &entry.members);
        let named = members.iter().filter(|member| names.contains(&*member.user));
        named.map(|member| &*member.session).collect()
    }
}

impl Room {
    /// The approximate size of the list with one more name, in bytes.
    fn list_bytes(&self, user: &str) -> usize {
        const QUOTES_AND_COMMA: usize = 3;
        let names = self.members.iter().map(|member| member.user.len());
        names.chain([user.len()]).map(|bytes| bytes + QUOTES_AND_COMMA).sum()
    }

    /// Notes that a member changes its name from `left` to `joined`. Returns the change of the list, if any.
    fn change(&mut self, room: &str, left: Option<String>, joined: Option<&str>) -> Option<Change> {
        let bearers = |name: &str| self.members.iter().filter(|member| member.user == name).count();
        if left.as_deref() == joined {
            return None;
        }
        let left = left.filter(|name| bearers(name) == 0);
        let joined = joined.filter(|name| bearers(name) == 1).map(String::from);
        if left.is_none() && joined.is_none() {
            return None;
        }
        self.version += 1;
        Some(Change { room: room.into(), left, joined, version: self.version })
    }
}

/// The reply if a room, or the number of rooms, is at its limit.
const FULL: &str = r#""the room is full""#;
/// The reply to a client that joins, or changes its name, too often.
const TOO_FAST: &str = r#""too many names; wait a second""#;

/// The maximum number of rooms with a member, per server.
const ROOMS_MAX: usize = 1_000;
/// The maximum number of members of a room.
pub(super) const ROOM_MEMBERS_MAX: usize = 500;
/// The maximum number of rooms of a session.
const SESSION_ROOMS_MAX: usize = 16;
/// The rate of names that one session may take, and of calls that return the list.
pub(super) const NAMES: Pace = Pace { burst_max: 20, per_second: 1 };
/// The rate of list bytes sent to each subscriber of a room whose whole list is published each time.
pub(super) const LIST_BYTES: Pace = Pace { burst_max: 4 * 1024 * 1024, per_second: 1024 * 1024 };
