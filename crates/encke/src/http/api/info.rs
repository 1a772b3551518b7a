//! Information about the server.

use super::call::{Answer, Call};
use super::problem::Problem;
use super::types::Info;

pub(super) async fn info(call: &Call<'_>) -> Result<Answer, Problem> {
    let node = &call.connection.node;
    let (server_shared, shard) = (&node.server(), node.shard());
    Ok(Answer::new(&Info {
        name: "encke",
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: server_shared.clock.uptime().as_millis() as u64,
        shards: server_shared.mailboxes.shards(),
        sessions: shard.shared().sessions.count(),
        connections: server_shared.connections.open(),
        draining: shard.is_draining(),
        durable: shard.shared().is_durable,
    }))
}
