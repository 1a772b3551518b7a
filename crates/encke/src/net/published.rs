//! Publications of handles on their way to a shard, batched: one wake-up covers everything that arrived meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use bayeux::Publication as Message;
use websocket::{Opcode, frame};

use encke_core::{Charge, ENVELOPE_BYTES, Envelope, MailboxAccount, Publication, ShardMessage};

/// The publications of handles for one shard.
#[derive(Default)]
pub(crate) struct Published(Mutex<Vec<Burst>>);

/// Consecutive publications on one channel.
struct Burst {
    channel: Box<str>,
    frames: Vec<u8>,
    messages: u32,
    charge: Charge,
}

impl Published {
    /// Adds a publication on `channel`. True if it is the first, so the shard must be woken.
    pub(crate) fn add(&self, account: &Arc<MailboxAccount>, channel: &str, message: &Message<'_>) -> bool {
        let payload_bytes = message.encoded_bytes() + 2;
        let bytes = frame::header_bytes(payload_bytes) + payload_bytes;
        let mut bursts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = bursts.is_empty();
        let continued = bursts.last().is_some_and(|last| &*last.channel == channel && last.frames.len() < BURST_BYTES);
        if !continued {
            let charge = account.charge(ENVELOPE_BYTES + channel.len());
            bursts.push(Burst { channel: channel.into(), frames: Vec::new(), messages: 0, charge });
        }
        if let Some(Burst { frames, messages, charge, .. }) = bursts.last_mut() {
            charge.add(bytes);
            *messages += 1;
            frame::header(Opcode::Text, payload_bytes, frames);
            frames.push(b'[');
            message.write(frames);
            frames.push(b']');
        }
        is_first
    }

    /// Takes all publications, and returns their number. The next publication wakes the shard again.
    pub(crate) fn take(&self, account: &Arc<MailboxAccount>) -> (Vec<Envelope>, usize) {
        let bursts = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let messages = bursts.iter().map(|burst| burst.messages as usize).sum();
        let envelope = |burst: Burst| {
            let Burst { channel, frames, messages, charge } = burst;
            let frames = frames.into();
            let publication =
                Publication { channel, frames, messages, except: None, position: None, token: None, charge };
            Envelope::new(account, ShardMessage::Record(publication.into()))
        };
        (bursts.into_iter().map(envelope).collect(), messages)
    }
}

/// The size at which a burst is not extended any more.
const BURST_BYTES: usize = 32 * 1024;
