//! Futures of the application for which a shard waits: they run on the application's threads, and their results come
//! back as messages.

use tokio::task::AbortHandle;

use super::node::{Node, ThreadMessage};
use crate::runtime;
use encke_core::{Awaited, Envelope, ShardMessage, SocketKey, WaitKey};

impl Node {
    /// Runs a future of the application on its threads. The result comes back as a message.
    pub(super) fn run_later(&self, key: WaitKey, awaited: Awaited) {
        let Some(mailbox) = self.server_shared.mailboxes.get(self.shard.borrow().index()).cloned() else { return };
        let account = self.mailbox.clone();
        let future = runtime::run(&self.server_shared.application, awaited, move |resolved| {
            let envelope = Envelope::new(&account, ShardMessage::Resolved(key, resolved));
            // A shard that has ended needs no result.
            let _ended = mailbox.send(ThreadMessage::FromShard(envelope));
        });
        self.futures.borrow_mut().insert(key, future);
    }

    /// Notes that a future is done, or is to be dropped.
    pub(crate) fn forget_future(&self, key: WaitKey) -> Option<AbortHandle> {
        self.futures.borrow_mut().remove(&key)
    }

    /// Lets a WebSocket read on whose last message has waited for the application.
    pub(super) fn read_on(&self, socket: SocketKey) {
        let stream = self.streams.borrow().get(socket.index as usize).cloned().flatten();
        if let Some(stream) = stream.filter(|stream| stream.key == socket) {
            stream.suspended.set(false);
            stream.wake();
        }
    }
}
