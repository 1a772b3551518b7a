//! A session, the state of its delivery, and the questions that decide what it gets now.

use bayeux::Terms;

use crate::delivery::outbox::{InFlight, Left, Outbox};
use crate::delivery::schedule::{Marks, Schedule};
use crate::delivery::sessions::replay::{InRings, Replay};
use crate::delivery::sessions::unacked::Unacked;
use crate::events::{ExchangeId, HttpTransport, SessionKey, SocketKey};
use crate::id::Id;

/// One session. The fields that a fan-out uses come first.
#[derive(Debug)]
pub struct Session {
    /// The number of the last publication offered to it: it gets each once, even if several subscriptions match.
    pub(in crate::delivery) stamp: u64,
    /// The messages queued for it.
    pub(in crate::delivery) outbox: Outbox,
    /// The queues of the shard's schedule that it is in.
    pub(in crate::delivery) marks: Marks,
    /// True if the outbox holds anything but lazy messages.
    pub(in crate::delivery) urgent: bool,
    /// The connection that takes its messages.
    pub(in crate::delivery) attachment: Attachment,
    /// The messages that it was sent and that may come back.
    pub(in crate::delivery) confirmation: Confirmation,
    /// The number of responses whose outcome is not known yet: those with messages, and large ones.
    pub(in crate::delivery) responses: u32,
    /// Its replay state, if it asked for positions.
    pub(in crate::delivery) replay: Option<Box<Replay>>,
    /// The state of the Bayeux protocol.
    pub(in crate::delivery) protocol: bayeux::Session,
    /// The client id.
    pub(in crate::delivery) id: Id,
    /// The browser that opened it, if it has a cookie.
    pub(in crate::delivery) browser: Option<Id>,
    /// Distinguishes sessions that reuse an index, so late events are recognized.
    pub(in crate::delivery) generation: u32,
    /// Its earliest entry in the timer wheel, in milliseconds; `u64::MAX` for none.
    pub(in crate::delivery) armed_ms: u64,
    /// The time when its lazy messages are due, in milliseconds; `u64::MAX` if none are queued.
    pub(in crate::delivery) lazy_due_ms: u64,
    /// The time of its last activity, as the activity extension counts it, in milliseconds.
    pub(in crate::delivery) active_ms: u64,
}

/// The state of a session's delivery: the connection that takes its messages, with the connect that is held there.
///
/// ```text
///              ──────── hold ───────▶         ── attach ──▶             ── hold ────────▶
///   (request,  ◀───── take_held ─────  Away   ◀── detach ──  (socket,   ◀── take_held ───  (socket,
///    connect)                                                no connect)                    connect)
/// ```
///
/// A response on its way is not a separate state. Its client may connect again, even on a WebSocket, before the outcome
/// is known: [`Confirmation`] has its messages.
#[derive(Debug, Default)]
pub(in crate::delivery) enum Attachment {
    /// No connection. The messages wait for a connect, or for the response to another request.
    #[default]
    Away,
    /// A request whose connect is held.
    Request(Box<(ExchangeId, HttpTransport, HeldConnect)>),
    /// A WebSocket. Its key is not in a box, because each write needs it.
    Socket(SocketKey, Option<Box<HeldConnect>>),
}

/// The parts of a held connect that its reply repeats.
#[derive(Debug)]
pub(crate) struct HeldConnect {
    /// Its message id.
    pub(crate) id: Option<bayeux::Id<'static>>,
    /// The member `timesync` of its reply's `ext`.
    pub(crate) timesync: Option<String>,
}

/// The way of a held connect's reply.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    /// On this WebSocket, to which the session is attached.
    Socket(SocketKey),
    /// As the response to this request.
    Request(ExchangeId, HttpTransport),
}

/// The next step of a session's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its WebSocket is written.
    Push,
    /// A connect is answered. The reply takes messages along.
    Respond,
    /// Nothing is delivered: nothing waits, or nothing may take it now.
    Wait,
}

