//! The settings of a node of a cluster, and what a cluster does not allow of others.

use encke_cluster::{
    HistoriesSettings, Leases, NAME_BYTES_MAX, Node, NodeLimits, RemoteCallsSettings, Revocations, Subjects,
    channel_bytes_max,
};
use encke_core::{Declared as _, HistoryCommit, NodeTag, Settings, settings};
use serde::{Deserialize, Serialize};

use crate::entropy::kernel_entropy;
use crate::error::SettingsError;

settings! {
    /// The settings of a node of a cluster.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ClusterSettings;

    "The cluster" {
        /// The name of the cluster: up to 32 letters, digits, `_` and `-`. Nodes with the same name on the same engine belong together. All
        /// subjects begin with `encke.` and this name.
        name: String = "main".into();
        /// Bytes of publications that wait for the engine while it is away or slow; above it they do not reach the other nodes.
        pending_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Bytes of publications of other nodes that wait for room between shards; above it they are lost here.
        incoming_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Time for which a channel stays subscribed to at the engine after its last subscriber has left, in milliseconds.
        leave_delay_ms: u64 = 5_000;
        /// Channels with one parent that have their own subscriptions at the engine. If the node wants more, it subscribes to all channels
        /// of that parent, and drops the publications that nobody wants.
        shared_from: usize = 4_096, positive();
        /// Subscriptions at the engine. A node that needs more subscribes to all channels.
        subscriptions_max: usize = 16_384, positive();
        /// Longest time that the reply to a subscribe waits until publications of other nodes arrive, in milliseconds.
        reply_delay_max_ms: u64 = 1_000;
        /// Time between the return of the engine and the sending of what has waited for it, in milliseconds. Other nodes come back at
        /// that time, too.
        return_delay_ms: u64 = 1_000;
        /// Bytes of publications on channels with a history that wait until all nodes in sync have them, also while the engine is away.
        /// Users or addresses share it, and their channels. Further ones are refused.
        history_pending_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Requests, WebSockets and streams of clients whose session is on another node, while this node waits for that one; and as many of
        /// other nodes that this one serves. Addresses share it. Above it a request gets status 503.
        forwarded_max: usize = 50_000, positive();
        /// Bytes of the bodies of these requests.
        forwarded_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Records of sessions that a node writes in a second, from which other nodes go on with its sessions when it is gone. More wait.
        session_records_per_s_max: usize = 1_000, positive();
        /// Time after which the record of a session goes that has not changed, in milliseconds: that of a node that is gone, and whose
        /// client has not come back.
        session_record_ttl_ms: u64 = 7 * 24 * 60 * 60 * 1_000, at_least(60_000, "the shortest life of a record is a minute");
        /// Longest time that a command of the HTTP API or of a handle waits for the answers of other nodes, in milliseconds.
        command_wait_ms: u64 = 5_000, positive(), at_most(30_000, "at most 30 seconds, after which other nodes forget a command");
        /// Commands and questions of this node that wait for the answers of others; and as many of other nodes that run here. Further ones
        /// reach this node alone. Actions of hooks and services may have half.
        commands_max: usize = 1_024, positive();
        /// Bytes of the commands of this node that wait.
        commands_bytes_max: usize = 64 * 1024 * 1024, positive();
    }
}

