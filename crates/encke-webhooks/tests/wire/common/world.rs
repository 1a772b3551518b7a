//! A server with webhooks, and its clients.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use encke::{Running, Server, Settings};
use encke_client::{Client, ClientBuilder, Error, Extension, Outgoing, Subscription};
use encke_fetch::Fetcher;
use encke_webhooks::{EventKind, WebhookSettings, Webhooks};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use serde_json::{Value, json};

/// A running server with its webhooks.
pub struct World {
    running: Option<Running>,
    webhooks: Option<Webhooks>,
    address: SocketAddr,
}

/// A session that no webhook concerns: it must get its messages whatever backends do.
pub struct Witness {
    client: Client,
    messages: Subscription,
    count: u64,
}

/// The name of a client, in the `ext` of its handshake.
struct Name(String);

impl Extension for Name {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.insert("name".into(), self.0.as_str().into());
        }
    }
}

/// A webhook for events on `/hooked/**` and services, with short pauses.
pub fn webhook(address: SocketAddr, events: &[EventKind]) -> WebhookSettings {
    WebhookSettings {
        url: format!("http://{address}/encke").into(),
        events: events.to_vec(),
        channels: vec!["/hooked/**".into(), "/service/**".into()],
        secret: super::SECRET.into(),
        retry_pause_ms: 10,
        retry_pause_ms_max: 50,
        breaker_pause_ms: 20,
        breaker_pause_ms_max: 50,
        ..WebhookSettings::default()
    }
}

impl World {
    pub fn start(webhooks: &[WebhookSettings]) -> World {
        let webhooks = Webhooks::start(webhooks).expect("webhooks that work");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let threads = Settings { shards: 2, ..Settings::default() };
        let settings = Settings { listen, drain_timeout_ms: 0, api_loopback: true, ..threads };
        let running = webhooks.in_front_of(Server::builder().settings(settings)).start().expect("a server");
        webhooks.serve(&running.handle());
        let address = running.address();
        World { running: Some(running), webhooks: Some(webhooks), address }
    }

    /// A client with this name.
    pub async fn client(&self, name: &str) -> Result<Client, Error> {
        self.client_with(name, Client::builder()).await
    }

    /// A client with this name and other options.
    pub async fn client_with(&self, name: &str, client: ClientBuilder) -> Result<Client, Error> {
        let client = client.extension(Name(name.into())).reply_timeout(Duration::from_secs(30));
        soon(client.connect(&format!("http://{}", self.address))).await
    }

    pub async fn witness(&self) -> Witness {
        let client = self.client("witness").await.expect("a session");
        let messages = client.subscribe("/witness").await.expect("a subscription");
        Witness { client, messages, count: 0 }
    }

    /// The replies to a batch of messages over HTTP.
    pub async fn post(&self, batch: &'static str) -> Value {
        let mut request =
            Request::post(format!("http://{}/cometd", self.address)).body(batch.into()).expect("a request");
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let fetcher = Fetcher::new(encke_fetch::Limits::default(), None).expect("a fetcher");
        let response = fetcher.send(request).await.expect("a response");
        serde_json::from_slice(response.body()).expect("JSON")
    }

    /// The response to a request.
    pub async fn get(&self, path: &str) -> Response<Bytes> {
        let fetcher = Fetcher::new(encke_fetch::Limits::default(), None).expect("a fetcher");
        fetcher.get(&format!("http://{}{path}", self.address)).await.expect("a response")
    }

    /// The sum of the values of a metric.
    pub async fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics").await;
        let page = String::from_utf8(page.body().to_vec()).expect("text");
        let values = page.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        values.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a number")).sum()
    }

    /// Waits until a metric has at least this value.
    pub async fn wait_for_metric(&self, name: &str, least: u64) {
        let reached = async {
            while self.metric(name).await < least {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(reached).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle().drain();
            running.join();
        }
        drop(self.webhooks.take());
    }
}

impl Witness {
    /// Sends messages around and gets them all, in order.
    pub async fn lives(&mut self) {
        for _ in 0..20 {
            self.count += 1;
            soon(self.client.publish("/witness", &json!({ "n": self.count }))).await.expect("accepted");
            let message = soon(self.messages.next()).await.expect("a message").expect("no gap");
            let data: Value = message.json().expect("JSON");
            assert_eq!(data["n"], self.count);
        }
    }
}

/// Waits much longer than anything here takes.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
}
