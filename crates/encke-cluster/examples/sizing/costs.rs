//! Measured costs, each with the page that has its measurement.

/// A cost that was measured.
pub struct Cost {
    pub what: &'static str,
    /// In `unit`.
    pub value: f64,
    pub unit: &'static str,
    /// The page below `docs`.
    pub source: &'static str,
}

const fn us(what: &'static str, value: f64, source: &'static str) -> Cost {
    Cost { what, value, unit: "µs", source }
}

const fn bytes(what: &'static str, value: f64, source: &'static str) -> Cost {
    Cost { what, value, unit: "bytes", source }
}

pub const SESSION: Cost = bytes("an idle WebSocket session with a separate channel", 1_382.0, "benchmarks/core.md");
pub const TLS: Cost = bytes("TLS of a session at its node, in addition", 3_797.0, "benchmarks/tls.md");
pub const SOCKET: Cost = bytes("the kernel's part of a TCP connection", 4_100.0, "deploying.md");
pub const NODE_SUBSCRIPTION: Cost = bytes("a subscription at NATS, in the node", 5_000.0, "cluster.md");
pub const NATS_SUBSCRIPTION: Cost = bytes("the same, in a NATS server", 1_000.0, "cluster.md");
pub const RECORD: Cost = bytes("a record of 250 bytes in NATS KV, on one disk", 370.0, "benchmarks/nats.md");

pub const DELIVERY: Cost = us("a delivery that is written alone", 7.8, "benchmarks/core.md");
pub const ROUND_TRIP: Cost = us("a message of a client and its reply, alone", 32.1, "benchmarks/core.md");
pub const OPEN: Cost = us("a session opened: connect, upgrade, three messages", 86.0, "benchmarks/opening.md");
pub const TOKEN: Cost = us("a token (EdDSA) checked, in addition", 54.5, "benchmarks/tokens.md");
pub const OPEN_TLS: Cost = us("a full handshake of TLS, in addition", 266.0, "benchmarks/opening.md");
pub const PUBLICATION: Cost =
    us("a publication in the core, on one of a million channels", 2.9, "benchmarks/growth.md");
pub const ENVELOPE_OUT: Cost = us("an envelope sent by a node", 0.56, "benchmarks/nats.md");
pub const ENVELOPE_IN: Cost = us("an envelope that reaches a node", 0.72, "benchmarks/nats.md");
pub const NATS_IN: Cost = us("a message that comes into a NATS server", 0.8, "benchmarks/nats.md");
pub const NATS_OUT: Cost = us("each copy of it that goes out", 0.52, "benchmarks/nats.md");
pub const SUBSCRIBE: Cost = us("a subscription made beside many others, in a NATS server", 5.5, "benchmarks/nats.md");
pub const RECORD_WRITE: Cost =
    us("a pipelined write to NATS KV with three replicas: the pause between two", 83.0, "benchmarks/nats.md");

/// All of them, as a table in Markdown.
pub fn table() -> String {
    let all = [
        SESSION,
        TLS,
        SOCKET,
        NODE_SUBSCRIPTION,
        NATS_SUBSCRIPTION,
        RECORD,
        DELIVERY,
        ROUND_TRIP,
        OPEN,
        TOKEN,
        OPEN_TLS,
        PUBLICATION,
        ENVELOPE_OUT,
        ENVELOPE_IN,
        NATS_IN,
        NATS_OUT,
        SUBSCRIBE,
        RECORD_WRITE,
    ];
    let row = |Cost { what, value, unit, source }: &Cost| {
        let name = source.rsplit('/').next().unwrap_or_default();
        format!("| {what} | {value} {unit} | [{name}]({source}) |\n")
    };
    let rows: String = all.iter().map(row).collect();
    format!("| cost | | measured in |\n| --- | ---: | --- |\n{rows}")
}
