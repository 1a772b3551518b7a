//! One connection that asks for pages, one after another.

use std::collections::BTreeMap;

use super::exchange::Exchange;
use crate::engine::clock::now_us;
use crate::engine::connections::{End, Handler};
use crate::engine::http::{Head, Piece};
use crate::latencies::Latencies;

/// A connection.
#[derive(Debug)]
pub(super) struct Visitor {
    /// The driver's number of its slot.
    slot: usize,
    exchange: Exchange,
    head: Head,
    body_bytes: u64,
    asked: Option<Asked>,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The planned send time, in microseconds of [`now_us`].
    pub(super) planned_us: u64,
    /// The index of the page.
    pub(super) page: usize,
}

/// A page that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) path: String,
    pub(super) request: Vec<u8>,
    /// The length of its body.
    pub(super) bytes: u64,
}

/// State that all connections share.
#[derive(Debug)]
pub(super) struct VisitorShared {
    pub(super) pages: Vec<Page>,
    /// Requests planned from then on count.
    pub(super) from_us: u64,
    pub(super) latencies: Latencies,
    pub(super) counts: Counts,
    /// Events of slots since the driver last took them.
    pub(super) news: Vec<News>,
}

/// Counters. Those of the measured window count the requests planned in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Requests sent, in all.
    pub(super) sent: u64,
    /// Responses that were right, in all.
    pub(super) received: u64,
    /// Requests planned in the window.
    pub(super) asked: u64,
    /// Requests that were answered as they should be.
    pub(super) answered: u64,
    /// The bytes of their bodies.
    pub(super) bytes: u64,
    /// Requests after which the connection could be used again.
    pub(super) reusable: u64,
    /// Connections that could not be made or were broken while an answer was awaited.
    pub(super) broken: u64,
    /// The errors, with their numbers.
    pub(super) errors: BTreeMap<String, u64>,
}

/// An event of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It was answered; the connection can be used again.
    Answered(usize),
    /// It was answered; the connection cannot be used again.
    AnsweredAtLast(usize),
    /// Its connection ended before an answer.
    Failed(usize),
    /// Its connection ended while nothing was awaited, as servers do with idle ones.
    Left(usize),
}

impl Visitor {
    /// Creates a visitor that sends its first request when connected.
    pub(super) fn new(slot: usize, asked: Asked, http2: bool) -> Visitor {
        let (exchange, head) = (Exchange::new(http2), Head::default());
        Visitor { slot, exchange, head, body_bytes: 0, asked: Some(asked) }
    }

    /// Sends another request.
    pub(super) fn ask(&mut self, asked: Asked, out: &mut Vec<u8>, shared: &mut VisitorShared) {
        self.asked = Some(asked);
        self.exchange.ask(&shared.pages[asked.page].request, out);
        shared.counts.sent += 1;
    }

    /// A response is whole.
    fn answered(&mut self, shared: &mut VisitorShared) {
        let Some(asked) = self.asked.take() else { return };
        let wanted = shared.pages[asked.page].bytes;
        let wrong = match (self.head.status, self.body_bytes) {
            (200, bytes) if bytes == wanted => None,
            (200, bytes) => Some(format!("{bytes} bytes in place of {wanted}")),
            _ => Some(self.head.reason.clone()),
        };
        shared.take(asked, wrong, self.body_bytes, self.head.keep_alive);
        self.body_bytes = 0;
        shared.news.push(if self.head.keep_alive {
            News::Answered(self.slot)
        } else {
            News::AnsweredAtLast(self.slot)
        });
    }
}

impl Handler for Visitor {
    type State = VisitorShared;

    fn connected(&mut self, out: &mut Vec<u8>, shared: &mut VisitorShared) -> Result<(), String> {
        self.exchange.begin(out);
        if let Some(asked) = self.asked {
            self.ask(asked, out, shared);
        }
        Ok(())
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>, shared: &mut VisitorShared) -> Result<usize, String> {
        let mut at = 0;
        while let Some((piece, used)) = self.exchange.next(&bytes[at..], out)? {
            at += used;
            match piece {
                Piece::Head(_) if self.asked.is_none() => return Err("answered without a request".into()),
                Piece::Head(head) => self.head = head,
                Piece::Body(body) => self.body_bytes += body.len() as u64,
                Piece::End if self.head.status >= 200 => self.answered(shared),
                Piece::End => {}
            }
        }
        Ok(at)
    }

    fn ended(&mut self, end: End, shared: &mut VisitorShared) {
        if end == End::Closed && self.exchange.ends_with_connection() {
            return self.answered(shared);
        }
        let Some(asked) = self.asked.take() else { return shared.news.push(News::Left(self.slot)) };
        let why = match end {
            End::Unreachable(why) | End::Broken(why) => why,
            End::Closed => "closed before the answer".into(),
        };
        shared.counts.broken += 1;
        shared.take(asked, Some(why), 0, false);
        shared.news.push(News::Failed(self.slot));
    }
}

impl VisitorShared {
    /// Counts an answer or a failure.
    fn take(&mut self, asked: Asked, wrong: Option<String>, bytes: u64, reusable: bool) {
        let is_right = wrong.is_none();
        self.counts.received += u64::from(is_right);
        if asked.planned_us < self.from_us {
            return;
        }
        if let Some(wrong) = wrong {
            // Servers may put anything into a status line.
            let known = self.counts.errors.len() < DISTINCT_ERRORS_MAX || self.counts.errors.contains_key(&wrong);
            *self.counts.errors.entry(if known { wrong } else { "other errors".into() }).or_default() += 1;
            return;
        }
        self.counts.answered += 1;
        self.counts.bytes += bytes;
        self.counts.reusable += u64::from(reusable);
        self.latencies.record(now_us().saturating_sub(asked.planned_us));
    }
}

impl Counts {
    /// Everything that went wrong in the window.
    pub(super) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

const DISTINCT_ERRORS_MAX: usize = 16;
