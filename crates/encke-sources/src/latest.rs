//! Messages of which only the latest one of each channel counts.

use std::collections::HashMap;
use std::time::Duration;

use encke::PublishError;
use tokio::time::{Instant, sleep_until};

use crate::publisher::Publisher;

/// The latest messages that the busy server has not taken. A newer one of the channel replaces an older one.
#[derive(Default)]
pub(crate) struct Latest {
    pending: HashMap<String, String>,
}

impl Latest {
    /// Publishes, or lets the message wait if the server is busy.
    pub(crate) fn publish(&mut self, publisher: &Publisher, channel: String, json: String) {
        if self.pending.is_empty() && publisher.attempt(&channel, &json) != Err(PublishError::Busy) {
            return;
        }
        if self.pending.len() >= CHANNELS_MAX && !self.pending.contains_key(&channel) {
            return publisher.fault(format_args!("more than {CHANNELS_MAX} channels wait for the server"));
        }
        if self.pending.insert(channel, json).is_some() {
            publisher.metrics().superseded.add(1);
        }
    }

    /// Waits, and meanwhile publishes the messages that wait.
    pub(crate) async fn wait_until(&mut self, publisher: &Publisher, deadline: Instant) {
        loop {
            self.retry(publisher);
            if self.pending.is_empty() {
                return sleep_until(deadline).await;
            }
            let now = Instant::now();
            if now >= deadline {
                return tokio::task::yield_now().await;
            }
            sleep_until((now + RETRY_PAUSE).min(deadline)).await;
        }
    }

    /// Publishes the rest, however long the server is busy.
    pub(crate) async fn finish(&mut self, publisher: &Publisher) {
        while !self.pending.is_empty() {
            self.wait_until(publisher, Instant::now() + RETRY_PAUSE).await;
        }
    }

    /// Publishes the waiting messages, as far as the server takes them.
    fn retry(&mut self, publisher: &Publisher) {
        let mut is_busy = false;
        self.pending.retain(|channel, json| {
            is_busy = is_busy || publisher.attempt(channel, json) == Err(PublishError::Busy);
            is_busy
        });
    }
}

/// The pause before the waiting messages are tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Most channels with a waiting message.
const CHANNELS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::publisher::tests::{Fake, publisher};

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_gets_the_latest_message_of_each_channel() {
        let fake = Arc::new(Fake { busy: 40.into(), ..Fake::default() });
        let publisher = publisher(&fake);
        let mut latest = Latest::default();
        for number in 0..10 {
            latest.publish(&publisher, "/a".into(), number.to_string());
            latest.publish(&publisher, "/b".into(), (number * 10).to_string());
        }
        latest.finish(&publisher).await;
        let mut taken = fake.taken.lock().clone();
        taken.sort();
        assert_eq!(taken, [("/a".into(), "9".into()), ("/b".into(), "90".into())]);
        let metrics = publisher.metrics();
        assert_eq!((metrics.busy.get(), metrics.superseded.get(), metrics.messages.get()), (40, 18, 2));
    }

    #[tokio::test]
    async fn channels_that_wait_are_bounded() {
        let fake = Arc::new(Fake { busy: u32::MAX.into(), ..Fake::default() });
        let publisher = publisher(&fake);
        let mut latest = Latest::default();
        for number in 0..CHANNELS_MAX + 3 {
            latest.publish(&publisher, format!("/{number}"), "1".into());
        }
        assert_eq!((latest.pending.len(), publisher.metrics().errors.get()), (CHANNELS_MAX, 3));
    }
}
