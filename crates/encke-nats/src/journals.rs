//! Journals in NATS JetStream: one stream of the cluster on disk, with a subject for each journal.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use encke::{EngineCommand, EngineEvent, JournalValue, KeyAnswer, KeyFailure, KeyReply};
use futures_util::StreamExt as _;

use crate::keys::{Keys, causes, is_no_stream, write_after};

/// The stream of the journals.
#[derive(Clone, Debug)]
pub(crate) struct JournalSettings {
    /// The name of the stream.
    pub(crate) stream: String,
    /// The beginning of the subjects of journals.
    pub(crate) prefix: String,
    /// The most bytes of the stream on disk; 0: no limit.
    pub(crate) bytes_max: u64,
    /// The time after which a value goes, in milliseconds; 0: it stays.
    pub(crate) age_ms: u64,
}

/// The journals of a connection.
#[derive(Clone)]
pub(crate) struct Journals {
    settings: Arc<JournalSettings>,
    /// The stream, if it is known to be there, and the life of the connection in which it was found.
    stream: Arc<Mutex<Option<(u64, Stream)>>>,
    /// The failure that was reported last.
    failure: Arc<Mutex<String>>,
}

impl Journals {
    pub(crate) fn new(settings: JournalSettings) -> Journals {
        Journals { settings: Arc::new(settings), stream: Arc::default(), failure: Arc::default() }
    }

    /// The server may have lost the stream.
    fn forget(&self) {
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs a command about a journal, and reports its answer; and a failure, if it is another one than the last.
    pub(crate) async fn run(self, keys: Keys, command: EngineCommand) {
        let (number, answer) = match command {
            EngineCommand::Append { number, journal, value, after } => {
                (number, self.append(&keys, &journal, value, after).await)
            }
            EngineCommand::ReadJournal { number, journal, from } => (number, self.read(&keys, &journal, from).await),
            _ => return,
        };
        if let Err(KeyFailure::Failed(text)) = &answer
            && keys.is_connected()
            && std::mem::replace(&mut *self.failure.lock().unwrap_or_else(PoisonError::into_inner), text.clone())
                != *text
        {
            keys.events().report(EngineEvent::Failed(text.clone())).await;
        }
        keys.events().report(EngineEvent::KeyAnswer { number, answer }).await;
    }

    async fn append(&self, keys: &Keys, journal: &str, value: Bytes, after: u64) -> KeyReply {
        self.stream(keys).await?;
        write_after(keys.context(), self.subject(journal), HeaderMap::new(), (value, Some(after)), |error| {
            if error.kind() == PublishErrorKind::StreamNotFound {
                self.forget();
            }
            self.failed(error)
        })
        .await
    }

    async fn read(&self, keys: &Keys, journal: &str, from: u64) -> KeyReply {
        let (stream, subject) = (self.stream(keys).await?, self.subject(journal));
        let last = match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Some((message.sequence, message.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
            Err(error) => {
                self.forget();
                return Err(self.failed(&error));
            }
        };
        if last.as_ref().is_none_or(|(last, _)| from > *last) {
            return Ok(KeyAnswer::Values { values: Vec::new(), last });
        }
        let config = pull::Config {
            filter_subject: subject,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.max(1) },
            ack_policy: AckPolicy::None,
            inactive_threshold: CONSUMER_RETAINED,
            memory_storage: true,
            num_replicas: 1,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| self.failed(&error))?;
        let bytes_max = READ_BYTES.max(keys.bytes_max() + READ_BYTES / 4);
        let fetched = consumer.fetch().max_messages(READ_VALUES).max_bytes(bytes_max).messages().await;
        let mut fetched = fetched.map_err(|error| self.failed(&error))?;
        // By the clock of the server, as the times of the values are.
        let read_at = consumer.cached_info().created;
        let mut values = Vec::new();
        while let Some(Ok(message)) = fetched.next().await {
            let Ok(info) = message.info() else { break };
            let age_ms = u64::try_from((read_at - info.published).whole_milliseconds()).unwrap_or(0);
            values.push(JournalValue { revision: info.stream_sequence, age_ms, value: message.payload.clone() });
        }
        // It would go by itself a little later.
        _ = stream.delete_consumer(&consumer.cached_info().name).await;
        if values.is_empty() {
            return Err(KeyFailure::Failed(format!("{}: nothing was read of {journal}", self.settings.stream)));
        }
        Ok(KeyAnswer::Values { values, last })
    }

    fn subject(&self, journal: &str) -> String {
        format!("{}{journal}", self.settings.prefix)
    }

    /// The stream, which is made if it is not there.
    async fn stream(&self, keys: &Keys) -> Result<Stream, KeyFailure> {
        // A command that is sent now would be executed at any later time.
        if !keys.is_connected() {
            return Err(KeyFailure::Failed("the connection for journals is away".into()));
        }
        let known = self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let life = keys.life();
        if let Some((_, known)) = known.filter(|(of, _)| *of == life) {
            return Ok(known);
        }
        let stream = self.made(keys.context(), keys.replicas()).await?;
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some((life, stream.clone()));
        Ok(stream)
    }

    async fn made(&self, context: &Context, replicas: usize) -> Result<Stream, KeyFailure> {
        let config = self.config(replicas);
        match context.get_stream(&config.name).await {
            Ok(stream) => {
                let there = &stream.cached_info().config;
                if (there.max_bytes, there.max_age) != (config.max_bytes, config.max_age) {
                    let changed = Config { max_bytes: config.max_bytes, max_age: config.max_age, ..there.clone() };
                    context.update_stream(changed).await.map_err(|error| self.failed(&error))?;
                }
                Ok(stream)
            }
            Err(error) if is_no_stream(&error) => {
                context.create_stream(config).await.map_err(|error| self.failed(&error))
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn config(&self, replicas: usize) -> Config {
        let JournalSettings { stream, prefix, bytes_max, age_ms } = &*self.settings;
        Config {
            name: stream.clone(),
            description: Some("Encke: the histories of a cluster, for when all its nodes are gone".into()),
            subjects: vec![format!("{prefix}*")],
            max_bytes: if *bytes_max == 0 { -1 } else { i64::try_from(*bytes_max).unwrap_or(i64::MAX) },
            max_age: Duration::from_millis(*age_ms),
            num_replicas: replicas,
            ..Config::default()
        }
    }

    fn failed(&self, error: &dyn Error) -> KeyFailure {
        KeyFailure::Failed(format!("{}: {}", self.settings.stream, causes(error)))
    }
}

/// The values of one answer at most.
const READ_VALUES: usize = 256;
/// Their bytes, unless one value has more.
const READ_BYTES: usize = 1024 * 1024;
/// The time after which NATS forgets a reader that is gone.
const CONSUMER_RETAINED: Duration = Duration::from_secs(5);
