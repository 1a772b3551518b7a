//! Requests of clients.

use bayeux::ext::PositionForm;
use encke_core::{ExchangeId, HttpTransport, Peer, Request, Searched};

use super::checker::Published;
use super::client::{Asked, Client, LIVE, PAST, Purpose, has_history};
use super::node::Input;
use super::{Cluster, Fate, What};

impl Cluster {
    /// A client does something, if no request of it is under way.
    pub(super) fn act(&mut self, client: usize) {
        if self.clients[client].asked.is_some() {
            return;
        }
        let Some(node) = self.some_node(client) else {
            // Nobody serves: its session may have no node.
            self.clients[client].broken_ms = self.now_ms;
            return self.act_later(client, 500);
        };
        let purpose = self.purpose(client);
        let body = self.body(client, &purpose);
        self.exchanges += 1;
        let (exchange, shard) = (self.exchanges, self.rng.below(self.plan.shards) as u16);
        let life = self.nodes[node].life;
        self.note(|_| format!("client {client} sends request {exchange} to node {node}: {body}"));
        self.clients[client].asked = Some(Asked { exchange, node, life, shard, sent_ms: self.now_ms, purpose });
        let request = Request {
            exchange: ExchangeId { shard, number: exchange },
            transport: HttpTransport::LongPolling,
            browser: self.clients[client].browser,
            peer: Peer::default(),
            head: None,
            body,
            searched: Searched::Nobody,
        };
        self.give(node, shard.into(), Input::Request(Box::new(request)));
        self.at(self.now_ms + REQUEST_MS, What::GiveUp(client, exchange));
    }

    pub(super) fn act_later(&mut self, client: usize, most_ms: u64) {
        let at_ms = self.now_ms + self.rng.between(0, most_ms);
        self.at(at_ms, What::Act(client));
    }

