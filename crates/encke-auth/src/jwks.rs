//! A set of keys from a file or a URL: read when it is needed, again when it is old or lacks a key, and never too often.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use encke_fetch::{Fetcher, SecretUrl};
use jsonwebtoken::Algorithm;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::keys::{KeySet, Origin};

/// The origin of the set.
pub(crate) enum Source {
    File(PathBuf),
    Url(Box<Fetcher>, SecretUrl),
    /// A set that a test changes; `None` is one that cannot be had.
    #[cfg(test)]
    Test(watch::Receiver<Option<String>>),
}

/// The times and bounds of a set.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) refresh_min: Duration,
    pub(crate) max_age: Duration,
    pub(crate) stale_max: Duration,
    pub(crate) bytes_max: usize,
    pub(crate) keys_max: usize,
    /// Empty: all.
    pub(crate) algorithms: Vec<Algorithm>,
}

/// A set of keys that is read again.
pub(crate) struct Jwks {
    source: Source,
    terms: Terms,
    state: Mutex<State>,
    requests: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    keys: Arc<KeySet>,
    /// The time at which the keys were read.
    loaded_at: Option<Instant>,
    /// The time of the last request.
    requested_at: Option<Instant>,
    /// The request under way: it ends with its sender.
    request: Option<watch::Receiver<()>>,
}

impl Jwks {
    pub(crate) fn new(source: Source, terms: Terms) -> Arc<Jwks> {
        let (requests, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Jwks { source, terms, state: Mutex::default(), requests, failures })
    }

    /// The same set with these keys, which were just read.
    pub(crate) fn with_keys(this: Arc<Self>, keys: KeySet) -> Arc<Jwks> {
        this.state.lock().hold(keys);
        this
    }

    /// True if the set comes from a URL.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.source, Source::Url(..))
    }

    /// The keys, for a token that names this one. Waits for a request only if the keys are old or lack it. `None` if there are no keys, or
    /// they have been old for too long.
    pub(crate) async fn keys(self: &Arc<Self>, kid: Option<&str>) -> Option<Arc<KeySet>> {
        let mut waited = false;
        loop {
            let mut request = {
                let mut state = self.state.lock();
                let age = state.loaded_at.map(|at| at.elapsed());
                let is_usable = age.is_some_and(|age| age <= self.terms.max_age + self.terms.stale_max);
                let is_fresh = age.is_some_and(|age| age <= self.terms.max_age);
                if is_fresh && state.keys.has(kid) {
                    if age.is_some_and(|age| age > self.terms.max_age / 2) {
                        // No handshake waits for a set that is only about to be old.
                        self.request(&mut state);
                    }
                    return Some(state.keys.clone());
                }
                let request = if waited { None } else { self.request(&mut state) };
                match request {
                    Some(request) => request,
                    None => return is_usable.then(|| state.keys.clone()),
                }
            };
            // An error means that the request has ended.
            while request.changed().await.is_ok() {}
            waited = true;
        }
    }

    /// The numbers of requests and of failed ones, and the number of keys.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let keys = self.state.lock().keys.len() as u64;
        (self.requests.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed), keys)
    }

    /// The request under way, or a new one. `None` if it is too early for another one.
    fn request(self: &Arc<Self>, state: &mut State) -> Option<watch::Receiver<()>> {
        if let Some(request) = state.request.as_ref().filter(|request| request.has_changed().is_ok()) {
            return Some(request.clone());
        }
        if state.requested_at.is_some_and(|at| at.elapsed() < self.terms.refresh_min) {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        let (sender, receiver) = watch::channel(());
        state.requested_at = Some(Instant::now());
        state.request = Some(receiver.clone());
        self.requests.fetch_add(1, Ordering::Relaxed);
        let jwks = self.clone();
        // A task: a handshake that gives up ends no request for which others wait.
        runtime.spawn(async move {
            let read = jwks.read().await;
            let mut state = jwks.state.lock();
            match read {
                Ok(keys) => {
                    tracing::debug!(keys = keys.len(), source = jwks.source.name(), "set of keys read");
                    if keys.len() == 0 {
                        // A set withdraws each key that it does not have, also when it has none.
                        tracing::warn!(
                            source = jwks.source.name(),
                            "the set has no key that can be used: its tokens are refused"
                        );
                    }
                    state.hold(keys);
                }
                Err(reason) => {
                    jwks.failures.fetch_add(1, Ordering::Relaxed);
                    let has_keys = state.keys.len() > 0;
                    tracing::warn!(has_keys, source = jwks.source.name(), "no new set of keys: {reason}");
                }
            }
            drop((state, sender));
        });
        Some(receiver)
    }

    /// Reads the set.
    async fn read(&self) -> Result<KeySet, String> {
        let Terms { bytes_max, keys_max, .. } = self.terms;
        let (text, origin) = match &self.source {
            Source::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path, bytes_max)).await;
                (read.map_err(|error| error.to_string())??, Origin::File)
            }
            Source::Url(fetcher, url) => {
                let response = fetcher.get(url.reveal()).await.map_err(|error| error.to_string())?;
                if !response.status().is_success() {
                    return Err(format!("status {}", response.status().as_u16()));
                }
                (response.into_body().to_vec(), Origin::Url)
            }
            #[cfg(test)]
            Source::Test(text) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                (text.borrow().clone().ok_or("gone")?.into_bytes(), Origin::Url)
            }
        };
        let (keys, left_out) = KeySet::of_jwks(&text, keys_max, origin)?;
        if let Some(reason) = left_out {
            tracing::debug!(source = self.source.name(), "a key of the set is left out: {reason}");
        }
        Ok(keys.retained(&self.terms.algorithms))
    }
}

impl State {
    /// Replaces the keys.
    fn hold(&mut self, keys: KeySet) {
        (self.keys, self.loaded_at) = (Arc::new(keys), Some(Instant::now()));
    }
}

impl Source {
    fn name(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::Url(_, url) => url.to_string(),
            #[cfg(test)]
            Source::Test(_) => "test".into(),
        }
    }
}

/// Reads a file of limited size.
pub(crate) fn read_file(path: &std::path::Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() > bytes_max { Err(format!("more than {bytes_max} bytes (jwks_bytes_max)")) } else { Ok(text) }
}

#[cfg(test)]
#[path = "jwks_tests.rs"]
mod tests;
