//! The section `[[webhooks]]` of a configuration.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use encke_core::{Declared as _, Patterns, Settings};
use encke_fetch::SecretUrl;
use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::signature::Secret;

encke_core::settings! {
    /// A webhook: the address of a backend, the events that it gets, and its limits.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct WebhookSettings;

    "The backend" {
        /// Its name in logs. Empty: the host of its URL.
        name: String = String::new();
        /// The URL to which all events are posted.
        url: SecretUrl = SecretUrl::default();
        /// The events that it gets.
        events: Vec<EventKind> = Vec::new();
        /// The channels and patterns whose events it gets: `subscribe`, `publish`, `service`, `subscribed` and `unsubscribed`. Other events have no channel.
        channels: Vec<String> = vec!["/**".into()];
        /// The secrets that sign each request, separated by spaces: `whsec_` and base64 each.
        secret: encke_core::Secret = encke_core::Secret::default();
        /// A file with secrets, one on each line.
        secret_file: Option<PathBuf> = None;
        /// The environment variable that holds the secrets, separated by spaces.
        secret_env: Option<String> = None;
        /// A file of PEM certificates to trust, beside those of the system.
        ca_file: Option<PathBuf> = None;
        /// The longest time to open a connection, in milliseconds.
        connect_timeout_ms: u64 = 1_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The longest time of one request, in milliseconds. One for a service call may take as long as the call.
        request_timeout_ms: u64 = 2_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The longest time of a decision with all its retries, in milliseconds.
        decision_timeout_ms: u64 = 4_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The longest time of a service call with all its retries, in milliseconds.
        call_timeout_ms: u64 = 25_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The first pause before a retry, in milliseconds. It doubles with each one, less a random part.
        retry_pause_ms: u64 = 100, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The longest pause before a retry, also if the backend asks for more, in milliseconds.
        retry_pause_ms_max: u64 = 60_000;
        /// The number of requests for a notification, after which it is dropped.
        notification_attempts_max: usize = 100, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The age at which a notification is dropped, in milliseconds.
        notification_age_ms_max: u64 = 3_600_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The longest body of a response, in bytes.
        response_bytes_max: usize = 1024 * 1024, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// Requests under way at the same time. One user, anonymous session or address has at most a part of them.
        requests_in_flight_max: usize = 64, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// Events that wait or are under way. One user, anonymous session or address has at most a part of them; an eighth is for small
        /// events of sessions.
        queue_messages_max: usize = 10_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The bytes of these events, with the same parts.
        queue_bytes_max: usize = 16 * 1024 * 1024, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// Failures in a row after which no request is sent for a while: no answer at all. An event, or all that one owner sends, counts
        /// once.
        breaker_failures: usize = 5, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// This while, in milliseconds. It doubles each time the backend still fails.
        breaker_pause_ms: u64 = 1_000, at_least(1, RANGE), at_most(NUMBER_MAX, RANGE);
        /// The longest such while, in milliseconds.
        breaker_pause_ms_max: u64 = 30_000;
        /// The decisions without an answer of the backend.
        when_down: WhenDown = WhenDown::default();
    }
}

/// An event that a backend can get. Its name is the `type` of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A client wants to open a session. The backend decides.
    Handshake,
    /// A client sends new credentials for its session. The backend decides.
    Refresh,
    /// A session has been opened.
    Opened,
    /// A session has ended.
    Ended,
    /// A session wants to subscribe. The backend decides.
    Subscribe,
    /// A session wants to publish. The backend decides.
    Publish,
    /// A session has sent a message to a service. The backend answers.
    Service,
    /// A session has subscribed, or a restart has restored its subscription.
    Subscribed,
    /// A subscription of a session has ended, possibly with the session.
    Unsubscribed,
}

impl EventKind {
    /// All of them.
    pub const ALL: &[EventKind] = EventKind::VARIANTS;

    /// Its name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// True for an event whose answer decides nothing.
    pub fn is_notification(self) -> bool {
        matches!(self, EventKind::Opened | EventKind::Ended | EventKind::Subscribed | EventKind::Unsubscribed)
    }
}

