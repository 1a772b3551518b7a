//! The options of a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::client::Client;
use crate::connection::Target;
use crate::driver::Driver;
use crate::endpoint::Endpoint;
use crate::options::{ClientOptions, Transport};
use crate::servers::Servers;
use crate::session::{ClientSession, ConnectionType, SessionOptions};
use crate::tls::{TlsIdentity, Trust};
use crate::token::{TokenProvider, Tokens};
use crate::{Error, Extension, Position, ReplayFrom};

/// The path at which Bayeux servers answer by convention.
const DEFAULT_PATH: &str = "/cometd";

/// Builds a [`Client`]: each method sets one option, [`ClientBuilder::connect`] opens the session.
///
/// ```no_run
/// use std::time::Duration;
///
/// use encke_client::{Client, ReplayFrom, Transport};
///
/// # async fn example() -> Result<(), encke_client::Error> {
/// let client = Client::builder()
///     .transport(Transport::WebSocket)
///     .ack(true)
///     .replay(ReplayFrom::Earliest)
///     .header("authorization", "Bearer 1234")
///     .reply_timeout(Duration::from_secs(5))
///     .connect("http://127.0.0.1:8080")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a client is opened by `connect`"]
#[derive(Debug)]
pub struct ClientBuilder {
    pub(crate) options: ClientOptions,
    session: SessionOptions,
    extensions: Vec<BoxedExtension>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The name of the first header that HTTP does not allow.
    bad_header: Option<String>,
    trust: Trust,
    identity: Option<TlsIdentity>,
    token: Option<TokenProvider>,
    message_bytes_max: usize,
    compress: bool,
}

struct BoxedExtension(Box<dyn Extension>);

impl Default for ClientBuilder {
    /// CometD's defaults, if its clients have the option.
    fn default() -> ClientBuilder {
        let session = SessionOptions::default();
        let options = ClientOptions {
            transport: Transport::Auto,
            reconnect: true,
            retry_first_connect: false,
            reply_timeout: session.reply_timeout,
            subscription_messages_max: 10_000,
            slow_reader_timeout: Duration::from_secs(1),
            pending_replies_max: 10_000,
            unsent_bytes_max: 256 * 1024,
            unread_bytes_max: 32 * 1024 * 1024,
        };
        let (extensions, headers) = (Vec::new(), Vec::new());
        let (bad_header, trust, identity, message_bytes_max) = (None, Trust::default(), None, 32 * 1024 * 1024);
        let (token, compress) = (None, false);
        ClientBuilder {
            options,
            session,
            extensions,
            headers,
            bad_header,
            trust,
            identity,
            token,
            message_bytes_max,
            compress,
        }
    }
}

impl ClientBuilder {
    /// The transports to use. Default: [`Transport::Auto`].
    pub fn transport(mut self, transport: Transport) -> Self {
        self.options.transport = transport;
        self
    }

    /// Turns on acknowledgement (CometD's extension `ack`). Breaks then lose and double no message, as long as the server knows the
    /// session. Messages come with connect replies only. Default: off.
    pub fn ack(mut self, on: bool) -> Self {
        self.session.ack = on;
        self
    }

    /// Turns on replay (extension `replay`): the client remembers its positions in the histories of its channels and resumes there
    /// after a break, also in a new session. Subscriptions begin at this point, unless
    /// [`Client::subscribe_from`] sets another one. With [`ReplayFrom::Latest`] here a channel whose rule says `retain_last` begins with its
    /// latest message, as without this option; `subscribe_from` with it means new messages only. Default: off.
    pub fn replay(mut self, from: ReplayFrom) -> Self {
        self.session.replay = Some(from);
        self
    }

    /// Resumes at the positions that [`Subscription::positions`](crate::Subscription::positions) has returned to an earlier client, if it
    /// replays. Subscriptions to other channels begin as [`ClientBuilder::replay`] says.
    pub fn resume_at(mut self, positions: impl IntoIterator<Item = (String, Position)>) -> Self {
        self.session.positions = positions.into_iter().collect();
        self
    }

