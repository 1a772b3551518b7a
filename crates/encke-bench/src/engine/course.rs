//! The course of sessions: what sockets, timers and the sessions themselves have to say.

use std::time::{Duration, Instant};

use encke_client::Error;
use encke_client::session::{Event, RequestClass, Transmission};

use crate::engine::clock::now_us;
use crate::engine::crowd::{Crowd, Stage};
use crate::engine::http::{self, Response};
use crate::engine::http_link::{Errand, Progress, Request};
use crate::engine::poll::Ready;
use crate::engine::pool::Outcome;
use crate::engine::session::{Back, Carrier, Life, Session};
use crate::engine::trouble::Trouble;

impl Crowd {
    /// Begins the connection of a session that is [`Life::Opening`].
    pub(super) fn open_carrier(&mut self, index: usize) {
        let opened = match &mut self.sessions[index].carrier {
            Carrier::WebSocket(link) => link.open(&self.shared),
            Carrier::Http { link, .. } => link.open(index as u64, &self.shared),
        };
        match opened {
            Ok(()) => self.watch(index),
            Err(trouble) => self.trouble(index, trouble),
        }
    }

    /// Serves a socket that is ready.
    pub(super) fn serve(&mut self, ready: &Ready) {
        let index = ready.token as usize;
        if index >= self.sessions.len() {
            let outcome = self.pool.step(index - self.total, ready, &mut self.shared);
            return self.pooled(outcome);
        }
        let Session { talk, carrier, .. } = &mut self.sessions[index];
        match carrier {
            Carrier::WebSocket(link) => match link.step(ready, index, talk, &mut self.shared) {
                Ok(false) => self.watch(index),
                Ok(true) => self.settle(index),
                Err(trouble) => self.trouble(index, trouble),
            },
            Carrier::Http { link, .. } => match link.step(ready, &mut self.shared) {
                Ok(Progress::None | Progress::Closed) => self.watch(index),
                Ok(Progress::Connected) => self.connected(index),
                Ok(Progress::Answered(errand, response)) => {
                    self.answered(errand, &response);
                    self.watch(index);
                }
                Err(trouble) => self.trouble(index, trouble),
            },
        }
    }

    /// Wakes the sessions whose time has come, and opens connections again as far as that is allowed.
    pub(super) fn wake(&mut self) {
        let now = now_us();
        while let Some((at_us, index)) = self.wakes.due(now) {
            let session = &mut self.sessions[index as usize];
            if !session.alarm.ring(at_us) {
                continue;
            }
            if session.reopen_us.is_some_and(|reopen_us| reopen_us <= now) {
                session.reopen_us = None;
                self.to_reopen.push_back(index as usize);
            }
            let instant = Instant::now();
            if session.talk.wake_at().is_some_and(|wake_at| wake_at <= instant) {
                session.talk.wake(instant);
            }
            self.settle(index as usize);
        }
        while self.on_their_way < self.opening_at_once
            && let Some(index) = self.to_reopen.pop_front()
        {
            if self.sessions[index].life == Life::Away {
                self.set_life(index, Life::Opening);
                self.open_carrier(index);
            }
        }
    }

    /// Handles what a session has to say: events, texts to be sent, its next time.
    pub(super) fn settle(&mut self, index: usize) {
        loop {
            self.note_repeats(index);
            while let Some(event) = self.sessions[index].talk.event() {
                self.happened(index, event);
            }
            let Some(transmission) = self.sessions[index].talk.transmit() else { break };
            self.transmit(index, &transmission);
        }
        self.watch(index);
        let session = &mut self.sessions[index];
        let wake_us = session.talk.wake_at().map(|at| now_us() + micros(at.saturating_duration_since(Instant::now())));
        if let Some(at_us) = wake_us.into_iter().chain(session.reopen_us).min() {
            self.wakes.set(index as u32, at_us, &mut session.alarm);
        }
    }

    /// A session's connection is of no use any more.
    pub(super) fn trouble(&mut self, index: usize, trouble: Trouble) {
        self.note_repeats(index);
        let session = &mut self.sessions[index];
        session.has_broken = true;
        let was_carried = session.is_carried();
        session.close();
        match (session.life, self.stage) {
            (Life::Gone | Life::Away, _) => return,
            (Life::Leaving, _) => return self.set_life(index, Life::Gone),
            (_, Stage::Opening) => {
                self.failure.get_or_insert(trouble);
                return self.set_life(index, Life::Gone);
            }
            (Life::Opening | Life::Open, _) => {}
        }
        match &trouble {
            Trouble::Refused(reason) => return self.lose_for_good(index, reason),
            // The session knows of a connection only when it can be used.
            _ if was_carried => session.talk.carrier_lost(trouble.reason(), Instant::now()),
            _ => session.talk.carrier_failed(trouble.reason(), Instant::now()),
        }
        self.settle(index);
    }

