//! Answers of the HTTP API that are remembered by the key of their request, so that a repeated request publishes nothing
//! twice. The memory is a window: of time, and of bytes.
//!
//! In a cluster a node also remembers keys for others: see [`crate::net::replicas`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use encke_core::Settings;
use foldhash::fast::RandomState;
use http::StatusCode;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// The digest of a key, or of a request.
pub(crate) type Sum = [u8; 32];

/// The remembered answers of a server.
pub(crate) struct Idempotency(Mutex<Table>);

/// The limits of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The time for which an answer is remembered, in milliseconds.
    pub(crate) ms: u64,
    /// The bytes of all answers.
    pub(crate) bytes_max: usize,
}

struct Table {
    window: Window,
    entries: HashMap<Sum, Entry, RandomState>,
    /// The keys of complete entries with the times of their answers in milliseconds, oldest first.
    order: VecDeque<(u64, Sum)>,
    /// The keys that other nodes have reserved, with the ends of their time, oldest first. Some are answered, or free again.
    lent: VecDeque<(u64, Sum)>,
    bytes: usize,
    evicted: usize,
}

struct Entry {
    /// The digest of the request.
    request: Sum,
    state: State,
}

enum State {
    /// The request is being processed here.
    Here,
    /// Another node processes it, which has this number, until this time in milliseconds at most.
    At(u64, u64),
    Answered(Remembered),
}

/// An answer: its status and its body.
pub(crate) type Remembered = (StatusCode, Bytes);

/// The state of a request's key.
pub(crate) enum Known<T> {
    /// The key is new. The request is to be processed.
    New(T),
    /// The request was answered before.
    Answered(Remembered),
    /// The key belongs to another request.
    OtherRequest,
    /// The first request with this key is still being processed.
    InProgress,
}

/// A key whose request is being processed. Dropping it without an answer forgets the key.
pub(crate) struct Reservation {
    idempotency: Arc<Idempotency>,
    key: Sum,
}

