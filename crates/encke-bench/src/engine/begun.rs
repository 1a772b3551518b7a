//! The beginning of a message that arrives in parts.

use crate::engine::error::ConnectionError;
use crate::engine::socket::MESSAGE_BYTES_MAX;

/// The bytes that no whole message has used yet. Empty, it owns no heap.
#[derive(Debug, Default)]
pub(super) struct Begun(Vec<u8>);

impl Begun {
    /// Passes the bytes so far and this part behind them to `take`, maybe in pieces. That returns the number of bytes that it used, which are
    /// whole messages, and true if the session received any of them, as this does. The rest is buffered.
    ///
    /// # Errors
    /// That of `take`, or the rest is longer than [`MESSAGE_BYTES_MAX`].
    #[inline]
    pub(super) fn take(
        &mut self,
        mut part: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(usize, bool), ConnectionError>,
    ) -> Result<bool, ConnectionError> {
        let (held, mut copied, mut for_session) = (self.0.len(), 0, false);
        while !self.0.is_empty() && copied < part.len() {
            // Most often these bytes complete the message, and the others need not be copied.
            let end = if copied == 0 { part.len().min(PIECE_BYTES) } else { part.len() };
            self.0.extend_from_slice(&part[copied..end]);
            let (used, any) = take(&self.0)?;
            for_session |= any;
            copied = end;
            if used > 0 {
                part = &part[used.saturating_sub(held)..];
                self.0 = Vec::new();
            }
        }
        if self.0.is_empty() {
            let (used, any) = take(part)?;
            for_session |= any;
            self.0.extend_from_slice(&part[used..]);
        }
        if self.0.len() > MESSAGE_BYTES_MAX {
            return Err(ConnectionError::Lost(format!("sent a message over {MESSAGE_BYTES_MAX} bytes")));
        }
        Ok(for_session)
    }
}

/// The bytes that are tried first: the most that a short message lacks.
const PIECE_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes parts on, and returns the lines that came of each, with the bytes that are buffered then.
    fn lines(begun: &mut Begun, part: &[u8]) -> (Vec<u8>, usize) {
        let mut taken = Vec::new();
        let any = begun.take(part, |bytes| {
            let used = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
            taken.extend_from_slice(&bytes[..used]);
            Ok((used, used > 0))
        });
        assert_eq!(any, Ok(!taken.is_empty()));
        (taken, begun.0.len())
    }

    #[test]
    fn a_message_in_parts_is_passed_on_when_it_is_whole_and_leaves_nothing() {
        let mut begun = Begun::default();
        assert_eq!(lines(&mut begun, b"one\ntw"), (b"one\n".to_vec(), 2));
        assert_eq!(lines(&mut begun, b"o"), (Vec::new(), 3));
        assert_eq!(lines(&mut begun, b"\nthree"), (b"two\n".to_vec(), 5));
        assert_eq!(lines(&mut begun, b"\n"), (b"three\n".to_vec(), 0));
        assert_eq!(begun.0.capacity(), 0);
    }

    #[test]
    fn parts_of_any_length_are_passed_on_once_and_in_order() {
        let all: Vec<u8> = (0..60_u32)
            .flat_map(|line| [vec![line as u8 + b' '; (line * line) as usize], b"\n".into()].concat())
            .collect();
        for part_bytes in [1, 7, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3_000, all.len()] {
            let mut begun = Begun::default();
            let taken: Vec<u8> = all.chunks(part_bytes).flat_map(|part| lines(&mut begun, part).0).collect();
            assert!(taken == all, "{part_bytes}");
        }
    }

    #[test]
    fn an_endless_message_is_not_buffered() {
        let (mut begun, part) = (Begun::default(), vec![b'x'; MESSAGE_BYTES_MAX]);
        assert!(begun.take(&part, |_| Ok((0, false))).is_ok());
        assert!(begun.take(b"x", |_| Ok((0, false))).is_err());
    }
}
