//! Nodes, NATS servers and their loads for a number of sessions, computed from measured costs.
//!
//! A *cell* is a set of nodes with NATS servers that know each other all. The NATS servers of several cells are leaves of a hub. Rooms have
//! members in all cells; what is for one session alone is published in its cell.

use super::costs;

/// The machine of a node, and the one of a NATS server.
const CORES: f64 = 4.0;
const NODE_GIB: f64 = 16.0;
const NATS_GIB: f64 = 64.0;
/// The part of a machine that is planned with.
const PLANNED: f64 = 0.5;
/// The sessions of a node after the loss of a zone, at most: all of them come back when the node is lost, too.
const NODE_SESSIONS_MAX: f64 = 500_000.0;
const ZONES: f64 = 3.0;
const CELLS: [f64; 7] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const MESH_SERVERS_MAX: u32 = 100;
/// The behaviour of each session.
const ROOMS_PER_SESSION: f64 = 2.0;
const ROOM_MEMBERS: f64 = 100.0;
const CONNECT_EVERY_S: f64 = 20.0;
const SESSION_LIFE_S: f64 = 3_600.0;

const US: f64 = 1e-6;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// The traffic of an application.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub name: &'static str,
    /// Messages of rooms that a session gets in a second.
    pub room_messages: f64,
    /// Messages on the channel of a session alone, in a second.
    pub private_messages: f64,
}

pub const CALM: Traffic = Traffic { name: "calm", room_messages: 0.1, private_messages: 0.01 };
pub const BUSY: Traffic = Traffic { name: "busy", room_messages: 1.0, private_messages: 0.1 };

/// A cluster, as it is asked for.
#[derive(Clone, Copy)]
struct Asked {
    sessions: f64,
    traffic: Traffic,
    /// See `shared_from` in `[cluster]`. Rooms have one parent, and the channels of single sessions another one.
    shared_from: f64,
}

/// The default of `shared_from`, and one that lets nothing be shared.
const SHARED_FROM: [f64; 2] = [4_096.0, 1e9];
const SESSIONS: [f64; 3] = [1e6, 1e7, 1e8];

/// The part of the nodes that want a channel with so many subscribers, each on a random node.
pub fn part_that_wants(subscribers: f64, nodes: f64) -> f64 {
    1.0 - (1.0 - 1.0 / nodes).powf(subscribers)
}

impl Asked {
    /// Publications in rooms, a second.
    fn room_publications(&self) -> f64 {
        self.sessions * self.traffic.room_messages / ROOM_MEMBERS
    }

    fn rooms(&self) -> f64 {
        self.sessions * ROOMS_PER_SESSION / ROOM_MEMBERS
    }

    fn interest(&self, cells: f64, nodes: f64) -> Interest {
        let (all_nodes, others) = (nodes * cells, |nodes: f64| 1.0 - 1.0 / nodes);
        let wants = part_that_wants(ROOM_MEMBERS, all_nodes);
        let publications = self.room_publications() * others(all_nodes);
        let private = self.sessions / cells * self.traffic.private_messages * others(nodes);
        let (rooms, own) = (self.rooms() * wants, self.sessions / all_nodes);
        let shares_private = own > self.shared_from;
        let of_rooms = if rooms > self.shared_from { (publications, 1.0) } else { (publications * wants, rooms) };
        let of_private = if shares_private { (private, 1.0) } else { (private / nodes, own) };
        let envelopes = of_rooms.0 + of_private.0;
        Interest {
            envelopes,
            unwanted: (envelopes - publications * wants - private / nodes).max(0.0),
            subscriptions: of_rooms.1 + of_private.1,
            shares_private,
        }
    }

    /// The load of one of `nodes` nodes of each cell.
    fn node(&self, cells: f64, nodes: f64) -> NodeLoad {
        let sessions = self.sessions / cells / nodes;
        let Interest { envelopes, unwanted, subscriptions, .. } = self.interest(cells, nodes);
        let Traffic { room_messages, private_messages, .. } = self.traffic;
        let publications = sessions * (room_messages / ROOM_MEMBERS + private_messages);
        let us = sessions * (room_messages + private_messages) * costs::DELIVERY.value
            + (sessions / CONNECT_EVERY_S + publications) * costs::ROUND_TRIP.value
            + sessions / SESSION_LIFE_S * (costs::OPEN.value + costs::TOKEN.value)
            + publications * costs::ENVELOPE_OUT.value
            + envelopes * costs::ENVELOPE_IN.value
            + (envelopes - unwanted) * costs::PUBLICATION.value;
        let bytes =
            sessions * (costs::SESSION.value + costs::SOCKET.value) + subscriptions * costs::NODE_SUBSCRIPTION.value;
        NodeLoad { sessions, cores: us * US, gib: bytes / GIB }
    }

