//! The members of channels: the table of the server, and what is known of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use encke_local::MemberTable;

use crate::channels::PRESENT;

/// A channel, and the client id of a session or the name of a user.
pub(crate) type OnChannel = (String, String);

/// The table of members, and what is known of it.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// The user of each reported member. It is empty for anonymous sessions.
    pub(crate) members: BTreeMap<OnChannel, String>,
    /// Reported members for which the table had no room.
    pub(crate) refused: BTreeSet<OnChannel>,
    /// Users of restored sessions for which the table had no room. They are announced as gone, also where nobody knew them,
    /// and as joined, also where somebody did.
    pub(crate) missed: BTreeSet<OnChannel>,
    /// The time at which the last listed session of a user left, in milliseconds.
    pub(crate) away: BTreeMap<OnChannel, u64>,
    pub(crate) table: MemberTable,
    /// The time up to which the table has advanced, in milliseconds.
    pub(crate) advanced_ms: u64,
    /// Announcements that are not published yet.
    pub(crate) unpublished: VecDeque<(Arc<str>, String)>,
    /// Changes that the witness has yet to learn, by channel.
    pub(crate) news: BTreeMap<String, VecDeque<News>>,
    /// The users that the witness knows.
    pub(crate) known: BTreeMap<String, BTreeSet<String>>,
}

/// A change of the members.
#[derive(Debug)]
pub(crate) enum News {
    /// It is announced with these data.
    Announced(String),
    /// This user became a member without an announcement. Clients ask who is there when that happens.
    Silently(String),
}

impl Presence {
    /// The number of members, and of users that the witness knows.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let known = self.known.values().map(BTreeSet::len).sum();
        [self.members.len(), self.table.sizes().iter().sum(), known]
    }

    /// The listed sessions of a channel with their users.
    pub(crate) fn listed<'a>(&'a self, channel: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let of_channel = self.members.iter().filter(move |(member, _)| member.0 == channel);
        of_channel
            .filter(|(member, _)| !self.refused.contains(*member))
            .map(|((_, session), user)| (session.as_str(), user.as_str()))
    }

    /// The users in the table: those with a session, and those within the grace time.
    pub(crate) fn users(&self, channel: &str) -> BTreeSet<String> {
        self.table.members(channel, "", usize::MAX).members.into_iter().map(|member| member.user).collect()
    }

    /// True if the witness knows who is there.
    pub(crate) fn is_known(&self) -> bool {
        let nobody = BTreeSet::new();
        PRESENT.iter().all(|channel| self.users(channel) == *self.known.get(*channel).unwrap_or(&nobody))
    }

    /// Handles the end of the process. If its members come back with their sessions, whoever follows announcements
    /// follows on.
    pub(crate) fn restart(&mut self, are_saved: bool) {
        let known = std::mem::take(&mut self.known);
        *self = Presence { known: if are_saved { known } else { BTreeMap::new() }, ..Presence::default() };
    }
}
