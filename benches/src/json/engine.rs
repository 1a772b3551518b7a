//! The work of an engine, and its timing.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Parses batches and writes the messages for subscribers.
pub trait Engine {
    /// A batch that was read.
    type Parsed<'a>
    where
        Self: 'a;

    /// Reads a batch, an array of messages, from bytes that came from a stranger; none if it refuses them.
    fn parse<'a>(&'a mut self, text: &'a [u8]) -> Option<Self::Parsed<'a>>;

    /// Bytes of the channels, session ids and message ids of a batch, so that each has been found.
    fn envelope_bytes(parsed: &Self::Parsed<'_>) -> usize;

    /// Appends the array for subscribers: `channel`, `data` and `ext` of each message.
    fn generate(parsed: &Self::Parsed<'_>, out: &mut Vec<u8>);
}

/// An engine with its name, whatever it is inside.
pub trait Contestant {
    /// The name printed before its iterations.
    fn name(&self) -> &'static str;

    /// The time to parse `text` this many times; none if the engine refuses it.
    fn time_parse(&mut self, text: &[u8], times: u32) -> Option<Duration>;

    /// The time to generate the output of the batch in `text` this many times; none if the engine refuses it.
    fn time_generate(&mut self, text: &[u8], times: u32) -> Option<Duration>;

    /// The output for subscribers, and the bytes of its envelopes; none if the engine refuses the batch.
    fn deliver(&mut self, text: &[u8]) -> Option<(Vec<u8>, usize)>;
}

/// An engine and its name.
#[derive(Debug)]
pub struct Named<E>(pub &'static str, pub E);

impl<E: Engine> Contestant for Named<E> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn time_parse(&mut self, text: &[u8], times: u32) -> Option<Duration> {
        let begin = Instant::now();
        for _ in 0..times {
            let parsed = self.1.parse(black_box(text))?;
            black_box(E::envelope_bytes(&parsed));
            black_box(&parsed);
        }
        Some(begin.elapsed())
    }

    fn time_generate(&mut self, text: &[u8], times: u32) -> Option<Duration> {
        let parsed = self.1.parse(text)?;
        let mut out = Vec::with_capacity(2 * text.len());
        let begin = Instant::now();
        for _ in 0..times {
            out.clear();
            E::generate(black_box(&parsed), &mut out);
            black_box(&out);
        }
        Some(begin.elapsed())
    }

    fn deliver(&mut self, text: &[u8]) -> Option<(Vec<u8>, usize)> {
        let parsed = self.1.parse(text)?;
        let mut out = Vec::new();
        E::generate(&parsed, &mut out);
        Some((out, E::envelope_bytes(&parsed)))
    }
}
