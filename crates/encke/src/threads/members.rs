//! Presence over all nodes of a cluster: a task that lets the other nodes know what this one follows, and reports to those that follow
//! it.

use std::sync::Arc;
use std::time::Duration;

use encke_cluster::Callee;
use encke_core::Settings;
use encke_local::ToFollow;
use tokio::time::timeout;

use crate::cluster::commands::{NodeCommand, NodeReply};
use crate::net::server_shared::ServerShared;
use crate::presence::ForNodes;

/// Runs until the server has stopped.
pub(crate) async fn run(server: Arc<ServerShared>, settings: impl Fn() -> Arc<Settings>) {
    while let Some(pause) = turn(&server, &settings()) {
        _ = timeout(pause, server.presence.to_nodes.notified()).await;
    }
}

/// Does what has to be done now. Returns the time until the next turn; None if the server has stopped.
fn turn(server: &Arc<ServerShared>, settings: &Settings) -> Option<Duration> {
    let link = server.cluster.as_ref()?;
    if server.presence.is_stopped() {
        return None;
    }
    let (own, now) = (link.nodes().0, server.clock.now());
    let ForNodes { follows, reports, next_ms } = server.presence.for_nodes(link.others().as_deref(), now, settings);
    for ToFollow { node, stream, names, page } in follows {
        let command = NodeCommand::FollowMembers { node: own, stream, names, page };
        send(server, node, command, move |server, is_taken| {
            if server.presence.followed(node, stream, is_taken, server.clock.now()) {
                tracing::warn!(node, "a node does not report its members; it is asked again each second");
            }
        });
    }
    for (node, stream, report) in reports {
        let command = NodeCommand::ReportMembers { node: own, stream, report };
        send(server, node, command, move |server, is_taken| server.presence.reported(node, stream, is_taken));
    }
    let pause_ms = next_ms.map_or(LOOK_MS, |next_ms| next_ms.saturating_sub(now.ms).clamp(1, LOOK_MS));
    Some(Duration::from_millis(pause_ms))
}

/// Sends a command to a node, and calls `done` with true when the node has done it, or with false.
fn send(
    server: &Arc<ServerShared>,
    node: u64,
    command: NodeCommand,
    done: impl FnOnce(&ServerShared, bool) + Send + 'static,
) {
    let (server, Some(link)) = (server.clone(), server.cluster.clone()) else { return };
    server.application.clone().spawn(async move {
        let replies = link.command(Callee::Node(node), &command).await.unwrap_or_default().replies;
        done(&server, replies.iter().any(|(_, reply)| matches!(reply, NodeReply::Count(_))));
    });
}

/// The longest pause between two looks at the nodes that are there, in milliseconds.
const LOOK_MS: u64 = 1_000;