/// The digest of several parts, in this order.
pub(crate) fn sum_of(parts: &[&[u8]]) -> Sum {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

impl Window {
    /// The limits of these settings.
    pub(crate) fn of(settings: &Settings) -> Window {
        Window { ms: settings.idempotency_ms, bytes_max: settings.idempotency_bytes_max }
    }
}

impl Idempotency {
    /// A memory without answers.
    pub(crate) fn new(window: Window) -> Idempotency {
        let (entries, order, lent) = (HashMap::default(), VecDeque::new(), VecDeque::new());
        Idempotency(Mutex::new(Table { window, entries, order, lent, bytes: 0, evicted: 0 }))
    }

    /// Changes the limits.
    pub(crate) fn set_window(&self, window: Window) {
        self.0.lock().window = window;
    }

    /// Looks a key up, and reserves it if it is new.
    pub(crate) fn begin(self: &Arc<Self>, (key, request): (Sum, Sum), now_ms: u64) -> Known<Reservation> {
        let mut table = self.0.lock();
        table.forget_old(now_ms);
        match table.known(&key, request, |_| true) {
            Known::New(()) => {
                table.entries.insert(key, Entry { request, state: State::Here });
                Known::New(Reservation { idempotency: self.clone(), key })
            }
            Known::Answered(answer) => Known::Answered(answer),
            Known::OtherRequest => Known::OtherRequest,
            Known::InProgress => Known::InProgress,
        }
    }

    /// Looks a key up for another node, and reserves it for that node if it is new. `is_there` says if a node is still there. None if
    /// too many keys are reserved so.
    pub(crate) fn lend(
        &self,
        (key, request): (Sum, Sum),
        node: u64,
        now_ms: u64,
        is_there: impl Fn(u64) -> bool,
    ) -> Option<Known<()>> {
        let mut table = self.0.lock();
        table.forget_old(now_ms);
        let known = table.known(&key, request, is_there);
        if matches!(known, Known::New(())) {
            if table.lent.len() >= LENT_MAX {
                return None;
            }
            let until_ms = now_ms + LENT_MS;
            table.lent.push_back((until_ms, key));
            table.entries.insert(key, Entry { request, state: State::At(node, until_ms) });
        }
        Some(known)
    }

    /// A node does not process the request with this key any more, and nothing was published.
    pub(crate) fn give_back(&self, key: &Sum, node: u64) {
        let mut table = self.0.lock();
        if table.entries.get(key).is_some_and(|entry| matches!(entry.state, State::At(holder, _) if holder == node)) {
            table.entries.remove(key);
        }
    }

    /// Remembers the answer of another node, unless the key is known here otherwise.
    pub(crate) fn note(&self, (key, request): (Sum, Sum), now_ms: u64, answer: Remembered) {
        let table = &mut *self.0.lock();
        if !matches!(table.entries.get(&key), None | Some(Entry { state: State::At(..), .. })) {
            return;
        }
        table.entries.insert(key, Entry { request, state: State::Here });
        table.answer(key, now_ms, answer);
    }

    /// The bytes of all remembered answers, and the number of those that were forgotten early for lack of room.
    pub(crate) fn figures(&self) -> (usize, usize) {
        let table = self.0.lock();
        (table.bytes, table.evicted)
    }
}

impl Reservation {
    /// Remembers the answer.
    pub(crate) fn complete(self, now_ms: u64, answer: Remembered) {
        self.idempotency.0.lock().answer(self.key, now_ms, answer);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.idempotency.0.lock();
        if table.entries.get(&self.key).is_some_and(|entry| matches!(entry.state, State::Here)) {
            table.entries.remove(&self.key);
        }
    }
}

impl Table {
    /// The state of a key. One whose node is gone is new.
    fn known(&self, key: &Sum, request: Sum, is_there: impl Fn(u64) -> bool) -> Known<()> {
        match self.entries.get(key) {
            None => Known::New(()),
            Some(Entry { state: State::At(node, _), .. }) if !is_there(*node) => Known::New(()),
            Some(entry) if entry.request != request => Known::OtherRequest,
            Some(Entry { state: State::Answered(answer), .. }) => Known::Answered(answer.clone()),
            Some(_) => Known::InProgress,
        }
    }

    /// Remembers the answer of a key that is reserved.
    fn answer(&mut self, key: Sum, now_ms: u64, answer: Remembered) {
        if let Some(entry) = self.entries.get_mut(&key) {
            self.bytes += ENTRY_BYTES + answer.1.len();
            entry.state = State::Answered(answer);
            self.order.push_back((now_ms, key));
        }
        while self.bytes > self.window.bytes_max && self.order.len() > 1 {
            self.forget_oldest();
            self.evicted += 1;
        }
    }

    /// Forgets what is over.
    fn forget_old(&mut self, now_ms: u64) {
        while self.order.front().is_some_and(|(at_ms, _)| at_ms.saturating_add(self.window.ms) <= now_ms) {
            self.forget_oldest();
        }
        while let Some((until_ms, key)) = self.lent.pop_front_if(|(until_ms, _)| *until_ms <= now_ms) {
            let is_over = |entry: &Entry| matches!(entry.state, State::At(_, end_ms) if end_ms == until_ms);
            if self.entries.get(&key).is_some_and(is_over) {
                self.entries.remove(&key);
            }
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, key)) = self.order.pop_front() else { return };
        if let Some(Entry { state: State::Answered((_, body)), .. }) = self.entries.remove(&key) {
            self.bytes -= ENTRY_BYTES + body.len();
        }
    }
}

