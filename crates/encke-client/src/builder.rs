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
use crate::session::{ClientSession, ConnectionType, SessionOptions};
use crate::tls::{TlsIdentity, Trust};
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
            reply_timeout: session.reply_timeout,
            subscription_messages_max: 10_000,
            slow_reader_timeout: Duration::from_secs(1),
            pending_replies_max: 10_000,
            unsent_bytes_max: 256 * 1024,
            unread_bytes_max: 32 * 1024 * 1024,
        };
        let (extensions, headers) = (Vec::new(), Vec::new());
        let (bad_header, trust, identity, message_bytes_max) = (None, Trust::default(), None, 32 * 1024 * 1024);
        let compress = false;
        ClientBuilder {
            options,
            session,
            extensions,
            headers,
            bad_header,
            trust,
            identity,
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
    /// [`Client::subscribe_from`] sets another one. Default: off.
    pub fn replay(mut self, from: ReplayFrom) -> Self {
        self.session.replay = Some(from);
        self
    }

    /// Resumes at the positions that [`Subscription::positions`](crate::Subscription::positions) has told an earlier client, if it
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

    /// Turns reconnecting after a break on or off. Without it a break closes the session. Default: on.
    pub fn reconnect(mut self, on: bool) -> Self {
        self.options.reconnect = on;
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
        if let Some(name) = self.bad_header {
            return Err(Error::Header { name });
        }
        let connection_type = match self.options.transport {
            Transport::Auto | Transport::WebSocket => ConnectionType::WebSocket,
            Transport::LongPolling => ConnectionType::LongPolling,
        };
        let endpoint = Endpoint::parse(url, DEFAULT_PATH)?;
        let mut tls = endpoint.is_tls.then(|| self.trust.config()).transpose()?;
        if let (Some(config), Some(identity)) = (&mut tls, &self.identity) {
            identity.add_to(config)?;
        }
        let target = Arc::new(Target {
            tls: tls.map(Arc::new),
            endpoint,
            headers: self.headers,
            message_bytes_max: self.message_bytes_max,
            compress: self.compress,
            connect_timeout: self.options.reply_timeout,
        });
        let mut session = ClientSession::new(SessionOptions { connection_type, ..self.session });
        for BoxedExtension(extension) in self.extensions {
            session.add_extension(extension);
        }
        let client = Driver::start(self.options, target, session, connection_type);
        client.opened().await?;
        Ok(client)
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
