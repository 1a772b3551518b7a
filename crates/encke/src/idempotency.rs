//! Answers of the HTTP API that are remembered by the key of their request, so that a repeated request publishes nothing
//! twice. The memory is a window: of time, and of bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use http::StatusCode;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// The digest of a key, or of a request.
pub(crate) type Sum = [u8; 32];

/// The remembered answers of a server.
#[derive(Default)]
pub(crate) struct Idempotency(Mutex<Table>);

/// The limits of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The time for which an answer is remembered, in milliseconds.
    pub(crate) ms: u64,
    /// The bytes of all answers.
    pub(crate) bytes_max: usize,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Sum, Entry, RandomState>,
    /// The keys of complete entries with the times of their answers in milliseconds, oldest first.
    order: VecDeque<(u64, Sum)>,
    bytes: usize,
    evicted: usize,
}

struct Entry {
    /// The digest of the request.
    request: Sum,
    /// None while the request is being processed.
    answer: Option<Remembered>,
}

/// An answer: its status and its body.
pub(crate) type Remembered = (StatusCode, Bytes);

/// The state of a request's key.
pub(crate) enum Known {
    /// The key is new. The request is to be processed.
    New(Reservation),
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
    window: Window,
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

impl Idempotency {
    /// Looks a key up, and reserves it if it is new.
    pub(crate) fn begin(self: &Arc<Self>, key: Sum, request: Sum, now_ms: u64, window: Window) -> Known {
        let mut table = self.0.lock();
        while table.order.front().is_some_and(|(at_ms, _)| at_ms.saturating_add(window.ms) <= now_ms) {
            table.forget_oldest();
        }
        match table.entries.get(&key) {
            Some(entry) if entry.request != request => Known::OtherRequest,
            Some(Entry { answer: Some(answer), .. }) => Known::Answered(answer.clone()),
            Some(Entry { answer: None, .. }) => Known::InProgress,
            None => {
                table.entries.insert(key, Entry { request, answer: None });
                Known::New(Reservation { idempotency: self.clone(), key, window })
            }
        }
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
        let table = &mut *self.idempotency.0.lock();
        if let Some(entry) = table.entries.get_mut(&self.key) {
            table.bytes += ENTRY_BYTES + answer.1.len();
            entry.answer = Some(answer);
            table.order.push_back((now_ms, self.key));
        }
        while table.bytes > self.window.bytes_max && table.order.len() > 1 {
            table.forget_oldest();
            table.evicted += 1;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.idempotency.0.lock();
        if table.entries.get(&self.key).is_some_and(|entry| entry.answer.is_none()) {
            table.entries.remove(&self.key);
        }
    }
}

impl Table {
    fn forget_oldest(&mut self) {
        let Some((_, key)) = self.order.pop_front() else { return };
        if let Some(Entry { answer: Some((_, body)), .. }) = self.entries.remove(&key) {
            self.bytes -= ENTRY_BYTES + body.len();
        }
    }
}

/// The memory of an entry beside the body of its answer, roughly, in bytes.
const ENTRY_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { ms: 100, bytes_max: 2_000 };

    fn begin(idempotency: &Arc<Idempotency>, key: u8, request: u8, now_ms: u64) -> Known {
        idempotency.begin([key; 32], [request; 32], now_ms, WINDOW)
    }

    fn complete(idempotency: &Arc<Idempotency>, key: u8, now_ms: u64, body: &'static [u8]) {
        let Known::New(reservation) = begin(idempotency, key, 1, now_ms) else { panic!("key {key} is known") };
        reservation.complete(now_ms, (StatusCode::OK, Bytes::from_static(body)));
    }

    #[test]
    fn a_key_is_new_then_in_progress_then_answered_until_its_time_is_over() {
        let idempotency = Arc::<Idempotency>::default();
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
        let idempotency = Arc::<Idempotency>::default();
        drop(begin(&idempotency, 1, 1, 0));
        assert!(matches!(begin(&idempotency, 1, 2, 0), Known::New(_)));
    }

    #[test]
    fn the_oldest_answers_go_when_there_is_no_room() {
        let idempotency = Arc::<Idempotency>::default();
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
    fn parts_of_a_sum_are_not_confused() {
        assert_ne!(sum_of(&[b"ab", b"c"]), sum_of(&[b"a", b"bc"]));
    }
}
