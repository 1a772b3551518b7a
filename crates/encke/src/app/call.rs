//! A call of a service, and what a handler takes from it.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use encke_core::{Attributes, Identity, Service};
use serde::de::DeserializeOwned;

use super::caller::Caller;
use super::reply::{Data, Failure, Raw};
use super::template;
use crate::handle::{Handle, WeakHandle};

/// A call of a service as it arrives, before a handler has taken anything from it. It borrows from the message.
#[derive(Clone, Copy, Debug)]
pub struct Calling<'a> {
    message: Service<'a>,
    /// The channel, pattern or template of the hook. Empty: it has none.
    pattern: &'a str,
    context: &'a Arc<Context>,
}

/// A call of a service. Clones share its content.
#[derive(Clone, Debug)]
pub struct Call(Arc<Content>);

#[derive(Debug)]
struct Content {
    session: Box<str>,
    channel: Box<str>,
    id: Option<Box<str>>,
    data: Option<Box<str>>,
    ext: Option<Box<str>>,
    identity: Option<Arc<Identity>>,
    attributes: Option<Arc<Attributes>>,
    pattern: Box<str>,
    context: Arc<Context>,
}

/// The data that handlers of one server share.
#[derive(Debug)]
pub(crate) struct Context {
    states: States,
    /// Set when the server starts.
    server: OnceLock<WeakHandle>,
}

impl Context {
    pub(crate) fn new(states: States) -> Context {
        Context { states, server: OnceLock::new() }
    }

    /// The name of the type of a state that is needed and missing.
    pub(crate) fn missing(&self, need: Need) -> Option<&'static str> {
        need.missing(&self.states)
    }

    /// Sets the server, once.
    pub(crate) fn set(&self, handle: WeakHandle) {
        let _again = self.server.set(handle);
    }

    /// A handle of the server, while it runs.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.server.get()?.upgrade()
    }
}

/// The states of [`Builder::state`](crate::Builder::state), by type.
#[derive(Default)]
pub(crate) struct States(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

opaque!(States);

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
        Calling::new(&Service::new(session, channel, data), "", &context).to_call()
    }

    /// The same for a service with this template, for tests of a handler that takes [`Params`](crate::Params).
    pub fn with_template(self, template: &str) -> Call {
        Calling { pattern: template, ..self.calling() }.to_call()
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
        message.caller =
            encke_core::Caller::new(self.session(), self.identity()).with_attributes(self.0.attributes.as_ref());
        (message.id, message.data, message.ext) = (self.id(), self.data(), self.ext());
        Calling { message, pattern: &self.0.pattern, context: &self.0.context }
    }

    /// The id of the session that calls: its client id.
    pub fn session(&self) -> &str {
        &self.0.session
    }

    /// The channel of the service, below `/service/`.
    pub fn channel(&self) -> &str {
        &self.0.channel
    }

    /// The id of the message. The reply carries it.
    pub fn id(&self) -> Option<&str> {
        self.0.id.as_deref()
    }

    /// The `data` of the message, as raw JSON.
    pub fn data(&self) -> Option<&str> {
        self.0.data.as_deref()
    }

    /// The `ext` of the message, as raw JSON.
    pub fn ext(&self) -> Option<&str> {
        self.0.ext.as_deref()
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
        Caller::from(&self.calling().message.caller)
    }

    /// An attribute of the session, as raw JSON: see [`Caller::attribute`].
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.0.attributes.as_ref()?.get(name)
    }

    /// A handle of the server. None when the server has ended.
    pub fn handle(&self) -> Option<Handle> {
        self.0.context.handle()
    }
}

impl<'a> Calling<'a> {
    pub(crate) fn new(message: &Service<'a>, pattern: &'a str, context: &'a Arc<Context>) -> Calling<'a> {
        Calling { message: *message, pattern, context }
    }

    /// The same for the hook with this channel, pattern or template.
    pub(crate) fn of_hook(self, pattern: &'a str) -> Calling<'a> {
        Calling { pattern, ..self }
    }

    /// The source of the values of a hook about a message.
    pub(crate) fn of_message(
        caller: &'a Caller<'_>,
        channel: &'a str,
        data: Option<&'a str>,
        ext: Option<&'a str>,
        context: &'a Arc<Context>,
    ) -> Calling<'a> {
        Calling::of_caller(caller.to_core(), channel, data, ext, context)
    }

    /// The same for an event of a session, which has no message.
    pub(crate) fn of_session(caller: &'a Caller<'_>, channel: &'a str, context: &'a Arc<Context>) -> Calling<'a> {
        Calling::of_message(caller, channel, None, None, context)
    }

