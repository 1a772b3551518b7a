//! The two languages the load speaks, and how a publication is written in each.

use crate::stamp;

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// WebSocket and nothing above it: a text message on `/pub` goes to every connection on `/sub`. Several publications
    /// in one message are parted by newlines; each arrives as a message of its own.
    Floor,
    /// Bayeux over WebSocket on `/cometd`; several publications in one message are a batch.
    Bayeux,
}

/// The channel that fan-out publishes to and subscribes to.
pub const FANOUT_CHANNEL: &str = "/bench/a";

impl Dialect {
    /// The path that subscribers connect to.
    pub fn subscriber_path(self) -> &'static str {
        match self {
            Dialect::Floor => "/sub",
            Dialect::Bayeux => "/cometd",
        }
    }

    /// The path that the publisher connects to.
    pub fn publisher_path(self) -> &'static str {
        match self {
            Dialect::Floor => "/pub",
            Dialect::Bayeux => "/cometd",
        }
    }

    /// Appends one WebSocket message's payload with these publications: sequence number and planned time of each.
    pub fn publish(self, client_id: &str, publications: impl Iterator<Item = (u32, u64)>, out: &mut Vec<u8>) {
        match self {
            Dialect::Floor => {
                for (index, (sequence, planned_us)) in publications.enumerate() {
                    if index > 0 {
                        out.push(b'\n');
                    }
                    stamp::write(sequence, planned_us, out);
                }
            }
            Dialect::Bayeux => {
                for (index, (sequence, planned_us)) in publications.enumerate() {
                    out.push(if index == 0 { b'[' } else { b',' });
                    let head = format!(
                        r#"{{"channel":"{FANOUT_CHANNEL}","id":"{sequence}","clientId":"{client_id}","data":""#
                    );
                    out.extend_from_slice(head.as_bytes());
                    stamp::write(sequence, planned_us, out);
                    out.extend_from_slice(b"\"}");
                }
                out.push(b']');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_one_json_array() {
        let mut out = Vec::new();
        Dialect::Bayeux.publish("me", [(1, 2), (3, 4)].into_iter(), &mut out);
        let batch: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(batch.as_array().map(Vec::len), Some(2));
        assert_eq!(batch[1]["clientId"], "me");
        assert_eq!(batch[1]["data"].as_str().and_then(|data| stamp::sequence(data.as_bytes())), Some(3));
    }

    #[test]
    fn the_floor_gets_lines_of_fifty_bytes() {
        let mut out = Vec::new();
        Dialect::Floor.publish("", [(1, 2), (3, 4)].into_iter(), &mut out);
        assert_eq!(out.split(|&byte| byte == b'\n').map(<[u8]>::len).collect::<Vec<_>>(), [50, 50]);
    }
}
