//! The connections that long-polling sessions share for requests that the server answers at once, mostly publications.
//! Each session's own connection holds its connect.
//!
//! A session uses one connection of the pool, one request at a time. Otherwise its publications could overtake each
//! other, and the server would be blamed.

use crate::engine::error::ConnectionError;
use crate::engine::http::Head;
use crate::engine::http_link::{HttpLink, Progress, Request, RequestTag};
use crate::engine::poll::Ready;
use crate::engine::shared::WorkerShared;

/// The connections; each is opened on its first request.
#[derive(Debug)]
pub(super) struct Pool {
    links: Vec<HttpLink>,
    /// The first token: link `n` has the token `first_token + n`.
    first_token: u64,
}

/// The result of a step.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// A response; its body is in [`WorkerShared::body`].
    pub(super) answered: Option<(RequestTag, Head)>,
    /// Requests that may or may not have arrived.
    pub(super) lost: Vec<RequestTag>,
    /// The reason.
    pub(super) error: Option<ConnectionError>,
}

impl Pool {
    /// A pool of `size` connections.
    pub(super) fn new(size: usize, first_token: u64) -> Pool {
        Pool { links: (0..size).map(|_| HttpLink::default()).collect(), first_token }
    }

    /// The number of connections.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns true if [`Pool::send`] accepts requests of this session.
    pub(super) fn has_room(&self, session: usize) -> bool {
        !self.links.is_empty() && self.links[session % self.links.len()].waiting_bytes() <= WAITING_BYTES_MAX
    }

    /// Sends a request when those before it on its session's connection are answered.
    pub(super) fn send(&mut self, request: Request, shared: &WorkerShared) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some((link, token)) = self.link_of(request.tag.session)
            && let Err(error) = link.send(request, token, shared)
        {
            outcome.lose(link, error);
        }
        outcome
    }

    /// Serves the connection with this number.
    pub(super) fn step(&mut self, index: usize, ready: &Ready, shared: &mut WorkerShared) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(link) = self.links.get_mut(index) else { return outcome };
        match link.step(ready, shared) {
            Ok(Progress::None | Progress::Connected | Progress::Closed) => {}
            Ok(Progress::Answered(tag, response)) => outcome.answered = Some((tag, response)),
            Err(error) => outcome.lose(link, error),
        }
        if let Err(error) = link.pump(ready.token, shared) {
            outcome.lose(link, error);
        }
        outcome
    }

    /// Gives up the requests of a session whose connection is closed, but for its publications. Otherwise a server that holds one of them
    /// would delay the requests of all sessions that share its connection, those of the session's next life among them.
    pub(super) fn give_up(&mut self, session: usize, shared: &WorkerShared) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some((link, token)) = self.link_of(session)
            && link.give_up(session)
            && let Err(error) = link.pump(token, shared)
        {
            outcome.lose(link, error);
        }
        outcome
    }

    /// The connection that a session uses, and its token.
    fn link_of(&mut self, session: usize) -> Option<(&mut HttpLink, u64)> {
        let index = session % self.links.len().max(1);
        Some((self.links.get_mut(index)?, self.first_token + index as u64))
    }

    /// Closes all connections and drops the queued requests.
    pub(super) fn close(&mut self) {
        self.links.iter_mut().for_each(|link| drop(link.close()));
    }
}

impl Outcome {
    fn lose(&mut self, link: &mut HttpLink, error: ConnectionError) {
        self.lost.extend(match error {
            // Queued requests would fail alike.
            ConnectionError::Unreachable(_) | ConnectionError::Machine(_) => link.close(),
            _ => link.disconnect().into_iter().collect(),
        });
        self.error.get_or_insert(error);
    }
}

/// Enough connections to keep a server busy, and few enough not to be a load themselves.
pub(super) const POOL_CONNECTIONS: usize = 64;
/// The most queued bytes of one connection.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;
    use crate::engine::http_link::Ids;
    use crate::engine::poll::Poll;
    use crate::engine::reader::Reader;
    use crate::engine::tally::Tally;
    use crate::engine::target::Target;
    use crate::order::Transport;

    fn request(session: usize, bytes: usize) -> Request {
        Request { tag: RequestTag { session, publications: None }, bytes: vec![b'x'; bytes] }
    }

    fn shared(listener: &TcpListener) -> WorkerShared {
        let reader = Reader::new(Tally::new(0, 1, 1, std::iter::empty()), None);
        let target = Target::plain(listener.local_addr().expect("address"));
        WorkerShared::new(target, Transport::LongPolling, Poll::new().expect("epoll"), reader)
    }

    #[test]
    fn the_queue_of_a_connection_has_a_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let shared = shared(&listener);
        let mut pool = Pool::new(2, 100);
        assert!(!Pool::new(0, 0).has_room(0), "nothing goes through a pool without connections");
        assert!(pool.has_room(1));
        for _ in 0..17 {
            pool.send(request(1, 1024 * 1024), &shared);
        }
        assert!(!pool.has_room(1) && !pool.has_room(3), "the same connection");
        assert!(pool.has_room(0) && pool.has_room(2), "another one");
        pool.close();
        assert!(pool.has_room(1));
    }

    #[test]
    fn a_session_that_is_gone_does_not_delay_those_that_share_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let mut shared = shared(&listener);
        let mut pool = Pool::new(1, 100);
        let publication = Request {
            tag: RequestTag { session: 1, publications: Some(Ids { first: 0, end: 1 }) },
            bytes: b"published".to_vec(),
        };
        for request in [request(1, 10), request(1, 10), publication, request(2, 10)] {
            pool.send(request, &shared);
        }
        let arrived = |pool: &mut Pool, shared: &mut WorkerShared, bytes: usize| {
            let (mut peer, _) = listener.accept().expect("accepted");
            peer.set_nonblocking(true).expect("set");
            let (mut text, mut ready) = (vec![0; bytes], Vec::new());
            let mut length = 0;
            while length < bytes {
                shared.poll.wait(std::time::Duration::from_millis(10), &mut ready).expect("waited");
                ready.iter().for_each(|ready| assert!(pool.step(0, ready, shared).error.is_none()));
                length += peer.read(&mut text[length..]).unwrap_or(0);
            }
            text
        };
        assert_eq!(arrived(&mut pool, &mut shared, 10), [b'x'; 10], "the first is under way, and never answered");
        assert!(pool.give_up(1, &shared).error.is_none());
        assert_eq!(arrived(&mut pool, &mut shared, 9), b"published", "on another connection");
        assert!(pool.give_up(1, &shared).error.is_none());
        assert_eq!(pool.links[0].waiting_bytes(), 10, "publications stay, and the other session's request waits");
    }

    #[test]
    fn requests_to_an_unreachable_server_are_returned() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let mut shared = shared(&listener);
        drop(listener);
        let mut pool = Pool::new(1, 100);
        let mut lost = Vec::new();
        for session in 0..3 {
            lost.extend(pool.send(request(session, 10), &shared).lost);
        }
        let mut ready = Vec::new();
        while lost.len() < 3 {
            shared.poll.wait(std::time::Duration::from_secs(1), &mut ready).expect("waited");
            for ready in &ready {
                let outcome = pool.step((ready.token - 100) as usize, ready, &mut shared);
                assert!(matches!(outcome.error, Some(ConnectionError::Unreachable(_))), "{outcome:?}");
                lost.extend(outcome.lost);
            }
        }
        assert_eq!(lost.iter().map(|tag| tag.session).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
