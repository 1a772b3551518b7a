//! A session of [`Transport::Raw`](crate::order::Transport::Raw), with the interface of a
//! [`ClientSession`](encke_client::session::ClientSession).

use std::collections::VecDeque;
use std::time::Duration;

use encke_client::LostReason;
use encke_client::session::{Event, RequestClass, Transmission};

/// A session that only joins rooms.
///
/// ```text
/// away ── connected ──▶ joining ── all joined ──▶ open
///  ▲────────────────── connection lost ───────────┘
/// ```
#[derive(Debug)]
pub(super) struct Raw {
    rooms: Vec<u32>,
    /// The number of rooms whose joining is not confirmed yet.
    joining: usize,
    /// Attempts in a row that came to nothing.
    failures: u32,
    out: Option<String>,
    events: VecDeque<Event>,
}

impl Raw {
    /// A session that is to be in `rooms`.
    pub(super) fn new(rooms: Vec<u32>) -> Raw {
        Raw { rooms, joining: 0, failures: 0, out: None, events: VecDeque::new() }
    }

    pub(super) fn connection_opened(&mut self) {
        self.joining = self.rooms.len();
        let lines: Vec<_> = self.rooms.iter().map(|room| format!("+{room:05}")).collect();
        self.out = (!lines.is_empty()).then(|| lines.join("\n"));
        self.opened_if_joined();
    }

    pub(super) fn connection_lost(&mut self, reason: &str) {
        let reopen_in = REOPEN_STEP.saturating_mul(self.failures).min(REOPEN_MAX);
        self.failures += 1;
        self.out = None;
        self.events.push_back(Event::Lost { reason: LostReason::Other(reason.into()), reopen_in });
    }

    /// Takes a text that is no data.
    ///
    /// # Errors
    /// It is no answer to joining.
    pub(super) fn received(&mut self, text: &str) -> Result<(), String> {
        let lines = text.lines().filter(|line| line.starts_with('+')).count();
        if lines == 0 || lines != text.lines().count() || lines > self.joining {
            return Err(format!("sent neither data nor what was joined: {:?}", text.get(..60).unwrap_or(text)));
        }
        self.joining -= lines;
        self.opened_if_joined();
        Ok(())
    }

    pub(super) fn transmit(&mut self) -> Option<Transmission> {
        self.out.take().map(|text| Transmission { class: RequestClass::Other, text })
    }

    pub(super) fn event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        event
    }

    fn opened_if_joined(&mut self) {
        if self.joining == 0 {
            self.failures = 0;
            self.events.push_back(Event::Opened { resumed: false });
        }
    }
}

/// Each failure lengthens the pause before the next attempt by this.
const REOPEN_STEP: Duration = Duration::from_millis(100);
const REOPEN_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_open_when_all_rooms_are_confirmed() {
        let mut raw = Raw::new(vec![1, 70_000]);
        raw.connection_opened();
        assert_eq!(raw.transmit().map(|transmission| transmission.text).as_deref(), Some("+00001\n+70000"));
        assert!(raw.transmit().is_none());
        raw.received("+00001").expect("joined");
        assert!(raw.event().is_none());
        raw.received("+70000").expect("joined");
        assert!(matches!(raw.event(), Some(Event::Opened { .. })));
        assert!(raw.received("+70000").is_err() && raw.received("hello").is_err());
    }

    #[test]
    fn failures_in_a_row_make_longer_pauses() {
        let mut raw = Raw::new(Vec::new());
        let mut pauses = Vec::new();
        for attempt in 0..4 {
            raw.connection_lost("gone");
            if attempt == 2 {
                raw.connection_opened();
            }
            let events = std::iter::from_fn(|| raw.event());
            pauses.extend(events.filter_map(|event| match event {
                Event::Lost { reopen_in, .. } => Some(reopen_in.as_millis()),
                _ => None,
            }));
        }
        assert_eq!(pauses, [0, 100, 200, 0]);
    }
}