/// The decisions without an answer of the backend. An answer by HTTP that cannot be used is a refusal, whatever is set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhenDown {
    /// On handshakes and refreshes.
    pub handshake: Decide,
    /// On subscribes.
    pub subscribe: Decide,
    /// On publishes.
    pub publish: Decide,
    /// On service calls.
    pub service: Decide,
    /// On notifications of opened sessions.
    pub opened: Notify,
    /// On notifications of ended sessions.
    pub ended: Notify,
    /// On notifications of subscriptions and their ends.
    pub subscribed: Notify,
}

/// A decision without the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decide {
    /// It is allowed if the backend is down: it cannot be reached, or gives no answer in time. A session is anonymous then, and a
    /// service call has no answer.
    Allow,
    /// It is refused, at once while the backend is known to be down.
    #[default]
    Deny,
    /// It waits for the backend to come back, and is refused when its time is over.
    Queue,
}

/// A notification without the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notify {
    /// It waits for the backend to come back, up to its age and its number of requests.
    #[default]
    Queue,
    /// It is dropped.
    Drop,
}

/// A webhook that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("webhooks[{index}].{key} = {value}: {reason}")]
#[non_exhaustive]
pub struct WebhookError {
    /// Its index among the webhooks.
    pub index: usize,
    /// The setting.
    pub key: &'static str,
    /// Its value, unless it is a secret.
    pub value: String,
    /// The values that would work.
    pub reason: String,
}

/// A webhook whose settings have been checked.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) settings: Arc<WebhookSettings>,
    pub(crate) name: String,
    pub(crate) url: Uri,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) channels: Patterns,
}

/// Checks webhooks. Reads the files and variables of secrets.
pub(crate) fn check_all(webhooks: &[WebhookSettings]) -> Result<Vec<Checked>, WebhookError> {
    let decides = |settings: &WebhookSettings, kind| settings.events.contains(&kind);
    for kind in [EventKind::Handshake, EventKind::Refresh] {
        if let Some((index, _)) = webhooks.iter().enumerate().filter(|(_, webhook)| decides(webhook, kind)).nth(1) {
            let reason = format!("only one webhook decides on a {}", kind.as_str());
            return Err(WebhookError { index, key: "events", value: format!("{:?}", kind.as_str()), reason });
        }
    }
    let mut names = HashSet::new();
    let unique = |(index, webhook)| {
        let checked: Checked = check(index, webhook)?;
        if !names.insert(checked.name.clone()) {
            let reason = "another name than that of the webhooks before; without one it is the host of the URL".into();
            return Err(WebhookError { index, key: "name", value: format!("{:?}", checked.name), reason });
        }
        Ok(checked)
    };
    webhooks.iter().enumerate().map(unique).collect()
}

/// Checks that webhooks answer within the times that the server gives them.
pub(crate) fn check_times(webhooks: &[WebhookSettings], server: &Settings) -> Result<(), WebhookError> {
    for (index, webhook) in webhooks.iter().enumerate() {
        let is_call = |kind: &EventKind| *kind == EventKind::Service;
        let decides = webhook.events.iter().any(|kind| !is_call(kind) && !kind.is_notification());
        let times = [
            ("decision_timeout_ms", webhook.decision_timeout_ms, server.decision_timeout_ms, decides),
            ("call_timeout_ms", webhook.call_timeout_ms, server.call_timeout_ms, webhook.events.iter().any(is_call)),
        ];
        if let Some((key, value, most, _)) =
            times.into_iter().find(|(_, value, most, is_used)| *is_used && value > most)
        {
            let reason = format!("at most {most}, the time that the server gives (its {key}), or a longer one there");
            return Err(WebhookError { index, key, value: value.to_string(), reason });
        }
    }
    Ok(())
}

