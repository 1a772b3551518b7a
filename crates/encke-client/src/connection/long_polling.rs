//! Long-polling (Bayeux 1.0 §5.1): two connections, one for the connect that the server holds, one for everything else.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::Target;
use super::cookies::Cookies;
use super::http::{Answer, HttpConnection};
use crate::Error;
use crate::session::{RequestClass, Transmission};

/// Requests and their answers.
#[derive(Debug)]
pub(crate) struct LongPolling {
    target: Arc<Target>,
    cookies: Cookies,
    connect: RequestQueue,
    other: RequestQueue,
}

/// One connection, one request at a time.
#[derive(Debug, Default)]
struct RequestQueue {
    waiting: VecDeque<Transmission>,
    state: QueueState,
}

/// The state of a queue. The work of a request lives here and not in the future that waits for it, which may be dropped.
#[derive(Default)]
enum QueueState {
    #[default]
    Closed,
    /// Waits for the next request, until the pause is over: a connection costs some 16 KiB here, and more at the server.
    Idle(Box<HttpConnection>, Pin<Box<Sleep>>),
    Busy(Pin<Box<dyn Future<Output = Outcome> + Send>>),
}

/// The outcome of a request, and the connection if it can be used again.
type Outcome = (Option<Box<HttpConnection>>, Result<Answer, Error>);

impl LongPolling {
    /// Begins with one connection; the second one is opened with the first connect.
    pub(crate) fn new(connection: HttpConnection, target: Arc<Target>, cookies: Cookies) -> LongPolling {
        let other = RequestQueue { waiting: VecDeque::new(), state: QueueState::idle(Some(Box::new(connection))) };
        LongPolling { target, cookies, connect: RequestQueue::default(), other }
    }

    pub(crate) fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    /// Takes a text to be sent by [`LongPolling::receive`].
    pub(crate) fn send(&mut self, transmission: Transmission) {
        match transmission.class {
            RequestClass::Connect => {
                // The server has replaced it by the newer one (Bayeux 1.0, "connect request").
                if self.connect.waiting.len() >= CONNECTS_WAITING_MAX {
                    self.connect.waiting.pop_front();
                }
                self.connect.waiting.push_back(transmission);
            }
            RequestClass::Handshake | RequestClass::Other => self.other.waiting.push_back(transmission),
        }
    }

    /// The number of bytes that wait for their request.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.other.waiting.iter().map(|transmission| transmission.text.len()).sum()
    }

    /// Sends waiting texts and returns the next answer. May be dropped at any point without losing anything.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        poll_fn(|context| match self.poll(RequestClass::Connect, context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => self.poll(RequestClass::Other, context),
        })
        .await
    }

    fn poll(&mut self, class: RequestClass, context: &mut Context<'_>) -> Poll<Result<String, Error>> {
        let queue = match class {
            RequestClass::Connect => &mut self.connect,
            RequestClass::Handshake | RequestClass::Other => &mut self.other,
        };
        let state = std::mem::take(&mut queue.state);
        let mut busy = match state {
            QueueState::Busy(busy) => busy,
            state => match queue.next_text() {
                Some(text) => {
                    let connection = if let QueueState::Idle(connection, _) = state { Some(connection) } else { None };
                    let (target, cookies) = (self.target.clone(), self.cookies.clone());
                    Box::pin(request(connection, target, cookies, text))
                }
                None => {
                    queue.state = state.after_idling(context);
                    return Poll::Pending;
                }
            },
        };
        match busy.as_mut().poll(context) {
            Poll::Pending => {
                queue.state = QueueState::Busy(busy);
                Poll::Pending
            }
            Poll::Ready((connection, outcome)) => {
                queue.state = QueueState::idle(connection);
                Poll::Ready(outcome.map(|answer| {
                    self.cookies.take(&answer.headers);
                    answer.text
                }))
            }
        }
    }
}

impl RequestQueue {
    /// The text of the next request: all that waited during the last one goes together. A handshake goes alone
    /// (Bayeux 1.0, "handshake request").
    fn next_text(&mut self) -> Option<String> {
        let Transmission { class, mut text } = self.waiting.pop_front()?;
        while class != RequestClass::Handshake
            && let Some(next) = self.waiting.front()
            && next.class == class
            && text.len() + next.text.len() <= REQUEST_BYTES_MAX
        {
            text.pop();
            text.push(',');
            text.push_str(&next.text[1..]);
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(text)
    }
}

impl QueueState {
    fn idle(connection: Option<Box<HttpConnection>>) -> QueueState {
        connection.map_or(QueueState::Closed, |connection| QueueState::Idle(connection, Box::pin(sleep(IDLE_MAX))))
    }

    /// Closed after it was idle for long enough.
    fn after_idling(self, context: &mut Context<'_>) -> QueueState {
        let QueueState::Idle(connection, mut pause) = self else { return QueueState::Closed };
        if pause.as_mut().poll(context).is_ready() {
            return QueueState::Closed;
        }
        QueueState::Idle(connection, pause)
    }
}

impl fmt::Debug for QueueState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            QueueState::Closed => "Closed",
            QueueState::Idle(..) => "Idle",
            QueueState::Busy(_) => "Busy",
        })
    }
}

/// Sends one request, over a new connection if the old one is gone.
async fn request(
    connection: Option<Box<HttpConnection>>,
    target: Arc<Target>,
    cookies: Cookies,
    text: String,
) -> Outcome {
    let mut usable = None;
    if let Some(mut connection) = connection
        && connection.is_usable().await
    {
        usable = Some(connection);
    }
    let mut connection = match usable {
        Some(connection) => connection,
        None => match HttpConnection::open(&target).await {
            Ok(connection) => Box::new(connection),
            Err(error) => return (None, Err(error)),
        },
    };
    match connection.post(&target, &cookies, text).await {
        Ok(answer) => (Some(connection), Ok(answer)),
        Err(error) => (None, Err(error)),
    }
}

/// The time for which a connection stays open without a request.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The most connects that wait behind one that the server holds. A server that replies to connects on the other connection makes more.
const CONNECTS_WAITING_MAX: usize = 4;

/// Up to here texts share a request, in bytes: well below what servers take in messages (1,000) and bytes (1 MiB) at once.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(texts: &[&str]) -> Vec<String> {
        let class = |text| if text == HANDSHAKE { RequestClass::Handshake } else { RequestClass::Other };
        let waiting =
            texts.iter().map(|text| Transmission { class: class(*text), text: String::from(*text) }).collect();
        let mut queue = RequestQueue { waiting, state: QueueState::Closed };
        std::iter::from_fn(|| queue.next_text()).collect()
    }

    #[test]
    fn waiting_texts_go_together() {
        assert_eq!(requests(&[r#"[{"a":1}]"#, r#"[{"a":2},{"a":3}]"#]), [r#"[{"a":1},{"a":2},{"a":3}]"#]);
        assert!(requests(&[]).is_empty());
    }

    #[test]
    fn a_handshake_goes_alone() {
        assert_eq!(requests(&["[1]", HANDSHAKE, "[2]", "[3]"]), ["[1]", HANDSHAKE, "[2,3]"]);
    }

    #[test]
    fn a_request_does_not_grow_without_bound() {
        let half = format!("[\"{}\"]", "x".repeat(REQUEST_BYTES_MAX / 2));
        assert_eq!(requests(&[&half, &half, &half]).len(), 3);
    }

    const HANDSHAKE: &str = "[0]";
}
