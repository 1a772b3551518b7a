//! The mailboxes of all shards, and the account of the bytes in them.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::thread_message::ThreadMessage;
use encke_core::{Envelope, MailboxAccount, ShardMessage};

/// The mailboxes of all shards. A shard that has ended takes nothing.
#[derive(Clone)]
pub(crate) struct Mailboxes {
    shards: Vec<UnboundedSender<ThreadMessage>>,
    account: Arc<MailboxAccount>,
}

impl Mailboxes {
    pub(crate) fn new(shards: Vec<UnboundedSender<ThreadMessage>>, account: Arc<MailboxAccount>) -> Mailboxes {
        Mailboxes { shards, account }
    }

    /// The number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The account of the bytes in the mailboxes.
    pub(crate) fn account(&self) -> &Arc<MailboxAccount> {
        &self.account
    }

    /// Sends to the thread of a shard. False if there is no such shard, or it has ended.
    pub(crate) fn send(&self, shard: usize, message: ThreadMessage) -> bool {
        self.shards.get(shard).is_some_and(|mailbox| mailbox.send(message).is_ok())
    }

    /// Sends to a shard. False if there is no such shard, or it has ended.
    pub(crate) fn send_to_shard(&self, shard: usize, message: ShardMessage) -> bool {
        self.send(shard, ThreadMessage::FromShard(Envelope::new(&self.account, message)))
    }

    /// Sends to the threads of all shards.
    pub(crate) fn send_to_all(&self, message: impl Fn() -> ThreadMessage) {
        for shard in 0..self.shards.len() {
            let _ended = self.send(shard, message());
        }
    }
}