fn check(index: usize, webhook: &WebhookSettings) -> Result<Checked, WebhookError> {
    let error = |key, value: String, reason: &str| WebhookError { index, key, value, reason: reason.into() };
    let wrong_url = |reason| error("url", format!("{:?}", webhook.url), reason);
    let url: Uri = webhook.url.reveal().parse().map_err(|_| wrong_url("a URL such as http://127.0.0.1:3000/encke"))?;
    let (Some("http" | "https"), Some(host)) = (url.scheme_str(), url.host()) else {
        return Err(wrong_url("a URL such as http://127.0.0.1:3000/encke"));
    };
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(wrong_url("a URL without name and password; the signature authenticates"));
    }
    if webhook.events.is_empty() {
        let names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        return Err(error("events", "[]".into(), &format!("at least one of {}", names.join(", "))));
    }
    let channels = Patterns::new(&webhook.channels)
        .map_err(|wrong| error("channels", format!("{:?}", webhook.channels), &wrong.to_string()))?;
    check_numbers(index, webhook)?;
    let name = if webhook.name.is_empty() { host.into() } else { webhook.name.clone() };
    let secrets = secrets(index, webhook)?;
    Ok(Checked { settings: webhook.clone().into(), name, url, secrets, channels })
}

fn check_numbers(index: usize, webhook: &WebhookSettings) -> Result<(), WebhookError> {
    let longest = [
        ("retry_pause_ms_max", webhook.retry_pause_ms_max, "retry_pause_ms", webhook.retry_pause_ms),
        ("breaker_pause_ms_max", webhook.breaker_pause_ms_max, "breaker_pause_ms", webhook.breaker_pause_ms),
    ];
    let error = |key, value: u64, reason| WebhookError { index, key, value: value.to_string(), reason };
    if let Some((setting, value, wanted)) = webhook.out_of_range().first().copied() {
        return Err(error(setting.name, value, wanted.into()));
    }
    for (key, value, shortest, least) in longest {
        if !(least..=NUMBER_MAX).contains(&value) {
            return Err(error(key, value, format!("a whole number from {shortest} ({least}) to {NUMBER_MAX}")));
        }
    }
    Ok(())
}

/// The secrets of a webhook, from all their sources.
fn secrets(index: usize, webhook: &WebhookSettings) -> Result<Vec<Secret>, WebhookError> {
    let error = |key, value: String, reason: String| WebhookError { index, key, value, reason };
    let mut texts = vec![("secret", webhook.secret.reveal().to_string())];
    if let Some(file) = &webhook.secret_file {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|failed| error("secret_file", format!("{file:?}"), failed.to_string()))?;
        texts.push(("secret_file", text));
    }
    if let Some(name) = &webhook.secret_env {
        let text = std::env::var(name)
            .map_err(|_| error("secret_env", format!("{name:?}"), "a variable of the environment".into()))?;
        texts.push(("secret_env", text));
    }
    let mut secrets = Vec::new();
    let mut known = HashSet::new();
    for (key, text) in &texts {
        for text in text.split_whitespace().filter(|text| known.insert(*text)) {
            let secret = Secret::parse(text).map_err(|wrong| error(key, "…".into(), wrong.to_string()))?;
            secrets.push(secret);
        }
    }
    if secrets.is_empty() || secrets.len() > SECRETS_MAX {
        let reason = format!("1 to {SECRETS_MAX} secrets, in secret, secret_file or secret_env");
        return Err(error("secret", format!("{} of them", secrets.len()), reason));
    }
    Ok(secrets)
}

/// The largest value of a number: twelve days, or 1 GiB.
const NUMBER_MAX: u64 = 1 << 30;
const RANGE: &str = "a whole number from 1 to 1073741824";

