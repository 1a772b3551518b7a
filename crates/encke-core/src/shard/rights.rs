//! Asks for the rights of a session. The chapters for messages lead here, and a request without a session.

use crate::application::Caller;
use crate::decision::Resolved;
use crate::events::SessionKey;
use crate::now::Now;
use crate::rights::table::Entry;
use crate::rights::{Client, May, Rights, Wish};
use crate::settings::in_force::InForce;
use crate::shard::{Parts, Shared};

impl Parts {
    /// Decides if a client may do something.
    pub(super) fn may_as(
        &mut self,
        entry: Entry,
        client: &Client<'_>,
        wish: &Wish<'_>,
        decided: Option<Resolved>,
    ) -> May {
        let Parts { settings, shared, now, .. } = self;
        rights(settings, shared, *now).may(entry, client, wish, decided)
    }

    /// Decides if a session may do something.
    #[inline]
    pub(super) fn may(&mut self, entry: Entry, key: SessionKey, wish: &Wish<'_>, decided: Option<Resolved>) -> May {
        let Parts { sessions, clients, settings, shared, now, .. } = self;
        let client = match (sessions.get(key), clients.entitled(key)) {
            (Some(session), Ok(identity)) => Client::Session(Caller::new(session.id.as_str(), identity)),
            _ => Client::Ended,
        };
        rights(settings, shared, *now).may(entry, &client, wish, decided)
    }
}

#[inline]
fn rights<'a>(settings: &'a mut InForce, shared: &'a Shared, now: Now) -> Rights<'a> {
    let Shared { application, revoked, policy, .. } = shared;
    Rights { settings, application: &**application, revoked, policy: *policy, wall_ms: now.wall_ms }
}
