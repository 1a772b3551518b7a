//! The connection between a source and the server.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use encke::{Handle, Lease, PublishError};
use parking_lot::Mutex;

use crate::metrics::SourceMetrics;

/// Publishes messages on a server.
pub(crate) trait Publish: Send + Sync {
    /// Broadcasts JSON on a channel, or refuses.
    fn publish(&self, channel: &str, json: &str) -> Result<(), PublishError>;

    /// The lease with this name.
    fn lease(&self, name: &str) -> Lease;
}

impl Publish for Handle {
    fn publish(&self, channel: &str, json: &str) -> Result<(), PublishError> {
        Handle::publish(self, channel, json)
    }

    fn lease(&self, name: &str) -> Lease {
        Handle::lease(self, name)
    }
}

/// Publishes for one source. It counts, and logs each error once until the source works again.
#[derive(Clone)]
pub(crate) struct Publisher {
    name: Arc<str>,
    server: Arc<dyn Publish>,
    metrics: Arc<SourceMetrics>,
    health: Arc<Mutex<Health>>,
}

/// The state of a source, as its log shows it.
#[derive(Debug, Default)]
struct Health {
    /// The errors that were logged since the source worked.
    logged: Vec<String>,
    is_failing: bool,
    works_since: Option<Instant>,
}

impl Publisher {
    pub(crate) fn new(name: &str, server: Arc<dyn Publish>, metrics: Arc<SourceMetrics>) -> Publisher {
        Publisher { name: name.into(), server, metrics, health: Arc::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn metrics(&self) -> &SourceMetrics {
        &self.metrics
    }

    /// Publishes once. [`PublishError::Busy`] means that a later attempt may succeed; another error is counted and logged here.
    pub(crate) fn attempt(&self, channel: &str, json: &str) -> Result<(), PublishError> {
        let outcome = self.server.publish(channel, json);
        match &outcome {
            Ok(()) => self.metrics.messages.add(1),
            Err(PublishError::Busy) => self.metrics.busy.add(1),
            Err(mistake) => self.fault(mistake),
        }
        outcome
    }

    /// Publishes, and waits while the server is busy. A message that the server never takes is counted and logged.
    pub(crate) async fn publish(&self, channel: &str, json: &str) {
        while let Err(PublishError::Busy) = self.attempt(channel, json) {
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Publishes a line, and waits while the server is busy. A line that is JSON stays as it is; another text becomes a JSON string.
    pub(crate) async fn publish_line(&self, channel: &str, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_ascii();
        if text.is_empty() {
            return;
        }
        loop {
            match self.server.publish(channel, text) {
                Ok(()) => return self.metrics.messages.add(1),
                // A text is always JSON after this.
                Err(PublishError::Data) => return self.publish(channel, &quoted(text)).await,
                Err(PublishError::Busy) => {
                    self.metrics.busy.add(1);
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Err(mistake) => return self.fault(mistake),
            }
        }
    }

    /// An input that cannot be published. The source goes on.
    pub(crate) fn fault(&self, error: impl Display) {
        self.metrics.errors.add(1);
        let error = error.to_string();
        if self.health.lock().log(&error) {
            tracing::warn!(source = &*self.name, "{error}");
        }
    }

    /// A failure that ends the run of a source.
    pub(crate) fn failure(&self, error: impl Display, pause: Duration) {
        self.metrics.errors.add(1);
        let error = error.to_string();
        let mut health = self.health.lock();
        (health.is_failing, health.works_since) = (true, None);
        if health.log(&error) {
            tracing::warn!(source = &*self.name, "{error}; it starts again in {} ms", pause.as_millis());
        }
    }

    /// The source works: it is connected, or has read its input.
    pub(crate) fn works(&self) {
        let mut health = self.health.lock();
        health.works_since.get_or_insert_with(Instant::now);
        if std::mem::take(&mut health.is_failing) {
            health.logged.clear();
            tracing::info!(source = &*self.name, "it works again");
        }
    }

    /// The time since which it works.
    pub(crate) fn works_for(&self) -> Duration {
        self.health.lock().works_since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

impl Health {
    /// True for an error that is to be logged now.
    fn log(&mut self, error: &str) -> bool {
        let is_new = self.logged.len() < LOGGED_MAX && !self.logged.iter().any(|logged| logged == error);
        if is_new {
            self.logged.push(error.into());
        }
        is_new
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The pause before a message is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Most different errors that are logged until the source works again.
const LOGGED_MAX: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A server that is busy for some attempts, and has the messages that it took.
    #[derive(Default)]
    pub(crate) struct Fake {
        pub(crate) busy: Mutex<u32>,
        pub(crate) taken: Mutex<Vec<(String, String)>>,
    }

    impl Publish for Fake {
        fn publish(&self, channel: &str, json: &str) -> Result<(), PublishError> {
            let mut busy = self.busy.lock();
            if *busy > 0 {
                *busy -= 1;
                return Err(PublishError::Busy);
            }
            if !channel.starts_with('/') {
                return Err(PublishError::Channel(channel.into()));
            }
            serde_json::from_str::<serde_json::Value>(json).map_err(|_| PublishError::Data)?;
            self.taken.lock().push((channel.into(), json.into()));
            Ok(())
        }

        fn lease(&self, _: &str) -> Lease {
            Lease::always()
        }
    }

    pub(crate) fn publisher(fake: &Arc<Fake>) -> Publisher {
        Publisher::new("test", fake.clone(), Arc::default())
    }

    #[tokio::test]
    async fn a_line_that_is_json_stays_as_it_is_and_another_becomes_a_string() {
        let fake = Arc::new(Fake { busy: 3.into(), ..Fake::default() });
        let publisher = publisher(&fake);
        let lines: [&[u8]; 7] =
            [b"{\"a\": 1}", b"12", b"plain \"text\"", b"  \r", b"{\"open\":", b"\xff\x01", b"null\r"];
        for line in lines {
            publisher.publish_line("/a", line).await;
        }
        let taken: Vec<String> = fake.taken.lock().iter().map(|(_, json)| json.clone()).collect();
        assert_eq!(
            taken,
            ["{\"a\": 1}", "12", r#""plain \"text\"""#, r#""{\"open\":""#, "\"\u{fffd}\\u0001\"", "null"]
        );
        let metrics = publisher.metrics();
        assert_eq!((metrics.messages.get(), metrics.busy.get(), metrics.errors.get()), (6, 3, 0));
    }

    #[tokio::test]
    async fn an_error_is_counted_each_time_and_logged_once_until_the_source_works_again() {
        let publisher = publisher(&Arc::default());
        publisher.publish_line("no channel", b"1").await;
        publisher.publish("no channel", "1").await;
        assert_eq!(publisher.metrics().errors.get(), 2);
        assert_eq!(publisher.health.lock().logged, ["no channel is no channel to publish to"]);
        (0..100).for_each(|number| publisher.failure(number, Duration::ZERO));
        assert_eq!((publisher.metrics().errors.get(), publisher.health.lock().logged.len()), (102, LOGGED_MAX));
        publisher.works();
        assert!(publisher.health.lock().logged.is_empty());
        assert!(publisher.health.lock().log("7") && !publisher.health.lock().log("7"));
    }
}
