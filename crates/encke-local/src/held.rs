//! The body of the response to a held request: messages with their positions, and gaps, as a JSON array.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::message::{Gap, Message};
use crate::subscription::Subscription;

/// The body that answers a held request: its first item, and those that are there already as long as `has_room` is true for
/// the bytes so far. Without a first item it is the empty array.
pub fn held_body(
    first: Option<Result<Message, Gap>>,
    subscription: &mut Subscription,
    has_room: impl Fn(usize) -> bool,
) -> Vec<u8> {
    let mut body = vec![b'['];
    if let Some(item) = first {
        write(&item, &mut body);
        let mut ready = Context::from_waker(Waker::noop());
        while has_room(body.len())
            && let Poll::Ready(Some(item)) = pin!(&mut *subscription).poll_next(&mut ready)
        {
            body.push(b',');
            write(&item, &mut body);
        }
    }
    body.push(b']');
    body
}

/// Writes a message with its position, or a gap.
fn write(item: &Result<Message, Gap>, out: &mut Vec<u8>) {
    match item {
        Ok(message) => {
            let json = message.json().as_bytes();
            match message.position() {
                Some(position) => {
                    out.extend_from_slice(json.strip_suffix(b"}").unwrap_or(json));
                    out.extend_from_slice(format!(",\"position\":\"{position}\"}}").as_bytes());
                }
                None => out.extend_from_slice(json),
            }
        }
        Err(Gap::Slow { messages }) => {
            out.extend_from_slice(format!("{{\"gap\":\"slow\",\"messages\":{messages}}}").as_bytes());
        }
        // The name of a channel needs no escapes.
        Err(Gap::Gone { channel }) => {
            out.extend_from_slice(format!("{{\"gap\":\"gone\",\"channel\":\"{channel}\"}}").as_bytes());
        }
    }
}
