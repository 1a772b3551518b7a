//! The least that each curve's work takes: maps and copies.

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;

use bayeux::json::{elements, member};
use websocket::{Opcode, frame};

/// A fan-out: the subscribers of each channel, and the unsent bytes of each.
#[derive(Default)]
pub(super) struct FanOut {
    channels: HashMap<String, Vec<u32>>,
    unsent: Vec<Vec<u8>>,
}

impl FanOut {
    /// One subscriber for each of the channels, of `subscribers` in turn.
    pub(super) fn new(channels: impl Iterator<Item = String>, subscribers: u32) -> Self {
        let members = channels.zip((0..subscribers).cycle());
        let channels = members.map(|(channel, subscriber)| (channel, vec![subscriber])).collect();
        FanOut { channels, unsent: vec![Vec::new(); subscribers as usize] }
    }

    /// Finds the channel of a publication in `text`, frames it once, copies the frame for each subscriber, and
    /// answers the publisher.
    pub(super) fn publish(&mut self, text: &str) {
        for message in elements(text) {
            let channel = member(message, "channel").unwrap_or_default().trim_matches('"');
            let data = member(message, "data").unwrap_or_default();
            let mut one = Vec::with_capacity(data.len() + channel.len() + 32);
            frame::message(Opcode::Text, format!(r#"[{{"channel":"{channel}","data":{data}}}]"#).as_bytes(), &mut one);
            for subscriber in self.channels.get(channel).into_iter().flatten() {
                let unsent = &mut self.unsent[*subscriber as usize];
                unsent.extend_from_slice(&one);
                black_box(&unsent);
                unsent.clear();
            }
            black_box(format!(r#"[{{"channel":"{channel}","successful":true}}]"#));
        }
    }
}

/// A ring of texts that has `size` of them.
pub(super) struct Ring(pub(super) VecDeque<Box<[u8]>>);

impl Ring {
    pub(super) fn new(size: u32, text: &str) -> Self {
        Ring((0..size).map(|_| text.as_bytes().into()).collect())
    }

    /// Stores a text and drops the oldest.
    pub(super) fn push(&mut self, text: &str) {
        self.0.pop_front();
        self.0.push_back(text.as_bytes().into());
    }

    /// Copies the last `count` texts into one buffer.
    pub(super) fn last(&self, count: usize) {
        let mut all = Vec::new();
        self.0.iter().skip(self.0.len().saturating_sub(count)).for_each(|text| all.extend_from_slice(text));
        black_box(all);
    }
}
