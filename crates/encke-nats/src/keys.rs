//! Keys in NATS KV: buckets that are made when they are needed, reads, writes with an expected revision, and watches.
//!
//! They have another connection than the envelopes, so that a lease does not wait behind publications. It is made for the first
//! command about a key. Without JetStream these commands fail, and the rest of the cluster works.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::kv::{Config, Operation, Store};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, HeaderValue, ServerAddr};
use bytes::Bytes;
use encke::{
    EngineCommand, EngineEvent, EngineEvents, Expected, KEY_BYTES_MAX, KeyAnswer, KeyFailure, KeyReply, VALUE_BYTES_MAX,
};
use tokio::sync::watch;

/// The way to NATS KV.
pub(crate) struct KeySettings {
    /// The options of the connection.
    pub(crate) options: ConnectOptions,
    /// The servers.
    pub(crate) addresses: Vec<ServerAddr>,
    /// Copies of each bucket that is made.
    pub(crate) replicas: usize,
}

type Buckets = Arc<Mutex<HashMap<String, Store>>>;

/// The connection for keys.
#[derive(Clone)]
pub(crate) struct Keys {
    client: Client,
    context: Context,
    replicas: usize,
    /// The buckets that are known to be there.
    buckets: Buckets,
    /// Grows when the connection is there again, or a bucket is gone: watches begin again.
    lives: Arc<watch::Sender<u64>>,
    events: EngineEvents,
}

/// Connects to NATS when the first command about a key comes. None: no address can be used, which is reported.
pub(crate) async fn connect(settings: KeySettings, events: EngineEvents) -> Option<Keys> {
    let KeySettings { options, addresses, replicas } = settings;
    let lives = Arc::new(watch::Sender::new(0));
    let buckets = Buckets::default();
    let (counted, known) = (lives.clone(), buckets.clone());
    let options = options.event_callback(move |event| {
        if let Event::Connected = event {
            // It may be a server that has lost them.
            known.lock().unwrap_or_else(PoisonError::into_inner).clear();
            counted.send_modify(|life| *life += 1);
        }
        std::future::ready(())
    });
    let client = match options.connect(&addresses[..]).await {
        Ok(client) => client,
        Err(error) => {
            events.report(EngineEvent::Failed(format!("no connection for keys: {error}"))).await;
            return None;
        }
    };
    let mut context = jetstream::new(client.clone());
    context.set_timeout(ANSWER_TIMEOUT);
    Some(Keys { client, context, replicas, buckets, lives, events })
}

impl Keys {
    /// Runs a command, but no watch, and reports its answer.
    pub(crate) async fn run(self, command: EngineCommand) {
        let (number, answer) = match command {
            EngineCommand::Get { number, bucket, key } => (number, self.get(&bucket, &key).await),
            EngineCommand::Put { number, bucket, key, value, expected, ttl_ms } => {
                (number, self.put(&bucket, &key, value, expected, ttl_ms).await)
            }
            EngineCommand::Delete { number, bucket, key, expected } => {
                (number, self.delete(&bucket, &key, expected).await)
            }
            _ => return,
        };
        self.events.report(EngineEvent::KeyAnswer { number, answer }).await;
    }

    async fn get(&self, bucket: &str, key: &str) -> KeyReply {
        let store = self.bucket(bucket).await?;
        let entry = store.entry(key).await.map_err(|error| self.failed(bucket, &error))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        Ok(KeyAnswer::Found(entry.map(|entry| (entry.revision, entry.value))))
    }

