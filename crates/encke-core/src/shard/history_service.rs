//! Pages of histories: the service that reads them for sessions, and requests without a session.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message};

use crate::events::{HISTORY_SERVICE, SessionKey};
use crate::history::{HistoryPage, HistoryQuery};
use crate::protocol::batch::{Batch, message_frame};
use crate::rights::table::{Entry, Granted, Right};
use crate::rights::{May, Wish};
use crate::shard::{Machines, Shared};

impl Shared {
    /// Reads a page of a channel's history, on any shard.
    pub fn history_page(&self, channel: &str, granted: Granted, query: &HistoryQuery) -> HistoryPage {
        granted.use_for(Right::History);
        let ring = self.histories.find(channel, 0).map(|position| position.ring);
        let page = ring.and_then(|ring| self.histories.with(ring, |ring| query.page(channel, Some(ring))));
        page.unwrap_or_else(|| query.page(channel, None))
    }
}

impl Machines {
    /// Handles a call of the service: `{"channel":…,"before":…,"after":…,"limit":…}`.
    pub(super) fn ask_history(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        self.delivery.aside().active(key);
        let member = |name| message.data.filter(|data| data.is_object()).and_then(|data| data.member(name));
        let text = |name| member(name).and_then(|value| value.text());
        let (channel, before, after) = (text("channel").unwrap_or_default(), text("before"), text("after"));
        let limit = member("limit").and_then(|limit| limit.integer());
        let limits = self.env.settings.limits().clone();
        let name = match ChannelName::parse(&channel, &limits) {
            Ok(name) if name.kind() == ChannelKind::Broadcast && !name.is_pattern() => name,
            Ok(_) => return self.beside().refuse(batch, message, BayeuxError::SubscribeDenied.as_str()),
            Err(error) => return self.beside().refuse(batch, message, error.error()),
        };
        let Some(query) = HistoryQuery::new(before.as_deref(), after.as_deref(), limit) else {
            return self.beside().refuse(batch, message, BayeuxError::ReplayInvalid.as_str());
        };
        let wish = Wish { is_held: self.subscribes(key, name.as_str()), ..Wish::of(name.as_str()) };
        let granted = match self.beside().may(Entry::HistoryService, key, &wish, batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return self.beside().refuse(batch, message, &denial.error()),
            May::Later(later) => return self.beside().ask(batch, message, later, 0),
        };
        let page = self.env.shared.history_page(name.as_str(), granted, &query);
        self.env.count_steps(1 + page.messages);
        self.env.accept(batch, message);
        self.deliver_to(key, &message_frame(HISTORY_SERVICE, &page.json, message.id.as_ref(), Some(true)));
    }
}
