//! What a server owes to sessions that do something against loss: what it lacks for that, and what it has confirmed.

use crate::engine::clients::{Clients, Published};
use crate::engine::members::channel_of;
use crate::engine::session::{Session, SessionState};
use crate::order::{ClientsSpec, Recovery, Replay};
use crate::problem::Problem;

impl Clients {
    /// What the server lacks of what clients are to do against loss, seen with one of them, without "the server"; `None` if
    /// nothing.
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

    /// What the server lacks, seen with the first subscriber.
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
                "keeps no history of {channel}; Encke does with \
                 --set 'channels=[{{pattern=\"{pattern}/**\",history_messages=1000}}]'."
            )
        })
    }

    /// From now on notes which publications the server confirms. For crowds that have not published yet, do so with one session
    /// in one room, and call nobody.
    pub fn note_confirmations(&mut self) {
        self.shared.reader.confirmed.get_or_insert_default();
    }

    /// How many publications the server has confirmed.
    pub fn confirmed(&self) -> u64 {
        self.shared.reader.confirmed.as_ref().map_or(0, |confirmed| confirmed.len() as u64)
    }

    /// How many deliveries of confirmed publications have not come.
    pub fn missing_confirmed(&self) -> u64 {
        let Some(confirmed) = &self.shared.reader.confirmed else { return 0 };
        let end = Published { next: self.published.next.clone() };
        self.shared.reader.tally.missing(&[end]).filter(|sequence| confirmed.contains(sequence)).count() as u64
    }
}
