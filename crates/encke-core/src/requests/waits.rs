//! Messages that wait for the application: batches whose current message is not decided yet, and calls whose answer
//! comes later.
//!
//! A batch waits with the text of its remaining messages, so that the connection can read on or end meanwhile. When the
//! decision comes, its message is processed again from its start, with the decision at hand.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use slab::Slab;

use crate::decision::WaitKey;
use crate::events::{ExchangeId, SessionKey};
use crate::limits::shares::{Amount, Budget, Share, Shares, Urgency};
use crate::protocol::batch::{Batch, Via};

/// The waits of one shard.
#[derive(Default)]
pub(crate) struct Waits {
    slab: Slab<Entry>,
    generation: u32,
    batches: Shares<Payer>,
    calls: Shares<Payer>,
    /// The wait of each request whose batch waits.
    requests: HashMap<ExchangeId, WaitKey, RandomState>,
}

/// The owner of a wait. A session is inside its user or its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// A user, by a hash of its name.
    User(u64),
    /// An address, or a connection whose address is unknown.
    Origin(u64),
    /// A session.
    Session(SessionKey),
}

struct Entry {
    generation: u32,
    due_ms: u64,
    /// The time of its entry in the timer wheel, in milliseconds.
    armed_ms: u64,
    share: Share<Payer>,
    wait: Wait,
}

/// One wait.
pub(crate) enum Wait {
    /// A batch, for the decision on its current message.
    Batch(Box<Batch>),
    /// The answer to a call.
    Call(Box<Call>),
}

/// A call whose answer comes later.
pub(crate) struct Call {
    pub(crate) session: SessionKey,
    pub(crate) channel: Box<str>,
    /// The id of its message.
    pub(crate) id: Option<bayeux::Id<'static>>,
    /// The bytes that the application holds for it.
    pub(crate) bytes: usize,
    /// The owner of the call, around the session.
    pub(crate) payer: Payer,
    /// A refresh of credentials is urgent.
    pub(crate) urgency: Urgency,
    /// The fingerprint of the means of authentication when it was made: they judge the credentials of a refresh.
    pub(crate) authentication: u64,
}

impl Wait {
    fn session(&self) -> Option<SessionKey> {
        match self {
            Wait::Batch(batch) => batch.session,
            Wait::Call(call) => Some(call.session),
        }
    }

    fn exchange(&self) -> Option<ExchangeId> {
        match self {
            Wait::Batch(batch) => match batch.via {
                Via::Http { exchange, .. } => Some(exchange),
                Via::Socket(_) => None,
            },
            Wait::Call(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Wait::Batch(batch) => batch.held_bytes(),
            Wait::Call(call) => call.bytes,
        }
    }

    fn urgency(&self) -> Urgency {
        match self {
            Wait::Batch(_) => Urgency::Common,
            Wait::Call(call) => call.urgency,
        }
    }
}

impl Waits {
    /// The number of all waits.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The batches and the calls that wait for the application.
    pub(crate) fn used(&self) -> [Amount; 2] {
        [self.batches.used(), self.calls.used()]
    }

    /// True if one more batch of this owner may wait for a decision.
    pub(crate) fn admits_batch(&self, budget: &Budget, payer: &Payer, batch: &Batch) -> bool {
        let (inner, amount) = (batch.session.map(Payer::Session), Amount::one(batch.held_bytes()));
        self.batches.admit(budget, payer, inner.as_ref(), amount, Urgency::Common).is_ok()
    }

    /// True if a session may wait for the answer to one more call of so many bytes. A common call counts against the
    /// session's own limit, too.
    pub(crate) fn admits_call(
        &self,
        budget: &Budget,
        per_session_max: usize,
        (payer, session): (&Payer, SessionKey),
        bytes: usize,
        urgency: Urgency,
    ) -> bool {
        let session = Payer::Session(session);
        let has_own = match urgency {
            Urgency::Common => self.calls.of(&session).count < per_session_max,
            Urgency::Urgent => true,
        };
        has_own && self.calls.admit(budget, payer, Some(&session), Amount::one(bytes), urgency).is_ok()
    }

    /// True if a batch of this session waits.
    pub(crate) fn has_batch_of(&self, session: SessionKey) -> bool {
        self.batches.of(&Payer::Session(session)).count > 0
    }

    /// Lets a batch or a call that was admitted wait for the application, until a time in milliseconds.
    pub(crate) fn add(&mut self, wait: Wait, payer: Payer, due_ms: u64) -> WaitKey {
        self.generation = self.generation.wrapping_add(1);
        let (inner, exchange, amount) =
            (wait.session().map(Payer::Session), wait.exchange(), Amount::one(wait.bytes()));
        let urgency = wait.urgency();
        let share = self.shares(&wait).take_regardless(payer, inner, amount, urgency);
        let entry = Entry { generation: self.generation, due_ms, armed_ms: u64::MAX, share, wait };
        let key = WaitKey { index: self.slab.insert(entry) as u32, generation: self.generation };
        if let Some(exchange) = exchange {
            self.requests.insert(exchange, key);
        }
        key
    }

    /// Ends a wait. Returns it with the time of its entry in the timer wheel.
    pub(crate) fn remove(&mut self, key: WaitKey) -> Option<(Wait, u64)> {
        self.slab.get(key.index as usize).filter(|entry| entry.generation == key.generation)?;
        let Entry { wait, armed_ms, share, .. } = self.slab.remove(key.index as usize);
        self.shares(&wait).give_back(share);
        if let Some(exchange) = wait.exchange() {
            self.requests.remove(&exchange);
        }
        Some((wait, armed_ms))
    }

    fn shares(&mut self, wait: &Wait) -> &mut Shares<Payer> {
        match wait {
            Wait::Batch(_) => &mut self.batches,
            Wait::Call(_) => &mut self.calls,
        }
    }

    /// The end of a wait, in milliseconds. None if it is over.
    pub(crate) fn due_ms(&self, key: WaitKey) -> Option<u64> {
        let entry = self.slab.get(key.index as usize).filter(|entry| entry.generation == key.generation)?;
        Some(entry.due_ms)
    }

    /// True if a session waits for the answer to an urgent call.
    pub(crate) fn has_urgent_call(&self, session: SessionKey) -> bool {
        self.calls.urgent_of(&Payer::Session(session)).count > 0
    }

    /// Notes the time of a wait's timer, in milliseconds.
    pub(crate) fn armed(&mut self, key: WaitKey, at_ms: u64) {
        let entry = self.slab.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation);
        entry.into_iter().for_each(|entry| entry.armed_ms = at_ms);
    }

    /// Notes that nobody waits for the response to a request. Returns false if its batch does not wait.
    pub(crate) fn abandon(&mut self, exchange: &ExchangeId) -> bool {
        let Some(key) = self.requests.get(exchange) else { return false };
        if let Some(Entry { wait: Wait::Batch(batch), .. }) = self.slab.get_mut(key.index as usize)
            && let Some(decisions) = &mut batch.decisions
        {
            decisions.is_abandoned = true;
        }
        true
    }
}
