//! The task of a client: brings together its session, its connection, the program's orders and the clock.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bayeux::RawJson;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::buffer::{Buffer, Item, Pushed};
use crate::client::Client;
use crate::command::{ClientCommand, ClientPublication, ClientShared, Connected, State};
use crate::connection::Connection;
use crate::error::NotBayeux;
use crate::options::{ClientOptions, Transport};
use crate::registry::Registry;
use crate::replies::Replies;
use crate::servers::Servers;
use crate::session::{ClientSession, ConnectionType, Event, Transmission};
use crate::token::Tokens;
use crate::{Error, LostReason, Published};

/// The task of a client.
pub(crate) struct Driver {
    options: ClientOptions,
    servers: Servers,
    session: ClientSession,
    tokens: Tokens,
    link: LinkState,
    /// The transport of the connection, or of the next one.
    connection_type: ConnectionType,
    /// True if there was a session once: from then on, a failure is a break.
    was_open: bool,
    /// True if there was a session on the latest connection.
    has_opened: bool,
    /// The failure of the connection, until the session has noted it.
    failure: Option<Error>,
    commands: mpsc::Receiver<ClientCommand>,
    /// A command that waits until the session is open and has room for it.
    waiting: Option<ClientCommand>,
    shared: Arc<ClientShared>,
    registry: Registry,
    replies: Replies,
    /// Items for buffers, the first of which is full.
    undelivered: VecDeque<(Arc<Buffer>, Item)>,
    /// The time at which its reader counts as too slow.
    slow_reader_at: Option<Instant>,
    /// The disconnect that was sent, and the time until which it waits for its reply.
    disconnecting: Option<(u64, Instant)>,
}

/// The state of the connection.
///
/// ```text
/// Closed ── after the pause ──▶ Opening ──▶ Open
///   ▲                              │         │
///   └────── failed, broken ── Gone ┴─────────┘
/// ```
enum LinkState {
    /// It is opened again at this time.
    Closed {
        until: Instant,
    },
    /// The work lives here and not in the future that waits for it, which is dropped at each turn.
    Opening(Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>),
    Open(Connection),
    /// It has ended, and the session is about to say for how long.
    Gone,
}

/// A change of the connection.
enum LinkEvent {
    PauseOver,
    Opened(Result<Connection, Error>),
    Received(Result<String, Error>),
}

/// The reason why the task ends: `None` if the program has disconnected.
type End = Option<Error>;

impl Driver {
    /// Starts the task and returns its first handle.
    pub(crate) fn start(
        options: ClientOptions,
        servers: Servers,
        session: ClientSession,
        tokens: Tokens,
        connection_type: ConnectionType,
    ) -> Client {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let client = Client::new(options, sender);
        let driver = Driver {
            options,
            servers,
            session,
            tokens,
            link: LinkState::Closed { until: Instant::now() },
            connection_type,
            was_open: false,
            has_opened: false,
            failure: None,
            commands,
            waiting: None,
            shared: client.shared(),
            registry: Registry::default(),
            replies: Replies::default(),
            undelivered: VecDeque::new(),
            slow_reader_at: None,
            disconnecting: None,
        };
        tokio::spawn(driver.run());
        client
    }

    async fn run(mut self) {
        let end = loop {
            if let Err(end) = self.turn().await {
                break end;
            }
        };
        self.close(end).await;
    }

    /// One turn: does everything that can be done at once, then waits for the next event.
    async fn turn(&mut self) -> Result<(), End> {
        self.end_dropped_subscriptions();
        self.begin_disconnect()?;
        self.transmit(Connection::answer);
        self.take_commands();
        self.deliver()?;
        self.transmit(Connection::answer);
        let wake = [
            self.session.wake_at().map(Instant::from_std),
            self.replies.deadline(self.options.reply_timeout).filter(|_| self.undelivered.is_empty()),
            self.replies.request_deadline(),
            self.slow_reader_at,
            self.disconnecting.map(|(_, deadline)| deadline),
            self.tokens.again_at(),
        ];
        let wake = wake.into_iter().flatten().min();
        let reads = self.undelivered.is_empty();
        tokio::select! {
            event = self.link.event(reads) => self.work(event)?,
            command = self.commands.recv(), if self.waiting.is_none() && self.disconnecting.is_none() => match command {
                Some(command) => self.waiting = Some(command),
                // All handles are gone.
                None => self.shared.is_disconnecting.store(true, Ordering::Release),
            },
            token = self.tokens.next() => self.take_token(token),
            () = self.shared.wake.notified() => {}
            () = until(wake) => self.on_time()?,
        }
        Ok(())
    }

