//! A call of a service, and what a handler takes from it.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use encke_core::{Identity, Service};
use serde::de::DeserializeOwned;

use super::caller::Caller;
use super::reply::{Failure, Json, Raw};
use crate::handle::{Handle, WeakHandle};
use crate::known::KnownChannels;

/// A call of a service as it arrives, before a handler has taken anything from it. It borrows from the message.
#[derive(Clone, Copy, Debug)]
pub struct Calling<'a> {
    message: Service<'a>,
    context: &'a Arc<Context>,
}

/// A call of a service. Clones share its content.
#[derive(Clone, Debug)]
pub struct Call(Arc<Content>);

#[derive(Debug)]
struct Content {
    /// The session, the channel, the id, the data and the `ext` of the message, one after the other.
    text: Box<str>,
    /// The ends of the first four in the text.
    ends: [usize; 4],
    has: [bool; 3],
    identity: Option<Arc<Identity>>,
    context: Arc<Context>,
}

/// The data that handlers of one server share.
#[derive(Debug)]
pub(crate) struct Context {
    states: States,
    /// Set when the server starts.
    server: OnceLock<(WeakHandle, Arc<KnownChannels>)>,
}

impl Context {
    pub(crate) fn new(states: States) -> Context {
        Context { states, server: OnceLock::new() }
    }

    /// Sets the server, once.
    pub(crate) fn set(&self, handle: WeakHandle, known: Arc<KnownChannels>) {
        let _again = self.server.set((handle, known));
    }

    /// True if a channel exists although nobody subscribes to it.
    pub(crate) fn knows(&self, channel: &str) -> bool {
        self.server.get().is_some_and(|(_, known)| known.has(channel))
    }

    /// A handle of the server, while it runs.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.server.get()?.0.upgrade()
    }
}

/// The states of [`Builder::state`](crate::Builder::state), by type.
#[derive(Default)]
pub(crate) struct States(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "States({})", self.0.len())
    }
}

impl States {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(state));
    }

    fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl Call {
    /// A call of an anonymous session with this `data` (valid JSON), for tests of a handler: without an id, and without a
    /// server.
    pub fn new(session: &str, channel: &str, data: &str) -> Call {
        let context = Arc::new(Context::new(States::default()));
        Calling::new(&Service::new(session, channel, data), &context).to_call()
    }

    /// The same with an id.
    pub fn with_id(self, id: &str) -> Call {
        let mut calling = self.calling();
        calling.message.id = Some(id);
        calling.to_call()
    }

    /// The call as it arrived: the form from which arguments are taken ([`FromCall`]).
    pub fn calling(&self) -> Calling<'_> {
        let mut message = Service::new(self.session(), self.channel(), "");
        message.caller = encke_core::Caller::new(self.session(), self.identity());
        (message.id, message.data, message.ext) = (self.id(), self.data(), self.ext());
        Calling { message, context: &self.0.context }
    }

    /// The id of the session that calls: its client id.
    pub fn session(&self) -> &str {
        &self.0.text[..self.0.ends[0]]
    }

    /// The channel of the service, below `/service/`.
    pub fn channel(&self) -> &str {
        &self.0.text[self.0.ends[0]..self.0.ends[1]]
    }

    /// The id of the message. The reply carries it.
    pub fn id(&self) -> Option<&str> {
        self.0.has[0].then(|| &self.0.text[self.0.ends[1]..self.0.ends[2]])
    }

    /// The `data` of the message, as raw JSON.
    pub fn data(&self) -> Option<&str> {
        self.0.has[1].then(|| &self.0.text[self.0.ends[2]..self.0.ends[3]])
    }

    /// The `ext` of the message, as raw JSON.
    pub fn ext(&self) -> Option<&str> {
        self.0.has[2].then(|| &self.0.text[self.0.ends[3]..])
    }

    /// The identity of the session, if its handshake gave it one.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.0.identity.as_ref()
    }

    /// The user of the session, empty for an anonymous one.
    pub fn user(&self) -> &str {
        self.identity().map_or("", |identity| &identity.user)
    }

    /// The session and its identity.
    pub fn caller(&self) -> Caller<'_> {
        match self.identity() {
            Some(identity) => Caller::of(self.session(), identity),
            None => Caller::anonymous(self.session()),
        }
    }

    /// A handle of the server. None when the server has ended.
    pub fn handle(&self) -> Option<Handle> {
        self.0.context.handle()
    }
}