    /// The plan with so many cells, if it fits into the machines.
    fn plan(&self, cells: f64) -> Option<Plan> {
        let after_loss = |nodes: f64| self.node(cells, nodes * (1.0 - 1.0 / ZONES));
        let fits = |load: NodeLoad| {
            load.sessions <= NODE_SESSIONS_MAX && load.cores <= CORES * PLANNED && load.gib <= NODE_GIB * PLANNED
        };
        let nodes = (1..1_000).map(|times| f64::from(times) * ZONES).find(|nodes| fits(after_loss(*nodes)))?;
        let interest = self.interest(cells, nodes);
        let private = self.sessions / cells * self.traffic.private_messages;
        let spread = Spread { rooms: self.room_publications(), private, shares_private: interest.shares_private };
        let cell = Nats::of(&spread, interest.envelopes * nodes, interest.subscriptions * nodes)?;
        let hub = if cells > 1.0 { self.hub(cells)? } else { Nats::NONE };
        Some(Plan { asked: *self, cells, nodes, interest, after_loss: after_loss(nodes), cell, hub })
    }

    /// The hub between cells: it carries what is published in rooms, to the cells that want it.
    fn hub(&self, cells: f64) -> Option<Nats> {
        let wants = part_that_wants(ROOM_MEMBERS, cells);
        let rooms = self.rooms() * wants;
        let subscriptions = cells * if rooms > self.shared_from { 1.0 } else { rooms };
        let spread = Spread { rooms: self.room_publications(), private: 0.0, shares_private: false };
        Nats::of(&spread, spread.rooms * wants * (cells - 1.0), subscriptions)
    }

    /// The plan with the fewest machines.
    fn best(&self) -> Option<Plan> {
        CELLS
            .iter()
            .filter_map(|cells| self.plan(*cells))
            .min_by(|one, other| one.machines().total_cmp(&other.machines()))
    }
}

/// Envelopes that reach a node in a second, and the subscriptions that bring them. None comes back to the node that has sent it.
#[derive(Clone, Copy)]
struct Interest {
    envelopes: f64,
    unwanted: f64,
    subscriptions: f64,
    /// True if one subscription brings the channels of all single sessions.
    shares_private: bool,
}

#[derive(Clone, Copy)]
struct NodeLoad {
    sessions: f64,
    cores: f64,
    gib: f64,
}

/// Publications that come to the NATS servers of a cell in a second.
struct Spread {
    /// Nodes at all servers want them.
    rooms: f64,
    private: f64,
    /// True if nodes at all servers get them.
    shares_private: bool,
}

/// NATS servers that know each other all, and their load together.
struct Nats {
    servers: f64,
    cores: f64,
    /// Interest in each of them.
    gib: f64,
}

impl Nats {
    const NONE: Nats = Nats { servers: 0.0, cores: 0.0, gib: 0.0 };

    /// As many servers as publications and their copies to nodes need, if a mesh may have so many.
    fn of(spread: &Spread, copies: f64, subscriptions: f64) -> Option<Nats> {
        let gib = subscriptions * costs::NATS_SUBSCRIPTION.value / GIB;
        let Spread { rooms, private, shares_private } = *spread;
        let cores = |servers: f64| {
            let private_hops = if shares_private { servers - 1.0 } else { 1.0 - 1.0 / servers };
            let hops = rooms * (servers - 1.0) + private * private_hops;
            let incoming = (rooms + private + hops) * costs::NATS_IN.value;
            (incoming + (copies + hops) * costs::NATS_OUT.value) * US
        };
        let fits = |servers: &f64| cores(*servers) <= servers * CORES * PLANNED;
        let servers = (ZONES as u32..=MESH_SERVERS_MAX).map(f64::from).find(fits)?;
        (gib <= NATS_GIB * PLANNED).then(|| Nats { servers, cores: cores(servers), gib })
    }
}

/// A cluster that fits.
struct Plan {
    asked: Asked,
    cells: f64,
    /// The same for each cell.
    nodes: f64,
    interest: Interest,
    /// The load of a node when a zone is lost.
    after_loss: NodeLoad,
    cell: Nats,
    hub: Nats,
}

impl Plan {
    fn nats_servers(&self) -> f64 {
        self.cell.servers * self.cells + self.hub.servers
    }

