//! Replies to publications that wait for the disk and outlive their WebSocket: the session's next connection delivers
//! them.

use bayeux::json::member;

use crate::client::{Awaited, Route, What};
use crate::reading::field;
use crate::world::World;

impl World {
    /// The client waits for nothing on this route any more. Its publications in a history may still be answered.
    pub(crate) fn await_no_more(&mut self, client: usize, route: Route) {
        let World { clients, late, .. } = self;
        clients[client].awaited.retain(|id, awaited| {
            if let (true, Route::Conn(_), What::Publish(number)) = (awaited.route == route, route, &awaited.what) {
                late.extend(awaited.session.map(|session| (*id, (session, *number))));
            }
            awaited.route != route
        });
    }

    /// Takes the reply to a publication whose WebSocket is gone or closing. False for any other reply.
    pub(crate) fn is_late_reply(&mut self, client: usize, route: Route, id: u64, raw: &str) -> bool {
        if self.log.is_none() || !field(raw, "channel").starts_with("/past/") {
            return false;
        }
        let session = self.session_on(route);
        let number = match self.clients[client].awaited.get(&id) {
            Some(Awaited { route: before @ Route::Conn(_), session: of, what: What::Publish(number), .. })
                if *before != route && *of == session =>
            {
                *number
            }
            Some(_) => return false,
            None => match self.late.get(&id) {
                Some((of, number)) if Some(*of) == session => *number,
                _ => return false,
            },
        };
        self.clients[client].awaited.remove(&id);
        self.late.remove(&id);
        if member(raw, "successful") == Some("true") {
            self.checker.confirmed.insert(number);
        }
        self.checker.tally.late_replies += 1;
        true
    }

    /// The session whose messages and replies come on a route.
    pub(crate) fn session_on(&self, route: Route) -> Option<usize> {
        match route {
            Route::Conn(conn) => self.network.conns[conn].session,
            Route::Exchange(exchange) => self.network.exchanges[exchange].session,
        }
    }
}