/// The party that confirms messages, with those that it has not confirmed yet: they may come back.
#[derive(Debug)]
pub(crate) enum Confirmation {
    /// The kernel: a message is delivered when the kernel has taken it.
    ByKernel {
        /// The messages in a response that the kernel has not taken yet. While there are any, nothing else goes out.
        in_flight: Option<Box<(ExchangeId, InFlight)>>,
        /// True if messages come with connect replies only, even on a WebSocket: `connect_deliver_only` was set when the
        /// session was opened.
        with_connects: bool,
        /// The number of messages in responses that the kernel has taken since the last connect. Nothing shows yet that
        /// the client has read them.
        unread: u32,
    },
    /// The client, by the acknowledgement extension. Messages come with connect replies only.
    ByClient(Box<Unacked>),
}

impl Session {
    /// Notes that its outbox has something to send at once. Schedules it if something could take that now.
    #[inline(always)]
    pub(in crate::delivery) fn make_urgent(&mut self, index: u32, schedule: &mut Schedule) {
        self.urgent = true;
        if self.marks.may_be_written() && self.taker() != Next::Wait {
            schedule.write_session(self.key(index), &mut self.marks);
        }
    }

    /// Notes that messages have left its outbox. With an empty outbox it has nothing urgent, nothing lazy, and is not
    /// behind.
    pub(in crate::delivery) fn was_sent(&mut self) {
        if self.outbox.is_empty() {
            self.urgent = false;
            self.lazy_due_ms = u64::MAX;
            self.outbox.is_caught_up();
        }
    }

    /// The client id.
    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// The browser that opened it, if it has a cookie.
    pub(crate) fn browser(&self) -> Option<Id> {
        self.browser
    }

    /// True if it uses replay.
    pub(crate) fn replays(&self) -> bool {
        self.replay.is_some()
    }