    /// Adds a header to each HTTP request, also to the request that opens a WebSocket.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (name.parse(), value.parse()) {
            (Ok(name), Ok(value)) => self.headers.push((name, value)),
            _ => _ = self.bad_header.get_or_insert_with(|| name.into()),
        }
        self
    }

    /// Accepts the certificates of a server that have a root in this file of PEM certificates, in addition to those with a root of the
    /// system.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.trust.ca_file = Some(path.into());
        self
    }

    /// Accepts every certificate of a server. Whoever is on the way to it can then read and change all messages: only for tests.
    pub fn accept_any_certificate(mut self, on: bool) -> Self {
        self.trust.accepts_any = on;
        self
    }

    /// Shows a certificate to a server that asks for one: a file of PEM certificates, the client's own first, and the file of its
    /// private key. Such a server may take the user of the session from it.
    pub fn tls_identity(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        self.identity = Some(TlsIdentity { cert_file: cert_file.into(), key_file: key_file.into() });
        self
    }

    /// Adds an extension. It gets all messages of the session, after the extensions that were added before.
    pub fn extension(mut self, extension: impl Extension + 'static) -> Self {
        self.extensions.push(BoxedExtension(Box::new(extension)));
        self
    }

    /// Gets tokens from this function: the `ext` of each handshake has one as `auth.token`. The client calls it again when the server
    /// announces the end of the token (docs/authentication.md), so the session goes on, and when a session has ended with its token,
    /// so another one begins. It may take [`ClientBuilder::reply_timeout`]. If it fails, the client tries again after a while, but not
    /// at the first connect without [`ClientBuilder::retry_first_connect`].
    ///
    /// ```no_run
    /// # use encke_client::{Client, Error};
    /// # async fn fetch(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example() -> Result<(), Error> {
    /// let client = Client::builder()
    ///     .token(async || fetch("https://shop.example/push-token").await)
    ///     .connect("https://push.example")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn token<F, Fut, E>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.token = Some(TokenProvider::new(provider));
        self
    }

    /// Turns reconnecting after a break on or off. Without it a break closes the session. Default: on.
    pub fn reconnect(mut self, on: bool) -> Self {
        self.options.reconnect = on;
        self
    }

    /// Lets [`ClientBuilder::connect`] try until a server answers, with the pauses of [`ClientBuilder::backoff`]. It fails only if an
    /// attempt cannot succeed later ([`Error::is_transient`]). Default: off.
    pub fn retry_first_connect(mut self, on: bool) -> Self {
        self.options.retry_first_connect = on;
        self
    }

    /// The pauses between attempts to reconnect: each failed attempt adds `step`, up to `max`, and each pause gets up to one step of
    /// random jitter, so that the clients of a server that restarts do not come back all at once. Default: 1 s and 60 s.
    pub fn backoff(mut self, step: Duration, max: Duration) -> Self {
        (self.session.backoff_step, self.session.backoff_max) = (step, max);
        self
    }

    /// The longest time to connect, and the longest time until a reply of the server, in addition to the time for which it holds a
    /// connect. Default: 10 s.
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        (self.options.reply_timeout, self.session.reply_timeout) = (timeout, timeout);
        self
    }

    /// The limit of items in the buffer of one [`Subscription`](crate::Subscription). Default: 10,000.
    ///
    /// While a buffer is full the client reads nothing from the server, for [`ClientBuilder::slow_reader_timeout`] at most. After
    /// that it discards the messages of this subscription until its reader has emptied half of the buffer, and reports them as a
    /// [`Gap`](crate::Gap). Other subscriptions get all their messages.
    pub fn subscription_messages_max(mut self, messages: usize) -> Self {
        self.options.subscription_messages_max = messages.max(1);
        self
    }

    /// The memory for messages that wait in the buffers of all subscriptions together, in bytes. Default: 32 MiB.
    ///
    /// Each subscription has 64 KiB beside it. Of this memory one takes at most as much as it leaves free, so one that is not read
    /// has half of it, and there is room for those that are read. A subscription without room is treated as one whose buffer is
    /// full; see [`ClientBuilder::subscription_messages_max`]. A single message may be longer than all of it.
    pub fn unread_bytes_max(mut self, bytes: usize) -> Self {
        self.options.unread_bytes_max = bytes.max(1);
        self
    }

    /// The longest time for which a reader that does not empty its full buffer delays the whole client. Default: 1 s.
    pub fn slow_reader_timeout(mut self, timeout: Duration) -> Self {
        self.options.slow_reader_timeout = timeout;
        self
    }

    /// The limit of messages that a session with acknowledgement may get before the reply that confirms them. Beyond it the session
    /// closes. It should be above the limit of a server's outbox. Default: 100,000.
    pub fn unacknowledged_messages_max(mut self, messages: usize) -> Self {
        self.session.unacknowledged_messages_max = messages;
        self
    }

    /// The limit of the memory of these messages, in bytes. Beyond it the session closes. Default: 64 MiB.
    pub fn unacknowledged_bytes_max(mut self, bytes: usize) -> Self {
        self.session.unacknowledged_bytes_max = bytes;
        self
    }

    /// The limit of publications without a reply; more wait. Default: 10,000.
    pub fn pending_replies_max(mut self, replies: usize) -> Self {
        self.options.pending_replies_max = replies.max(1);
        self
    }

    /// The limit of bytes that wait to be sent, and of those that wait for that; further publications wait in their callers. A
    /// longer one goes alone. Default: 256 KiB.
    ///
    /// A server that does not read is not read, either, once 1 MiB of what it causes waits: the replies to its messages. Of its
    /// pings the latest one is answered.
    pub fn unsent_bytes_max(mut self, bytes: usize) -> Self {
        self.options.unsent_bytes_max = bytes.max(1);
        self
    }

    /// Lets the server compress messages on a WebSocket (permessage-deflate, RFC 7692). What the client sends is never compressed.
    /// Off by default, as compression may show secrets to whom sees the length of messages.
    pub fn compress(mut self, on: bool) -> Self {
        self.compress = on;
        self
    }

    /// The longest text that the server may send, in bytes, before and after it is decompressed. Over long-polling a response of some
    /// servers contains a whole outbox. Default: 32 MiB. A text has at most 100,000 messages.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Opens a session, and starts its task on the tokio runtime of the caller. If the URL has no path, the path is `/cometd`.
    /// `http://` and `ws://` have the same meaning, and `https://` and `wss://` have, with TLS.
    ///
    /// # Errors
    /// The URL, a header or a file of certificates or keys is invalid, no Bayeux server answers there, or the server refuses.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        self.connect_any(&[url]).await
    }

    /// As [`ClientBuilder::connect`], to the first of several servers that answers. When none answers at the address of the session, the
    /// client tries the others in turn: nodes of a cluster continue the session, others open a new one.
    ///
    /// # Errors
    /// The error of the last server, or [`Error::NoUrl`].
    pub async fn connect_any<U: AsRef<str>>(mut self, urls: &[U]) -> Result<Client, Error> {
        if let Some(name) = self.bad_header.take() {
            return Err(Error::Header { name });
        }
        let connection_type = match self.options.transport {
            Transport::Auto | Transport::WebSocket => ConnectionType::WebSocket,
            Transport::LongPolling => ConnectionType::LongPolling,
        };
        let targets = self.targets(urls)?;
        let takes_tokens = self.token.is_some();
        let mut session = ClientSession::new(SessionOptions { connection_type, takes_tokens, ..self.session });
        for BoxedExtension(extension) in self.extensions {
            session.add_extension(extension);
        }
        let (servers, tokens) = (Servers::new(targets), Tokens::new(self.token));
        let client = Driver::start(self.options, servers, session, tokens, connection_type);
        client.opened().await?;
        Ok(client)
    }

    fn targets<U: AsRef<str>>(&self, urls: &[U]) -> Result<Vec<Arc<Target>>, Error> {
        let endpoints = urls.iter().map(|url| Endpoint::parse(url.as_ref(), DEFAULT_PATH));
        let endpoints = endpoints.collect::<Result<Vec<Endpoint>, Error>>()?;
        if endpoints.is_empty() {
            return Err(Error::NoUrl);
        }
        let is_tls = endpoints.iter().any(|endpoint| endpoint.is_tls);
        let mut tls = is_tls.then(|| self.trust.config()).transpose()?;
        if let (Some(config), Some(identity)) = (&mut tls, &self.identity) {
            identity.add_to(config)?;
        }
        let tls = tls.map(Arc::new);
        let target = |endpoint: Endpoint| Target {
            tls: tls.clone().filter(|_| endpoint.is_tls),
            endpoint,
            headers: self.headers.clone(),
            message_bytes_max: self.message_bytes_max,
            compress: self.compress,
            connect_timeout: self.options.reply_timeout,
        };
        Ok(endpoints.into_iter().map(|endpoint| Arc::new(target(endpoint))).collect())
    }
}

impl Client {
    /// Opens a session with the default options. If the URL has no path, the path is `/cometd`. `http://` and `ws://` have the
    /// same meaning, and `https://` and `wss://` have, with TLS.
    ///
    /// # Errors
    /// The URL is invalid, no Bayeux server answers there, or the server refuses.
    pub async fn connect(url: &str) -> Result<Client, Error> {
        Client::builder().connect(url).await
    }

    /// A builder, for all options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

impl std::fmt::Debug for BoxedExtension {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Extension")
    }
}
