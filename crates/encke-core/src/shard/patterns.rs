//! Patterns that a session replays page by page.

use bayeux::ChannelName;
use bayeux::channel::overlap;
use bayeux::ext::ReplayFrom;

use crate::events::SessionKey;
use crate::protocol::replay_request::ReplayRequest;
use crate::shard::Machines;

impl Machines {
    /// Begins at the next channels of a pattern that a session replays. Returns true if it has, or if none is left.
    pub(super) fn begin_page(&mut self, key: SessionKey) -> bool {
        let Some(page) = self.delivery.next_page(key) else { return false };
        let mut request = ReplayRequest::page(page.since_ms);
        let mut begins = |channel: &str| {
            // It may have unsubscribed meanwhile.
            if !self.channels.receives(key.index, channel) {
                return true;
            }
            let is_retained = page.with_retained && self.env.settings.retains(ChannelName::known(channel));
            let from = if is_retained { &ReplayFrom::Last(1) } else { &page.from };
            self.begin(key, channel, from, page.new, &mut request)
        };
        let begun = page.channels.iter().take_while(|channel| begins(channel)).count();
        if let Some(withdrawn) = request.begun.take_withdrawn() {
            self.delivery.withdraw(key, withdrawn);
        }
        self.delivery.end_page(key, &page, begun);
        begun > 0 || page.channels.is_empty()
    }

    /// Ends the replay of a pattern that a session does not subscribe to any more. It goes on for another subscription that may
    /// get messages of the same channels: the fan-out has left them to the pages.
    pub(super) fn forget_pattern(&mut self, key: SessionKey, pattern: ChannelName<'_>) {
        let is_shared = self.channels.names_of(key.index).any(|other| overlap(other, pattern.as_str()));
        self.delivery.end_pattern(key, pattern.as_str(), is_shared);
    }
}
