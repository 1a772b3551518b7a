//! Messages between shards, and what an application wants done: worked through where they arrive.

use super::effect::{Effect, Mail, Now, SessionKey};
use super::ids::Id;
use super::session::Ended;
use super::{Shard, capacity, message_frame, terms};
use crate::Actions;
use crate::Rules;
use crate::application::Action;

impl Shard {
    /// Works through a message of another shard, or of a handle of the server, at once. [`Shard::receive`] asks first whether it is its turn.
    pub fn mail(&mut self, now: Now, mail: Mail) {
        self.now = now;
        self.spread();
        match mail {
            Mail::Publication(publication) => self.publication_from_afar(&publication),
            Mail::Record(publication) => self.record_from_afar(&publication),
            Mail::Kept(kept) => kept.into_iter().for_each(|kept| self.kept(kept)),
            Mail::Request(request) => {
                self.request(now, *request);
            }
            Mail::Response(exchange, response) => {
                self.forwarded.remove(&exchange);
                self.effects.push(Effect::Respond(exchange, response));
            }
            Mail::Abandoned(exchange) => self.abandoned(now, exchange),
            Mail::Delivered(exchange, taken) => self.delivered(now, exchange, taken),
            Mail::Alive(session) => self.alive(now, &session),
            Mail::Deliver(session, frame) => {
                if let Some(key) = self.sessions.find(&session) {
                    let frames = self.own.encoded(&frame);
                    self.deliver_to(key, &frames, None);
                }
            }
            Mail::Disconnect(session) => {
                if let Some(key) = self.sessions.find(&session) {
                    self.kick(key, Ended::Kicked);
                }
            }
            Mail::Settings(settings) => {
                self.shared.mailbox.set_bytes_max(settings.mailbox_bytes_max);
                self.limits = settings.bayeux_limits();
                self.terms = terms(&settings);
                self.capacity = capacity(&settings);
                self.rules = Rules::new(&settings.channels);
                self.settings = settings;
            }
            Mail::MakeRoom => self.make_room_for_others(),
            Mail::Drain => self.drain(),
        }
        self.spread();
        self.update_gauges();
    }

    /// Runs what an application wants done; `call` is the session and the message in hand, for replies.
    pub(super) fn act(&mut self, actions: Actions, call: Option<(SessionKey, &str, Option<&bayeux::Id<'_>>)>) {
        for action in actions.0 {
            match action {
                Action::Publish { channel, data } => {
                    self.publish_from_here(&channel, &data);
                }
                Action::Deliver { session, channel, data, id } => {
                    let id = id.map(bayeux::Id::new);
                    let frame = message_frame(&channel, &data, id.as_ref(), None);
                    if let Some(session) = Id::parse(&session) {
                        self.post(session.shard(), Mail::Deliver(session, frame.into()));
                    }
                }
                Action::Reply { data, successful } => {
                    if let Some((key, channel, id)) = call {
                        let frames = self.own.encoded(&message_frame(channel, &data, id, Some(successful)));
                        self.deliver_to(key, &frames, None);
                    }
                }
                Action::Disconnect { session } => {
                    if let Some(session) = Id::parse(&session) {
                        self.post(session.shard(), Mail::Disconnect(session));
                    }
                }
            }
        }
    }

    /// Mail to a shard, which may be this one.
    fn post(&mut self, shard: usize, mail: Mail) {
        if shard == self.index {
            self.mail(self.now, mail);
        } else if shard < self.shared.shards {
            self.effects.push(Effect::Mail(shard, mail));
        }
    }
}
