//! Operations of the program that wait for replies of the server.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::{Error, LostReason, Message, Published, Refusal};

/// Publications, batches and requests that wait for replies.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// By id; servers reply in order.
    pending: VecDeque<(u64, PendingReply)>,
    batches: HashMap<u64, PendingBatch>,
    last_batch: u64,
    /// Requests, whose services answer in any order and at any time.
    requests: Vec<Request>,
    /// The time of the last reply, or the time since which a reply is due.
    progress: Option<Instant>,
}

#[derive(Debug)]
enum PendingReply {
    Publish(oneshot::Sender<Result<Published, Error>>),
    /// One of a batch, with its index there.
    OfBatch(u64, usize),
}

#[derive(Debug)]
struct PendingBatch {
    /// The number of replies that have not come.
    left: usize,
    published: Vec<Published>,
    failure: Option<Error>,
    sender: oneshot::Sender<Result<Vec<Published>, Error>>,
}

#[derive(Debug)]
struct Request {
    id: u64,
    timeout: Duration,
    deadline: Instant,
    sender: oneshot::Sender<Result<Message, Error>>,
}

impl Replies {
    /// The number of replies that have not come.
    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.requests.len()
    }

    pub(crate) fn add(&mut self, id: u64, sender: oneshot::Sender<Result<Published, Error>>, now: Instant) {
        self.push(id, PendingReply::Publish(sender), now);
    }

    pub(crate) fn add_batch(
        &mut self,
        ids: &[u64],
        sender: oneshot::Sender<Result<Vec<Published>, Error>>,
        now: Instant,
    ) {
        self.last_batch += 1;
        let published = vec![Published::default(); ids.len()];
        self.batches.insert(self.last_batch, PendingBatch { left: ids.len(), published, failure: None, sender });
        for (index, id) in ids.iter().enumerate() {
            self.push(*id, PendingReply::OfBatch(self.last_batch, index), now);
        }
    }

    pub(crate) fn add_request(
        &mut self,
        id: u64,
        sender: oneshot::Sender<Result<Message, Error>>,
        now: Instant,
        timeout: Duration,
    ) {
        self.requests.push(Request { id, timeout, deadline: now + timeout, sender });
    }

    fn push(&mut self, id: u64, waiting: PendingReply, now: Instant) {
        if self.pending.is_empty() {
            self.progress = Some(now);
        }
        self.pending.push_back((id, waiting));
    }

    /// A reply came. Its result goes to the operation that waits for it. Returns the error if nothing does.
    pub(crate) fn replied(&mut self, id: u64, outcome: Result<Published, Error>, now: Instant) -> Option<Error> {
        if let Some(at) = self.requests.iter().position(|request| request.id == id) {
            // A success means that the server has accepted the request. The answer of the service is a separate message.
            if let Err(error) = outcome {
                let _gone = self.requests.swap_remove(at).sender.send(Err(error));
            }
            return None;
        }
        let at = self.pending.iter().position(|(pending, _)| *pending == id);
        let Some((_, waiting)) = at.and_then(|at| self.pending.remove(at)) else { return outcome.err() };
        self.progress = Some(now);
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
        self.finish(waiting, outcome);
        None
    }

    /// Passes the answer of a service to its request. Returns any other message.
    pub(crate) fn answered(&mut self, message: Message) -> Option<Message> {
        let Some(id) = message.id else { return Some(message) };
        let Some(at) = self.requests.iter().position(|request| request.id == id) else { return Some(message) };
        let outcome = if message.failed {
            Err(Error::Refused(Refusal::new(&*message.channel, message.data().as_str())))
        } else {
            Ok(message)
        };
        let _gone = self.requests.swap_remove(at).sender.send(outcome);
        None
    }

    /// The connection broke: it is not known whether these messages arrived.
    pub(crate) fn connection_lost(&mut self, reason: &LostReason) {
        self.fail(&Error::ConnectionLost(reason.clone()));
    }

    /// Everything that waits fails.
    pub(crate) fn fail(&mut self, error: &Error) {
        for (_, waiting) in std::mem::take(&mut self.pending) {
            self.finish(waiting, Err(error.clone()));
        }
        for request in std::mem::take(&mut self.requests) {
            let _gone = request.sender.send(Err(error.clone()));
        }
    }

    /// The time at which the server counts as gone if it replies to nothing.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.progress.filter(|_| !self.pending.is_empty()).map(|progress| progress + timeout)
    }

    /// The time-out counts from now on: nothing was read meanwhile.
    pub(crate) fn extend(&mut self, now: Instant) {
        self.progress = Some(now);
    }

    /// The first time-out of a request.
    pub(crate) fn request_deadline(&self) -> Option<Instant> {
        self.requests.iter().map(|request| request.deadline).min()
    }

    /// Ends the requests that have timed out.
    pub(crate) fn expire_requests(&mut self, now: Instant) {
        for request in self.requests.extract_if(.., |request| request.deadline <= now) {
            let _gone = request.sender.send(Err(Error::ReplyTimeout(request.timeout)));
        }
    }

    fn finish(&mut self, waiting: PendingReply, outcome: Result<Published, Error>) {
        // The program may have dropped its future.
        let (number, index) = match waiting {
            PendingReply::Publish(sender) => {
                let _gone = sender.send(outcome);
                return;
            }
            PendingReply::OfBatch(number, index) => (number, index),
        };
        let Some(batch) = self.batches.get_mut(&number) else { return };
        batch.left -= 1;
        match outcome {
            Ok(published) => batch.published[index] = published,
            Err(error) => _ = batch.failure.get_or_insert(error),
        }
        if batch.left == 0
            && let Some(batch) = self.batches.remove(&number)
        {
            let _gone = batch.sender.send(batch.failure.map_or(Ok(batch.published), Err));
        }
    }
}
