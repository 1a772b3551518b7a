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
use crate::protocol::batch::{Batch, Via};

/// The waits of one shard.
#[derive(Default)]
pub(crate) struct Waits {
    slab: Slab<Entry>,
    generation: u32,
    batches: Tally,
    calls: Tally,
    /// The wait of each request whose batch waits.
    requests: HashMap<ExchangeId, WaitKey, RandomState>,
}

/// The waits of one kind.
#[derive(Default)]
struct Tally {
    all: Sum,
    /// Those of each session that has any.
    sessions: HashMap<SessionKey, Sum, RandomState>,
}

/// A number of waits, and their bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

impl Sum {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }
}

impl Tally {
    fn add(&mut self, session: Option<SessionKey>, bytes: usize) {
        self.all.add(bytes);
        if let Some(session) = session {
            self.sessions.entry(session).or_default().add(bytes);
        }
    }

    fn remove(&mut self, session: Option<SessionKey>, bytes: usize) {
        self.all.remove(bytes);
        if let Some(session) = session
            && let Some(own) = self.sessions.get_mut(&session)
        {
            own.remove(bytes);
            if own.count == 0 {
                self.sessions.remove(&session);
            }
        }
    }
}

struct Entry {
    generation: u32,
    due_ms: u64,
    /// The time of its entry in the timer wheel, in milliseconds.
    armed_ms: u64,
    bytes: usize,
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
}

impl Waits {
    /// The number of all waits.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// All batches.
    pub(crate) fn batches(&self) -> Sum {
        self.batches.all
    }

    /// All calls.
    pub(crate) fn calls(&self) -> Sum {
        self.calls.all
    }

    /// The calls of a session.
    pub(crate) fn calls_of(&self, session: SessionKey) -> Sum {
        self.calls.sessions.get(&session).copied().unwrap_or_default()
    }

    fn tally(&mut self, wait: &Wait) -> &mut Tally {
        match wait {
            Wait::Batch(_) => &mut self.batches,
            Wait::Call(_) => &mut self.calls,
        }
    }

    /// True if a batch of this session waits.
    pub(crate) fn has_batch_of(&self, session: SessionKey) -> bool {
        self.batches.sessions.contains_key(&session)
    }

    /// Adds a wait until a time, in milliseconds.
    pub(crate) fn add(&mut self, wait: Wait, due_ms: u64) -> WaitKey {
        self.generation = self.generation.wrapping_add(1);
        let (session, exchange, bytes) = (wait.session(), wait.exchange(), wait.bytes());
        self.tally(&wait).add(session, bytes);
        let entry = Entry { generation: self.generation, due_ms, armed_ms: u64::MAX, bytes, wait };
        let key = WaitKey { index: self.slab.insert(entry) as u32, generation: self.generation };
        if let Some(exchange) = exchange {
            self.requests.insert(exchange, key);
        }
        key
    }

    /// Removes a wait. Returns it with the time of its entry in the timer wheel.
    pub(crate) fn remove(&mut self, key: WaitKey) -> Option<(Wait, u64)> {
        self.slab.get(key.index as usize).filter(|entry| entry.generation == key.generation)?;
        let Entry { wait, armed_ms, bytes, .. } = self.slab.remove(key.index as usize);
        self.tally(&wait).remove(wait.session(), bytes);
        if let Some(exchange) = wait.exchange() {
            self.requests.remove(&exchange);
        }
        Some((wait, armed_ms))
    }

    /// The end of a wait, and the time of its entry in the timer wheel, in milliseconds.
    pub(crate) fn timer(&mut self, key: WaitKey) -> Option<(u64, &mut u64)> {
        let entry = self.slab.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation)?;
        Some((entry.due_ms, &mut entry.armed_ms))
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
