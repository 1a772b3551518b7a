//! The requests of a shard's connections that wait for their answer.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::confirm::{Confirmations, Receipt};
use encke_core::{ExchangeId, Response};

/// A response and, where it carries messages, their receipt.
pub(crate) type Answer = (Response, Option<Receipt>);

/// The requests that wait, by the number that their shard knows.
pub(crate) struct Exchanges {
    shard: u16,
    made: Cell<u64>,
    waiting: RefCell<HashMap<ExchangeId, oneshot::Sender<Answer>, RandomState>>,
    confirmations: Arc<Confirmations>,
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

    /// Registers a request: returns its number and its answer, which does not come if the server stops.
    pub(crate) fn open(&self) -> (ExchangeId, oneshot::Receiver<Answer>) {
        let number = self.made.get();
        self.made.set(number + 1);
        let exchange = ExchangeId { shard: self.shard, number };
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(exchange, sender);
        (exchange, receiver)
    }

    /// Forgets a request. False if it has its answer already.
    pub(crate) fn abandon(&self, exchange: ExchangeId) -> bool {
        self.waiting.borrow_mut().remove(&exchange).is_some()
    }

    /// Answers a request.
    pub(crate) fn answer(&self, exchange: ExchangeId, response: Response) {
        let receipt = response.confirm.map(|shard| Receipt::new(exchange, shard, self.confirmations.clone()));
        let answer = (response, receipt);
        // If nobody waits, the dropped receipt reports the messages as lost, and they are queued again.
        if let Some(sender) = self.waiting.borrow_mut().remove(&exchange) {
            let _gone = sender.send(answer);
        }
    }
}
