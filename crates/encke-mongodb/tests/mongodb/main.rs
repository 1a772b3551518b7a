//! Nodes of a cluster whose sessions are in MongoDB: processes of the example `mongodb_node`, which `MONGODB_NODE` names, on a real NATS
//! server (`NATS_SERVER`) and on a server that speaks the protocol of MongoDB (`MONGODB_URL`). `scripts/mongodb.sh` runs these tests.

mod away;
mod gate;
// The tests of the program start NATS servers, too.
#[allow(dead_code)]
#[path = "../../../encke-cli/tests/cluster/nats.rs"]
mod nats;
mod node;
mod sessions;
mod store;
mod upkeep;

use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{Document, doc};

/// The time that an event may take on a busy machine.
const EVENT_MAX: Duration = Duration::from_secs(90);

/// Waits until something is true.
fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < EVENT_MAX, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The URL of the server.
fn mongodb_url() -> String {
    std::env::var("MONGODB_URL").expect("MONGODB_URL names a server: scripts/mongodb.sh")
}

/// The documents of a cluster, as an operator sees them.
struct Documents {
    runtime: tokio::runtime::Runtime,
    sessions: Collection<Document>,
}

impl Documents {
    /// Those of the cluster with this name, which other runs may have left.
    fn of(cluster: &str) -> Documents {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let sessions: Collection<Document> = runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(mongodb_url()).await.expect("a client");
            client.database("encke").collection(&format!("sessions-{cluster}"))
        });
        let documents = Documents { runtime, sessions };
        documents.clear();
        documents
    }

    /// Deletes all.
    fn clear(&self) {
        self.runtime.block_on(async { self.sessions.delete_many(doc! {}).await }).expect("deleted");
    }

    /// A document that fits.
    fn one(&self, filter: Document) -> Option<Document> {
        self.runtime.block_on(async { self.sessions.find_one(filter).await }).expect("it answers")
    }

    /// The number of documents that fit.
    fn count(&self, filter: Document) -> u64 {
        self.runtime.block_on(async { self.sessions.count_documents(filter).await }).expect("it answers")
    }

    /// Changes the documents that fit.
    fn change(&self, filter: Document, change: Document) {
        self.runtime.block_on(async { self.sessions.update_many(filter, change).await }).expect("changed");
    }

    /// Waits until so many documents fit.
    fn wait_for(&self, count: u64, filter: Document) {
        wait_until(&format!("{count} documents are {filter}"), || self.count(filter.clone()) == count);
    }

    /// Waits until the session with this attribute is written.
    fn wait_for_attribute(&self, name: &str, value: i64) {
        self.wait_for(1, doc! { "valid": true, format!("attributes.{name}"): value });
    }
}
