//! The subscribers in the process of a server, by channel.
//!
//! To the shards they are one more shard, whose index is the number of shards: it has a bit in the map of interest, and
//! publications come to it as they come to other shards. A dispatcher puts each publication into
//! the queues of its subscribers, so a shard does no work for them but one send. A publication that nobody in the
//! process wants costs nothing.
//!
//! ```text
//!   any shard ── Publication ──▶ dispatcher ──▶ queue (bounded) ──▶ Subscription, a stream
//!                                   histories ──────────────────────▲  first, if it begins in the past
//! ```

use std::collections::HashMap;
use std::mem::replace;
use std::sync::Arc;

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::cursor::Cursor;
use crate::queue::{Burst, Queue, QueuedBytes};
use encke_core::{EncodedPublications, Metrics, Settings, Shared};

/// The subscribers by channel.
pub struct Registry {
    pub(crate) shared: Arc<Shared>,
    /// Written by the dispatcher, or while the table is locked.
    metrics: Arc<Metrics>,
    waiting: Arc<QueuedBytes>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    names: HashMap<Box<str>, Subscribers, RandomState>,
    subscribers: usize,
    next: u64,
    /// The server has stopped.
    is_closed: bool,
}

/// The subscribers of one channel or pattern.
#[derive(Default)]
struct Subscribers {
    /// By their numbers.
    queues: HashMap<u64, Arc<Queue>, RandomState>,
    /// The positions of the latest one that waits.
    cursors: Arc<Vec<Cursor>>,
}

/// Buffers of a dispatcher, which it uses again for the next publication.
#[derive(Default)]
pub struct Scratch {
    pattern: String,
    queues: Vec<Arc<Queue>>,
}

impl Registry {
    /// No subscribers. `metrics` are written by the dispatcher, or while the table is locked.
    pub fn new(shared: Arc<Shared>, metrics: Arc<Metrics>) -> Arc<Registry> {
        Arc::new(Registry { shared, metrics, waiting: Arc::default(), table: Mutex::default() })
    }

    /// The state that all shards share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Puts a publication of a shard into the queues of its subscribers.
    pub fn dispatch(&self, publication: &EncodedPublications, scratch: &mut Scratch) {
        let Scratch { pattern, queues } = scratch;
        // Readers are woken without the lock: subscribers come and go meanwhile.
        {
            let table = self.table.lock();
            let channel = ChannelName::known(&publication.channel);
            let mut add = |name: &str| {
                queues.extend(table.names.get(name).into_iter().flat_map(|of| of.queues.values()).cloned())
            };
            add(channel.as_str());
            channel.patterns(pattern, add);
        }
        if queues.is_empty() {
            return;
        }
        let burst = Arc::new(Burst::new(publication, &self.waiting));
        let room = self.waiting.room();
        let discarded: u64 = queues.drain(..).map(|queue| queue.push(&burst, room)).sum();
        self.metrics.in_process_discarded.add(discarded as usize);
        if queues.capacity() > ROOM_RETAINED {
            queues.shrink_to(ROOM_RETAINED);
        }
    }

    /// Ends all subscriptions. What waits for them can still be read.
    pub fn close(&self) {
        let mut table = self.table.lock();
        table.is_closed = true;
        table.names.values().flat_map(|known| known.queues.values()).for_each(|queue| queue.close());
    }

    /// Registers a new queue for a channel or a pattern. Returns its number, too.
    pub(crate) fn open(&self, settings: &Settings, name: &str) -> (u64, Arc<Queue>) {
        self.waiting.limit(settings.in_process_bytes_max);
        let queue = Arc::new(Queue::new(settings.in_process_messages_max, settings.in_process_bytes_max));
        (self.add(name, &queue), queue)
    }

    /// Adds a subscriber, and returns its number.
    fn add(&self, name: &str, queue: &Arc<Queue>) -> u64 {
        let mut table = self.table.lock();
        if table.is_closed {
            queue.close();
        }
        table.next += 1;
        let number = table.next;
        if let Some(subscribers) = table.names.get_mut(name) {
            subscribers.queues.insert(number, queue.clone());
        } else {
            let mut subscribers = Subscribers::default();
            subscribers.queues.insert(number, queue.clone());
            table.names.insert(name.into(), subscribers);
            self.shared.interest.add(name, self.shared.shards);
        }
        table.subscribers += 1;
        self.metrics.in_process_subscriptions.set(table.subscribers);
        number
    }

    /// Replaces the positions of a subscriber by those of another one of the same name, if they are equal.
    pub(crate) fn share(&self, name: &str, cursors: &mut Arc<Vec<Cursor>>) {
        let known = self.table.lock().names.get(name).map(|subscribers| subscribers.cursors.clone());
        match known {
            Some(known) if known == *cursors => *cursors = known,
            // The ones known before are dropped without the lock.
            _ => drop(self.table.lock().names.get_mut(name).map(|known| replace(&mut known.cursors, cursors.clone()))),
        }
    }

    /// Removes a subscriber.
    pub(crate) fn remove(&self, name: &str, number: u64) {
        let mut table = self.table.lock();
        let Some(subscribers) = table.names.get_mut(name) else { return };
        let queues = &mut subscribers.queues;
        let removed = queues.remove(&number);
        if queues.is_empty() {
            table.names.remove(name);
            self.shared.interest.remove(name, self.shared.shards);
        } else if queues.capacity() > ROOM_RETAINED && queues.len() < queues.capacity() / 4 {
            let room = queues.len() * 2;
            queues.shrink_to(room);
        }
        table.subscribers -= usize::from(removed.is_some());
        self.metrics.in_process_subscriptions.set(table.subscribers);
    }
}

/// Tables with at most this capacity are not shrunk.
const ROOM_RETAINED: usize = 1_024;
