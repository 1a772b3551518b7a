//! The connection to MongoDB, and its commands.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use encke::{KeyFailure, SessionStore, SessionWrite, StoreFuture};
use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::Result as MongoResult;
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{Client, Collection};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::document::{ended, outcomes, write_statement};
use crate::settings::{MongoSettings, MongoSettingsError};

/// MongoDB as a store of sessions. It connects when the server has started.
///
/// Writes are confirmed by the majority of a replica set. Reads go to the primary.
#[derive(Debug)]
pub struct MongoStore {
    url: encke::Secret,
    settings: MongoSettings,
    /// The name of the collection.
    collection: String,
    name: String,
    connected: OnceCell<Collection<Document>>,
    has_indexes: OnceCell<()>,
}

impl MongoStore {
    /// The store of the cluster with this name.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(settings: MongoSettings, cluster: &str) -> Result<MongoStore, MongoSettingsError> {
        settings.check()?;
        let url = settings.secret_url()?;
        let of_cluster = || format!("sessions-{cluster}");
        let collection = Some(settings.collection.clone()).filter(|name| !name.is_empty()).unwrap_or_else(of_cluster);
        let name = format!("MongoDB ({}, {}.{collection})", MongoSettings::servers(&url), settings.database);
        Ok(MongoStore { url, settings, collection, name, connected: OnceCell::new(), has_indexes: OnceCell::new() })
    }

    /// The collection. The driver connects by itself, again and again.
    async fn collection(&self) -> MongoResult<&Collection<Document>> {
        self.connected.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> MongoResult<Collection<Document>> {
        let mut options = ClientOptions::parse(self.url.reveal()).await?;
        options.app_name.get_or_insert_with(|| "encke".into());
        options.server_selection_timeout = Some(Duration::from_millis(self.settings.timeout_ms));
        options.connect_timeout = Some(Duration::from_millis(self.settings.timeout_ms));
        options.max_pool_size = Some(u32::try_from(self.settings.connections_max).unwrap_or(u32::MAX));
        // Whatever the URL says: a node that takes a session has to see its last write, and no write may be lost with a primary.
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.write_concern = Some(WriteConcern::majority());
        Ok(Client::with_options(options)?.database(&self.settings.database).collection(&self.collection))
    }

    /// Runs a command of the database.
    async fn run_command(&self, command: Document) -> MongoResult<Document> {
        let database = self.collection().await?.client().database(&self.settings.database);
        database.run_command(command).await
    }

    /// Waits for a command for at most [`MongoSettings::timeout_ms`].
    async fn within<T>(&self, command: impl Future<Output = MongoResult<T>>) -> Result<T, KeyFailure> {
        within(Duration::from_millis(self.settings.timeout_ms), command).await
    }

    async fn write_all(&self, writes: &[SessionWrite]) -> MongoResult<Vec<Result<u64, KeyFailure>>> {
        let now = DateTime::now();
        let (statements, versions): (Vec<Document>, Vec<u64>) =
            writes.iter().map(|write| write_statement(write, now)).unzip();
        // The driver's own bulk writes need a server that reports each outcome (8.0). This command tells them apart by their errors.
        let command = doc! {
            "update": &self.collection,
            "updates": statements,
            "ordered": false,
            "writeConcern": { "w": "majority", "wtimeout": i64::try_from(self.settings.timeout_ms).unwrap_or(i64::MAX) },
        };
        Ok(outcomes(&self.run_command(command).await?, &versions))
    }

    async fn read_all(&self, keys: &[String]) -> MongoResult<Vec<Option<(u64, Bytes)>>> {
        let found = self.collection().await?.find(doc! { "_id": { "$in": keys } });
        let found = found.projection(doc! { "version": 1, "record": 1 }).await?.try_collect::<Vec<Document>>().await?;
        let mut entries: HashMap<String, (u64, Bytes)> = found.into_iter().filter_map(entry).collect();
        Ok(keys.iter().map(|key| entries.remove(key)).collect())
    }

    /// Makes the indexes, without which scavenges and purges read all documents, unless they are made.
    async fn need_indexes(&self) {
        let indexes = doc! {
            "createIndexes": &self.collection,
            "indexes": [
                { "key": { "valid": 1, "node": 1 }, "name": "valid_node" },
                { "key": { "valid": 1, "accessed": 1 }, "name": "valid_accessed" },
            ],
        };
        let make = || async { self.within(self.run_command(indexes)).await.map(drop) };
        if let Err(error) = self.has_indexes.get_or_try_init(make).await {
            tracing::warn!(%error, "{}: the indexes of the sessions could not be made; scavenges and purges are slow", self.name);
        }
    }
}

