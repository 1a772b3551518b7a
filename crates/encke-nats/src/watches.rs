//! Watches of keys in NATS KV. A watch begins again, with all keys, after each break of the connection, and when its bucket was gone:
//! so nothing is missed.

use std::time::Duration;

use async_nats::header::NATS_MARKER_REASON;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use encke::{EngineEvent, KeyFailure};
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::keys::{Keys, causes};

/// Reports the keys of a bucket that begin with a prefix, and their changes, for ever.
pub(crate) async fn run(keys: Keys, bucket: String, prefix: String) {
    let mut lives = keys.lives();
    // It is longer after a failure, which is reported once.
    let mut pause = PAUSE;
    loop {
        lives.borrow_and_update();
        match begin(&keys, &bucket, &prefix).await {
            Ok((messages, count)) => {
                pause = PAUSE;
                follow(&keys, &bucket, &prefix, messages, count, &mut lives).await;
            }
            Err(KeyFailure::Failed(text)) if keys.is_connected() => {
                if pause == PAUSE {
                    keys.events().report(EngineEvent::Failed(text)).await;
                }
                let (bucket, prefix) = (bucket.clone(), prefix.clone());
                keys.events().report(EngineEvent::WatchFailed { bucket, prefix }).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            // It is there soon, or its absence is known.
            Err(_) => pause = PAUSE,
        }
        // Not at once: a broken stream would cost a loop without a pause.
        sleep(pause).await;
    }
}

/// The changes, and the number of keys that are there first.
async fn begin(keys: &Keys, bucket: &str, prefix: &str) -> Result<(Ordered, u64), KeyFailure> {
    let store = keys.bucket(bucket).await?;
    let config = OrderedConfig {
        deliver_subject: keys.new_inbox(),
        filter_subject: format!("$KV.{bucket}.{prefix}>"),
        replay_policy: ReplayPolicy::Instant,
        deliver_policy: DeliverPolicy::LastPerSubject,
        ..OrderedConfig::default()
    };
    let failed = |text: String| KeyFailure::Failed(format!("the watch of {bucket} does not begin: {text}"));
    let consumer = store.stream.create_consumer(config).await.map_err(|error| failed(causes(&error)))?;
    let count = consumer.cached_info().num_pending;
    let messages = consumer.messages().await.map_err(|error| failed(causes(&error)))?;
    Ok((messages, count))
}

/// Reports what comes, until the watch has to begin again.
async fn follow(
    keys: &Keys,
    bucket: &str,
    prefix: &str,
    mut messages: Ordered,
    count: u64,
    lives: &mut watch::Receiver<u64>,
) {
    let named = || (bucket.to_string(), prefix.to_string());
    let (bucket_name, prefix_name) = named();
    keys.events().report(EngineEvent::WatchBegins { bucket: bucket_name, prefix: prefix_name }).await;
    let mut is_complete = false;
    if count == 0 {
        is_complete = true;
        let (bucket, prefix) = named();
        keys.events().report(EngineEvent::WatchComplete { bucket, prefix }).await;
    }
    loop {
        let message = tokio::select! {
            biased;
            _ = lives.changed() => return,
            message = messages.next() => message,
        };
        let Some(Ok(message)) = message else { return };
        let Ok(info) = message.info() else { return };
        let (revision, pending) = (info.stream_sequence, info.pending);
        if let Some(key) = message.subject.strip_prefix(&format!("$KV.{bucket}.")) {
            let value = (!is_removal(&message)).then(|| message.payload.clone());
            let event = EngineEvent::KeyChanged { bucket: bucket.into(), key: key.into(), revision, value };
            keys.events().report(event).await;
        }
        if pending == 0 && !is_complete {
            is_complete = true;
            let (bucket, prefix) = named();
            keys.events().report(EngineEvent::WatchComplete { bucket, prefix }).await;
        }
    }
}

/// True if the key is gone: removed, or at its end.
fn is_removal(message: &Message) -> bool {
    let headers = message.headers.as_ref();
    headers.is_some_and(|headers| headers.get("KV-Operation").is_some() || headers.get(NATS_MARKER_REASON).is_some())
}

/// The pause before a watch begins again.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, while NATS keeps no keys.
const PAUSE_MAX: Duration = Duration::from_secs(2);
