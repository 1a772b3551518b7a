//! Sections of the file that are no settings of the server. Each is read by the crate that uses it.

use encke::{ApiKey, ApiKeys, Settings};
use encke_auth::{AuthSettings, Jwt};
use encke_proxy::ProxySettings;
use encke_sources::SourceSettings;
use encke_webhooks::{EventKind, WebhookSettings, Webhooks};
use toml::Value;

use crate::cluster::ClusterSection;
use crate::layers::{Given, Problem, Raw};
use crate::mongodb::MongoSection;
use crate::tables::{checked, explain, list, wrong_in};

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
    /// `[mongodb]`
    pub(crate) mongodb: Option<MongoSection>,
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
            "mongodb" => MongoSection::read(value).map(|mongodb| self.mongodb = Some(mongodb)),
            "proxy" => proxy(value).map(|proxy| self.proxy = Some(proxy)),
            "webhooks" => webhooks(value).map(|webhooks| self.webhooks = webhooks),
            _ => api_keys(value).map(|api_keys| self.api_keys = api_keys),
        };
        read.map_err(|all| all.iter().map(|mistake| given.source.located(mistake)).collect())
    }

    /// Errors about sections that contradict the settings of the server. `is_node`: it is a node of a cluster.
    pub(crate) fn misfits(&self, settings: &Settings, is_node: bool) -> Vec<Problem> {
        let of_webhook = |(index, webhook): (usize, &WebhookSettings)| {
            let error = Webhooks::check_times(std::slice::from_ref(webhook), settings).err()?;
            Some(Problem(error.to_string().replacen("[0]", &format!("[{index}]"), 1)))
        };
        let without_cluster = "mongodb: it has the sessions of a cluster, and there is no [cluster]";
        let of_mongodb = self.mongodb.as_ref().filter(|_| !is_node).map(|_| Problem(without_cluster.into()));
        self.webhooks.iter().enumerate().filter_map(of_webhook).chain(of_mongodb).collect()
    }

    /// An error about sections that contradict each other.
    pub(crate) fn contradiction(&self) -> Option<Problem> {
        let decides = |webhook: &WebhookSettings| {
            webhook.events.iter().any(|event| matches!(event, EventKind::Handshake | EventKind::Refresh))
        };
        let both = self.auth.is_some() && self.webhooks.iter().any(decides);
        both.then(|| Problem("auth: a webhook decides about handshakes, too: remove one of them".into()))
    }
}

fn api_keys(value: &Value) -> Result<ApiKeys, Vec<String>> {
    let alone = |index: usize, key: &ApiKey| {
        let error = ApiKeys::new(std::slice::from_ref(key)).err();
        error.map(|error| error.to_string().replacen("[0]", &format!("[{index}]"), 1)).into_iter().collect()
    };
    let keys: Vec<ApiKey> = list("api_keys", value, alone)?;
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
    let alone = |index: usize, webhook: &WebhookSettings| {
        let error = Webhooks::check(std::slice::from_ref(webhook)).err();
        error.map(|error| error.to_string().replacen("[0]", &format!("[{index}]"), 1)).into_iter().collect()
    };
    let webhooks: Vec<WebhookSettings> = list("webhooks", value, alone)?;
    Webhooks::check(&webhooks).map_err(|error| vec![error.to_string()])?;
    Ok(webhooks)
}

fn auth(value: &Value) -> Result<AuthSettings, Vec<String>> {
    // The keys are read again when the server starts.
    checked("auth", value, |settings| wrong_in("auth", settings, Jwt::new(settings).err()))
}

fn proxy(value: &Value) -> Result<ProxySettings, Vec<String>> {
    checked("proxy", value, |settings: &ProxySettings| wrong_in("proxy", settings, settings.check().err()))
}
