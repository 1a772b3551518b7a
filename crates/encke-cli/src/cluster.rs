//! The section `[cluster]`: settings of the node, and of its connection to NATS.

use encke::{Builder, ClusterSettings, Declared, Settings};
use encke_nats::{Nats, NatsSettings, NatsSettingsError};
use toml::{Table, Value};

use crate::layers::{Origin, Problem, located};
use crate::tables::{checked, table, wrong_in};

/// The settings of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterSection {
    pub(crate) node: ClusterSettings,
    pub(crate) nats: NatsSettings,
}

impl ClusterSection {
    /// Reads the section: a table, or the list of servers alone. None for an empty list.
    ///
    /// # Errors
    /// One line for each error.
    pub(crate) fn read(value: &Value) -> Result<Option<ClusterSection>, Vec<String>> {
        let Value::Table(all) = value else {
            let servers = Table::from_iter([("servers".to_owned(), value.clone())]);
            let nats: NatsSettings = table("cluster", &Value::Table(servers))?;
            let is_none = nats.servers.is_empty();
            return Ok((!is_none).then(|| ClusterSection { nats, ..ClusterSection::default() }));
        };
        let of_node = |name: &str| {
            ClusterSettings::DECLARED.iter().flat_map(|group| group.settings).any(|setting| setting.name == name)
        };
        let (node, nats): (Table, Table) = all.clone().into_iter().partition(|(name, _)| of_node(name));
        let names_servers = nats.get("servers").and_then(Value::as_array).is_some_and(|servers| !servers.is_empty());
        let wrong_nats = |nats: &NatsSettings| {
            let mut wrong = wrong_in("cluster", nats, nats.wrong());
            // A flag or a variable may name them.
            wrong.retain(|wrong| names_servers || !wrong.starts_with("cluster.servers"));
            wrong
        };
        match (checked("cluster", &Value::Table(node), wrong_node), checked("cluster", &Value::Table(nats), wrong_nats))
        {
            (Ok(node), Ok(nats)) => Ok(Some(ClusterSection { node, nats })),
            (node, nats) => Err([node.err(), nats.err()].into_iter().flatten().flatten().collect()),
        }
    }

    /// The section with the servers of the option `cluster`, if it names some.
    pub(crate) fn with_servers(section: Option<ClusterSection>, servers: &[String]) -> Option<ClusterSection> {
        if servers.is_empty() {
            return section;
        }
        let mut section = section.unwrap_or_default();
        section.nats.servers = servers.to_vec();
        Some(section)
    }

    /// The settings that cannot work in a cluster, of the section or of the server.
    pub(crate) fn misfits(&self, server: &Settings) -> Vec<Problem> {
        let mut wrong = wrong_in("cluster", &self.nats, self.nats.wrong());
        wrong.extend(wrong_node(&self.node));
        wrong.into_iter().map(Problem).chain(misfits_of_server(server, true)).collect()
    }

    /// The note that `data` of this server, which is a node, has no effect, if so: histories of a cluster and `data` exclude each other, and the environment names `data`
    /// for whatever the server is, as that of the container image does. `origin` knows that of a path.
    ///
    /// # Errors
    /// A file or a flag names `data` for this server, or ACME needs it. The problem has both origins.
    pub(crate) fn ignores_data(
        server: &Settings,
        origin: impl Fn(&str) -> Option<Origin>,
    ) -> Result<Option<String>, Problem> {
        let with_history = server.channels.iter().enumerate().find(|(_, rule)| rule.history().is_some());
        let Some((index, rule)) = with_history.filter(|_| !server.data.is_empty()) else { return Ok(None) };
        let data = origin("data").map_or_else(|| "data".into(), |origin| origin.to_string());
        let (name, given, none) = rule.history_setting();
        let (path, value) = (name.replace("channels.", &format!("channels[{index}].")), &server.data);
        if matches!(origin("data"), Some(Origin::Environment(_))) && server.acme.is_empty() {
            let rule = located(origin(&path), &format!("{path} for {}", rule.pattern));
            let why = "nodes of a cluster hold histories in memory";
            return Ok(Some(format!("{data} = {value} has no effect: {rule}: {why}")));
        }
        let rule = format!("{path} = {given} for {}", rule.pattern);
        let wanted = "its nodes hold histories in memory, and do not start with both";
        let problem = format!("{rule}: {none} in a cluster with data = {value:?} ({data}): {wanted}");
        Err(located(origin(&path), &problem))
    }

    /// Makes a server a node, if there is a section.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub(crate) fn join(section: Option<&ClusterSection>, server: Builder) -> Result<Builder, NatsSettingsError> {
        let Some(ClusterSection { node, nats }) = section else { return Ok(server) };
        let engine = Nats::new(nats.clone(), &node.name)?;
        Ok(server.cluster(node.clone(), engine))
    }
}

/// The settings of a server that cannot work in a cluster, or without one if it is no node.
pub(crate) fn misfits_of_server(server: &Settings, is_node: bool) -> Vec<Problem> {
    let checked = if is_node { ClusterSettings::check_server(server) } else { ClusterSettings::check_alone(server) };
    checked.err().map(|error| Problem(error.to_string())).into_iter().collect()
}

/// The settings of a node that cannot work.
fn wrong_node(node: &ClusterSettings) -> Vec<String> {
    wrong_in("cluster", node, node.check().map_err(|error| format!("cluster.{error}")).err())
}
