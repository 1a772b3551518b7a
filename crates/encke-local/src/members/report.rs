//! Reports of one node of a cluster about its members to a node that follows them.

use serde::{Deserialize, Serialize};

/// A part of what a node says about the members that it has. Reports to one node follow each other: the next one leaves when the
/// one before it is answered. Each says how something is now, so nothing has to be undone when one is lost: then all is reported again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersReport {
    /// Names of which all channels follow.
    pub begun: Vec<Box<str>>,
    /// Channels, or parts of them.
    pub parts: Vec<PartReport>,
    /// Names of which all channels have been reported.
    pub done: Vec<Box<str>>,
}

/// Members of a channel on the node that reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartReport {
    /// The channel.
    pub channel: Box<str>,
    /// True: all of its users follow, from here on.
    pub is_first: bool,
    /// True: these were all of its users.
    pub is_last: bool,
    /// Users with the number of their sessions, 0 within the grace time, or [`NOT_THERE`].
    pub users: Vec<(Box<str>, i64)>,
    /// Anonymous sessions, with those within the grace time.
    pub anonymous: usize,
    /// All sessions.
    pub sessions: usize,
}

/// A page of the list of all names that a node follows. Pages travel one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowPage {
    /// True: the list begins.
    pub is_first: bool,
    /// True: the list ends.
    pub is_last: bool,
}

/// Stands for the number of sessions of a user that is not there.
pub const NOT_THERE: i64 = -1;

impl MembersReport {
    /// True if it says nothing.
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.parts.is_empty() && self.done.is_empty()
    }
}

impl PartReport {
    /// True if nobody is there.
    pub(super) fn is_empty(&self) -> bool {
        self.anonymous == 0 && self.sessions == 0 && self.users.iter().all(|(_, sessions)| *sessions < 0)
    }

    /// Its bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        let users = self.users.iter().map(|(user, _)| user.len() + NAME_BYTES).sum::<usize>();
        self.channel.len() + PART_BYTES + users
    }
}

/// The bytes of a name beside it.
const NAME_BYTES: usize = 8;
/// The bytes of a part without its names.
const PART_BYTES: usize = 100;