    fn machines(&self) -> f64 {
        self.nodes * self.cells + self.nats_servers()
    }

    /// Its figures, in the order of [`ROWS`].
    fn figures(&self) -> Vec<String> {
        let Plan { asked, cells, nodes, interest, after_loss, cell, hub } = self;
        let sessions = asked.sessions / (nodes * cells);
        let back = after_loss.sessions - sessions;
        let open = costs::OPEN.value + costs::TOKEN.value;
        let subscriptions_of_one = f64::from(u8::from(!interest.shares_private));
        let seconds = |cost_us: f64| back * cost_us * US / (CORES - after_loss.cores);
        vec![
            number(*cells),
            number(nodes * cells),
            number(sessions),
            decimal(after_loss.gib),
            decimal(after_loss.gib + after_loss.sessions * costs::TLS.value / GIB),
            decimal(after_loss.cores),
            number(interest.subscriptions),
            number(interest.envelopes),
            format!("{:.0} %", 100.0 * interest.unwanted / interest.envelopes),
            number(self.nats_servers()),
            decimal(cell.cores * cells + hub.cores),
            decimal(cell.gib.max(hub.gib)),
            number(back),
            decimal(seconds(open)),
            decimal(seconds(open + costs::OPEN_TLS.value)),
            decimal(back * nodes * (1.0 - 1.0 / ZONES) * subscriptions_of_one * costs::SUBSCRIBE.value * US),
        ]
    }
}

/// The names of the figures of a plan.
const ROWS: [&str; 16] = [
    "cells",
    "nodes of 4 cores and 16 GiB",
    "sessions of each",
    "its memory when a zone is lost, GiB",
    "the same with TLS at the node, GiB",
    "its cores in use then, of 4",
    "its subscriptions at NATS",
    "envelopes that reach it, a second",
    "of these, nobody there wants",
    "NATS servers of 4 cores and 64 GiB, with the hub",
    "cores in use of all of them",
    "interest in one of them, GiB",
    "a zone is lost: sessions that come to each node",
    "seconds until it has opened them",
    "the same with TLS at the node",
    "seconds of a core of each NATS server for their channels",
];

/// The plans for some traffic, as a table in Markdown.
pub fn table(traffic: Traffic) -> String {
    let asked = SESSIONS.map(|sessions| SHARED_FROM.map(|shared_from| Asked { sessions, traffic, shared_from }));
    let columns: Vec<_> = asked.iter().flatten().map(|asked| asked.best().map(|plan| plan.figures())).collect();
    let names = SESSIONS.map(|sessions| format!(" {0} million, shared | {0} million, single |", sessions / 1e6));
    let mut text = format!("| {} |{}\n| --- |{}\n", traffic.name, names.concat(), " ---: |".repeat(columns.len()));
    for (index, row) in ROWS.iter().enumerate() {
        let cells = columns.iter().map(|column| column.as_ref().map_or("does not fit", |column| &column[index]));
        let cells: String = cells.map(|cell| format!(" {cell} |")).collect();
        text.push_str(&format!("| {row} |{cells}\n"));
    }
    text
}

/// The records of sessions in NATS KV, as a table in Markdown: a write when a session begins, and one when it ends.
pub fn records_table() -> String {
    let names: String = SESSIONS.iter().map(|sessions| format!(" {} million |", sessions / 1e6)).collect();
    let row = |name: &str, figure: &dyn Fn(f64) -> String| {
        let cells: String = SESSIONS.iter().map(|sessions| format!(" {} |", figure(*sessions))).collect();
        format!("| {name} |{cells}\n")
    };
    let size = row("on each disk, GiB", &|sessions| decimal(sessions * costs::RECORD.value / GIB));
    let writes = row("writes, a second", &|sessions| number(2.0 * sessions / SESSION_LIFE_S));
    let busy = |sessions: f64| 2.0 * sessions / SESSION_LIFE_S * costs::RECORD_WRITE.value * US;
    let part = row("of what one bucket takes", &|sessions| format!("{:.0} %", 100.0 * busy(sessions)));
    let lost = row("a zone is lost: seconds to write the records of its sessions again, one bucket", &|sessions| {
        number(sessions / ZONES * costs::RECORD_WRITE.value * US)
    });
    let rules = " ---: |".repeat(SESSIONS.len());
    format!("| records of sessions |{names}\n| --- |{rules}\n{size}{writes}{part}{lost}")
}

/// A whole number with commas.
pub fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn decimal(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { number(value) }
}
