//! The windows of flow control (RFC 9113 §5.2), of a stream and of a connection alike.

/// The bytes that the server may still send.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    size: u32,
    /// The bytes since the server was last given more.
    received: u32,
}

/// The bytes that the client may still send. Settings can make it negative (§6.9.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow(i64);

impl ReceiveWindow {
    /// A window of `size` bytes.
    pub(super) fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { size, received: 0 }
    }

    /// Takes bytes that have come. Returns how many the server has to be given again, once half of the window is used.
    ///
    /// # Errors
    /// The server was not allowed to send them. The text follows "the server".
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Result<Option<u32>, String> {
        self.received += bytes as u32;
        if self.received < self.size / 2 {
            return Ok(None);
        }
        if self.received > self.size {
            return Err(format!("sent more than the {} bytes of its window", self.size));
        }
        Ok(Some(std::mem::take(&mut self.received)))
    }
}

impl SendWindow {
    /// A window of `size` bytes.
    pub(super) fn new(size: u32) -> SendWindow {
        SendWindow(size.into())
    }

    /// The bytes that have room.
    pub(super) fn room(self) -> usize {
        self.0.max(0) as usize
    }

    /// Takes bytes that are sent.
    pub(super) fn take(&mut self, bytes: usize) {
        self.0 -= bytes as i64;
    }

    /// Gives more room, or less.
    ///
    /// # Errors
    /// The window would be larger than the standard allows (§6.9.1). The text follows "the server".
    pub(super) fn give(&mut self, bytes: i64) -> Result<(), String> {
        self.0 += bytes;
        if self.0 > WINDOW_MAX.into() { Err(format!("gave a window over {WINDOW_MAX} bytes")) } else { Ok(()) }
    }
}

/// The window of streams and connections before anything else is said, in bytes.
pub(super) const WINDOW_BYTES: u32 = 65_535;
/// The largest window, in bytes.
pub(super) const WINDOW_MAX: u32 = u32::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_given_in_time_all_that_it_has_used() {
        let mut window = ReceiveWindow::new(100);
        let given = [10, 39, 1, 100, 49].map(|bytes| window.take(bytes).expect("allowed"));
        assert_eq!(given, [None, None, Some(50), Some(100), None]);
        assert!(window.take(52).is_err(), "101 bytes since it was given any");
    }

    #[test]
    fn a_window_that_settings_make_negative_has_no_room_until_as_much_is_given() {
        let mut window = SendWindow::new(WINDOW_BYTES);
        window.take(65_000);
        assert_eq!(window.room(), 535);
        window.give(-65_535).expect("smaller");
        assert_eq!(window.room(), 0);
        window.give(65_001).expect("smaller than the largest");
        assert_eq!(window.room(), 1);
        assert!(window.give(WINDOW_MAX.into()).is_err());
    }
}
