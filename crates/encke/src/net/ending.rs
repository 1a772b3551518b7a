//! The end of a server that keeps its sessions: all shards stand still, mail that is on its way arrives, and what the sessions need
//! to go on is handed out.
//!
//! ```text
//!   Freeze ──▶ every shard: no task runs any more
//!   Settle ──▶ every shard: "I had mail since you asked"  ── until nobody had any
//!   Stop   ──▶ every shard: its sessions
//! ```

use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};

use super::node::{Node, ThreadMessage};
use encke_core::Saved;

/// Freezes all shards, and waits until no mail is on its way between them.
pub(crate) fn freeze(mailboxes: &[mpsc::UnboundedSender<ThreadMessage>]) {
    for mailbox in mailboxes {
        // One that has ended with a panic has nothing to say.
        let _gone = mailbox.send(ThreadMessage::Freeze);
    }
    for _ in 0..SETTLE_ROUNDS_MAX {
        let (answer, answers) = std::sync::mpsc::channel();
        for mailbox in mailboxes {
            let _gone = mailbox.send(ThreadMessage::Settle(answer.clone()));
        }
        drop(answer);
        if !answers.iter().fold(false, |any, had_messages| any | had_messages) {
            return;
        }
    }
    tracing::warn!("mail between shards does not end; what is still on its way is lost");
}

/// Goes on with the mail of a frozen shard until it is told to stop. The first parcels came before the others.
pub(crate) fn finish(
    node: &Node,
    first: Vec<ThreadMessage>,
    mailbox: &mut mpsc::UnboundedReceiver<ThreadMessage>,
) -> Saved {
    let mut first = first.into_iter();
    let mut had_messages = true;
    // What waits for writing to catch up waits for nothing any more.
    node.shard.borrow_mut().take_all_arrivals(node.now());
    node.confirm();
    // What the last events caused before the freeze.
    node.settle();
    loop {
        let thread_message = match first.next() {
            Some(thread_message) => Ok(thread_message),
            None => mailbox.try_recv(),
        };
        match thread_message {
            Ok(ThreadMessage::FromShard(envelope)) => {
                node.shard.borrow_mut().message(node.now(), envelope.message);
                node.settle();
                had_messages = true;
            }
            Ok(ThreadMessage::Published) => {
                let now = node.now();
                node.take_published(|shard, envelope| shard.message(now, envelope.message));
                node.settle();
                had_messages = true;
            }
            // All that it has sent is in the others' mailboxes.
            Ok(ThreadMessage::Settle(answer)) => {
                let _gone = answer.send(std::mem::take(&mut had_messages));
            }
            // Its client finds it closed, and comes again.
            Ok(ThreadMessage::Connection(_) | ThreadMessage::Socket(_) | ThreadMessage::Freeze) => {}
            Ok(ThreadMessage::Stop) | Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => std::thread::sleep(PAUSE),
        }
    }
    node.shard.borrow_mut().save(node.now())
}

/// Mail causes mail: a request a publication, that its record, that its delivery. Deeper than this it does not go.
const SETTLE_ROUNDS_MAX: usize = 32;
/// How long a frozen shard waits for more.
const PAUSE: Duration = Duration::from_micros(200);
