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
    /// The number of batches.
    batches: usize,
    /// The bytes of the batches.
    bytes: usize,
    /// The bytes of the calls.
    call_bytes: usize,
    /// The number of batches of each session that has any.
    sessions: HashMap<SessionKey, u32, RandomState>,
    /// The calls of each session that has any.
    callers: HashMap<SessionKey, Calls, RandomState>,
    /// The wait of each request whose batch waits.
    requests: HashMap<ExchangeId, WaitKey, RandomState>,
}

/// The calls of one session.
#[derive(Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
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

    /// The number of batches, and their bytes.
    pub(crate) fn batches(&self) -> (usize, usize) {
        (self.batches, self.bytes)
    }

    /// All calls.
    pub(crate) fn calls(&self) -> Calls {
        Calls { count: self.slab.len() - self.batches, bytes: self.call_bytes }
    }

    /// The calls of a session.
    pub(crate) fn calls_of(&self, session: SessionKey) -> Calls {
        self.callers.get(&session).copied().unwrap_or_default()
    }

    /// True if a batch of this session waits.
    pub(crate) fn has_batch_of(&self, session: SessionKey) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Adds a wait until a time, in milliseconds.
    pub(crate) fn add(&mut self, wait: Wait, due_ms: u64) -> WaitKey {
        self.generation = self.generation.wrapping_add(1);
        let (session, exchange, bytes) = (wait.session(), wait.exchange(), wait.bytes());
        match &wait {
            Wait::Batch(_) => {
                self.batches += 1;
                self.bytes += bytes;
                if let Some(session) = session {
                    *self.sessions.entry(session).or_default() += 1;
                }
            }
            Wait::Call(call) => {
                self.call_bytes += bytes;
                let calls = self.callers.entry(call.session).or_default();
                calls.count += 1;
                calls.bytes += bytes;
            }
        }
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
        match &wait {
            Wait::Batch(batch) => {
                self.batches -= 1;
                self.bytes -= bytes;
                if let Some(session) = batch.session
                    && let Some(count) = self.sessions.get_mut(&session)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.sessions.remove(&session);
                    }
                }
            }
            Wait::Call(call) => {
                self.call_bytes -= bytes;
                if let Some(calls) = self.callers.get_mut(&call.session) {
                    calls.count -= 1;
                    calls.bytes -= bytes;
                    if calls.count == 0 {
                        self.callers.remove(&call.session);
                    }
                }
            }
        }
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
