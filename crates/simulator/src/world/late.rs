//! Replies to messages that wait for a history, the disk or the application, and outlive their WebSocket: the session's next
//! connection delivers them.

use bayeux::json::member;

use crate::client::{Awaited, Route, What};
use crate::texts::field;
use crate::world::World;

impl World {
    /// The client waits for nothing on this route any more. Its publications in a history may still be answered.
    pub(super) fn await_no_more(&mut self, client: usize, route: Route) {
        let World { clients, late, .. } = self;
        clients[client].awaited.retain(|id, awaited| {
            let number = match &awaited.what {
                What::Publish(number) => Some(*number),
                What::Connect | What::Handshake => return awaited.route != route,
                _ => None,
            };
            if awaited.route == route && matches!(route, Route::Conn(_)) {
                late.extend(awaited.session.map(|session| (*id, (session, number))));
            }
            awaited.route != route
        });
    }

    /// Takes the reply to a publication whose WebSocket is gone or closing. False for any other reply.
    pub(super) fn is_late_reply(&mut self, client: usize, route: Route, id: u64, raw: &str) -> bool {
        // A client that replays gets its position with the reply.
        let waits = self.log.is_some() || self.clients[client].follower.is_some();
        let waits_for_history = waits && field(raw, "channel").starts_with("/past/");
        if !waits_for_history && self.scenario.lateness == 0 {
            return false;
        }
        let session = self.session_on(route);
        let number = match self.clients[client].awaited.get(&id) {
            Some(Awaited { route: before @ Route::Conn(_), session: of, what, .. })
                if *before != route && *of == session =>
            {
                if let What::Publish(number) = what {
                    Some(*number)
                } else {
                    None
                }
            }
            Some(_) => return false,
            None => match self.late.get(&id) {
                Some((of, number)) if Some(*of) == session => *number,
                _ => return false,
            },
        };
        self.clients[client].awaited.remove(&id);
        self.late.remove(&id);
        if let Some(number) = number.filter(|_| member(raw, "successful") == Some("true")) {
            self.checker.confirmed.insert(number);
        }
        self.checker.tally.late_replies += 1;
        true
    }

    /// The session whose messages and replies come on a route.
    pub(super) fn session_on(&self, route: Route) -> Option<usize> {
        match route {
            Route::Conn(conn) => self.network.conns[conn].session,
            Route::Exchange(exchange) => self.network.exchanges[exchange].session,
        }
    }
}
