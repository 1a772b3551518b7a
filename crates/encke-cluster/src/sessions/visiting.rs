//! Sessions that stay on their node while a client comes to another one: that node serves its WebSocket or stream, by a relay.

use encke_core::{FromNodes, NodeTag, Searcher};

use super::{Output, Sessions};

/// The outcome of a search for a client that wants a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visited {
    /// All that may have the session were asked. It is on this node, or on none.
    Searched,
    /// It stays on this node, to which the stream may be relayed.
    Stays(NodeTag),
    /// The client has to come back later.
    Later,
}

impl Sessions {
    /// Ends a search: the session of a WebSocket or a stream stays on its node.
    pub(super) fn stays(&mut self, now_ms: u64, number: u64, home: NodeTag) {
        let Some(search) = self.searches.remove(number) else { return };
        let session = search.session;
        let followers = self.searches.step_down(number, &search.key);
        match self.searches.give_back(search) {
            Searcher::Socket(socket, _) => self.tell_shard(&session, FromNodes::Relay(socket, home)),
            Searcher::Visitor(visitor, _) => self.outputs.push(Output::Visitor(visitor, Visited::Stays(home))),
            // It is served.
            Searcher::Request { .. } => {}
        }
        for follower in followers {
            self.go_on(now_ms, follower);
        }
    }
}