    /// The node to which the balancer sends a client.
    fn some_node(&mut self, client: usize) -> Option<usize> {
        let all: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].serves()).collect();
        let preferred = self.clients[client].prefers.map(|node| node % self.nodes.len());
        match preferred.filter(|node| all.contains(node)) {
            Some(node) if self.rng.chance(900) => Some(node),
            _ => (!all.is_empty()).then(|| self.rng.pick(&all)),
        }
    }

    fn purpose(&mut self, client: usize) -> Purpose {
        let (now_ms, heals) = (self.now_ms, self.heals);
        let state = &mut self.clients[client];
        if state.session.is_none() {
            return Purpose::Handshake;
        }
        let missing: Vec<&'static str> =
            state.wanted.iter().filter(|name| !state.granted.contains_key(*name)).copied().collect();
        if !missing.is_empty() {
            let count = 1 + self.rng.below(missing.len());
            return Purpose::Subscribe(missing[..count].to_vec());
        }
        if heals {
            return Purpose::Connect;
        }
        if self.rng.chance(2) {
            return Purpose::Disconnect;
        }
        if self.rng.chance(15)
            && let Some(name) = self.changed_name(client)
        {
            return name;
        }
        let state = &self.clients[client];
        if now_ms >= state.publishes_ms && self.rng.chance(self.plan.publishes) {
            return Purpose::Publish(self.new_publication(client));
        }
        Purpose::Connect
    }

    /// A client subscribes to something else, or no more.
    fn changed_name(&mut self, client: usize) -> Option<Purpose> {
        let state = &mut self.clients[client];
        let all: Vec<&'static str> = PAST.into_iter().chain(LIVE).collect();
        let name = self.rng.pick(&all);
        if state.wanted.insert(name) {
            return Some(Purpose::Subscribe(vec![name]));
        }
        if state.wanted.len() > 1 && !(state.kind.replays() && has_history(name)) {
            state.wanted.remove(name);
            return Some(Purpose::Unsubscribe(name));
        }
        None
    }

    fn new_publication(&mut self, client: usize) -> usize {
        let all: Vec<&'static str> = PAST.into_iter().chain(LIVE).collect();
        let channel = self.rng.pick(&all);
        let pause_ms = self.rng.pick(&[0, 50, 300, 2_000]);
        self.clients[client].publishes_ms = self.now_ms + self.rng.between(0, pause_ms);
        let stream = self.checker.streams[client];
        self.checker.publications.push(Published {
            channel,
            stream: (client, stream),
            sent_ms: self.now_ms,
            ..Published::default()
        });
        self.checker.publications.len() - 1
    }

    fn body(&mut self, client: usize, purpose: &Purpose) -> String {
        let state = &self.clients[client];
        let id = state.session.map(|id| format!(",\"clientId\":\"{id}\"")).unwrap_or_default();
        match purpose {
            Purpose::Handshake => {
                let ack = state.kind.acknowledges().then(|| "\"ack\":true".to_owned());
                let replay = state.kind.replays().then(|| format!("\"replay\":{}", PositionForm::Ext.offer()));
                let ext: Vec<String> = ack.into_iter().chain(replay).collect();
                let ext = if ext.is_empty() { String::new() } else { format!(",\"ext\":{{{}}}", ext.join(",")) };
                let fixed = "\"version\":\"1.0\",\"supportedConnectionTypes\":[\"long-polling\"]";
                format!("[{{\"channel\":\"/meta/handshake\",\"id\":\"1\",{fixed}{ext}}}]")
            }
            Purpose::Subscribe(names) => {
                let ext = positions(state, names);
                let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                let names = names.join(",");
                format!("[{{\"channel\":\"/meta/subscribe\",\"id\":\"1\"{id},\"subscription\":[{names}]{ext}}}]")
            }
            Purpose::Unsubscribe(name) => {
                format!("[{{\"channel\":\"/meta/unsubscribe\",\"id\":\"1\"{id},\"subscription\":\"{name}\"}}]")
            }
            Purpose::Publish(number) => {
                let channel = self.checker.publications[*number].channel;
                format!("[{{\"channel\":\"{channel}\",\"id\":\"1\"{id},\"data\":{{\"k\":{number},\"t\":1}}}}]")
            }
            Purpose::Connect => {
                let ext = state.ack.map(|ack| format!(",\"ext\":{{\"ack\":{ack}}}")).unwrap_or_default();
                let is_short = self.clients[client].granted.len() < self.clients[client].wanted.len()
                    || (!self.heals && self.rng.chance(300));
                let advice = if is_short { ",\"advice\":{\"timeout\":200}" } else { "" };
                let fixed = "\"connectionType\":\"long-polling\"";
                format!("[{{\"channel\":\"/meta/connect\",\"id\":\"1\"{id},{fixed}{advice}{ext}}}]")
            }
            Purpose::Disconnect => format!("[{{\"channel\":\"/meta/disconnect\",\"id\":\"1\"{id}}}]"),
        }
    }

    /// A client has waited for long enough.
    pub(super) fn give_up(&mut self, client: usize, exchange: u64) {
        let Some(asked) = self.clients[client].asked.clone().filter(|asked| asked.exchange == exchange) else { return };
        self.note(|_| format!("client {client} gives up its request {exchange}"));
        self.abandon(&asked);
        if let Purpose::Unsubscribe(name) = asked.purpose {
            self.clients[client].unsure.insert(name);
        }
        self.failed(client, &asked.purpose);
    }

    /// A node learns that nobody waits for a response.
    pub(super) fn abandon(&mut self, asked: &Asked) {
        if self.nodes[asked.node].life == asked.life {
            let exchange = ExchangeId { shard: asked.shard, number: asked.exchange };
            self.report_fate(asked.node, exchange, Fate::Abandoned);
        }
    }
}

/// The `ext` of a subscribe: the positions of a client that replays.
fn positions(client: &Client, names: &[&'static str]) -> String {
    if !client.kind.replays() {
        return String::new();
    }
    let position = |name: &&&str| {
        let track = client.tracks.get(**name)?;
        let id = track.next.checked_sub(1)?;
        Some(format!("\"{name}\":{{\"id\":{id},\"epoch\":\"{}\"}}", track.epoch))
    };
    let all: Vec<String> = names.iter().filter_map(|name| position(&name)).collect();
    format!(",\"ext\":{{\"replay\":{{{}}}}}", all.join(","))
}

/// The time after which a client gives up a request, in milliseconds.
const REQUEST_MS: u64 = 10_000;