/// The most secrets of a webhook.
const SECRETS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook() -> WebhookSettings {
        WebhookSettings {
            url: "http://127.0.0.1:3000/encke".into(),
            events: vec![EventKind::Publish],
            secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
            ..WebhookSettings::default()
        }
    }

    fn problem(change: impl FnOnce(&mut WebhookSettings)) -> String {
        let mut webhook = webhook();
        change(&mut webhook);
        check_all(&[webhook]).expect_err("it cannot work").to_string()
    }

    #[test]
    fn a_webhook_that_cannot_work_names_the_setting_its_value_and_what_would_work() {
        check_all(&[webhook()]).expect("it works");
        type Change = fn(&mut WebhookSettings);
        let cases: [(&str, Change); 10] = [
            ("webhooks[0].url = \"x\": a URL such as", |w| w.url = "x".into()),
            ("webhooks[0].url = \"ftp://x/\": a URL such as", |w| w.url = "ftp://x/".into()),
            ("webhooks[0].url = \"http://***@x/\": a URL without name", |w| w.url = "http://u:p@x/".into()),
            ("webhooks[0].events = []: at least one of handshake", |w| w.events.clear()),
            ("webhooks[0].channels = [\"a\"]: \"a\" is not a channel", |w| w.channels = vec!["a".into()]),
            ("webhooks[0].secret = …: a secret begins with whsec_", |w| w.secret = "hidden".into()),
            ("webhooks[0].secret = 0 of them: 1 to 8 secrets", |w| w.secret = "".into()),
            ("webhooks[0].secret_file = \"/none\": ", |w| w.secret_file = Some("/none".into())),
            ("webhooks[0].queue_messages_max = 0: a whole number from 1", |w| w.queue_messages_max = 0),
            ("webhooks[0].retry_pause_ms_max = 1: a whole number from retry", |w| w.retry_pause_ms_max = 1),
        ];
        for (expected, change) in cases {
            let found = problem(change);
            assert!(found.starts_with(expected), "{found}");
            assert!(!found.contains("hidden"), "{found}");
        }
    }

    #[test]
    fn a_webhook_must_answer_within_the_time_that_the_server_gives() {
        let server = Settings { decision_timeout_ms: 3_000, call_timeout_ms: 20_000, ..Settings::default() };
        let of = |events: &[EventKind], decision_timeout_ms| {
            let webhook = WebhookSettings { events: events.into(), decision_timeout_ms, ..webhook() };
            check_times(&[webhook], &server).map_err(|error| error.to_string())
        };
        let late = "webhooks[0].decision_timeout_ms = 3001: at most 3000, the time that the server gives";
        assert!(of(&[EventKind::Publish], 3_001).is_err_and(|error| error.starts_with(late)));
        assert_eq!(of(&[EventKind::Publish, EventKind::Opened], 3_000), Ok(()));
        assert_eq!(of(&[EventKind::Opened], 3_001), Ok(()), "it decides nothing");
        let late = "webhooks[0].call_timeout_ms = 25000: at most 20000";
        assert!(of(&[EventKind::Service], 3_001).is_err_and(|error| error.starts_with(late)));
        check_times(&[WebhookSettings { events: EventKind::ALL.into(), ..webhook() }], &Settings::default())
            .expect("the defaults fit");
    }

    #[test]
    fn only_one_webhook_decides_on_handshakes() {
        let mut first = webhook();
        first.events.push(EventKind::Handshake);
        let error = check_all(&[first.clone(), webhook(), first]).expect_err("two decide").to_string();
        assert_eq!(error, "webhooks[2].events = \"handshake\": only one webhook decides on a handshake");
    }

    #[test]
    fn webhooks_of_one_host_need_names() {
        let error = check_all(&[webhook(), webhook()]).expect_err("equal names").to_string();
        assert!(error.starts_with("webhooks[1].name = \"127.0.0.1\": another name"), "{error}");
        check_all(&[webhook(), WebhookSettings { name: "other".into(), ..webhook() }]).expect("two names");
    }

    #[test]
    fn all_sources_of_secrets_sign() {
        let path = std::env::temp_dir().join(format!("encke-webhook-secrets-{}", std::process::id()));
        std::fs::write(&path, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nwhsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n")
            .expect("a file");
        let webhook = WebhookSettings { secret_file: Some(path.clone()), ..webhook() };
        let checked = check_all(&[webhook]).expect("it works");
        std::fs::remove_file(path).expect("the file");
        assert_eq!(checked[0].secrets.len(), 3);
        assert_eq!(checked[0].name, "127.0.0.1");
    }
}
