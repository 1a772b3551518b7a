//! The requests of a shard's connections that wait for their answer. A held request has one answer, which ends it; a
//! response that stays open has many.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use foldhash::fast::RandomState;
use tokio::sync::{mpsc, oneshot};

use super::confirm::{Confirmations, Receipt};
use encke_core::{ExchangeId, Response};

/// A response and, where it carries messages, their receipt.
pub(crate) type Answer = (Response, Option<Receipt>);

/// The requests that wait, by the number that their shard knows.
pub(crate) struct Exchanges {
    shard: u16,
    made: Cell<u64>,
    waiting: RefCell<HashMap<ExchangeId, Recipient, RandomState>>,
    confirmations: Arc<Confirmations>,
}

/// The way of answers to a connection.
enum Recipient {
    Held(oneshot::Sender<Answer>),
    Open(mpsc::UnboundedSender<Answer>),
}

/// The answers to a request, as its connection gets them.
pub(crate) enum Answers {
    /// One answer.
    Held(oneshot::Receiver<Answer>),
    /// Each answer is a part of a response that stays open.
    Open(mpsc::UnboundedReceiver<Answer>),
    /// None follows.
    Over,
}

impl Exchanges {
    pub(crate) fn new(shard: usize, confirmations: Arc<Confirmations>) -> Exchanges {
        Exchanges { shard: shard as u16, made: Cell::new(0), waiting: RefCell::default(), confirmations }
    }

    /// A number that is unique in the server.
    pub(super) fn number(&self) -> u64 {
        let number = self.made.get() + 1;
        self.made.set(number);
        (u64::from(self.shard) << 48) | number
    }

    /// Registers a request: returns its number and its answers, many if its response stays open.
    pub(crate) fn open(&self, stays_open: bool) -> (ExchangeId, Answers) {
        let number = self.made.get();
        self.made.set(number + 1);
        let exchange = ExchangeId { shard: self.shard, number };
        let (recipient, answers) = if stays_open {
            let (sender, receiver) = mpsc::unbounded_channel();
            (Recipient::Open(sender), Answers::Open(receiver))
        } else {
            let (sender, receiver) = oneshot::channel();
            (Recipient::Held(sender), Answers::Held(receiver))
        };
        self.waiting.borrow_mut().insert(exchange, recipient);
        (exchange, answers)
    }

    /// Forgets a request. False if it has all its answers already.
    pub(crate) fn abandon(&self, exchange: ExchangeId) -> bool {
        self.waiting.borrow_mut().remove(&exchange).is_some()
    }

    /// Answers a request.
    pub(crate) fn answer(&self, exchange: ExchangeId, response: Response) {
        let receipt = response.confirm.map(|shard| Receipt::new(exchange, shard, self.confirmations.clone()));
        let answer = (response, receipt);
        // If nobody waits, the dropped receipt reports the messages as lost, and they are queued again.
        if let Entry::Occupied(waiting) = self.waiting.borrow_mut().entry(exchange) {
            if let Recipient::Open(sender) = waiting.get() {
                let _gone = sender.send(answer);
            } else if let Recipient::Held(sender) = waiting.remove() {
                let _gone = sender.send(answer);
            }
        }
    }
}

impl Answers {
    /// The next answer. None after the last one, or if the server stops.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        match self {
            Answers::Held(receiver) => {
                let answer = ready!(Pin::new(receiver).poll(cx)).ok();
                *self = Answers::Over;
                Poll::Ready(answer)
            }
            Answers::Open(receiver) => receiver.poll_recv(cx),
            Answers::Over => Poll::Ready(None),
        }
    }

    /// True if no answer follows.
    pub(crate) fn are_over(&self) -> bool {
        matches!(self, Answers::Over)
    }
}