impl SessionStore for MongoStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.within(self.run_command(doc! { "ping": 1 })).await?;
            self.need_indexes().await;
            Ok(())
        })
    }

    fn read<'a>(&'a self, keys: &'a [String]) -> StoreFuture<'a, Vec<Option<(u64, Bytes)>>> {
        Box::pin(self.within(self.read_all(keys)))
    }

    fn write<'a>(&'a self, writes: &'a [SessionWrite]) -> StoreFuture<'a, Vec<Result<u64, KeyFailure>>> {
        Box::pin(self.within(self.write_all(writes)))
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(within(UPKEEP_MAX, async {
            self.need_indexes().await;
            let nodes = self.collection().await?.distinct("node", doc! { "valid": true }).await?;
            Ok(nodes.iter().filter_map(Bson::as_str).map(str::to_owned).collect())
        }))
    }

    fn end_sessions<'a>(&'a self, node: &'a str, idle_ms: u64, record: &'a Bytes) -> StoreFuture<'a, u64> {
        Box::pin(within(UPKEEP_MAX, async move {
            let idle_ms = i64::try_from(idle_ms).unwrap_or(i64::MAX);
            let of_node = doc! { "valid": true, "node": node, "idle_max_ms": { "$lte": idle_ms } };
            let changed = self.collection().await?.update_many(of_node, ended(record, DateTime::now())).await?;
            Ok(changed.modified_count)
        }))
    }

    fn purge(&self, invalid_age_ms: u64, valid_age_ms: Option<u64>) -> StoreFuture<'_, u64> {
        Box::pin(within(UPKEEP_MAX, async move {
            self.need_indexes().await;
            let now_ms = DateTime::now().timestamp_millis();
            let before = |age_ms| DateTime::from_millis(now_ms.saturating_sub(i64::try_from(age_ms).unwrap_or(now_ms)));
            let sessions = self.collection().await?;
            let of_ended = doc! { "valid": false, "accessed": { "$lte": before(invalid_age_ms) } };
            let mut count = sessions.delete_many(of_ended).await?.deleted_count;
            if let Some(age_ms) = valid_age_ms {
                let of_gone = doc! { "valid": true, "accessed": { "$lte": before(age_ms) } };
                count += sessions.delete_many(of_gone).await?.deleted_count;
            }
            Ok(count)
        }))
    }

    fn count(&self) -> StoreFuture<'_, (u64, u64)> {
        Box::pin(within(UPKEEP_MAX, async {
            let sessions = self.collection().await?;
            let valid = sessions.count_documents(doc! { "valid": true }).await?;
            Ok((valid, sessions.count_documents(doc! { "valid": false }).await?))
        }))
    }
}

/// Runs a command for so long.
async fn within<T>(limit: Duration, command: impl Future<Output = MongoResult<T>>) -> Result<T, KeyFailure> {
    let outcome = timeout(limit, command).await;
    let outcome = outcome.map_err(|_| KeyFailure::Failed(format!("no answer within {limit:?}")))?;
    outcome.map_err(|error| KeyFailure::Failed(error.to_string()))
}

/// The longest time of a scavenge, a purge or a count, which read many documents. The next one goes on where it has ended.
const UPKEEP_MAX: Duration = Duration::from_secs(60);

/// The key, the version and the record of a document. None if it is no session.
fn entry(document: Document) -> Option<(String, (u64, Bytes))> {
    let key = document.get_str("_id").ok()?.to_owned();
    let version = u64::try_from(document.get_i64("version").ok()?).ok()?;
    let record = Bytes::copy_from_slice(document.get_binary_generic("record").ok()?);
    Some((key, (version, record)))
}
