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

use super::node::{Node, Parcel};
use encke_core::Saved;

/// Freezes all shards, and waits until no mail is on its way between them.
pub(crate) fn freeze(mailboxes: &[mpsc::UnboundedSender<Parcel>]) {
    for mailbox in mailboxes {
        // One that has ended with a panic has nothing to say.
        let _gone = mailbox.send(Parcel::Freeze);
    }
    for _ in 0..SETTLE_ROUNDS_MAX {
        let (answer, answers) = std::sync::mpsc::channel();
        for mailbox in mailboxes {
            let _gone = mailbox.send(Parcel::Settle(answer.clone()));
        }
        drop(answer);
        if !answers.iter().fold(false, |any, had_mail| any | had_mail) {
            return;
        }
    }
    tracing::warn!("mail between shards does not end; what is still on its way is lost");
}

/// Goes on with the mail of a frozen shard until it is told to stop. The first parcels came before the others.
pub(crate) fn finish(node: &Node, first: Vec<Parcel>, mailbox: &mut mpsc::UnboundedReceiver<Parcel>) -> Saved {
    let mut first = first.into_iter();
    let mut had_mail = true;
    // What waits for writing to catch up waits for nothing any more.
    node.shard.borrow_mut().take_all_arrivals(node.now());
    node.confirm();
    // What the last events caused before the freeze.
    node.settle();
    loop {
        let parcel = match first.next() {
            Some(parcel) => Ok(parcel),
            None => mailbox.try_recv(),
        };
        match parcel {
            Ok(Parcel::Mail(envelope)) => {
                node.shard.borrow_mut().mail(node.now(), envelope.mail);
                node.settle();
                had_mail = true;
            }
            Ok(Parcel::Published) => {
                let now = node.now();
                node.take_published(|shard, envelope| shard.mail(now, envelope.mail));
                node.settle();
                had_mail = true;
            }
            // All that it has sent is in the others' mailboxes.
            Ok(Parcel::Settle(answer)) => {
                let _gone = answer.send(std::mem::take(&mut had_mail));
            }
            // Its client finds it closed, and comes again.
            Ok(Parcel::Connection(_) | Parcel::Socket(_) | Parcel::Freeze) => {}
            Ok(Parcel::Stop) | Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => std::thread::sleep(PAUSE),
        }
    }
    node.shard.borrow_mut().save(node.now())
}

/// Mail causes mail: a request a publication, that its record, that its delivery. Deeper than this it does not go.
const SETTLE_ROUNDS_MAX: usize = 32;
/// How long a frozen shard waits for more.
const PAUSE: Duration = Duration::from_micros(200);
