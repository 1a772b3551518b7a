//! Sections of the file that are no settings of the server. Each is read by the crate that uses it.

use encke::{ApiKey, ApiKeys, Settings};
use encke_auth::{AuthSettings, Jwt};
use encke_proxy::ProxySettings;
use encke_sources::SourceSettings;
use encke_webhooks::{EventKind, WebhookSettings, Webhooks};
use toml::Value;

use crate::cluster::ClusterSection;
use crate::layers::{Given, Problem, Raw};
use crate::tables::{all_or_mistakes, explain, list, table};

/// All sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sections {
    /// `[[api_keys]]`
    pub(crate) api_keys: ApiKeys,
    /// `[proxy]`
    pub(crate) proxy: Option<ProxySettings>,
    /// `[[source]]`
    pub(crate) sources: Vec<SourceSettings>,
    /// `[auth]`
    pub(crate) auth: Option<AuthSettings>,
    /// `[cluster]`
    pub(crate) cluster: Option<ClusterSection>,
    /// `[[webhooks]]`
    pub(crate) webhooks: Vec<WebhookSettings>,
}

impl Sections {
    /// Reads a section.
    ///
    /// # Errors
    /// One line for each error, with the line of the section in the file.
    pub(crate) fn read(&mut self, given: &Given) -> Result<(), Vec<Problem>> {
        let Raw::Typed(value) = &given.value else { return Ok(()) };
        let read = match given.name.as_str() {
            "source" => sources(value).map(|sources| self.sources = sources),
            "auth" => auth(value).map(|auth| self.auth = Some(auth)),
            "cluster" => ClusterSection::read(value).map(|cluster| self.cluster = cluster),
            "proxy" => proxy(value).map(|proxy| self.proxy = Some(proxy)),
            "webhooks" => webhooks(value).map(|webhooks| self.webhooks = webhooks),
            _ => api_keys(value).map(|api_keys| self.api_keys = api_keys),
        };
        read.map_err(|all| all.iter().map(|mistake| given.source.located(mistake)).collect())
    }

    /// An error about a section that contradicts the settings of the server.
    pub(crate) fn misfit(&self, settings: &Settings) -> Option<Problem> {
        Webhooks::check_times(&self.webhooks, settings).err().map(|error| Problem(error.to_string()))
    }

    /// An error about sections that contradict each other.
    pub(crate) fn contradiction(&self) -> Option<Problem> {
        let decides = |webhook: &WebhookSettings| {
            webhook.events.iter().any(|event| matches!(event, EventKind::Handshake | EventKind::Refresh))
        };
        let both = self.auth.is_some() && self.webhooks.iter().any(decides);
        both.then(|| Problem("[auth] and a webhook both decide about handshakes: remove one of them".into()))
    }
}

fn api_keys(value: &Value) -> Result<ApiKeys, Vec<String>> {
    let keys: Vec<ApiKey> = list("api_keys", value)?;
    let alone = |(index, key): (usize, &ApiKey)| {
        let of_first = |error: encke::ApiKeysError| error.to_string().replacen("[0]", &format!("[{index}]"), 1);
        ApiKeys::new(std::slice::from_ref(key)).map_err(|error| vec![of_first(error)])
    };
    all_or_mistakes(keys.iter().enumerate().map(alone))?;
    ApiKeys::new(&keys).map_err(|error| vec![error.to_string()])
}

fn sources(value: &Value) -> Result<Vec<SourceSettings>, Vec<String>> {
    let in_words = |problem: String| match problem.split_once(": ") {
        Some((path, message)) => {
            let key = path.rsplit('.').next().unwrap_or_default();
            format!("{path}: {}", explain(key, message))
        }
        None => problem,
    };
    encke_sources::parse(value).map_err(|error| error.problems.into_iter().map(in_words).collect())
}

fn webhooks(value: &Value) -> Result<Vec<WebhookSettings>, Vec<String>> {
    let webhooks: Vec<WebhookSettings> = list("webhooks", value)?;
    let alone = |(index, webhook): (usize, &WebhookSettings)| {
        let checked = Webhooks::check(std::slice::from_ref(webhook));
        checked.map_err(|error| vec![error.to_string().replacen("[0]", &format!("[{index}]"), 1)])
    };
    all_or_mistakes(webhooks.iter().enumerate().map(alone))?;
    Webhooks::check(&webhooks).map_err(|error| vec![error.to_string()])?;
    Ok(webhooks)
}

fn auth(value: &Value) -> Result<AuthSettings, Vec<String>> {
    let settings = table("auth", value)?;
    // The keys are read again when the server starts.
    Jwt::new(&settings).map_err(|error| vec![error.to_string()])?;
    Ok(settings)
}

fn proxy(value: &Value) -> Result<ProxySettings, Vec<String>> {
    let settings: ProxySettings = table("proxy", value)?;
    settings.check().map_err(|error| vec![error.to_string()])?;
    Ok(settings)
}
