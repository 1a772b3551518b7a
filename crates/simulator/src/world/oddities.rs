//! Misbehaviour of clients: garbage, refused requests, and the ids of others.

use encke_core::{ExchangeId, HttpTransport, Request};

use crate::client::{Awaited, Route, What, odd};
use crate::exchange::{Exchange, State};
use crate::network::Up;
use crate::script::Transport;
use crate::world::World;

impl World {
    /// A client does something that no well-behaved client does.
    pub(super) fn do_something_odd(&mut self, client: usize) {
        match self.rng.below(8) {
            0 => self.send_garbage(client),
            1 => {
                let (channel, fields) = self.rng.pick(&REFUSED);
                self.send(client, vec![odd(channel, fields)]);
            }
            2 => self.break_the_protocol(client),
            3 => self.use_a_foreign_id(client),
            4 => self.shake_hands_again(client),
            5 => {
                let Some(session) = self.clients[client].session() else { return };
                let messages = vec![
                    odd("/meta/subscribe", ",\"subscription\":[\"/forbidden/x\",\"/a\"]"),
                    self.publication(client, session),
                    odd("/a/../b\\\"", ",\"data\":null"),
                ];
                self.send(client, messages);
            }
            6 => self.pretend_to_connect(client),
            _ => {
                let (channel, fields) = self.rng.pick(&REFUSED);
                let (other, more) = self.rng.pick(&REFUSED);
                self.send(client, vec![odd(channel, fields), odd(other, more)]);
            }
        }
    }

    /// Text that is not a batch: it gets an error without an id.
    fn send_garbage(&mut self, client: usize) {
        let garbage = match self.rng.below(3) {
            0 => {
                let mut bytes = vec![0; self.rng.below(40)];
                self.rng.fill(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => self.rng.pick(&GARBAGE).to_owned(),
        };
        match (self.clients[client].conn, self.clients[client].transport) {
            (Some(conn), Transport::WebSocket) => {
                self.clients[client].nameless += 1;
                self.network.conns[conn].up.push_back(Up::Text(garbage, None));
            }
            (_, Transport::LongPolling) if self.may_send(client, false) => {
                self.clients[client].nameless += 1;
                self.post(client, None, garbage, Vec::new(), false);
            }
            _ => {}
        }
    }

    /// Bytes for which a server must fail the connection.
    fn break_the_protocol(&mut self, client: usize) {
        if let Some(conn) = self.clients[client].conn {
            self.network.conns[conn].up.push_back(Up::Violation);
            self.lose_sight(client);
        }
    }

    /// A client knows, or guesses, the client ids of others.
    fn use_a_foreign_id(&mut self, client: usize) {
        if self.checker.sessions.is_empty() {
            return;
        }
        let shard = self.rng.below(self.shards.len());
        if self.rng.chance(500) {
            let conn = self.network.open(client, shard, self.scenario.kernel_bytes, None);
            self.clients[client].old_conns.push(conn);
            // The socket moves from shard to shard, with replies still to be written.
            for _ in 0..=self.rng.below(4) {
                let (text, _) = self.theft(client, Route::Conn(conn));
                self.network.conns[conn].up.push_back(Up::Text(text, None));
            }
            return;
        }
        let number = self.network.exchanges.len();
        let (body, id) = self.theft(client, Route::Exchange(number));
        let exchange = ExchangeId { shard: shard as u16, number: number as u64 };
        let request = Request {
            exchange,
            transport: HttpTransport::LongPolling,
            browser: None,
            peer: encke_core::Peer::default(),
            head: None,
            body: body.clone(),
            searched: encke_core::Searched::Nobody,
        };
        self.network.request(Exchange {
            client,
            session: None,
            transport: Transport::LongPolling,
            ids: vec![id],
            connects: true,
            sign_of_life: false,
            body,
            state: State::Sent(Box::new(request)),
            client_waits: true,
            shard,
            read_ms: 0,
        });
    }

    /// A message with the id of a session that the sender may not use. It has to be refused.
    fn theft(&mut self, client: usize, route: Route) -> (String, u64) {
        let session = self.rng.below(self.checker.sessions.len());
        let victim = &self.checker.sessions[session];
        let mut stolen = victim.text.clone();
        // Any client that knows the id of a session that no browser opened may use it, and so may a program's
        // WebSocket without a cookie: in these cases the id is only guessed, and wrong.
        let bare = matches!(route, Route::Conn(conn) if self.network.conns[conn].browser.is_none());
        let protected =
            victim.cookie && !bare && !self.scenario.settings.iter().any(|settings| settings.trust_client_session);
        if !protected || self.rng.chance(500) {
            let last = if stolen.ends_with('0') { '1' } else { '0' };
            stolen.pop();
            stolen.push(last);
        }
        let (channel, fields) = self.rng.pick(&THEFTS);
        self.message_ids += 1;
        let id = self.message_ids;
        self.clients[client].awaited.insert(id, Awaited { route, session: None, owed: true, what: What::Odd });
        (format!("[{{\"channel\":\"{channel}\",\"id\":\"{id}\",\"clientId\":\"{stolen}\"{fields}}}]"), id)
    }

    /// Opens a new session while the old one lives: the old one is left to expire.
    fn shake_hands_again(&mut self, client: usize) {
        let Some(session) = self.clients[client].session() else { return };
        if !self.may_send(client, false) {
            return;
        }
        self.lose_sight(client);
        self.abandon(client, session);
        let state = &mut self.clients[client];
        state.next_ms = self.now.ms;
        // On a WebSocket that stays, requests of the old session are still answered.
        for awaited in state.awaited.values_mut() {
            let stays = state.conn.is_some_and(|conn| awaited.route == Route::Conn(conn));
            awaited.owed |= stays && matches!(awaited.what, What::Publish(_));
        }
    }

    /// An invalid connect in the batch of a living session.
    fn pretend_to_connect(&mut self, client: usize) {
        let Some(session) = self.clients[client].session() else { return };
        let publication = self.publication(client, session);
        self.send(client, vec![publication, odd("/meta/connect", ",\"clientId\":\"nobody\"")]);
    }
}

/// Texts that are not batches.
const GARBAGE: [&str; 7] = ["", "[]", "[1]", "{\"channel\":", "nonsense", "[[]]", "[{\"channel\":\"/a\"},]"];
/// Messages that are refused.
const REFUSED: [(&str, &str); 10] = [
    ("/meta/subscribe", ",\"subscription\":\"/meta/connect\""),
    ("/meta/subscribe", ",\"subscription\":\"/meta/**\""),
    ("/meta/subscribe", ",\"subscription\":{}"),
    ("/meta/subscribe", ""),
    ("/meta/unsubscribe", ",\"subscription\":\"/meta/connect\""),
    ("/meta/nonsense", ",\"data\":{}"),
    ("no/slash", ",\"data\":1"),
    ("/a", ",\"ext\":7,\"data\":1"),
    ("/a//b", ",\"data\":1"),
    ("/service/nothing", ",\"data\":[],\"channel\":\"/meta/disconnectx\""),
];
/// Requests that misuse the id of another.
const THEFTS: [(&str, &str); 4] = [
    ("/meta/connect", ",\"connectionType\":\"long-polling\""),
    ("/meta/disconnect", ""),
    ("/meta/subscribe", ",\"subscription\":\"/**\""),
    ("/a", ",\"data\":{\"k\":0,\"forged\":true}"),
];
