//! A backend: its queue, its requests, and the answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use encke::{Handle, PublishError, Urgency};
use encke_core::Caller;
use encke_fetch::{FetchError, Fetcher, Limits};
use fastrand::Rng;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Notify as Wake, oneshot, watch};

use crate::answer::{Action, Answered};
use crate::breaker::State;
use crate::counters::{Counters, Snapshot};
use crate::event::{Event, Writer};
use crate::owner::{Owner, Owners};
use crate::perform;
use crate::queue::{Attempt, Cause, End, EventId, Outcome, Queue, Refused, Terms};
use crate::settings::{Checked, Decide, EventKind, Notify, WebhookSettings};
use crate::signature;

/// A backend with the events that wait for it.
#[derive(Debug)]
pub(crate) struct Backend {
    checked: Checked,
    fetcher: Fetcher,
    queue: Mutex<Queue<QueuedEvent>>,
    /// Notified when the queue has something to start.
    wake: Wake,
    counters: Counters,
    started: Instant,
    /// The server, once it has started: it performs actions.
    server: watch::Receiver<Option<Handle>>,
    /// Random: ids of events are of this process.
    id_prefix: u64,
    next_id: AtomicU64,
    owners: Owners,
}

/// An event in the queue.
#[derive(Debug)]
struct QueuedEvent {
    event: Event,
    /// Takes the answer; nobody waits for that of a notification.
    answer: Option<oneshot::Sender<Result<Answered, Without>>>,
}

/// The reason why an event has no answer of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// The backend is down: it cannot be reached, or it does not answer.
    Down,
    /// The backend is up: it has answered, but not with a result; or there was no room for the event.
    Refused,
}

impl Backend {
    pub(crate) fn new(
        checked: Checked,
        server: watch::Receiver<Option<Handle>>,
        seed: u64,
    ) -> Result<Backend, FetchError> {
        let settings = &checked.settings;
        let limits = Limits {
            connect_timeout_ms: settings.connect_timeout_ms,
            total_timeout_ms: settings.request_timeout_ms,
            response_bytes_max: settings.response_bytes_max,
            redirects_max: 0,
            requests_per_host_max: settings.requests_in_flight_max,
            ..Limits::default()
        };
        let fetcher = Fetcher::new(limits, settings.ca_file.as_deref())?;
        let mut random = Rng::with_seed(seed);
        Ok(Backend {
            fetcher,
            id_prefix: random.u64(..),
            next_id: 0.into(),
            owners: Owners::default(),
            queue: Mutex::new(Queue::new(checked.settings.clone(), random)),
            wake: Wake::new(),
            counters: Counters::default(),
            started: Instant::now(),
            server,
            checked,
        })
    }