/// The memory of an entry beside the body of its answer, roughly, in bytes.
const ENTRY_BYTES: usize = 256;
/// The most keys that other nodes reserve here.
const LENT_MAX: usize = 65_536;
/// The time for which another node may process a request, in milliseconds: longer than the API waits for an outcome.
const LENT_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { ms: 100, bytes_max: 2_000 };

    fn begin(idempotency: &Arc<Idempotency>, key: u8, request: u8, now_ms: u64) -> Known<Reservation> {
        idempotency.begin(([key; 32], [request; 32]), now_ms)
    }

    fn complete(idempotency: &Arc<Idempotency>, key: u8, now_ms: u64, body: &'static [u8]) {
        let Known::New(reservation) = begin(idempotency, key, 1, now_ms) else { panic!("key {key} is known") };
        reservation.complete(now_ms, (StatusCode::OK, Bytes::from_static(body)));
    }

    #[test]
    fn a_key_is_new_then_in_progress_then_answered_until_its_time_is_over() {
        let idempotency = Arc::new(Idempotency::new(WINDOW));
        let Known::New(reservation) = begin(&idempotency, 1, 1, 0) else { panic!("new") };
        assert!(matches!(begin(&idempotency, 1, 1, 0), Known::InProgress));
        assert!(matches!(begin(&idempotency, 1, 2, 0), Known::OtherRequest));
        reservation.complete(10, (StatusCode::OK, Bytes::from_static(b"{}")));
        assert!(matches!(begin(&idempotency, 1, 1, 109), Known::Answered((StatusCode::OK, body)) if body == "{}"));
        assert!(matches!(begin(&idempotency, 1, 2, 109), Known::OtherRequest));
        assert!(matches!(begin(&idempotency, 1, 1, 110), Known::New(_)));
        assert_eq!(idempotency.figures(), (0, 0), "nothing is left of it");
    }

    #[test]
    fn a_request_without_an_answer_may_be_tried_again() {
        let idempotency = Arc::new(Idempotency::new(WINDOW));
        drop(begin(&idempotency, 1, 1, 0));
        assert!(matches!(begin(&idempotency, 1, 2, 0), Known::New(_)));
    }

    #[test]
    fn the_oldest_answers_go_when_there_is_no_room() {
        let idempotency = Arc::new(Idempotency::new(WINDOW));
        for key in 0..20 {
            complete(&idempotency, key, 0, &[b'x'; 244]);
        }
        assert_eq!(idempotency.figures(), (4 * 500, 16));
        assert!(matches!(begin(&idempotency, 15, 1, 0), Known::New(_)));
        assert!(matches!(begin(&idempotency, 16, 1, 0), Known::Answered(_)));
        complete(&idempotency, 50, 0, &[b'x'; 9_000]);
        assert!(matches!(begin(&idempotency, 50, 1, 0), Known::Answered(_)), "the newest answer always has room");
    }

    #[test]
    fn a_key_that_another_node_has_reserved_is_in_progress_until_it_is_answered_given_back_or_its_node_is_gone() {
        let idempotency = Arc::new(Idempotency::new(WINDOW));
        let lend = |node, now_ms, is_there| {
            idempotency.lend(([1; 32], [1; 32]), node, now_ms, |_| is_there).expect("there is room")
        };
        assert!(matches!(lend(7, 0, true), Known::New(())));
        assert!(matches!(begin(&idempotency, 1, 1, 0), Known::InProgress));
        assert!(matches!(begin(&idempotency, 1, 2, 0), Known::OtherRequest));
        idempotency.give_back(&[1; 32], 8);
        assert!(matches!(lend(8, 0, true), Known::InProgress), "only its node gives it back");
        idempotency.give_back(&[1; 32], 7);
        assert!(matches!(lend(7, 0, true), Known::New(())));
        assert!(matches!(lend(8, 1, false), Known::New(())), "its node is gone");
        assert!(matches!(begin(&idempotency, 1, 1, LENT_MS), Known::InProgress), "the time of the second node counts");
        assert!(matches!(lend(9, LENT_MS + 1, true), Known::New(())));
        let sums = ([1; 32], [1; 32]);
        idempotency.note(sums, LENT_MS + 2, (StatusCode::OK, Bytes::from_static(b"{}")));
        assert!(matches!(lend(7, LENT_MS + 2, false), Known::Answered((StatusCode::OK, body)) if body == "{}"));
        idempotency.give_back(&[1; 32], 9);
        assert!(matches!(begin(&idempotency, 1, 1, LENT_MS + 2), Known::Answered(_)));
        assert!(matches!(lend(7, LENT_MS + 102, true), Known::New(())));
        assert!(matches!(begin(&idempotency, 1, 1, 3 * LENT_MS), Known::New(_)), "a node that never comes back");
    }

    #[test]
    fn the_answer_of_another_node_does_not_replace_what_is_known_here() {
        let idempotency = Arc::new(Idempotency::new(WINDOW));
        let note = |body| idempotency.note(([1; 32], [1; 32]), 0, (StatusCode::OK, Bytes::from_static(body)));
        let Known::New(reservation) = begin(&idempotency, 1, 1, 0) else { panic!("new") };
        note(b"other");
        assert!(matches!(begin(&idempotency, 1, 1, 0), Known::InProgress));
        reservation.complete(0, (StatusCode::OK, Bytes::from_static(b"own")));
        note(b"other");
        assert!(matches!(begin(&idempotency, 1, 1, 0), Known::Answered((_, body)) if body == "own"));
        assert_eq!(idempotency.figures(), (ENTRY_BYTES + 3, 0));
    }

    #[test]
    fn other_nodes_reserve_a_bounded_number_of_keys() {
        let idempotency = Idempotency::new(WINDOW);
        let lend = |number: usize, now_ms| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            idempotency.lend((key, [1; 32]), 7, now_ms, |_| true)
        };
        assert!((0..LENT_MAX).all(|number| lend(number, 0).is_some()));
        assert!(lend(LENT_MAX, 0).is_none());
        assert!(matches!(lend(0, 0), Some(Known::InProgress)));
        assert!(lend(LENT_MAX, LENT_MS).is_some());
    }

    #[test]
    fn parts_of_a_sum_are_not_confused() {
        assert_ne!(sum_of(&[b"ab", b"c"]), sum_of(&[b"a", b"bc"]));
    }
}
