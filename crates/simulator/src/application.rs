//! The application of the simulated server: it allows everything, records the core's calls, and delivers whispers.

use std::sync::{Arc, Mutex, PoisonError};

use encke_core::{
    Actions, Answer, Application, Caller, Decision, EndReason, Pending, Publishing, Service, Subscribing, Verdict,
};

/// An event of the core, as an application sees it.
#[derive(Clone, Debug)]
pub enum Note {
    /// A broadcast was accepted; its data.
    Published(String),
    /// A message is to be delivered to one session: its client id, and the data.
    Delivered(String, String),
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
}

/// The application; a clone shares its data.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Recording>>);

impl Recorder {
    /// Reads or changes the shared data.
    pub fn with<T>(&self, look: impl FnOnce(&mut Recording) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Application for Recorder {
    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        let is_forbidden = subscribing.channel.starts_with("/forbidden");
        Answer::Now(if is_forbidden { Decision::deny("not_here") } else { Decision::Allow })
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        self.with(|recording| recording.notes.push(Note::Published(publishing.data.unwrap_or_default().to_owned())));
        Answer::Now(Verdict::Forward)
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let data = message.data.unwrap_or_default();
        if message.channel == ECHO {
            self.with(|recording| recording.notes.push(Note::Delivered(message.caller.id.to_owned(), data.to_owned())));
            actions.reply(data);
            return None;
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
        self.with(|recording| recording.notes.push(Note::Ended(caller.id.to_owned())));
    }
}

/// The channel on which the end of a session is published, for subscribers of all channels.
pub const OBITUARIES: &str = "/obituaries/x";
/// The data published there.
pub const OBITUARY: &str = "{\"gone\":1}";
/// A service that replies with the message it received.
pub const ECHO: &str = "/service/echo";
/// Services that pass a message on to the client of this number.
pub const WHISPER_TO: &str = "/service/to/";
/// The channel of whispered messages.
pub const WHISPER: &str = "/service/whisper";
