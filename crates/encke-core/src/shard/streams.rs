//! Streams: responses that stay open and carry the messages of a session, as server-sent events or JSON lines. Their clients
//! send requests beside them. For its session a stream is a socket that only writes: it is pushed to, holds connects, and
//! gets the replies to them.

use bayeux::{Message, Reply};

use crate::application::EndReason;
use crate::delivery::{Format, Reached};
use crate::events::{Peer, SessionKey, SocketKey};
use crate::id::Id;
use crate::now::Now;
use crate::opener::Opener;
use crate::protocol::batch::Batch;
use crate::settings::TransportName;
use crate::shard::{Machines, Shard};

/// The sender of a request for a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOpener {
    /// The browser id in its cookie, if it has one of ours.
    pub browser: Option<Id>,
    /// True if a page of a browser has sent it.
    pub is_of_page: bool,
    /// The origin of the request.
    pub peer: Peer,
}

/// The result of a request for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOpening {
    /// The stream is open.
    Here(SocketKey),
    /// The session lives on another shard. The connection must move there.
    Elsewhere(usize),
    /// The client may not use this session, or it is unknown.
    Unknown,
    /// Its browser holds as many connects and streams as it may.
    TooMany,
    /// The server is about to stop.
    Draining,
}

impl Format {
    /// The transport of a session whose messages come in this format. None for a format within others.
    pub fn transport(self) -> Option<TransportName> {
        match self {
            Format::Joined | Format::Messages | Format::MessageLines => None,
            Format::Events => Some(TransportName::Eventsource),
            Format::Lines => Some(TransportName::JsonStream),
        }
    }
}

impl Shard {
    /// Opens a stream for the session with this id. It takes the place of the session's connection so far. `reached`: the ids of
    /// its events name the positions of several channels, of which it has reached these.
    pub fn open_stream(
        &mut self,
        now: Now,
        client: &str,
        opener: &StreamOpener,
        format: Format,
        reached: Option<Reached>,
    ) -> StreamOpening {
        let machines = self.settle_burst_at(now);
        let session = match machines.session_for(client, opener) {
            Ok(session) => session,
            Err(refusal) => return refusal,
        };
        machines.leave_socket(session);
        if !machines.delivery.acknowledges(session) {
            machines.answer_held(session, None);
        }
        // Otherwise the number of a batch in the response could overtake one on the stream: the connect ends with a status.
        let stream = machines.delivery.open_stream(opener.opener(), format, reached);
        machines.delivery.set_origin(stream, machines.clients.newcomers.origins(opener.peer), None);
        machines.delivery.attach(session, stream);
        machines.has_arrived(session);
        machines.delivery.aside().received(session);
        StreamOpening::Here(stream)
    }

    /// The reason why [`Shard::open_stream`] would not open a stream.
    pub fn stream_refusal(&self, client: &str, opener: &StreamOpener) -> Option<StreamOpening> {
        self.machines.session_for(client, opener).err()
    }
}

impl StreamOpener {
    /// A client of another node, with this origin.
    pub fn of_node(opener: Opener, peer: Peer) -> StreamOpener {
        StreamOpener { browser: opener.browser(), is_of_page: opener != Opener::Program, peer }
    }

    /// The client.
    pub fn opener(&self) -> Opener {
        match self.browser {
            Some(browser) => Opener::Browser(browser),
            None if self.is_of_page => Opener::Page,
            None => Opener::Program,
        }
    }
}

impl Machines {
    /// The session with this id, if it may have a stream.
    fn session_for(&self, client: &str, opener: &StreamOpener) -> Result<SessionKey, StreamOpening> {
        let id = Id::parse(client).ok_or(StreamOpening::Unknown)?;
        let home = self.env.shared.shard_of(&id);
        if home != self.env.index && home < self.env.shared.shards {
            return Err(StreamOpening::Elsewhere(home));
        }
        if self.env.is_draining {
            return Err(StreamOpening::Draining);
        }
        let key = self.delivery.find(&id).filter(|key| self.delivery.is_usable(*key, opener.opener()));
        let key = key.ok_or(StreamOpening::Unknown)?;
        if self.has_room_for_stream(key, &opener.peer) { Ok(key) } else { Err(StreamOpening::TooMany) }
    }

    /// True if the browser of a session may have one more stream, in place of the session's connection.
    fn has_room_for_stream(&self, key: SessionKey, peer: &Peer) -> bool {
        let Some(max) = self.env.settings.browser_sessions_max(peer) else { return true };
        let Some(session) = self.delivery.session(key) else { return false };
        let own =
            usize::from(session.socket().is_none_or(|socket| self.delivery.is_stream(socket)) && !session.is_away());
        session.browser().is_none_or(|browser| self.delivery.held_by(&browser) - own < max)
    }

    /// The stream on which a connect is held that has come with a request: that of its session, if its client expects the
    /// reply there.
    pub(super) fn stream_for(&self, key: SessionKey, connection_type: Option<&str>) -> Option<SocketKey> {
        let (stream, format) = self.delivery.stream_of(key)?;
        let transport = format.transport()?.to_string();
        (connection_type == Some(&transport)).then_some(stream)
    }

    /// True if a connect of long-polling is no wish to leave the stream: it wants no messages. Faye's client sends one while its
    /// stream opens. The numbers in a reply to a client that acknowledges or replays would overtake messages on the stream.
    pub(super) fn stays_on_stream(&self, key: SessionKey, message: &Message<'_>) -> bool {
        let wants_none = message.advice.is_some_and(|advice| advice.timeout_ms == Some(0));
        let session = self.delivery.session(key).filter(|_| wants_none && self.delivery.stream_of(key).is_some());
        session.is_some_and(|session| !session.is_held() && !session.acknowledges() && !session.replays())
    }

    /// Answers a connect of a request on the stream of its session.
    pub(super) fn reply_on_stream(&mut self, batch: &mut Batch, reply: &Reply<'_>, stream: SocketKey, is_last: bool) {
        let Some(key) = batch.session else { return };
        let mut text = Vec::with_capacity(128);
        reply.write(&mut text);
        let replied = self.delivery.reply_on_socket(stream, Some(key), &text);
        self.end_given_up(replied);
        if is_last {
            self.end_session(key, EndReason::Kicked);
            self.delivery.close_socket(stream, 1000, "session ended");
            batch.session = None;
        }
    }
}
