//! The shutdown of a server that saves its sessions: all shards freeze, messages between them arrive, and each shard
//! returns its sessions.
//!
//! ```text
//!   Freeze ──▶ every shard: no task runs any more
//!   Settle ──▶ every shard: "had messages since the last Settle"  ── until no shard had any; then the last changes of
//!              members are published, and settle, too
//!   Stop   ──▶ every shard: returns its sessions
//! ```

use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::net::mailboxes::Mailboxes;
use crate::net::node::Node;
use crate::net::thread_message::ThreadMessage;
use encke_core::Saved;

/// Waits until no message is on its way between frozen shards.
pub(crate) fn settle(mailboxes: &Mailboxes) {
    for _ in 0..SETTLE_ROUNDS_MAX {
        let (answer, answers) = std::sync::mpsc::channel();
        mailboxes.send_to_all(|| ThreadMessage::Settle(answer.clone()));
        drop(answer);
        if !answers.iter().fold(false, |any, had_messages| any | had_messages) {
            return;
        }
    }
    tracing::warn!("shards still send each other messages; messages in transit are lost");
}

/// Processes the messages of a frozen shard until it receives `Stop`. The messages in `first` arrived before those in
/// the mailbox.
pub(crate) fn finish(
    node: &Node,
    first: Vec<ThreadMessage>,
    mailbox: &mut mpsc::UnboundedReceiver<ThreadMessage>,
) -> Saved {
    let mut first = first.into_iter();
    let mut had_messages = true;
    // Arrivals that wait for pending writes need not wait any more: nothing is written.
    node.shard_mut().take_all_arrivals(node.now());
    node.confirm();
    // Effects of the last events before the freeze.
    node.settle();
    take_published(node);
    loop {
        let thread_message = match first.next() {
            Some(thread_message) => Ok(thread_message),
            None => mailbox.try_recv(),
        };
        match thread_message {
            Ok(ThreadMessage::FromShard(envelope)) => {
                node.shard_mut().message(node.now(), envelope.message);
                node.settle();
                had_messages = true;
            }
            // All messages that this shard sent are already in the other mailboxes.
            // The client finds its connection closed and reconnects.
            Ok(ThreadMessage::Settle(answer)) => {
                had_messages |= take_published(node);
                let _gone = answer.send(std::mem::take(&mut had_messages));
            }
            Ok(
                ThreadMessage::Connection(..)
                | ThreadMessage::Socket(_)
                | ThreadMessage::Stream(_)
                | ThreadMessage::Published
                | ThreadMessage::Inspect(_)
                | ThreadMessage::Freeze,
            ) => {}
            Ok(ThreadMessage::Stop) | Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => std::thread::sleep(PAUSE),
        }
    }
    node.shard_mut().save(node.now())
}

/// Processes the publications of handles. False if there were none.
fn take_published(node: &Node) -> bool {
    let now = node.now();
    let had_any = node.take_published(|shard, envelope| shard.message(now, envelope.message));
    node.settle();
    had_any
}

/// Rounds of `Settle`. Messages cause messages: a request causes a publication, that a record, that a delivery. The
/// chain is shorter than this.
const SETTLE_ROUNDS_MAX: usize = 32;
/// The pause of a frozen shard between two looks at its empty mailbox.
const PAUSE: Duration = Duration::from_micros(200);
