//! Answers to the requests of this node: one subscription for all of them, and a time limit for each.
//!
//! The requests themselves are sent with the envelopes, so that they keep their order.

use std::collections::BTreeMap;

use async_nats::{Message, StatusCode, Subscriber};
use encke::{EngineEvent, EngineEvents, RequestFailure};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// What the task of the answers has to know.
pub(crate) enum Note {
    /// Answers come by this subscription.
    Begin(Subscriber),
    /// A request is about to be sent.
    Sent {
        /// Its number, the last token of the subject of its answer.
        number: u64,
        /// The time until which it waits.
        until: Instant,
    },
    /// A request was not sent.
    Failed(u64),
    /// The connection has ended: no answers come to the requests so far.
    Away,
}

/// Requests that wait for an answer.
struct Answers {
    waiting: BTreeMap<u64, Instant>,
    deadlines: BTreeMap<(Instant, u64), ()>,
    events: EngineEvents,
}

/// Reports the answers to requests, until there are no notes any more.
pub(crate) async fn report(mut notes: mpsc::UnboundedReceiver<Note>, events: EngineEvents) {
    let mut answers = Answers { waiting: BTreeMap::new(), deadlines: BTreeMap::new(), events };
    let Some(mut inbox) = answers.begin(&mut notes).await else { return };
    loop {
        let due = answers.deadlines.first_key_value().map(|((until, _), ())| *until);
        tokio::select! {
            // A request is noted before its answer comes.
            biased;
            note = notes.recv() => match note {
                Some(note) => answers.note(note).await,
                None => return,
            },
            message = inbox.next() => match message {
                Some(message) => answers.arrived(message).await,
                None => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => answers.expire().await,
        }
    }
}

impl Answers {
    /// Waits for the subscription, which the first request begins.
    async fn begin(&mut self, notes: &mut mpsc::UnboundedReceiver<Note>) -> Option<Subscriber> {
        loop {
            match notes.recv().await? {
                Note::Begin(inbox) => return Some(inbox),
                other => self.note(other).await,
            }
        }
    }

    async fn note(&mut self, note: Note) {
        match note {
            Note::Begin(_) => {}
            Note::Sent { number, until } => {
                self.waiting.insert(number, until);
                self.deadlines.insert((until, number), ());
            }
            Note::Failed(number) => self.end(number, Err(RequestFailure::Away)).await,
            Note::Away => {
                self.deadlines.clear();
                for number in std::mem::take(&mut self.waiting).into_keys() {
                    let answer = Err(RequestFailure::Away);
                    self.events.report(EngineEvent::Answered { number, answer }).await;
                }
            }
        }
    }

    async fn arrived(&mut self, message: Message) {
        let number = message.subject.rsplit('.').next().and_then(|token| token.parse::<u64>().ok());
        let is_refused = message.status == Some(StatusCode::NO_RESPONDERS);
        let answer = if is_refused { Err(RequestFailure::NoResponders) } else { Ok(message.payload) };
        if let Some(number) = number {
            self.end(number, answer).await;
        }
    }

    async fn expire(&mut self) {
        let now = Instant::now();
        while let Some(((until, number), ())) = self.deadlines.first_key_value()
            && *until <= now
        {
            let number = *number;
            self.end(number, Err(RequestFailure::TimedOut)).await;
        }
    }

    /// Reports the end of a request, once.
    async fn end(&mut self, number: u64, answer: Result<bytes::Bytes, RequestFailure>) {
        if let Some(until) = self.waiting.remove(&number) {
            self.deadlines.remove(&(until, number));
            self.events.report(EngineEvent::Answered { number, answer }).await;
        }
    }
}