    /// True if it gets events of this kind.
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        self.checked.settings.events.contains(&kind)
    }

    /// True if it gets events about this channel.
    pub(crate) fn covers(&self, channel: &str) -> bool {
        self.checked.channels.allow(channel)
    }

    /// True if it gets events about this channel or pattern, or about a channel that the pattern matches.
    pub(crate) fn concerns(&self, name: &str) -> bool {
        self.checked.settings.channels.iter().any(|pattern| bayeux::channel::overlap(pattern, name))
    }

    /// A text that changes with its part in the decisions on events of this kind.
    pub(crate) fn policy(&self, kind: EventKind) -> String {
        let settings = &self.checked.settings;
        let (url, when_down) = (settings.url.reveal().split('?').next(), self.when_down(kind));
        format!("webhook {} {url:?} {:?} {when_down:?}", settings.name, settings.channels)
    }

    /// The owner of what a client at this address does without a session.
    pub(crate) fn owner_of_address(&self, address: Option<IpAddr>) -> Owner {
        self.owners.of_address(address)
    }

    /// The owner of what a session does.
    pub(crate) fn owner_of(&self, caller: &Caller<'_>) -> Owner {
        self.owners.of(caller)
    }

    /// True if events of this kind are allowed while the backend is down. An answer that is no result is a refusal.
    pub(crate) fn allows(&self, kind: EventKind, without: Without) -> bool {
        without == Without::Down && self.when_down(kind) == Decide::Allow
    }

    fn when_down(&self, kind: EventKind) -> Decide {
        let when_down = &self.checked.settings.when_down;
        match kind {
            EventKind::Subscribe => when_down.subscribe,
            EventKind::Publish => when_down.publish,
            EventKind::Service => when_down.service,
            _ => when_down.handshake,
        }
    }

    /// Begins an event.
    pub(crate) fn event(&self, kind: EventKind) -> Writer {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        Writer::new(kind, format!("msg_{:016x}{number:08x}", self.id_prefix), wall_ms())
    }

    /// Posts an event. The future is its answer.
    pub(crate) fn ask(
        self: &Arc<Self>,
        session: Option<&Arc<str>>,
        owner: Owner,
        event: Event,
    ) -> impl Future<Output = Result<Answered, Without>> + Send + use<> {
        let kind = event.kind;
        let (sender, receiver) = oneshot::channel();
        let pushed = self.push(session, owner, event, Some(sender));
        let backend = self.clone();
        async move {
            let answered = match pushed {
                // The sender is dropped when the server stops.
                Ok(()) => receiver.await.unwrap_or(Err(Without::Refused)),
                Err(Refused::Down) => Err(Without::Down),
                Err(Refused::Full) => Err(Without::Refused),
            };
            if answered.is_err() {
                backend.counters.undecided.increment();
                tracing::debug!(webhook = backend.checked.name, event = kind.as_str(), "no answer of the backend");
            }
            answered
        }
    }

    /// Posts a notification.
    pub(crate) fn notify(&self, caller: &Caller<'_>, event: Event) {
        if self.push(Some(&caller.id.into()), self.owner_of(caller), event, None).is_err() {
            self.counters.dropped.increment();
        }
    }

    /// Adds an event to the queue.
    fn push(
        &self,
        session: Option<&Arc<str>>,
        owner: Owner,
        event: Event,
        answer: Option<oneshot::Sender<Result<Answered, Without>>>,
    ) -> Result<(), Refused> {
        let now_ms = self.now_ms();
        let terms = self.terms(&event, now_ms);
        // Held requests have no session: each waits by itself.
        let session = session.filter(|session| !session.is_empty());
        let body_bytes = event.body.len();
        let pushed = self.queue.lock().push(now_ms, session, owner, body_bytes, terms, QueuedEvent { event, answer });
        if pushed.is_ok() {
            self.wake.notify_one();
        }
        pushed.map(drop).map_err(|(refused, _)| refused)
    }

    fn terms(&self, event: &Event, now_ms: u64) -> Terms {
        let kind = event.kind;
        let settings = &self.checked.settings;
        let when_down = &settings.when_down;
        let notified = |when_down: Notify| {
            (settings.notification_age_ms_max, settings.notification_attempts_max, when_down == Notify::Queue)
        };
        let (lifetime_ms, attempts_max, waits_when_down) = match kind {
            EventKind::Opened => notified(when_down.opened),
            EventKind::Ended => notified(when_down.ended),
            EventKind::Subscribed | EventKind::Unsubscribed => notified(when_down.subscribed),
            EventKind::Service => (settings.call_timeout_ms, usize::MAX, when_down.service == Decide::Queue),
            _ => (settings.decision_timeout_ms, usize::MAX, self.when_down(kind) == Decide::Queue),
        };
        let is_call = kind == EventKind::Service;
        let urgency = match kind {
            // Anybody can send handshakes.
            EventKind::Handshake => Urgency::Common,
            // Sessions end if these fail.
            EventKind::Refresh => Urgency::Urgent,
            _ if event.body.len() <= SMALL_BYTES => Urgency::Urgent,
            _ => Urgency::Common,
        };
        Terms {
            urgency,
            deadline_ms: now_ms.saturating_add(lifetime_ms),
            request_timeout_ms: if is_call { settings.call_timeout_ms } else { settings.request_timeout_ms },
            attempts_max,
            waits_when_down,
            is_repeatable: !is_call,
        }
    }

    /// Starts requests and ends events whose time is over, for ever. Runs on the thread of the webhooks.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let (ended, wake_at_ms) = {
                let now_ms = self.now_ms();
                let mut queue = self.queue.lock();
                let ended = queue.tick(now_ms);
                while let Some(started) = queue.start(now_ms) {
                    if started.is_retry {
                        self.counters.retries.increment();
                    }
                    let event = started.content.event.clone();
                    let request = UnderWay { backend: self.clone(), id: Some(started.id) };
                    tokio::spawn(request.run(event, started.timeout_ms));
                }
                (ended, queue.wake_at_ms())
            };
            self.settle(ended, None);
            let wait = wake_at_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(self.now_ms())));
            let wake = self.wake.notified();
            match wait {
                // The wheel of timers may be early by less than a millisecond.
                Some(wait) => drop(tokio::time::timeout(wait + Duration::from_millis(1), wake).await),
                None => wake.await,
            }
        }
    }

    /// Takes the result of a request.
    fn finish(&self, id: EventId, attempt: Attempt, answered: Option<Answered>) {
        let counter = match attempt {
            Attempt::Answered => &self.counters.answered,
            Attempt::Rejected => &self.counters.rejected,
            Attempt::Failed { .. } => &self.counters.failed,
        };
        counter.increment();
        let (Outcome { ended, breaker_changed }, breaker) = {
            let mut queue = self.queue.lock();
            (queue.finish(self.now_ms(), id, attempt), queue.breaker())
        };
        if breaker_changed {
            let webhook = &self.checked.name;
            if breaker == State::Closed {
                tracing::info!(webhook, "the backend answers again");
            } else {
                self.counters.opened.increment();
                tracing::warn!(webhook, "the backend does not answer; requests pause");
            }
        }
        self.settle(ended, answered);
        self.wake.notify_one();
    }

    /// Ends events. The answer belongs to the one that was answered.
    fn settle(&self, ended: Vec<(QueuedEvent, End)>, mut answered: Option<Answered>) {
        for (QueuedEvent { event, answer }, end) in ended {
            match (end, answer) {
                (_, Some(waiting)) => {
                    let answered = match end {
                        End::Answered => answered.take().ok_or(Without::Refused),
                        End::Down => Err(Without::Down),
                        End::Failed | End::Late => Err(Without::Refused),
                    };
                    // The session may have ended, and with it the wait.
                    let _gone = waiting.send(answered);
                }
                (End::Answered, None) => {}
                (_, None) => {
                    self.counters.dropped.increment();
                    let webhook = &self.checked.name;
                    tracing::debug!(webhook, event = event.kind.as_str(), id = event.id, "a notification was dropped");
                }
            }
        }
    }

    /// Posts an event once.
    async fn post(&self, event: &Event, timeout_ms: u64) -> (Attempt, Option<Answered>) {
        let failed = |cause, is_final| Attempt::Failed { cause, is_final, retry_after_ms: None };
        let response = match self.fetcher.limited(self.limits(timeout_ms)).send(self.request(event)).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(webhook = self.checked.name, event = event.kind.as_str(), %error, "a request failed");
                let attempt = match error {
                    FetchError::Connect(_) | FetchError::ConnectTimeout { .. } | FetchError::HostBusy { .. } => {
                        failed(Cause::Unreachable, false)
                    }
                    FetchError::ResponseTooLarge { .. } => failed(Cause::Unusable, true),
                    _ => failed(Cause::Silent, false),
                };
                return (attempt, None);
            }
        };
        let status = response.status();
        if status.is_success() {
            return match Answered::read(event.kind, response.body(), wall_ms()) {
                Ok(answered) => (Attempt::Answered, Some(answered)),
                Err(unusable) if event.kind.is_notification() => {
                    // It has arrived. To send it again would not improve the answer.
                    self.action_failed(&unusable);
                    (Attempt::Answered, None)
                }
                Err(unusable) => {
                    tracing::warn!(webhook = self.checked.name, event = event.kind.as_str(), "{unusable}");
                    (failed(Cause::Unusable, true), None)
                }
            };
        }
        tracing::debug!(webhook = self.checked.name, event = event.kind.as_str(), %status, "a request failed");
        let attempt = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                let retry_after_ms = seconds.map(|seconds: u64| seconds.saturating_mul(1_000));
                Attempt::Failed { cause: Cause::Postponed, is_final: false, retry_after_ms }
            }
            StatusCode::REQUEST_TIMEOUT => failed(Cause::Unusable, false),
            status if status.is_server_error() => failed(Cause::Unusable, false),
            _ => Attempt::Rejected,
        };
        (attempt, None)
    }

    fn limits(&self, timeout_ms: u64) -> Limits {
        Limits { total_timeout_ms: timeout_ms, ..*self.fetcher.limits() }
    }

    fn request(&self, event: &Event) -> Request<bytes::Bytes> {
        let timestamp_s = wall_ms() / 1_000;
        let mut request = Request::new(event.body.clone());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.checked.url.clone();
        let signatures = signature::sign(&self.checked.secrets, &event.id, timestamp_s, &event.body);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(signature::TIMESTAMP, HeaderValue::from(timestamp_s));
        for (name, value) in [(signature::ID, &event.id), (signature::SIGNATURE, &signatures)] {
            // Both are ASCII.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        request
    }

    /// Performs an action, as soon as the server has started.
    pub(crate) async fn perform(&self, action: &Action) {
        let mut server = self.server.clone();
        let server = server.wait_for(Option::is_some).await.ok().and_then(|server| server.clone());
        let done = match server {
            Some(server) => perform::by_handle(&server, action).await,
            None => Err(PublishError::Busy),
        };
        if let Err(error) = done {
            self.action_failed(&error);
        }
    }

    fn action_failed(&self, error: &dyn std::fmt::Display) {
        if self.counters.actions_failed.increment() == 0 {
            tracing::warn!(webhook = self.checked.name, "an action failed (further ones are counted only): {error}");
        }
    }

    /// Events that have not ended.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().messages()
    }

    /// Its settings.
    pub(crate) fn settings(&self) -> &WebhookSettings {
        &self.checked.settings
    }

    /// Its metrics now.
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        let queue = self.queue.lock();
        let (messages, bytes, breaker) = (queue.messages(), queue.bytes(), queue.breaker());
        Snapshot { name: &self.checked.name, counters: &self.counters, messages, bytes, breaker }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// A request under way. If its task ends early, the event counts as failed.
struct UnderWay {
    backend: Arc<Backend>,
    id: Option<EventId>,
}

impl UnderWay {
    async fn run(mut self, event: Event, timeout_ms: u64) {
        let backend = self.backend.clone();
        let (attempt, mut answered) = backend.post(&event, timeout_ms).await;
        // A service call's actions go with its reply. Others come before the next event of the session.
        if let Some(answered) = answered.as_mut().filter(|_| event.kind != EventKind::Service) {
            for action in std::mem::take(&mut answered.actions) {
                backend.perform(&action).await;
            }
        }
        if let Some(id) = self.id.take() {
            backend.finish(id, attempt, answered);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let failed = Attempt::Failed { cause: Cause::Silent, is_final: true, retry_after_ms: None };
            self.backend.finish(id, failed, None);
        }
    }
}

/// Bytes of the body of a small event, which has room also while large ones fill the queue.
const SMALL_BYTES: usize = 4 * 1024;

/// Milliseconds since 1970.
fn wall_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64
}
