//! What sessions of a crowd do against loss: the extensions `ack` and `replay`.

use encke_client::{Extension, Incoming, Outgoing, Value, Verdict};

use crate::run::{Recovery, Replay};

/// Asks for what a run wants, and says with each connect which batch came last. Deliveries are in the same text as the reply
/// that closes their batch, and were counted when a session hears of it.
#[derive(Debug)]
pub(super) struct Recovering {
    wanted: Recovery,
    /// The last batch that came.
    batch: u64,
}

impl Recovering {
    /// None where nothing is wanted.
    pub(super) fn new(wanted: Recovery) -> Option<Box<Recovering>> {
        (wanted != Recovery::default()).then(|| Box::new(Recovering { wanted, batch: 0 }))
    }
}

impl Extension for Recovering {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        let Recovery { ack, replay } = self.wanted;
        match message.channel {
            "/meta/handshake" => {
                self.batch = 0;
                let wanted = [("ack", ack), ("replay", replay != Replay::No)].into_iter().filter(|(_, wanted)| *wanted);
                message.ext.extend(wanted.map(|(name, _)| (name.into(), Value::from(true))));
            }
            "/meta/connect" if ack => {
                message.ext.insert("ack".into(), Value::from(self.batch));
            }
            "/meta/subscribe" if replay == Replay::Kept => {
                message.ext.insert("replay".into(), Value::from(FROM_THE_OLDEST));
            }
            _ => {}
        }
    }

    fn incoming(&mut self, message: &Incoming<'_>) -> Verdict {
        if self.wanted.ack && message.channel == "/meta/connect" {
            let batch = message.ext_field("ack").and_then(|batch| batch.as_u64());
            self.batch = batch.unwrap_or(self.batch);
        }
        Verdict::Keep
    }
}

/// The position before all that is kept.
const FROM_THE_OLDEST: i64 = -2;