    fn end_dropped_subscriptions(&mut self) {
        let dropped = std::mem::take(&mut *self.shared.dropped.lock());
        for buffer in dropped {
            self.registry.unsubscribe(&mut self.session, &buffer, None);
        }
    }

    fn begin_disconnect(&mut self) -> Result<(), End> {
        if self.disconnecting.is_some() || !self.shared.is_disconnecting.load(Ordering::Acquire) {
            return Ok(());
        }
        if !self.session.is_open() {
            return Err(None);
        }
        let id = self.session.disconnect();
        self.disconnecting = Some((id, Instant::now() + self.options.reply_timeout));
        Ok(())
    }

    /// Processes the program's commands while the session accepts them.
    fn take_commands(&mut self) {
        // Without handles its result has no reader, so it is no reason to reconnect.
        let has_handles = !self.commands.is_closed();
        self.waiting = self.waiting.take().filter(|command| has_handles || !command.is_abandoned());
        while self.session.is_open()
            && self.replies.len() < self.options.pending_replies_max
            && self.unsent_bytes() < self.options.unsent_bytes_max
        {
            let Some(command) = self.waiting.take().or_else(|| self.commands.try_recv().ok()) else { break };
            self.execute(command);
            // It counts as unsent.
            self.transmit(Connection::send);
        }
    }

    fn execute(&mut self, command: ClientCommand) {
        let now = Instant::now();
        let Driver { session, replies, registry, .. } = self;
        let publish = |session: &mut ClientSession, publication: &ClientPublication| {
            session.publish(&publication.channel, RawJson::trusted(&publication.data))
        };
        match command {
            ClientCommand::Publish { publication, reply, .. } => {
                replies.add(publish(session, &publication), reply, now)
            }
            ClientCommand::Send { publication: ClientPublication { channel, data }, .. } => {
                session.publish_without_reply(&channel, RawJson::trusted(&data));
            }
            ClientCommand::Batch { publications, reply, .. } => {
                let mut ids = Vec::with_capacity(publications.len());
                session.batch(|session| {
                    ids.extend(publications.iter().map(|publication| publish(session, publication)));
                });
                replies.add_batch(&ids, reply, now);
            }
            ClientCommand::Request { publication, timeout, reply, .. } => {
                let id = publish(session, &publication);
                replies.add_request(id, reply, now, timeout);
            }
            ClientCommand::Subscribe { name, buffer, kind, reply } => {
                if !buffer.is_dropped() {
                    registry.subscribe(session, name, buffer, kind, reply);
                }
            }
            // The program may have gone on without them.
            ClientCommand::Positions(buffer, reply) => _ = reply.send(session.positions(&buffer.names)),
            ClientCommand::Unsubscribe(buffer, reply) => registry.unsubscribe(session, &buffer, Some(reply)),
        }
    }

    fn unsent_bytes(&self) -> usize {
        match &self.link {
            LinkState::Open(connection) => connection.unsent_bytes(),
            _ => 0,
        }
    }

    /// Hands the session's texts to the connection: those of commands to be sent, others as answers.
    fn transmit(&mut self, hand_over: fn(&mut Connection, Transmission)) {
        if let LinkState::Open(connection) = &mut self.link {
            while let Some(transmission) = self.session.transmit() {
                hand_over(connection, transmission);
            }
        }
    }

    /// Works on the session's events, in their order, until a buffer is full.
    fn deliver(&mut self) -> Result<(), End> {
        loop {
            while let Some((buffer, item)) = self.undelivered.pop_front() {
                let now = Instant::now().into_std();
                if let Pushed::Full(item, deadline) = buffer.push(item, now, self.options.slow_reader_timeout) {
                    self.undelivered.push_front((buffer, item));
                    self.slow_reader_at = Some(Instant::from_std(deadline));
                    return Ok(());
                }
            }
            if self.slow_reader_at.take().is_some() {
                self.replies.extend(Instant::now());
            }
            let Some(event) = self.session.event() else { return Ok(()) };
            self.take_event(event)?;
        }
    }

