//! One text of several messages, in either direction: an array of objects, or an object alone (Bayeux 1.0, "Message").

use crate::error::BayeuxError;
use crate::json::{JsonError, RawJson, RawString, Scanner};

/// The reasons to refuse a whole batch. The sender is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// It is not JSON (RFC 8259).
    #[error("not JSON")]
    JsonInvalid,
    /// A field's value is nested deeper than [`Limits::json_depth_max`](crate::Limits::json_depth_max).
    #[error("JSON nested too deep")]
    JsonTooDeep,
    /// It is an empty array.
    #[error("no message")]
    Empty,
    /// It is neither an object nor an array of objects.
    #[error("a message that is no object")]
    MessageNotObject,
    /// It has more messages than [`Limits::batch_messages_max`](crate::Limits::batch_messages_max).
    #[error("too many messages")]
    TooLong,
}

impl BatchError {
    /// The HTTP status for it: 400, or 413 for a limit on size.
    pub fn status(&self) -> u16 {
        BayeuxError::from(*self).code()
    }

    /// The Bayeux `error` text for it.
    pub fn error(&self) -> &'static str {
        BayeuxError::from(*self).as_str()
    }
}

impl From<JsonError> for BatchError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Invalid => BatchError::JsonInvalid,
            JsonError::TooDeep => BatchError::JsonTooDeep,
        }
    }
}

impl From<BatchError> for BayeuxError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::JsonInvalid => BayeuxError::JsonInvalid,
            BatchError::JsonTooDeep => BayeuxError::JsonTooDeep,
            BatchError::Empty => BayeuxError::BatchEmpty,
            BatchError::MessageNotObject => BayeuxError::MessageNotObject,
            BatchError::TooLong => BayeuxError::BatchTooLong,
        }
    }
}

/// Reads the messages of a batch. All or nothing: the whole text has to be JSON.
///
/// `read` fills in a message that is already in the vector, because a message is too large to be moved cheaply.
#[inline]
pub(crate) fn read_batch<'a, M: Default>(
    text: &'a str,
    messages_max: usize,
    mut read: impl FnMut(&mut Scanner<'a>, &mut M) -> Result<(), BatchError>,
) -> Result<Vec<M>, BatchError> {
    let mut scanner = Scanner::new(text);
    // Most batches are of one message.
    let mut messages = Vec::with_capacity(1);
    scanner.space();
    if scanner.take(b'[') {
        scanner.space();
        if scanner.take(b']') {
            end(&mut scanner)?;
            return Err(BatchError::Empty);
        }
        loop {
            if messages.len() == messages_max {
                return Err(BatchError::TooLong);
            }
            read(&mut scanner, messages.push_mut(M::default()))?;
            scanner.space();
            if scanner.take(b']') {
                break;
            }
            if !scanner.take(b',') {
                return Err(BatchError::JsonInvalid);
            }
            scanner.space();
        }
    } else {
        read(&mut scanner, messages.push_mut(M::default()))?;
    }
    end(&mut scanner)?;
    Ok(messages)
}

/// Reads one message and passes its fields to `set`, in their order.
#[inline]
pub(crate) fn read_fields<'a>(
    scanner: &mut Scanner<'a>,
    depth_max: usize,
    mut set: impl FnMut(RawString<'a>, RawJson<'a>),
) -> Result<(), BatchError> {
    if !scanner.take(b'{') {
        // Distinguishes garbage from JSON of the wrong kind.
        scanner.value(depth_max)?;
        return Err(BatchError::MessageNotObject);
    }
    scanner.space();
    if !scanner.take(b'}') {
        loop {
            let key = scanner.key()?;
            let value = scanner.value(depth_max)?;
            set(key, RawJson::trusted(value));
            scanner.space();
            if scanner.take(b'}') {
                break;
            }
            if !scanner.take(b',') {
                return Err(BatchError::JsonInvalid);
            }
            scanner.space();
        }
    }
    Ok(())
}

fn end(scanner: &mut Scanner<'_>) -> Result<(), BatchError> {
    scanner.space();
    if scanner.peek().is_none() { Ok(()) } else { Err(BatchError::JsonInvalid) }
}
