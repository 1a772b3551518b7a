//! A server for one test, and a healthy session beside the one under test.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use encke::{Builder, Handle, Hooks, PublishError, Running, Server, SessionView, Settings};
use serde_json::json;

use super::tls::over_tls;
use super::{Http, Poller, TIMEOUT, Tcp, Ws};

/// A running server. Dropping it stops it and checks that it has not panicked.
pub struct TestServer {
    running: Option<Running>,
    pub handle: Handle,
}

/// A well-behaved session, opened before the attack: it must get everything, before and after.
pub struct Neighbour {
    ws: Ws,
    published: u64,
}

/// Settings for tests: TLS if all tests speak it, a free port, one shard, a drain without waiting, and time-outs longer than any test. A reply
/// in time was therefore immediate, and no session expires because the machine is busy.
pub fn settings() -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        shards: 1,
        timeout_ms: LONG_MS,
        max_interval_ms: LONG_MS,
        handshake_timeout_ms: LONG_MS,
        request_timeout_ms: LONG_MS,
        response_timeout_ms: LONG_MS,
        keep_alive_timeout_ms: LONG_MS,
        decision_timeout_ms: LONG_MS,
        call_timeout_ms: LONG_MS,
        drain_timeout_ms: 0,
        dev_tls: over_tls(),
        ..Settings::default()
    }
}

/// Twice the time after which a test gives up.
const LONG_MS: u64 = 120_000;

impl TestServer {
    pub fn start(settings: Settings) -> TestServer {
        TestServer::of(Server::builder().settings(settings))
    }

    pub fn of(server: Builder) -> TestServer {
        watch_panics();
        let running = server.start().expect("the server starts");
        let handle = running.handle();
        TestServer { running: Some(running), handle }
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.running.as_ref().expect("running").address()
    }

    pub fn hooks(&self) -> &Hooks {
        self.running.as_ref().expect("running").hooks()
    }

    /// Its socket, for the server that takes over.
    pub fn listener(&self) -> std::net::TcpListener {
        self.running.as_ref().expect("running").listener().expect("a socket")
    }

    /// The sockets of its further addresses.
    pub fn further_listeners(&self) -> Vec<std::os::fd::OwnedFd> {
        self.running.as_ref().expect("running").further_listeners().expect("sockets")
    }

    pub fn tcp(&self) -> Tcp {
        Tcp::connect(self.address())
    }

    /// A connection for requests, with a cookie jar.
    pub fn http(&self) -> Http {
        Http::connect(self.address())
    }

    /// A long-polling session after its handshake and its first connect.
    pub fn poller(&self) -> Poller {
        Poller::open(self.http())
    }

    /// A WebSocket without a session.
    pub fn websocket(&self) -> Ws {
        Ws::connect(self.address(), &[])
    }

    /// A WebSocket with a session, after its handshake and connect.
    pub fn session(&self) -> Ws {
        let mut ws = self.websocket();
        ws.handshake();
        ws
    }

    /// Revokes a token. False after an error.
    pub fn revoke(&self, token_id: &str, until_ms: u64) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.handle.revoke(token_id, until_ms)).is_ok()
    }

    /// A metric, summed over the shards. Counters are named without `_total`.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.http().get("/metrics").text();
        let of = |line: &str| {
            let (found, value) = line.split_once(' ')?;
            (found.strip_suffix("_total").unwrap_or(found) == name).then(|| value.parse().expect("a number"))
        };
        page.lines().find_map(of).unwrap_or_else(|| panic!("no metric {name}"))
    }

    /// Publishes with the server's handle, as soon as there is room for the message: on a busy machine, shards may not have taken
    /// those before.
    #[track_caller]
    pub fn publish(&self, channel: &str, data_json: &str) {
        wait_until("room for a message", || match self.handle.publish(channel, data_json) {
            Err(PublishError::Busy) => false,
            published => {
                published.expect("taken");
                true
            }
        });
    }

    /// Waits until a metric is at least `least`.
    #[track_caller]
    pub fn wait_for(&self, name: &str, least: u64) {
        wait_until(&format!("{name} >= {least}"), || self.metric(name) >= least);
    }

    /// Waits until a gauge has this value.
    #[track_caller]
    pub fn wait_for_exactly(&self, name: &str, value: u64) {
        wait_until(&format!("{name} == {value}"), || self.metric(name) == value);
    }

    /// Waits until the outbox of each of these sessions holds `count` messages, with those that it has not acknowledged. Shards
    /// pass publications on in their own time.
    #[track_caller]
    pub fn wait_for_queued<'a>(&self, sessions: impl IntoIterator<Item = &'a String>, count: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let wanted: Vec<&String> = sessions.into_iter().collect();
        wait_until(&format!("{count} messages for each session"), || {
            let list = runtime.block_on(self.handle.list_sessions(None, 1_000)).expect("the server runs");
            let has_all = |id: &&String| {
                let is_it = |session: &SessionView| session.id.to_string() == **id;
                list.items.iter().any(|session| is_it(session) && session.waiting_messages == count)
            };
            wanted.iter().all(has_all)
        });
    }

    pub fn neighbour(&self) -> Neighbour {
        let mut ws = self.session();
        ws.subscribe("/neighbour/**");
        Neighbour { ws, published: 0 }
    }

    /// Stops the server and waits for its threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(running) = self.running.take() {
            self.handle.drain();
            running.join();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
        if !std::thread::panicking() {
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a shard panicked");
        }
    }
}

impl Neighbour {
    /// Checks that the server still serves: a publication made now arrives, and it is the next one, so none before it
    /// was lost.
    #[track_caller]
    pub fn lives(&mut self, server: &TestServer) {
        self.published += 1;
        let data = self.published;
        server.publish("/neighbour/news", &data.to_string());
        assert_eq!(self.ws.next_json(), json!([{"channel": "/neighbour/news", "data": data}]));
    }
}

/// Waits until a condition holds that the server reaches in its own time.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "gave up waiting: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Counts panics on the threads of servers: tokio catches those of a task, so that nothing else would report them.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Hooks of tests panic as planned.
            let is_planned = info.payload().downcast_ref::<&str>().is_some_and(|text| *text == "as planned");
            if !is_planned && std::thread::current().name().is_some_and(|name| name.starts_with("shard-")) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            before(info);
        }));
    });
}

static PANICS: AtomicUsize = AtomicUsize::new(0);
