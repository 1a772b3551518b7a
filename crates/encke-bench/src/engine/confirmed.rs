//! The server's support for recovery, and the publications that it has confirmed.

use crate::engine::clients::{Clients, Published};
use crate::engine::members::channel_of;
use crate::engine::session::{Session, SessionState};
use crate::order::{ClientsSpec, Recovery, Replay};
use crate::problem::Problem;

impl Clients {
    /// Opens one client and returns the first recovery feature that the server does not support, worded to follow "the
    /// server"; none if it supports all.
    ///
    /// # Errors
    /// As [`Clients::open`].
    pub fn unsupported(spec: &ClientsSpec) -> Result<Option<String>, Problem> {
        let spec = ClientsSpec { clients: 1, publishers: 0, reconnect: true, ..spec.clone() };
        let mut probe = Clients::prepare(&spec, 0, 1)?;
        probe.open_all(None, &mut |_| true)?;
        let unsupported = probe.missing_support();
        probe.disconnect();
        Ok(unsupported)
    }

    /// The first unsupported recovery feature, seen by the first subscriber.
    pub(super) fn missing_support(&self) -> Option<String> {
        let subscribers = &self.sessions[..self.subscriber_count.min(self.sessions.len())];
        let first = subscribers.first().filter(|session| session.state == SessionState::Open)?;
        self.unsupported_by(first)
    }

    fn unsupported_by(&self, session: &Session) -> Option<String> {
        let Recovery { ack, replay } = self.recovery;
        let channel = channel_of(&self.membership, self.shared.reader.tally.rooms_of(0).first().copied().unwrap_or(0));
        let (acknowledges, has_position) = session.protocol.recovers(&channel);
        if ack && !acknowledges {
            return Some("does not acknowledge messages (the extension ack).".into());
        }
        let pattern = &self.membership.channel;
        (replay != Replay::No && !has_position).then(|| {
            format!(
                "stores no history of {channel}; Encke does with \
                 --set 'channels=[{{pattern=\"{pattern}/**\",history_messages=1000}}]'."
            )
        })
    }

    /// Starts recording the publications that the server confirms. Requires new clients that publish with one session
    /// to one room and make no calls.
    pub fn note_confirmations(&mut self) {
        self.shared.reader.confirmed.get_or_insert_default();
    }

    /// The number of confirmed publications.
    pub fn confirmed(&self) -> u64 {
        self.shared.reader.confirmed.as_ref().map_or(0, |confirmed| confirmed.len() as u64)
    }

    /// The number of missing deliveries of confirmed publications.
    pub fn missing_confirmed(&self) -> u64 {
        let Some(confirmed) = &self.shared.reader.confirmed else { return 0 };
        let end = Published { next: self.published.next.clone() };
        self.shared.reader.tally.missing(&[end]).filter(|sequence| confirmed.contains(sequence)).count() as u64
    }
}
