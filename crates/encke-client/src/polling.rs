//! Long-polling (Bayeux 1.0 §5.1): two connections, one for the connect that the server holds, one for everything else.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::Error;
use crate::cookies::Cookies;
use crate::dialog::{Lane, Transmission};
use crate::endpoint::Endpoint;
use crate::http::{Answer, Link};

/// Requests and their answers.
#[derive(Debug)]
pub(crate) struct Polling {
    endpoint: Arc<Endpoint>,
    cookies: Cookies,
    message_bytes_max: usize,
    connect: Line,
    other: Line,
}

/// One connection, one request at a time.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<String>,
    state: LineState,
}

/// What a line does. The work of a request lives here and not in the future that waits for it, which may be dropped.
#[derive(Default)]
enum LineState {
    #[default]
    Closed,
    /// Kept for the next request, until the pause is over: a connection costs some 16 KiB here, and more at the server.
    Idle(Box<Link>, Pin<Box<Sleep>>),
    Busy(Pin<Box<dyn Future<Output = Outcome> + Send>>),
}

/// What a request came to, and the connection if it can go on.
type Outcome = (Option<Box<Link>>, Result<Answer, Error>);

impl Polling {
    /// Begins with one connection; the second one is opened with the first connect.
    pub(crate) fn new(link: Link, endpoint: Arc<Endpoint>, cookies: Cookies, message_bytes_max: usize) -> Polling {
        let other = Line { waiting: VecDeque::new(), state: LineState::idle(Some(Box::new(link))) };
        Polling { endpoint, cookies, message_bytes_max, connect: Line::default(), other }
    }

    pub(crate) fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    /// Takes a text to be sent by [`Polling::receive`].
    pub(crate) fn send(&mut self, transmission: Transmission) {
        match transmission.lane {
            Lane::Connect => self.connect.waiting.push_back(transmission.text),
            Lane::Other => self.other.waiting.push_back(transmission.text),
        }
    }

    /// How many bytes wait for their request.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.other.waiting.iter().map(String::len).sum()
    }

    /// Sends what waits and returns the next answer. May be dropped at any point without losing anything.
    pub(crate) async fn receive(&mut self) -> Result<String, Error> {
        poll_fn(|context| match self.poll(Lane::Connect, context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => self.poll(Lane::Other, context),
        })
        .await
    }

    fn poll(&mut self, lane: Lane, context: &mut Context<'_>) -> Poll<Result<String, Error>> {
        let line = match lane {
            Lane::Connect => &mut self.connect,
            Lane::Other => &mut self.other,
        };
        let state = std::mem::take(&mut line.state);
        let mut busy = match state {
            LineState::Busy(busy) => busy,
            state => match line.next_text() {
                Some(text) => {
                    let link = if let LineState::Idle(link, _) = state { Some(link) } else { None };
                    let (endpoint, cookies) = (self.endpoint.clone(), self.cookies.clone());
                    Box::pin(request(link, endpoint, cookies, text, self.message_bytes_max))
                }
                None => {
                    line.state = state.rested(context);
                    return Poll::Pending;
                }
            },
        };
        match busy.as_mut().poll(context) {
            Poll::Pending => {
                line.state = LineState::Busy(busy);
                Poll::Pending
            }
            Poll::Ready((link, outcome)) => {
                line.state = LineState::idle(link);
                Poll::Ready(outcome.map(|answer| {
                    self.cookies.take(&answer.headers);
                    answer.text
                }))
            }
        }
    }
}

impl Line {
    /// What the next request carries: what waited while the last one was out goes together. A handshake goes alone
    /// (Bayeux 1.0 §4.1.1).
    fn next_text(&mut self) -> Option<String> {
        let mut text = self.waiting.pop_front()?;
        while !is_handshake(&text)
            && let Some(next) = self.waiting.front()
            && !is_handshake(next)
            && text.len() + next.len() <= REQUEST_BYTES_MAX
        {
            text.pop();
            text.push(',');
            text.push_str(&next[1..]);
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(text)
    }
}

impl LineState {
    fn idle(link: Option<Box<Link>>) -> LineState {
        link.map_or(LineState::Closed, |link| LineState::Idle(link, Box::pin(sleep(IDLE_MAX))))
    }

    /// Closed if it was idle for long enough.
    fn rested(self, context: &mut Context<'_>) -> LineState {
        let LineState::Idle(link, mut pause) = self else { return LineState::Closed };
        if pause.as_mut().poll(context).is_ready() {
            return LineState::Closed;
        }
        LineState::Idle(link, pause)
    }
}

impl fmt::Debug for LineState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LineState::Closed => "Closed",
            LineState::Idle(..) => "Idle",
            LineState::Busy(_) => "Busy",
        })
    }
}

/// Sends one request, over a new connection if the old one is gone.
async fn request(
    link: Option<Box<Link>>,
    endpoint: Arc<Endpoint>,
    cookies: Cookies,
    text: String,
    bytes_max: usize,
) -> Outcome {
    let mut usable = None;
    if let Some(mut link) = link
        && link.is_usable().await
    {
        usable = Some(link);
    }
    let mut link = match usable {
        Some(link) => link,
        None => match Link::open(&endpoint).await {
            Ok(link) => Box::new(link),
            Err(error) => return (None, Err(error)),
        },
    };
    match link.post(&endpoint, &cookies, text, bytes_max).await {
        Ok(answer) => (Some(link), Ok(answer)),
        Err(error) => (None, Err(error)),
    }
}

/// Texts are written by the dialog, whose messages begin with their channel.
fn is_handshake(text: &str) -> bool {
    text.starts_with(r#"[{"channel":"/meta/handshake""#)
}

/// How long a connection is kept without a request.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Up to here texts share a request, in bytes: well below what servers take in messages (1,000) and bytes (1 MiB) at once.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(texts: &[&str]) -> Vec<String> {
        let waiting = texts.iter().map(|text| String::from(*text)).collect();
        let mut line = Line { waiting, state: LineState::Closed };
        std::iter::from_fn(|| line.next_text()).collect()
    }

    #[test]
    fn what_waits_goes_together() {
        assert_eq!(requests(&[r#"[{"a":1}]"#, r#"[{"a":2},{"a":3}]"#]), [r#"[{"a":1},{"a":2},{"a":3}]"#]);
        assert!(requests(&[]).is_empty());
    }

    #[test]
    fn a_handshake_goes_alone() {
        let handshake = r#"[{"channel":"/meta/handshake","id":"1"}]"#;
        assert_eq!(requests(&["[1]", handshake, "[2]", "[3]"]), ["[1]", handshake, "[2,3]"]);
    }

    #[test]
    fn a_request_does_not_grow_without_bound() {
        let half = format!("[\"{}\"]", "x".repeat(REQUEST_BYTES_MAX / 2));
        assert_eq!(requests(&[&half, &half, &half]).len(), 3);
    }
}