    /// Handles what came of a step of the pool.
    pub(super) fn pooled(&mut self, outcome: Outcome) {
        if let Some((errand, response)) = outcome.answered {
            self.answered(errand, &response);
        }
        let Some(trouble) = outcome.trouble else { return };
        for errand in outcome.lost {
            if errand.vital {
                self.trouble(errand.session, trouble.clone());
            } else {
                self.first_loss.get_or_insert_with(|| format!("a publication: the server {}", trouble.reason()));
            }
        }
    }

    /// Moves a session on, and keeps count.
    pub(super) fn set_life(&mut self, index: usize, life: Life) {
        let before = std::mem::replace(&mut self.sessions[index].life, life);
        self.count_life(before, life);
    }

    /// Keeps count of a session that was `before`, and is `after` now.
    fn count_life(&mut self, before: Life, after: Life) {
        self.connected = self.connected + u64::from(after == Life::Open) - u64::from(before == Life::Open);
        self.on_their_way =
            self.on_their_way + usize::from(after == Life::Opening) - usize::from(before == Life::Opening);
        self.leaving = self.leaving + usize::from(after == Life::Leaving) - usize::from(before == Life::Leaving);
    }

    /// Sends a request over the pool.
    pub(super) fn send_pooled(&mut self, errand: Errand, body: &[u8]) {
        let bytes = self.request(errand.session, body);
        let outcome = self.pool.send(Request { errand, bytes }, &self.shared);
        self.pooled(outcome);
    }

    fn connected(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        // Otherwise a connection was made again for the next request, which the session need not know.
        if session.life == Life::Opening && !session.announced {
            session.announced = true;
            session.talk.carrier_opened(Instant::now());
        }
        self.settle(index);
    }

    /// Takes the response to a request of a session, whichever connection it came on. Its body is in `shared.body`.
    fn answered(&mut self, errand: Errand, response: &Response) {
        let index = errand.session;
        if response.status != 200 {
            let text = format!("answered {}", response.line);
            if errand.vital {
                return self.trouble(index, Trouble::NotSpoken(text));
            }
            self.first_loss.get_or_insert_with(|| format!("a publication: the server {text}"));
            return;
        }
        let body = std::mem::take(&mut self.shared.body);
        let Session { talk, carrier, .. } = &mut self.sessions[index];
        if let Carrier::Http { cookies, .. } = carrier {
            http::set_cookies(cookies, &response.cookies);
        }
        let heard = self.shared.take_bayeux(&body, index, talk);
        self.shared.body = body;
        if self.sessions[index].back == Back::No {
            // Where nothing was on its way, a session over requests does not notice that its server was gone.
            self.sessions[index].back = Back::Connect;
        }
        match heard {
            Ok(false) => {}
            Ok(true) => self.settle(index),
            Err(trouble) => self.trouble(index, trouble),
        }
    }

    /// Counts what the session has left out because it had it: after a break that may be, otherwise it was sent twice.
    fn note_repeats(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let repeats = session.talk.repeats();
        let again = repeats - std::mem::replace(&mut session.repeats, repeats);
        self.breaks.again += again;
        if !session.has_broken {
            self.shared.reader.tally.note_doubled(again);
        }
    }

