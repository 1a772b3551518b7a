//! The application of the simulated server: it allows what the rights of users do, records the core's calls, and delivers
//! whispers.

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use encke_core::{
    Actions, Answer, Application, Caller, Decision, EndReason, Handshake, Identity, Pending, Publishing, Refusal,
    Service, SessionLimits, Subscribing, Verdict,
};

use crate::channels::{ECHO, OBITUARIES, WHISPER, WHISPER_TO};
use crate::claims::{Claims, claims_of};
use crate::rng::Rng;
use crate::texts::OBITUARY;

/// An event of the core, as an application sees it.
#[derive(Clone, Debug)]
pub enum Note {
    /// A broadcast was accepted; its data.
    Published(String),
    /// A session calls a service: its client id, and the channel.
    Called(String, String),
    /// A message is to be delivered to one session: its client id, and the data.
    Delivered(String, String),
    /// A session with this identity was opened.
    Opened(String, Identity),
    /// A session has new credentials.
    Refreshed(String, Identity),
    /// A session has ended.
    Ended(String),
}

/// The data shared by the application and the world.
#[derive(Debug, Default)]
pub struct Recording {
    /// Events since the world last looked.
    pub notes: Vec<Note>,
    /// The session of each client, for whispers.
    pub sessions: Vec<Option<String>>,
    /// The number of decisions that come later, of 1,000.
    pub lateness: usize,
    /// The rights of each user.
    pub users: Vec<Claims>,
    /// True if credentials have no claims: a sabotage.
    pub forgets_claims: bool,
    /// The number of tokens so far.
    tokens: usize,
    /// The time of day, in milliseconds.
    pub wall_ms: u64,
    /// Decides which of them do.
    pub rng: Option<Rng>,
    /// The client ids of sessions that have ended.
    ended: HashSet<String>,
}

/// The application; a clone shares its data.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Recording>>);

impl Recorder {
    /// Reads or changes the shared data.
    pub fn with<T>(&self, look: impl FnOnce(&mut Recording) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A result that comes now, or later, or never. Its notes are taken when it comes, if the session still lives.
    fn late<T: Send + 'static>(&self, session: &str, result: T, notes: Vec<Note>) -> Result<T, Pending<T>> {
        let (is_late, is_never) = self.with(|Recording { lateness, rng, .. }| {
            let mut chance = |per_mille| rng.as_mut().is_some_and(|rng| rng.chance(per_mille));
            (chance(*lateness), chance(300))
        });
        let (recorder, session) = (self.clone(), session.to_owned());
        let note = move || {
            recorder.with(|recording| {
                if !recording.ended.contains(&session) {
                    recording.notes.extend(notes);
                }
            });
        };
        match (is_late, is_never) {
            (false, _) => {
                note();
                Ok(result)
            }
            (true, true) => Err(Box::pin(pending())),
            (true, false) => Err(Box::pin(async move {
                note();
                result
            })),
        }
    }
}

impl Recording {
    /// Credentials for a user, or for one of the users. None for an anonymous client.
    fn credentials(&mut self, user: Option<&str>) -> Option<Identity> {
        let Recording { rng, users, tokens, wall_ms, .. } = self;
        let rng = rng.as_mut().filter(|_| !users.is_empty())?;
        if user.is_none() && rng.chance(300) {
            return None;
        }
        let user = user.map_or_else(|| format!("u{}", rng.below(users.len())), String::from);
        let is_new = *tokens == 0 || rng.chance(700);
        *tokens += usize::from(is_new);
        let token = if is_new { *tokens } else { 1 + rng.below(*tokens) };
        let own = |rng: &mut Rng, most: u32| rng.chance(100).then_some(most);
        let claims = if self.forgets_claims { Claims::default() } else { claims_of(users, &user) };
        Some(claims.give(Identity {
            token_id: Some(format!("t{token}").into()),
            expires_ms: rng.chance(300).then(|| *wall_ms + rng.between(300, 6_000)),
            limits: SessionLimits {
                messages_per_s_max: own(rng, 10),
                bytes_per_s_max: own(rng, 1_000),
                subscriptions_max: own(rng, 2),
            },
            ..Identity::of_user(&user)
        }))
    }
}

fn answer<T>(result: Result<T, Pending<T>>) -> Answer<T> {
    match result {
        Ok(result) => Answer::Now(result),
        Err(later) => Answer::Later(later),
    }
}

impl Application for Recorder {
    fn handshake(&self, _: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let identity = self.with(|recording| recording.credentials(None));
        answer(self.late("", Ok(identity), Vec::new()))
    }

    fn opened(&self, caller: &Caller<'_>, _: &mut Actions) {
        if let Some(identity) = caller.identity {
            let note = Note::Opened(caller.id.to_owned(), Identity::clone(identity));
            self.with(|recording| recording.notes.push(note));
        }
    }

    fn refresh(&self, caller: &Caller<'_>, _: &str) -> Answer<Result<Identity, Refusal>> {
        let identity = self.with(|recording| recording.credentials(Some(caller.user())));
        let is_new = |identity: &Identity| identity.token_id != caller.identity.and_then(|own| own.token_id.clone());
        let Some(mut identity) = identity.filter(is_new) else { return Answer::Now(Err(Refusal::new(401, "old"))) };
        // Others may use it, and it may be revoked.
        identity.token_id = identity.token_id.map(|token_id| format!("{token_id}-{}", caller.id).into());
        let note = Note::Refreshed(caller.id.to_owned(), identity.clone());
        self.with(|recording| recording.notes.push(note));
        Answer::Now(Ok(identity))
    }

    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        let Subscribing { caller, channel, .. } = subscribing;
        let is_denied = self.with(|recording| claims_of(&recording.users, caller.user()).is_denied(channel));
        let decision = match (channel.starts_with("/forbidden"), is_denied) {
            (true, _) => Decision::deny("not_here"),
            (_, true) => Decision::deny("not_yours"),
            _ => Decision::Allow,
        };
        answer(self.late(subscribing.caller.id, decision, Vec::new()))
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        let note = Note::Published(publishing.data.unwrap_or_default().to_owned());
        answer(self.late(publishing.caller.id, Verdict::Forward, vec![note]))
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let data = message.data.unwrap_or_default();
        let note = Note::Called(message.caller.id.to_owned(), message.channel.to_owned());
        self.with(|recording| recording.notes.push(note));
        if message.channel == ECHO {
            let note = Note::Delivered(message.caller.id.to_owned(), data.to_owned());
            let mut reply = Actions::default();
            reply.reply(data);
            return match self.late(message.caller.id, reply, vec![note]) {
                Ok(reply) => {
                    *actions = reply;
                    None
                }
                Err(later) => Some(later),
            };
        }
        let client = message.channel.strip_prefix(WHISPER_TO).and_then(|client| client.parse::<usize>().ok());
        let target = self.with(|recording| recording.sessions.get(client?).cloned().flatten());
        if let Some(target) = target {
            self.with(|recording| recording.notes.push(Note::Delivered(target.clone(), data.to_owned())));
            actions.deliver(&target, WHISPER, data, None);
        }
        None
    }

    fn ended(&self, caller: &Caller<'_>, _: EndReason, actions: &mut Actions) {
        actions.publish(OBITUARIES, OBITUARY);
        self.with(|recording| {
            recording.ended.insert(caller.id.to_owned());
            recording.notes.push(Note::Ended(caller.id.to_owned()));
        });
    }
}
