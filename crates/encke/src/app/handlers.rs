//! The functions that a program registers as hooks. Each takes what the hook is about, and up to three further values
//! ([`FromCall`]): a state, the data, the user.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use encke_core::{Actions, Identity, Pending, Refusal, Verdict};

use super::access::{Access, Grant};
use super::authenticate::{Authenticate, Handshake};
use super::call::{Calling, FromCall, Need};
use super::caller::Caller;
use super::events::{ChannelEvent, SessionEvent, SubscriptionEvent};
use super::filter::Publishing;
use super::reply::Failure;

/// Declares the traits for the functions of one subject: plain ones and async ones.
macro_rules! decides {
    ($(#[$plain:meta])* $Plain:ident, $(#[$async:meta])* $Async:ident: $Subject:ident, $Answer:ty) => {
        $(#[$plain])*
        pub trait $Plain<T>: Send + Sync + 'static {
            /// Runs the function.
            ///
            /// # Errors
            /// The message does not have a value that it takes.
            fn answer(&self, subject: &$Subject<'_>, calling: &Calling<'_>) -> Result<$Answer, Failure>;

            /// The states that it needs.
            fn needs(&self) -> Vec<Need>;
        }

        $(#[$async])*
        pub trait $Async<T>: Send + Sync + 'static {
            /// Starts the function.
            ///
            /// # Errors
            /// The message does not have a value that it takes.
            fn answer(&self, subject: &$Subject<'_>, calling: &Calling<'_>) -> Result<Pending<$Answer>, Failure>;

            /// The states that it needs.
            fn needs(&self) -> Vec<Need>;
        }

        decides!(@of $Plain $Async $Subject ($Answer));
        decides!(@of $Plain $Async $Subject ($Answer) A);
        decides!(@of $Plain $Async $Subject ($Answer) A B);
        decides!(@of $Plain $Async $Subject ($Answer) A B C);
    };
    (@of $Plain:ident $Async:ident $Subject:ident ($Answer:ty) $($argument:ident)*) => {
        impl<F, $($argument,)*> $Plain<($($argument,)*)> for F
        where
            F: Fn(&$Subject<'_>, $($argument),*) -> $Answer + Send + Sync + 'static,
            $($argument: FromCall,)*
        {
            fn answer(&self, subject: &$Subject<'_>, calling: &Calling<'_>) -> Result<$Answer, Failure> {
                let _ = calling;
                Ok(self(subject, $($argument::from_call(calling)?),*))
            }

            fn needs(&self) -> Vec<Need> {
                needs_of(&[$($argument::needs()),*])
            }
        }

        impl<F, Fut, $($argument,)*> $Async<($($argument,)*)> for F
        where
            F: Fn($Subject<'static>, $($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = $Answer> + Send + 'static,
            $($argument: FromCall,)*
        {
            fn answer(&self, subject: &$Subject<'_>, calling: &Calling<'_>) -> Result<Pending<$Answer>, Failure> {
                let _ = calling;
                Ok(Box::pin(self(subject.clone().into_owned(), $($argument::from_call(calling)?),*)))
            }

            fn needs(&self) -> Vec<Need> {
                needs_of(&[$($argument::needs()),*])
            }
        }
    };
}

decides! {
    /// A function that decides about an operation, from an [`Access`] and up to three further values ([`FromCall`]) to a [`Grant`]. An
    /// operation without such a value is denied. `T` tells functions with different arguments apart.
    AuthorizeHandler,
    /// The same, async: its [`Access`] has no references.
    AuthorizeAsyncHandler: Access, Grant
}

decides! {
    /// A function that decides about a publication, from a [`Publishing`] and up to three further values ([`FromCall`]) to a [`Verdict`].
    /// A publication without such a value is denied. `T` tells functions with different arguments apart.
    FilterHandler,
    /// The same, async: its [`Publishing`] has no references.
    FilterAsyncHandler: Publishing, Verdict
}

/// Declares the trait for the functions that learn of one kind of event.
macro_rules! listens {
    ($(#[$doc:meta])* $Listener:ident: $Event:ident) => {
        $(#[$doc])*
        pub trait $Listener<T>: Send + Sync + 'static {
            /// Runs the function.
            ///
            /// # Errors
            /// There is no value that it takes.
            fn notify(&self, event: &$Event<'_>, actions: &mut Actions, calling: &Calling<'_>) -> Result<(), Failure>;

            /// The states that it needs.
            fn needs(&self) -> Vec<Need>;
        }

        listens!(@of $Listener $Event);
        listens!(@of $Listener $Event A);
        listens!(@of $Listener $Event A B);
    };
    (@of $Listener:ident $Event:ident $($argument:ident)*) => {
        impl<F, $($argument,)*> $Listener<($($argument,)*)> for F
        where
            F: Fn(&$Event<'_>, &mut Actions, $($argument),*) + Send + Sync + 'static,
            $($argument: FromCall,)*
        {
            fn notify(&self, event: &$Event<'_>, actions: &mut Actions, calling: &Calling<'_>) -> Result<(), Failure> {
                let _ = calling;
                self(event, actions, $($argument::from_call(calling)?),*);
                Ok(())
            }

            fn needs(&self) -> Vec<Need> {
                needs_of(&[$($argument::needs()),*])
            }
        }
    };
}

listens! {
    /// A function that learns of a [`SessionEvent`], may request [`Actions`], and takes at most two further values ([`FromCall`]).
    SessionListener: SessionEvent
}

listens! {
    /// A function that learns of a [`ChannelEvent`], may request [`Actions`], and takes at most two further values ([`FromCall`]).
    ChannelListener: ChannelEvent
}

listens! {
    /// A function that learns of a [`SubscriptionEvent`], may request [`Actions`], and takes at most two further values ([`FromCall`]).
    SubscriptionListener: SubscriptionEvent
}

/// An authenticator: an [`Authenticate`], or an async function from a [`Handshake`] and one or two further values ([`FromCall`]).
/// Sessions of the latter cannot be refreshed. `T` tells functions with different arguments apart.
pub trait AuthenticateHandler<T>: Send + Sync + 'static {
    /// Decides about a handshake.
    fn authenticate(self: Arc<Self>, handshake: Handshake, calling: &Calling<'_>) -> Decided;

    /// Decides about a fresh token; see [`Authenticate::refresh`].
    fn refresh(self: Arc<Self>, caller: Caller<'static>, token: String) -> Decided;

    /// See [`Authenticate::policy`].
    fn policy(&self) -> String;

    /// The states that it needs.
    fn needs(&self) -> Vec<Need>;
}

/// The identity of a session, or a refusal, later.
type Decided = Pending<Result<Identity, Refusal>>;

impl<A: Authenticate> AuthenticateHandler<()> for A {
    fn authenticate(self: Arc<Self>, handshake: Handshake, _: &Calling<'_>) -> Decided {
        Box::pin(async move { Authenticate::authenticate(&*self, handshake).await })
    }

    fn refresh(self: Arc<Self>, caller: Caller<'static>, token: String) -> Decided {
        Box::pin(async move { Authenticate::refresh(&*self, caller, token).await })
    }

    fn policy(&self) -> String {
        Authenticate::policy(self)
    }

    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
}

macro_rules! authenticates {
    ($($argument:ident)*) => {
        impl<F, Fut, $($argument,)*> AuthenticateHandler<($($argument,)*)> for F
        where
            F: Fn(Handshake, $($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<Identity, Refusal>> + Send + 'static,
            $($argument: FromCall,)*
        {
            fn authenticate(self: Arc<Self>, handshake: Handshake, calling: &Calling<'_>) -> Decided {
                let start = || Ok(self(handshake, $($argument::from_call(calling)?),*));
                let started: Result<Fut, Failure> = start();
                match started {
                    Ok(decision) => Box::pin(decision),
                    Err(failure) => Box::pin(async move { Err(Refusal::new(403, failure.class())) }),
                }
            }

            fn refresh(self: Arc<Self>, _: Caller<'static>, _: String) -> Decided {
                Box::pin(async { Err(Refusal::new(403, "refresh_unsupported")) })
            }

            fn policy(&self) -> String {
                std::any::type_name::<F>().to_string()
            }

            fn needs(&self) -> Vec<Need> {
                needs_of(&[$($argument::needs()),*])
            }
        }
    };
}

authenticates!(A);
authenticates!(A B);

/// An authenticator behind a pointer.
pub(crate) trait AnyAuthenticate: Send + Sync {
    fn authenticate(&self, handshake: Handshake, calling: &Calling<'_>) -> Decided;
    fn refresh(&self, caller: Caller<'static>, token: String) -> Decided;
    fn policy(&self) -> String;
    fn needs(&self) -> Vec<Need>;
}

/// An authenticator with the types of its arguments.
pub(crate) struct Authenticator<T, H> {
    handler: Arc<H>,
    arguments: PhantomData<fn(T)>,
}

impl<T, H: AuthenticateHandler<T>> Authenticator<T, H> {
    pub(crate) fn new(handler: H) -> Authenticator<T, H> {
        Authenticator { handler: Arc::new(handler), arguments: PhantomData }
    }
}

impl<T, H: AuthenticateHandler<T>> AnyAuthenticate for Authenticator<T, H> {
    fn authenticate(&self, handshake: Handshake, calling: &Calling<'_>) -> Decided {
        self.handler.clone().authenticate(handshake, calling)
    }

    fn refresh(&self, caller: Caller<'static>, token: String) -> Decided {
        self.handler.clone().refresh(caller, token)
    }

    fn policy(&self) -> String {
        self.handler.policy()
    }

    fn needs(&self) -> Vec<Need> {
        self.handler.needs()
    }
}

fn needs_of(needs: &[Option<Need>]) -> Vec<Need> {
    needs.iter().copied().flatten().collect()
}
