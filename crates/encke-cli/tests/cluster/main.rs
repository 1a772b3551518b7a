//! Nodes of a cluster: processes of the program on a real NATS server, which `NATS_SERVER` names. `scripts/cluster.sh` runs
//! these tests.

mod acknowledging;
mod channels;
mod commands;
mod failures;
mod histories;
mod interest;
mod journal;
mod load;
mod nats;
mod node;
mod official_clients;
mod presence;
mod proxy;
mod repeated;
mod sessions;
mod sources;
mod streams;
mod user_limits;

use std::time::{Duration, Instant};

use encke_client::{Client, Subscription, Transport};

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

/// Waits until something is true, while clients of the test go on.
async fn wait_until_async(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < EVENT_MAX, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a test.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

/// Opens a session.
async fn connect(url: &str, transport: Transport) -> Client {
    let builder = Client::builder().transport(transport).reply_timeout(EVENT_MAX);
    builder.connect(url).await.expect("a session")
}

/// The channel and the data of the next message.
async fn next(subscription: &mut Subscription) -> (String, String) {
    let item = tokio::time::timeout(EVENT_MAX, subscription.next()).await;
    let message = item.expect("gave up waiting for a message").expect("the session is open").expect("no gap");
    (message.channel.to_string(), message.data().as_str().to_owned())
}

/// The data of so many messages.
async fn data(subscription: &mut Subscription, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(next(subscription).await.1);
    }
    all
}