    fn happened(&mut self, index: usize, event: Event) {
        let session = &mut self.sessions[index];
        match event {
            Event::Opened { resumed } => {
                // A session that is begun anew while its connection holds is a break, too.
                session.has_broken |= session.life == Life::Open;
                (session.usable, session.back) = (true, if resumed { Back::Connect } else { Back::Handshake });
                let is_subscriber = index < self.client_count;
                self.breaks.resumed += u64::from(resumed && is_subscriber);
                self.breaks.renewed += u64::from(!resumed && is_subscriber);
                self.open_if_complete(index);
            }
            Event::Replied { channel, .. } if channel == "/meta/disconnect" => {
                session.close();
                self.set_life(index, Life::Gone);
            }
            Event::Replied { id, outcome, .. } if session.subscribing == Some(id) => match outcome {
                Ok(()) => {
                    session.subscribing = None;
                    self.open_if_complete(index);
                }
                Err(error) => {
                    self.trouble(index, Trouble::Refused(format!("refused a subscription: {}", refusal(&error))))
                }
            },
            Event::Replied { channel, outcome: Err(error), .. } => {
                self.first_loss.get_or_insert_with(|| format!("the server refused {channel}: {}", refusal(&error)));
            }
            Event::Message(message) => self.shared.reader.take_message(&message, index),
            Event::Gap(_) => self.breaks.gaps += 1,
            Event::Lost { reason, reopen_in } => self.lost(index, reason.to_string(), reopen_in),
            Event::Ended(error) => self.trouble(index, Trouble::Refused(format!("ended the session: {error}"))),
            _ => {}
        }
    }

    fn open_if_complete(&mut self, index: usize) {
        let session = &self.sessions[index];
        if session.usable && session.subscribing.is_none() && session.life == Life::Opening {
            self.set_life(index, Life::Open);
        }
    }

    fn lost(&mut self, index: usize, reason: String, reopen_in: Duration) {
        let session = &mut self.sessions[index];
        session.has_broken = true;
        session.close();
        match (session.life, self.stage) {
            (Life::Gone, _) => {}
            (Life::Leaving, _) => self.set_life(index, Life::Gone),
            (_, Stage::Opening) => self.trouble(index, Trouble::Lost(reason)),
            (Life::Opening | Life::Open | Life::Away, _) if self.reconnect => {
                let pause_us = self.breaker.as_mut().map_or(micros(reopen_in), |breaker| breaker.offline_us());
                // What is published while others are away is what counts, so that publishers do not wait.
                let is_publisher = index >= self.client_count;
                session.reopen_us =
                    Some(now_us() + if is_publisher { pause_us.min(PUBLISHER_PAUSE_US) } else { pause_us });
                self.first_loss.get_or_insert(reason);
                self.set_life(index, Life::Away);
            }
            (Life::Opening | Life::Open | Life::Away, _) => self.lose_for_good(index, &reason),
        }
    }

    fn lose_for_good(&mut self, index: usize, reason: &str) {
        self.sessions[index].close();
        if self.sessions[index].life != Life::Gone {
            self.dropped += 1;
            self.first_loss.get_or_insert_with(|| reason.to_owned());
            self.set_life(index, Life::Gone);
        }
    }

    /// Sends a text of a session: over its own connection where that is free, or if it is the connect.
    fn transmit(&mut self, index: usize, transmission: &Transmission) {
        let body = transmission.text.as_bytes();
        let errand = Errand { session: index, vital: true };
        let sent = match &mut self.sessions[index].carrier {
            Carrier::WebSocket(link) => link.send(body),
            Carrier::Http { link, .. } if transmission.class == RequestClass::Other && link.is_busy() => {
                return self.send_pooled(errand, body);
            }
            Carrier::Http { .. } => {
                let bytes = self.request(index, body);
                let Carrier::Http { link, .. } = &mut self.sessions[index].carrier else { return };
                link.send(Request { errand, bytes }, index as u64, &self.shared)
            }
        };
        if let Err(trouble) = sent {
            self.trouble(index, trouble);
        }
    }

    fn request(&self, index: usize, body: &[u8]) -> Vec<u8> {
        let Carrier::Http { cookies, .. } = &self.sessions[index].carrier else { return Vec::new() };
        let mut bytes = Vec::new();
        http::post(&self.shared.target, cookies, body, &mut bytes);
        bytes
    }

    /// Tells epoll what the session's connection waits for.
    pub(super) fn watch(&mut self, index: usize) {
        let watched = match &mut self.sessions[index].carrier {
            Carrier::WebSocket(link) => match &mut link.socket {
                Some(socket) => socket.watch(&self.shared.poll, index as u64).map_err(Trouble::from),
                None => Ok(()),
            },
            Carrier::Http { link, .. } => link.pump(index as u64, &self.shared),
        };
        if let Err(trouble) = watched {
            self.trouble(index, trouble);
        }
    }
}

/// The longest that a publisher stays away.
const PUBLISHER_PAUSE_US: u64 = 100_000;

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

/// The Bayeux error of a refusal.
fn refusal(error: &Error) -> String {
    match error {
        Error::Refused(refusal) => refusal.error.clone(),
        error => error.to_string(),
    }
}