    /// True if its client does not speak Bayeux.
    pub(crate) fn is_plain(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.is_plain())
    }

    /// True if its client acknowledges messages.
    pub(crate) fn acknowledges(&self) -> bool {
        self.unacked().is_some()
    }

    /// True if the server has ended it, and its client only gets what waits.
    pub(crate) fn is_ending(&self) -> bool {
        self.protocol.is_ending()
    }

    /// True if its WebSocket has taken a part of a message.
    pub(crate) fn is_torn(&self) -> bool {
        self.socket().is_some() && self.outbox.is_mid_frame()
    }

    /// The messages that wait for it, and their bytes.
    pub(crate) fn queued(&self) -> (usize, usize) {
        (self.outbox.messages(), self.outbox.bytes())
    }

    /// The messages that wait for it, the bytes of their frames, and the bytes of replies.
    pub(crate) fn waiting(&self) -> (usize, usize, usize) {
        let records: usize = self.handed_out().map(|messages| messages.held_bytes() - messages.bytes()).sum();
        let reply_bytes = self.outbox.reply_bytes();
        (self.outbox.messages(), self.outbox.bytes().saturating_sub(records + reply_bytes), reply_bytes)
    }

    /// Its key, given its index.
    pub(in crate::delivery) fn key(&self, index: u32) -> SessionKey {
        SessionKey { index, generation: self.generation }
    }

    /// Holds a connect. None may be held yet, and the session must have left any other WebSocket.
    pub(in crate::delivery) fn hold(&mut self, on: ReplyTo, connect: HeldConnect) {
        debug_assert!(!self.is_held(), "a connect that nobody answers");
        self.attachment = match on {
            ReplyTo::Socket(socket) => Attachment::Socket(socket, Some(Box::new(connect))),
            ReplyTo::Request(exchange, transport) => Attachment::Request(Box::new((exchange, transport, connect))),
        };
    }

    /// Takes the held connect out. The caller answers or ends it.
    pub(in crate::delivery) fn take_held(&mut self) -> Option<(ReplyTo, HeldConnect)> {
        match std::mem::take(&mut self.attachment) {
            Attachment::Away => None,
            Attachment::Request(held) => {
                let (exchange, transport, connect) = *held;
                Some((ReplyTo::Request(exchange, transport), connect))
            }
            Attachment::Socket(socket, held) => {
                self.attachment = Attachment::Socket(socket, None);
                Some((ReplyTo::Socket(socket), *held?))
            }
        }
    }

    /// Attaches it to a WebSocket. It must have left its connection.
    pub(in crate::delivery) fn attach(&mut self, socket: SocketKey) {
        debug_assert!(self.is_away(), "a connect that nobody answers, or a WebSocket that nobody takes care of");
        self.attachment = Attachment::Socket(socket, None);
    }

    /// Leaves its WebSocket, where no connect may be held. Returns what remains to be done there.
    pub(in crate::delivery) fn detach(&mut self) -> Left {
        debug_assert!(!self.is_held(), "a connect that nobody answers");
        self.attachment = Attachment::Away;
        let left = self.outbox.leave_attachment();
        self.urgent = !self.outbox.is_empty();
        left
    }

    /// Takes messages for a response: up to `bytes_max`, but at least one. They come back if the response fails. None
    /// if there are none, or if a WebSocket may have a part of a message: the messages then continue there.
    pub(in crate::delivery) fn take_for_response(
        &mut self,
        exchange: ExchangeId,
        bytes_max: usize,
    ) -> Option<&InFlight> {
        if self.socket().is_some() || self.outbox.is_empty() {
            return None;
        }
        let Confirmation::ByKernel { in_flight, .. } = &mut self.confirmation else { return None };
        *in_flight = Some(Box::new((exchange, self.outbox.take_oldest(bytes_max, true))));
        self.was_sent();
        self.handed_out().next()
    }

    /// Notes a response whose outcome will be reported.
    pub(in crate::delivery) fn response_begins(&mut self) {
        self.responses += 1;
    }

    /// Notes the outcome of a response. Returns the number of messages that it has delivered. Messages that the kernel
    /// has not taken wait again, before all others.
    pub(in crate::delivery) fn response_ends(&mut self, exchange: ExchangeId, is_taken: bool) -> usize {
        self.responses = self.responses.saturating_sub(1);
        let Confirmation::ByKernel { in_flight, unread, .. } = &mut self.confirmation else { return 0 };
        let Some(messages) = in_flight.take_if(|in_flight| in_flight.0 == exchange).map(|in_flight| in_flight.1) else {
            return 0;
        };
        if is_taken {
            self.outbox.settle(&messages);
            let messages = messages.messages();
            *unread = unread.saturating_add(messages as u32);
            return messages;
        }
        tracing::debug!(session = ?self.id, "a response was not delivered: its messages are queued again");
        self.outbox.restore(messages);
        self.urgent = true;
        if let Some(replay) = &mut self.replay {
            replay.in_rings = InRings::Maybe;
        }
        0
    }

    /// Notes that its client connects: it has read the earlier responses. Returns the number of messages in them.
    pub(in crate::delivery) fn was_read(&mut self) -> u32 {
        match &mut self.confirmation {
            Confirmation::ByKernel { unread, .. } => std::mem::take(unread),
            Confirmation::ByClient(_) => 0,
        }
    }

    /// The response whose messages the kernel has not taken yet.
    pub(in crate::delivery) fn response_in_flight(&self) -> Option<ExchangeId> {
        match &self.confirmation {
            Confirmation::ByKernel { in_flight, .. } => in_flight.as_ref().map(|in_flight| in_flight.0),
            Confirmation::ByClient(_) => None,
        }
    }

    /// Sends the last closed batch of a session that acknowledges, and returns the number of messages sent again: see
    /// [`Unacked::send`].
    pub(in crate::delivery) fn send_batch(
        &mut self,
        socket: Option<SocketKey>,
        bytes_max: Option<usize>,
        send: impl FnMut(&InFlight),
    ) -> usize {
        let bytes_max = bytes_max.filter(|_| !self.is_withheld());
        let Confirmation::ByClient(unacked) = &mut self.confirmation else { return 0 };
        let again = unacked.send(&mut self.outbox, socket, bytes_max, send);
        self.was_sent();
        again
    }

    /// Closes a batch of a session that acknowledges, and returns its number.
    pub(in crate::delivery) fn close_batch(&mut self) -> Option<u64> {
        let Confirmation::ByClient(unacked) = &mut self.confirmation else { return None };
        unacked.closed += 1;
        Some(unacked.closed)
    }

    /// Notes that the client acknowledges this batch and all before it. Returns the number of messages in them.
    pub(in crate::delivery) fn confirm(&mut self, batch: i64) -> usize {
        let Confirmation::ByClient(unacked) = &mut self.confirmation else { return 0 };
        if let Some(replay) = &mut self.replay {
            replay.confirm(batch);
        }
        unacked.confirm(batch, &mut self.outbox)
    }

    /// The batches that its client has not acknowledged, if it acknowledges.
    pub(in crate::delivery) fn unacked(&self) -> Option<&Unacked> {
        match &self.confirmation {
            Confirmation::ByKernel { .. } => None,
            Confirmation::ByClient(unacked) => Some(unacked),
        }
    }

    /// True if unacknowledged messages have to be sent again to a client that connects on this WebSocket, or by a
    /// request.
    pub(in crate::delivery) fn must_resend(&self, socket: Option<SocketKey>) -> bool {
        self.unacked().is_some_and(|unacked| unacked.must_resend(socket))
    }

    /// Its WebSocket.
    pub(crate) fn socket(&self) -> Option<SocketKey> {
        match self.attachment {
            Attachment::Socket(socket, _) => Some(socket),
            Attachment::Away | Attachment::Request(_) => None,
        }
    }

    /// The WebSocket that pushes messages to it.
    pub(in crate::delivery) fn pushing_socket(&self) -> Option<SocketKey> {
        match (&self.attachment, &self.confirmation) {
            (Attachment::Socket(socket, _), Confirmation::ByKernel { with_connects: false, .. }) => Some(*socket),
            _ => None,
        }
    }

    /// The WebSocket whose own outbox holds messages of this session: they went there with a connect reply. None for a
    /// session that acknowledges: its socket holds parts of frames, and `Unacked` has the messages.
    pub(in crate::delivery) fn socket_with_messages(&self) -> Option<SocketKey> {
        let is_lent = matches!(self.confirmation, Confirmation::ByKernel { with_connects: true, .. });
        self.socket().filter(|_| is_lent)
    }

    /// True if it has no connection: neither a WebSocket nor a held connect.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.attachment, Attachment::Away)
    }

    /// True if a connect is held.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.attachment, Attachment::Request(_) | Attachment::Socket(_, Some(_)))
    }

    /// The request whose connect is held.
    pub(in crate::delivery) fn held_request(&self) -> Option<ExchangeId> {
        match &self.attachment {
            Attachment::Request(held) => Some(held.0),
            Attachment::Away | Attachment::Socket(..) => None,
        }
    }

    /// True if a WebSocket pushes messages to it, when it has one.
    pub(in crate::delivery) fn is_pushed_to(&self) -> bool {
        matches!(self.confirmation, Confirmation::ByKernel { with_connects: false, .. })
    }

    /// The next step of its delivery, on the connection that it has.
    #[inline]
    pub(in crate::delivery) fn next(&self) -> Next {
        let must_resend = || self.held_request().is_some() && self.must_resend(None);
        if self.outbox.is_empty() && !must_resend() { Next::Wait } else { self.taker() }
    }

    /// The next step of its delivery when a connect comes on this WebSocket, or by a request.
    pub(in crate::delivery) fn next_on(&self, socket: Option<SocketKey>) -> Next {
        let has_messages = match &self.confirmation {
            Confirmation::ByClient(unacked) => self.urgent || unacked.must_resend(socket),
            Confirmation::ByKernel { with_connects, .. } => self.urgent && (socket.is_none() || *with_connects),
        };
        let has_news = self.replay.as_ref().is_some_and(|replay| replay.has_news());
        if (has_messages || has_news) && self.may_send(socket) { Next::Respond } else { Next::Wait }
    }

    /// The step that follows if a message comes now.
    #[inline]
    pub(in crate::delivery) fn taker(&self) -> Next {
        match &self.attachment {
            Attachment::Socket(socket, _) if !self.may_send(Some(*socket)) => Next::Wait,
            Attachment::Socket(..) if self.is_pushed_to() => Next::Push,
            Attachment::Socket(_, Some(_)) => Next::Respond,
            Attachment::Request(_) if self.may_send(None) => Next::Respond,
            Attachment::Socket(_, None) | Attachment::Request(_) | Attachment::Away => Next::Wait,
        }
    }

    /// True if queued messages may go out on this WebSocket, or in one more response: none is withheld, and no response
    /// with older ones is on its way. If that fails, those come first. A client that acknowledges may give up a response
    /// and ask again at once, because it gets nothing twice.
    #[inline]
    pub(in crate::delivery) fn may_send(&self, socket: Option<SocketKey>) -> bool {
        let is_free = match &self.confirmation {
            Confirmation::ByKernel { in_flight, .. } => in_flight.is_none(),
            Confirmation::ByClient(_) => socket.is_some() || self.responses < UNCONFIRMED_RESPONSES_MAX,
        };
        is_free && !self.is_withheld()
    }

    /// Notes that so many bytes are on their way to its client, which is not silent for the time that it may read them.
    pub(in crate::delivery) fn has_to_read(&mut self, bytes: usize, now_ms: u64, terms: &Terms) {
        if bytes >= READ_AT_ONCE_BYTES {
            self.protocol.received(now_ms + bytes as u64 / READ_BYTES_PER_MS, terms);
        }
    }

    /// True if its client is receiving a response: then it is not silent.
    pub(crate) fn is_taking(&self) -> bool {
        self.responses > 0
    }

    /// True if all queued messages, and all that may have to be sent again, fit into one response, or before one reply
    /// on this WebSocket.
    pub(in crate::delivery) fn fits(&self, socket: Option<SocketKey>, response_bytes_max: usize) -> bool {
        let fits = match (socket, self.unacked()) {
            (None, _) => self.outbox.bytes() <= response_bytes_max,
            (Some(_), None) => true,
            (Some(_), Some(unacked)) => unacked.fits(&self.outbox, socket),
        };
        fits && self.may_send(socket)
    }

    /// True if it gets nothing for now: older messages come first, or some are withdrawn or come again after a decision about positions.
    pub(in crate::delivery) fn is_withheld(&self) -> bool {
        self.marks.resumes() || self.replay.as_ref().is_some_and(|own| own.withdrawn.is_some() || own.undecided > 0)
    }

    /// True if it has something to replay, or a loss to report.
    #[inline]
    pub(in crate::delivery) fn may_replay(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.is_behind() || replay.has_news)
    }

    /// True if its queued messages have to be searched first.
    pub(in crate::delivery) fn awaits_withdrawal(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.withdrawn.is_some())
    }

    /// Withdraws the messages for whose payload `keep` is false, wherever they are queued.
    pub(in crate::delivery) fn withdraw(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.outbox.filter(|_, payload| keep(payload));
        match &mut self.confirmation {
            Confirmation::ByKernel { in_flight: Some(in_flight), .. } => self.outbox.withdraw(&mut in_flight.1, keep),
            Confirmation::ByKernel { in_flight: None, .. } => {}
            Confirmation::ByClient(unacked) => unacked.withdraw(&mut self.outbox, keep),
        }
    }

    /// Messages that were taken for sending and may come back.
    pub(in crate::delivery) fn handed_out(&self) -> impl Iterator<Item = &InFlight> {
        let (in_flight, unacked) = match &self.confirmation {
            Confirmation::ByKernel { in_flight, .. } => (in_flight.as_ref(), None),
            Confirmation::ByClient(unacked) => (None, Some(unacked)),
        };
        let unacked = unacked.into_iter().flat_map(|unacked| unacked.messages());
        in_flight.map(|in_flight| &in_flight.1).into_iter().chain(unacked)
    }

    /// The time when the shard has to look at it next, in milliseconds.
    pub(in crate::delivery) fn deadline_ms(&self) -> u64 {
        let waits_for_client = self.is_taking() && !self.protocol.is_held();
        let protocol_ms = if waits_for_client { u64::MAX } else { self.protocol.deadline_ms() };
        protocol_ms.min(self.lazy_due_ms)
    }
}

/// A client that reads 4 bytes in each millisecond does not expire while it reads. Fewer than 16 KiB give no more time.
const READ_BYTES_PER_MS: u64 = 4;
const READ_AT_ONCE_BYTES: usize = 16 * 1024;

/// The responses of an acknowledging session at once: one that its client got no reply to, and one requested after it.
const UNCONFIRMED_RESPONSES_MAX: u32 = 2;

impl Confirmation {
    /// The state of a session that was sent nothing yet, or that continues with these unacknowledged messages.
    pub(crate) fn new(unacked: Option<Unacked>, with_connects: bool) -> Confirmation {
        match unacked {
            Some(unacked) => Confirmation::ByClient(Box::new(unacked)),
            None => Confirmation::ByKernel { in_flight: None, with_connects, unread: 0 },
        }
    }
}
