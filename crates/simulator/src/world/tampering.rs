//! Deliberate faults of the wire.

use bayeux::json::elements;
use encke_core::PRESENCE_CHANNEL;
use websocket::frame;

use crate::channels::PRESENT;
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    /// Applies a fault of the wire to bytes that a client is about to read.
    pub(super) fn garble(&mut self, conn: usize, bytes: &mut [u8]) {
        if self.sabotage == Sabotage::ChangedByte
            && self.network.begins_compressed(conn, bytes)
            && let Some((head, length)) = frame::split(bytes)
            && self.sabotage_once(Sabotage::ChangedByte)
        {
            bytes[head + length / 2] ^= 1;
        }
    }

    /// Applies a fault of the wire to a text.
    pub(super) fn tampered(&mut self, text: String) -> Vec<String> {
        let carries = text.contains("\"data\":{\"k\":");
        if carries && self.sabotage_once(Sabotage::DoubledFrame) {
            return vec![text.clone(), text];
        }
        if carries && self.sabotage_once(Sabotage::DroppedFrame) {
            return without(&text, "\"data\":{\"k\":");
        }
        if self.sabotage == Sabotage::DroppedLatest && text.contains(FED) && self.rng.chance(300) {
            return without(&text, FED);
        }
        if carries && self.sabotage_once(Sabotage::ChangedData) {
            return vec![text.replace(".10,", ".1,")];
        }
        if carries && self.sabotage_once(Sabotage::ForgedAdvice) {
            return vec![text.replace("\"data\":", "\"advice\":{},\"data\":")];
        }
        if !self.checker.sessions.is_empty() && self.sabotage_once(Sabotage::LeakedId) {
            let session = self.rng.below(self.checker.sessions.len());
            let id = &self.checker.sessions[session].text;
            return vec![text.replacen('{', &format!("{{\"x-custom\":\"{id}\","), 1)];
        }
        if self.sabotage == Sabotage::LeakedAnnouncement && carries && self.rng.chance(300) {
            let channel = self.rng.pick(&PRESENT);
            return vec![text, format!("[{{\"channel\":\"{PRESENCE_CHANNEL}{channel}\",\"data\":{{\"users\":1}}}}]")];
        }
        if let Some(texts) = self.misplaced(&text) {
            return texts;
        }
        if carries && self.sabotage == Sabotage::SwappedMessages {
            let mut parts: Vec<&str> = elements(&text).collect();
            parts.reverse();
            if parts.len() > 1 {
                return vec![format!("[{}]", parts.join(","))];
            }
            if let Some(earlier) = self.held_back.take() {
                return vec![text, earlier];
            }
            if self.sabotage_once(Sabotage::SwappedMessages) {
                self.held_back = Some(text);
                return Vec::new();
            }
        }
        vec![text]
    }

    /// Applies a positional fault of the wire to a text with positions.
    pub(super) fn misplaced(&mut self, text: &str) -> Option<Vec<String>> {
        let with_positions = text.contains(POSITION);
        if with_positions && self.sabotage_once(Sabotage::DroppedPosition) {
            return Some(without(text, POSITION));
        }
        if with_positions && self.sabotage_once(Sabotage::DoubledPosition) {
            return Some(vec![text.to_owned(), text.to_owned()]);
        }
        if with_positions && self.sabotage_once(Sabotage::ChangedPosition) {
            let position = text.split_once(POSITION)?.1.split_once("\"id\":")?.1;
            let id: String = position.chars().take_while(char::is_ascii_digit).collect();
            let other = (id.parse::<u64>().ok()? + 1).to_string();
            return Some(vec![text.replacen(&id, &other, 2)]);
        }
        if self.sabotage == Sabotage::HushedLoss && text.contains("\"lost\":{") {
            return Some(vec![text.replace("\"lost\":{", "\"hushed\":{")]);
        }
        None
    }
}

/// A batch without the messages that contain `marked`. It retains the replies beside them: their absence would be
/// noticed first.
pub(super) fn without(text: &str, marked: &str) -> Vec<String> {
    let rest: Vec<&str> = elements(text).filter(|raw| !raw.contains(marked)).collect();
    if rest.is_empty() { Vec::new() } else { vec![format!("[{}]", rest.join(","))] }
}

/// The part of a message by which it has a position.
const POSITION: &str = "\"replay\":{\"epoch\":";

/// The part of a message by which it is one of a feed.
const FED: &str = "{\"channel\":\"/keep/feed";