impl<'a> Calling<'a> {
    pub(crate) fn new(message: &Service<'a>, context: &'a Arc<Context>) -> Calling<'a> {
        Calling { message: *message, context }
    }

    /// The channel of the service, below `/service/`.
    pub fn channel(&self) -> &'a str {
        self.message.channel
    }

    /// The `data` of the message, as raw JSON.
    pub fn data(&self) -> Option<&'a str> {
        self.message.data
    }

    /// The `ext` of the message, as raw JSON.
    pub fn ext(&self) -> Option<&'a str> {
        self.message.ext
    }

    /// The identity of the session, if its handshake gave it one.
    pub fn identity(&self) -> Option<&'a Arc<Identity>> {
        self.message.caller.identity
    }

    /// The same with all of the message, without references.
    pub fn to_call(&self) -> Call {
        let service = &self.message;
        let parts = [Some(service.caller.id), Some(service.channel), service.id, service.data, service.ext];
        let mut ends = [0; 4];
        let mut text = String::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        for (at, part) in parts.iter().enumerate() {
            text.push_str(part.unwrap_or_default());
            if let Some(end) = ends.get_mut(at) {
                *end = text.len();
            }
        }
        Call(Arc::new(Content {
            text: text.into(),
            ends,
            has: [service.id.is_some(), service.data.is_some(), service.ext.is_some()],
            identity: service.caller.identity.cloned(),
            context: self.context.clone(),
        }))
    }
}

/// A value that a handler takes from a call: [`Call`] itself, [`Json`], [`Raw`], [`State`], [`User`].
pub trait FromCall: Sized {
    /// Takes it, on the thread of the shard.
    ///
    /// # Errors
    /// The failure that the caller gets, if the call has no such value. The handler does not run then.
    fn from_call(call: &Calling<'_>) -> Result<Self, Failure>;

    /// The type of a state that must have been given to the builder. The start fails without it.
    fn needs() -> Option<Need> {
        None
    }
}

/// A state that a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    id: TypeId,
    name: &'static str,
}

impl Need {
    /// The need for a state of this type.
    pub fn of<T: 'static>() -> Need {
        Need { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// The name of the type, if it is missing.
    pub(crate) fn missing(self, states: &States) -> Option<&'static str> {
        (!states.0.contains_key(&self.id)).then_some(self.name)
    }
}

impl FromCall for Call {
    fn from_call(call: &Calling<'_>) -> Result<Call, Failure> {
        Ok(call.to_call())
    }
}

impl<T: DeserializeOwned> FromCall for Json<T> {
    /// A message without `data` reads as `null`.
    fn from_call(call: &Calling<'_>) -> Result<Json<T>, Failure> {
        let read = serde_json::from_str(call.data().unwrap_or("null"));
        read.map(Json).map_err(|error| Failure::new("invalid_data", &error.to_string()))
    }
}

impl FromCall for Raw {
    fn from_call(call: &Calling<'_>) -> Result<Raw, Failure> {
        Ok(Raw(call.data().unwrap_or("null").into()))
    }
}

/// A state given to [`Builder::state`](crate::Builder::state): mostly an `Arc`, because each call gets a clone.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromCall for State<T> {
    fn from_call(call: &Calling<'_>) -> Result<State<T>, Failure> {
        let state = call.context.states.get::<T>().cloned();
        state.map(State).ok_or_else(|| Failure::new("internal", "a state is missing"))
    }

    fn needs() -> Option<Need> {
        Some(Need::of::<T>())
    }
}

/// The identity of the caller. A call of an anonymous session fails with the class `anonymous`.
#[derive(Clone, Debug)]
pub struct User(pub Arc<Identity>);

impl FromCall for User {
    fn from_call(call: &Calling<'_>) -> Result<User, Failure> {
        let identity = call.identity().filter(|identity| !identity.user.is_empty());
        identity.cloned().map(User).ok_or_else(|| Failure::new("anonymous", "only users may call this"))
    }
}