    /// The same where there is no session.
    pub(crate) fn of_nobody(channel: &'a str, ext: Option<&'a str>, context: &'a Arc<Context>) -> Calling<'a> {
        Calling::of_caller(encke_core::Caller::new("", None), channel, None, ext, context)
    }

    fn of_caller(
        caller: encke_core::Caller<'a>,
        channel: &'a str,
        data: Option<&'a str>,
        ext: Option<&'a str>,
        context: &'a Arc<Context>,
    ) -> Calling<'a> {
        let mut message = Service::new("", channel, "");
        (message.caller, message.data, message.ext) = (caller, data, ext);
        Calling { message, pattern: "", context }
    }

    /// The channel of the message, or the pattern of a subscription. Of a route it is the path.
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

    /// The parameters of the template of the hook, in its order, with their values in the channel. Without a template there are none.
    /// One that a subscription to a pattern leaves open has no value: the subscriber gets the messages of all its values.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> + use<'a> {
        template::parameters(self.pattern, self.message.channel)
    }

    /// The same with all of the message, without references.
    pub fn to_call(&self) -> Call {
        let service = &self.message;
        Call(Arc::new(Content {
            session: service.caller.id.into(),
            channel: service.channel.into(),
            id: service.id.map(Box::from),
            data: service.data.map(Box::from),
            ext: service.ext.map(Box::from),
            identity: service.caller.identity.cloned(),
            attributes: service.caller.attributes.cloned(),
            pattern: self.pattern.into(),
            context: self.context.clone(),
        }))
    }
}

/// A value that a service takes from its call, and another hook from what it is about: [`Data`], [`Raw`], [`Params`](crate::Params), [`AppState`],
/// [`User`], [`Handle`], of a call [`Call`] itself. Events have no data: it reads as `null`.
pub trait FromCall: Sized {
    /// Takes it, on the thread of the shard.
    ///
    /// # Errors
    /// The failure that the caller gets, if the call has no such value. The handler does not run then.
    fn from_call(call: &Calling<'_>) -> Result<Self, Failure>;

    /// A state that must have been given to the builder, or the need for a template. The start fails without it.
    fn needs() -> Option<Need> {
        None
    }
}

/// Something that a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct Need(Needed);

#[derive(Clone, Copy, Debug)]
enum Needed {
    /// A state of this type, with its name.
    State(TypeId, &'static str),
    /// A template.
    Parameters,
}

impl Need {
    /// The need for a state of this type.
    pub fn of<T: 'static>() -> Need {
        Need(Needed::State(TypeId::of::<T>(), type_name::<T>()))
    }

    /// The need for a channel with parameters: see [`Params`](crate::Params).
    pub fn parameters() -> Need {
        Need(Needed::Parameters)
    }

    pub(crate) fn is_parameters(&self) -> bool {
        matches!(self.0, Needed::Parameters)
    }

    /// The name of the type of a state, if it is missing.
    pub(crate) fn missing(self, states: &States) -> Option<&'static str> {
        match self.0 {
            Needed::State(id, name) => (!states.0.contains_key(&id)).then_some(name),
            Needed::Parameters => None,
        }
    }
}

impl FromCall for Handle {
    fn from_call(call: &Calling<'_>) -> Result<Handle, Failure> {
        call.context.handle().ok_or_else(|| Failure::new("stopped", "the server has stopped"))
    }
}

impl FromCall for Call {
    fn from_call(call: &Calling<'_>) -> Result<Call, Failure> {
        Ok(call.to_call())
    }
}

impl<T: DeserializeOwned> FromCall for Data<T> {
    /// A message without `data` reads as `null`.
    fn from_call(call: &Calling<'_>) -> Result<Data<T>, Failure> {
        let read = serde_json::from_str(call.data().unwrap_or("null"));
        read.map(Data).map_err(|error| Failure::new("invalid_data", &error.to_string()))
    }
}

impl FromCall for Raw {
    fn from_call(call: &Calling<'_>) -> Result<Raw, Failure> {
        Ok(Raw(call.data().unwrap_or("null").into()))
    }
}

/// A state given to [`Builder::state`](crate::Builder::state): mostly an `Arc`, because each call gets a clone.
#[derive(Clone, Copy, Debug)]
pub struct AppState<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromCall for AppState<T> {
    fn from_call(call: &Calling<'_>) -> Result<AppState<T>, Failure> {
        let state = call.context.states.get::<T>().cloned();
        state.map(AppState).ok_or_else(|| Failure::new("internal", "a state is missing"))
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