    fn take_event(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Opened { resumed } => {
                tracing::debug!(resumed, "session open");
                (self.was_open, self.has_opened) = (true, true);
                let client_id = self.session.client_id().unwrap_or_default().into();
                let connection_type = self.connection_type;
                let connected = Connected { resumed, connection_type, client_id };
                self.shared.state.send_replace(State::Connected(connected));
            }
            Event::Replied { id, outcome, .. } if self.disconnecting.is_some_and(|(sent, _)| sent == id) => {
                return Err(outcome.err());
            }
            Event::Replied { id, outcome, position, .. } => {
                if !self.registry.replied(id, &outcome)
                    && let outcome = outcome.map(|()| Published { position })
                    && let Some(error) = self.replies.replied(id, outcome, Instant::now())
                {
                    tracing::warn!(%error, "a publication without a reply was refused");
                }
            }
            Event::Message(message) => {
                if let Some(message) = self.replies.answered(message) {
                    let mut readers = self.registry.readers(&message.channel).into_iter();
                    if let Some(first) = readers.next() {
                        self.undelivered.extend(readers.map(|reader| (reader, Ok(message.clone()))));
                        self.undelivered.push_back((first, Ok(message)));
                    }
                }
            }
            Event::Gap(gap) => {
                let readers = self.registry.readers(&gap.channel);
                if readers.is_empty() {
                    tracing::warn!(channel = gap.channel, cause = ?gap.cause, "messages are missing");
                }
                self.undelivered.extend(readers.into_iter().map(|reader| (reader, Err(gap.clone()))));
            }
            Event::TokenWanted => self.tokens.request(self.options.reply_timeout),
            Event::Lost { reason, reopen_in } => self.connection_lost(reason, reopen_in)?,
            Event::Ended(error) => return Err(Some(error)),
        }
        Ok(())
    }

    /// Opens the next connection after a pause, or gives up.
    fn connection_lost(&mut self, reason: LostReason, pause: Duration) -> Result<(), End> {
        self.leave_link();
        let error = self.failure.take().unwrap_or_else(|| reason.clone().into());
        let pause = if self.was_open {
            if !std::mem::take(&mut self.has_opened) {
                self.servers.advance();
            }
            Some(pause).filter(|_| self.options.reconnect)
        } else {
            self.pause_at_start(&error, pause)
        };
        let Some(pause) = pause.filter(|_| self.disconnecting.is_none()) else {
            return Err(Some(self.with_address(error)));
        };
        tracing::warn!(%error, ?pause, "no connection");
        self.link = LinkState::Closed { until: Instant::now() + pause };
        if self.was_open {
            self.replies.connection_lost(&reason);
            self.shared.state.send_replace(State::Reconnecting(reason));
        }
        Ok(())
    }

    /// The pause before the next attempt to open the first session. `None` after the last one.
    fn pause_at_start(&mut self, error: &Error, pause: Duration) -> Option<Duration> {
        // A server or a proxy may refuse WebSockets. At an address without a server another transport does not help.
        let is_blocked = self.connection_type == ConnectionType::WebSocket
            && !matches!(error, Error::Unreachable { .. } | Error::Token(_));
        if is_blocked && self.options.transport == Transport::Auto {
            self.switch_to(ConnectionType::LongPolling);
            return Some(Duration::ZERO);
        }
        let (address, is_last) = (self.address(), !self.servers.advance());
        if is_last && !(self.options.retry_first_connect && error.is_transient()) {
            return None;
        }
        tracing::debug!(address, %error, "no session, trying on");
        if self.options.transport == Transport::Auto {
            self.switch_to(ConnectionType::WebSocket);
        }
        Some(if is_last { pause } else { Duration::ZERO })
    }

    fn switch_to(&mut self, connection_type: ConnectionType) {
        self.connection_type = connection_type;
        self.session.switch_connection_type(connection_type);
    }

    /// Forgets the connection, but for its cookies.
    fn leave_link(&mut self) {
        if let LinkState::Open(connection) = std::mem::replace(&mut self.link, LinkState::Gone) {
            self.servers.set_cookies(connection.cookies().clone());
        }
    }

    fn take_token(&mut self, token: Result<String, LostReason>) {
        match token {
            Ok(token) => self.session.set_token(&token, Instant::now().into_std()),
            Err(reason) if self.session.is_open() => {
                tracing::warn!(%reason, "the session has no new token yet");
                self.tokens.try_later();
            }
            Err(reason) => self.session.token_failed(reason),
        }
    }

    fn work(&mut self, event: LinkEvent) -> Result<(), End> {
        let now = Instant::now().into_std();
        match event {
            LinkEvent::PauseOver => {
                let (target, cookies) = self.servers.current().clone();
                self.link = LinkState::Opening(Box::pin(Connection::open(self.connection_type, target, cookies)));
            }
            LinkEvent::Opened(Ok(connection)) => {
                self.link = LinkState::Open(connection);
                self.session.connection_opened(now);
            }
            LinkEvent::Received(Ok(text)) => {
                if let Err(reason) = self.session.received(&text, now) {
                    self.fail(Error::NotBayeux { address: self.address(), reason });
                }
            }
            LinkEvent::Opened(Err(error)) | LinkEvent::Received(Err(error)) => self.fail(error),
        }
        Ok(())
    }

    fn on_time(&mut self) -> Result<(), End> {
        let (now, timeout) = (Instant::now(), self.options.reply_timeout);
        self.session.wake(now.into_std());
        self.replies.expire_requests(now);
        if self.tokens.again_at().is_some_and(|again_at| again_at <= now) {
            self.tokens.request(timeout);
        }
        if self.disconnecting.is_some_and(|(_, deadline)| deadline <= now) {
            return Err(Some(LostReason::NoReply.into()));
        }
        let is_late = self.replies.deadline(timeout).is_some_and(|deadline| deadline <= now);
        if is_late && self.undelivered.is_empty() && self.session.is_open() {
            self.fail(LostReason::NoReply.into());
        }
        Ok(())
    }

    /// The connection has ended. The session answers with the pause before the next one.
    fn fail(&mut self, error: Error) {
        let (now, reason) = (Instant::now().into_std(), error.clone().into_lost());
        let was_open = matches!(self.link, LinkState::Open(_));
        self.leave_link();
        self.failure = Some(error);
        if was_open {
            self.session.connection_lost(reason, now);
        } else {
            self.session.connection_failed(reason, now);
        }
    }

    /// A server that never spoke Bayeux cannot be lost.
    fn with_address(&self, error: Error) -> Error {
        match error {
            Error::ConnectionLost(reason) if !self.was_open => {
                Error::NotBayeux { address: self.address(), reason: NotBayeux::Lost(reason) }
            }
            error => error,
        }
    }

    /// The address of the server.
    fn address(&self) -> String {
        self.servers.current().0.endpoint.address()
    }

    /// The session has ended: all waiting operations get the reason.
    async fn close(mut self, end: End) {
        let error = end.clone().unwrap_or(Error::Closed);
        self.shared.state.send_replace(State::Closed(end.clone()));
        // Waiting commands end with their channels, and their callers read the state.
        self.commands.close();
        self.shared.unsent.close();
        self.replies.fail(&error);
        for (buffer, item) in std::mem::take(&mut self.undelivered) {
            // Without waiting: messages that do not fit are reported as a gap.
            let _taken = buffer.push(item, Instant::now().into_std(), Duration::ZERO);
        }
        self.registry.close(&error);
        if let (None, LinkState::Open(connection)) = (end, &mut self.link) {
            let _late = timeout(self.options.reply_timeout, connection.close()).await;
        }
    }
}

impl LinkState {
    /// Waits for the next change; without `reads` it only sends.
    async fn event(&mut self, reads: bool) -> LinkEvent {
        match self {
            LinkState::Closed { until } => {
                sleep_until(*until).await;
                LinkEvent::PauseOver
            }
            LinkState::Opening(opening) => LinkEvent::Opened(opening.await),
            LinkState::Gone => pending().await,
            LinkState::Open(connection) if reads => LinkEvent::Received(connection.receive().await),
            LinkState::Open(connection) => {
                connection.write().await;
                pending().await
            }
        }
    }
}

impl fmt::Debug for LinkState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LinkState::Closed { .. } => "Closed",
            LinkState::Opening(_) => "Opening",
            LinkState::Open(_) => "Open",
            LinkState::Gone => "Gone",
        })
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The limit of orders that wait for the task of a client; further ones wait in their callers.
const COMMANDS_MAX: usize = 64;