impl ClusterSettings {
    /// Checks these settings.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.subjects()?;
        match self.out_of_range().first().copied() {
            Some((setting, value, wanted)) => Err(SettingsError::new(setting.name, value.to_string(), wanted)),
            None => Ok(()),
        }
    }

    /// Checks settings of a server that is a node of a cluster.
    ///
    /// # Errors
    /// The first setting that does not work in a cluster.
    pub fn check_server(settings: &Settings) -> Result<(), SettingsError> {
        let mut rules = settings.channels.iter().enumerate();
        if !settings.data.is_empty()
            && let Some((entry, rule)) = rules.find(|(_, rule)| rule.history().is_some())
        {
            let (name, given, none) = rule.history_setting();
            let value = format!("{given} for {}", rule.pattern);
            let wanted = match none {
                "0" => "0 in a cluster with a `data` directory: its nodes hold histories in memory",
                _ => "false in a cluster with a `data` directory: its nodes hold histories in memory",
            };
            return Err(SettingsError { entry: Some(entry), ..SettingsError::new(name, value, wanted) });
        }
        if settings.channel_bytes_max > channel_bytes_max() {
            let wanted = "at most 327 in a cluster, so that each channel has a subject at the engine";
            return Err(SettingsError::new("channel_bytes_max", settings.channel_bytes_max.to_string(), wanted));
        }
        Ok(())
    }

    /// Checks settings of a server that is no node of a cluster.
    ///
    /// # Errors
    /// The setting that works in a cluster only.
    pub fn check_alone(settings: &Settings) -> Result<(), SettingsError> {
        if settings.history_commit == HistoryCommit::Replicated {
            let wanted = "os, interval or always: this server is no node of a cluster";
            return Err(SettingsError::new("history_commit", "replicated", wanted));
        }
        Ok(())
    }

    /// The node of a server with these settings.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub(crate) fn node(&self, settings: &Settings) -> Result<Node, SettingsError> {
        let limits = NodeLimits {
            pending_bytes_max: self.pending_bytes_max,
            incoming_bytes_max: self.incoming_bytes_max,
            leave_delay_ms: self.leave_delay_ms,
            shared_from: self.shared_from,
            subscriptions_max: self.subscriptions_max,
            reply_delay_max_ms: self.reply_delay_max_ms,
            return_delay_ms: self.return_delay_ms,
        };
        Ok(Node::new(self.subjects()?, random(), limits, names_of(settings)))
    }

    /// The settings of the histories of a node. `tag`: its name in the ids of its sessions.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub(crate) fn histories(&self, settings: &Settings, tag: NodeTag) -> Result<HistoriesSettings, SettingsError> {
        Ok(HistoriesSettings {
            node: random(),
            tag,
            subjects: self.subjects()?,
            bucket: format!("encke-{}-histories", self.name),
            has_journal: settings.history_commit == HistoryCommit::Replicated,
            names: names_of(settings),
            pending_bytes_max: self.history_pending_bytes_max,
        })
    }

    /// The settings of the remote calls of a node.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub(crate) fn remote_calls(&self, tag: NodeTag) -> Result<RemoteCallsSettings, SettingsError> {
        Ok(RemoteCallsSettings {
            node: random(),
            tag,
            subjects: self.subjects()?,
            wait_ms: self.command_wait_ms,
            calls_max: self.commands_max,
            bytes_max: self.commands_bytes_max,
        })
    }

    /// The revoked tokens of the cluster.
    pub(crate) fn revocations(&self) -> Revocations {
        Revocations::new(format!("encke-{}-revocations", self.name))
    }

    /// The leases of the cluster.
    pub(crate) fn leases(&self) -> Leases {
        Leases::new(random(), format!("encke-{}-leases", self.name))
    }

    /// The subjects of the cluster.
    ///
    /// # Errors
    /// When the name cannot be one.
    pub(crate) fn subjects(&self) -> Result<Subjects, SettingsError> {
        debug_assert_eq!((NAME_BYTES_MAX, channel_bytes_max()), (32, 327), "as the texts say");
        let wanted = "up to 32 letters, digits, _ and -";
        Subjects::of(&self.name).ok_or_else(|| SettingsError::new("name", format!("{:?}", self.name), wanted))
    }
}

/// The limits of channel names of other nodes, whose settings may differ.
fn names_of(settings: &Settings) -> bayeux::Limits {
    bayeux::Limits { channel_bytes_max: channel_bytes_max(), ..settings.into() }
}

/// A mark of an order to end the sessions of a user.
pub(crate) fn random_mark() -> u64 {
    random().max(1)
}

/// A number that no other process has.
fn random() -> u64 {
    let mut bytes = [0; 8];
    kernel_entropy()(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use encke_core::ChannelRule;

    use super::*;

    #[test]
    fn a_history_on_disk_and_too_long_channels_are_refused_by_name_and_value() {
        let rule =
            |history_messages| ChannelRule { pattern: "/a/**".into(), history_messages, ..ChannelRule::default() };
        let settings = |history_messages, data: &str| Settings {
            channels: vec![rule(history_messages)],
            data: data.into(),
            ..Settings::default()
        };
        assert_eq!(ClusterSettings::check_server(&settings(0, "data")), Ok(()));
        assert_eq!(ClusterSettings::check_server(&settings(10, "")), Ok(()));
        let error = ClusterSettings::check_server(&settings(10, "data")).expect_err("a history").to_string();
        assert!(error.starts_with("channels[0].history_messages = 10 for /a/**: 0 in a cluster"), "{error}");
        let long = Settings { channel_bytes_max: 328, ..Settings::default() };
        assert_eq!(ClusterSettings::check_server(&long).expect_err("too long").name, "channel_bytes_max");
    }

    #[test]
    fn a_journal_is_for_clusters_only() {
        let settings = Settings { history_commit: HistoryCommit::Replicated, ..Settings::default() };
        assert_eq!(ClusterSettings::check_server(&settings), Ok(()));
        let error = ClusterSettings::check_alone(&settings).expect_err("no cluster").to_string();
        assert_eq!(error, "history_commit = replicated: os, interval or always: this server is no node of a cluster");
        assert_eq!(ClusterSettings::check_alone(&Settings::default()), Ok(()));
    }

    #[test]
    fn a_name_that_is_no_token_is_refused() {
        for name in ["", "a.b", "a b"] {
            let settings = ClusterSettings { name: name.into(), ..ClusterSettings::default() };
            assert_eq!(settings.check().expect_err("no name").name, "name");
        }
        assert_eq!(ClusterSettings::default().check(), Ok(()));
    }
}