    async fn put(&self, bucket: &str, key: &str, value: Bytes, expected: Expected, ttl_ms: Option<u64>) -> KeyReply {
        if value.len() > VALUE_BYTES_MAX {
            return Err(KeyFailure::TooLarge);
        }
        let mut headers = HeaderMap::new();
        if let Some(ttl_ms) = ttl_ms {
            headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(ttl_ms.div_ceil(1_000).max(1)));
        }
        self.write(bucket, key, value, expected, headers).await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> KeyReply {
        let mut headers = HeaderMap::new();
        headers.insert("KV-Operation", HeaderValue::from("DEL"));
        // The note of the removal does not stay for ever.
        headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(MARKERS_RETAINED.as_secs()));
        self.write(bucket, key, Bytes::new(), expected, headers).await
    }

    async fn write(&self, bucket: &str, key: &str, value: Bytes, expected: Expected, headers: HeaderMap) -> KeyReply {
        if key.len() > KEY_BYTES_MAX || !is_key(key) {
            return Err(KeyFailure::Failed(format!("{key:?} cannot be a key")));
        }
        let store = self.bucket(bucket).await?;
        let revision = match expected {
            Expected::Any => None,
            Expected::Absent => Some(0),
            Expected::Revision(revision) => Some(revision),
        };
        match self.publish(bucket, key, value.clone(), revision, headers.clone()).await {
            Err(KeyFailure::Conflict) if expected == Expected::Absent => {
                // The last thing there may be the note that it is gone.
                let entry = store.entry(key).await.map_err(|error| self.failed(bucket, &error))?;
                match entry {
                    Some(gone) if gone.operation != Operation::Put => {
                        self.publish(bucket, key, value, Some(gone.revision), headers).await
                    }
                    _ => Err(KeyFailure::Conflict),
                }
            }
            answer => answer,
        }
    }

    async fn publish(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        revision: Option<u64>,
        headers: HeaderMap,
    ) -> KeyReply {
        let subject = format!("$KV.{bucket}.{key}");
        write_after(&self.context, subject, headers, (value, revision), |error| {
            if error.kind() == PublishErrorKind::StreamNotFound {
                self.forget(bucket);
            }
            self.failed(bucket, error)
        })
        .await
    }

    /// The bucket, which is made if it is not there.
    pub(crate) async fn bucket(&self, bucket: &str) -> Result<Store, KeyFailure> {
        // A command that is sent now would be executed at any later time.
        if !self.is_connected() {
            return Err(KeyFailure::Failed("the connection for keys is away".into()));
        }
        let known = self.buckets.lock().unwrap_or_else(PoisonError::into_inner).get(bucket).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let store = match self.context.get_key_value(bucket).await {
            Ok(store) => store,
            Err(error) if is_absent(&error) => {
                self.context.create_key_value(self.config(bucket)).await.map_err(|error| no_keys(bucket, &error))?
            }
            Err(error) => return Err(no_keys(bucket, &error)),
        };
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).insert(bucket.into(), store.clone());
        Ok(store)
    }

    fn config(&self, bucket: &str) -> Config {
        Config {
            bucket: bucket.into(),
            description: "Encke: what the nodes of a cluster know of each other".into(),
            max_value_size: VALUE_BYTES_MAX as i32,
            history: 1,
            max_bytes: -1,
            num_replicas: self.replicas,
            // Keys may go by themselves, and those who watch them are notified.
            limit_markers: Some(MARKERS_RETAINED),
            ..Config::default()
        }
    }

    /// The bucket is gone: the next command makes it, and watches begin again.
    fn forget(&self, bucket: &str) {
        if self.buckets.lock().unwrap_or_else(PoisonError::into_inner).remove(bucket).is_some() {
            self.lives.send_modify(|life| *life += 1);
        }
    }

    /// True if the connection is there.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// The way to JetStream.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The most bytes of a message.
    pub(crate) fn bytes_max(&self) -> usize {
        self.client.max_payload()
    }

    /// Tells when watches have to begin again.
    pub(crate) fn lives(&self) -> watch::Receiver<u64> {
        self.lives.subscribe()
    }

    /// Grows when the connection is there again, perhaps to a server that has lost all.
    pub(crate) fn life(&self) -> u64 {
        *self.lives.borrow()
    }

    /// The copies of what is made.
    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }

    /// A subject for what comes to this connection only.
    pub(crate) fn new_inbox(&self) -> String {
        self.client.new_inbox()
    }

    /// The events of the engine.
    pub(crate) fn events(&self) -> &EngineEvents {
        &self.events
    }

    fn failed(&self, bucket: &str, error: &dyn Error) -> KeyFailure {
        KeyFailure::Failed(format!("{bucket}: {}", causes(error)))
    }
}

/// Writes a message to a stream; if a sequence is given, only behind the message with that one. `failed`: what becomes of any other error.
pub(crate) async fn write_after(
    context: &Context,
    subject: String,
    mut headers: HeaderMap,
    (value, after): (Bytes, Option<u64>),
    failed: impl FnOnce(&PublishError) -> KeyFailure,
) -> KeyReply {
    if let Some(after) = after {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(after));
    }
    let written = match context.publish_with_headers(subject, headers, value).await {
        Ok(written) => written.await,
        Err(error) => Err(error),
    };
    written.map(|written| KeyAnswer::Written(written.sequence)).map_err(|error| match error.kind() {
        PublishErrorKind::WrongLastSequence => KeyFailure::Conflict,
        PublishErrorKind::MaxPayloadExceeded => KeyFailure::TooLarge,
        _ => failed(&error),
    })
}

/// True if the server says that there is no such bucket.
fn is_absent(error: &jetstream::context::KeyValueError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<GetStreamError>());
    cause.is_some_and(is_no_stream)
}

/// True if the server says that there is no such stream.
pub(crate) fn is_no_stream(error: &GetStreamError) -> bool {
    matches!(
        error.kind(),
        GetStreamErrorKind::JetStream(error) if error.error_code() == jetstream::ErrorCode::STREAM_NOT_FOUND
    )
}

fn no_keys(bucket: &str, error: &dyn Error) -> KeyFailure {
    let text = format!("no bucket {bucket}; it needs a NATS server, 2.11 or later, with JetStream: {}", causes(error));
    KeyFailure::Failed(text)
}

/// An error with all its causes.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.ends_with(&next_text) {
            text.push_str(": ");
            text.push_str(&next_text);
        }
        cause = next.source();
    }
    text
}

fn is_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'=');
    key.split('.').all(|token| !token.is_empty() && token.bytes().all(is_allowed))
}

/// The longest wait for an answer of NATS about keys.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which NATS remembers that a key is gone.
const MARKERS_RETAINED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_tokens_with_dots_between_them() {
        assert!(["a", "n.0f", "s.a=2Eb.c-d_e"].into_iter().all(is_key));
        assert!(!["", ".a", "a.", "a..b", "a b", "a.*", ">", "a/b", "\u{e4}"].into_iter().any(is_key));
    }
}
