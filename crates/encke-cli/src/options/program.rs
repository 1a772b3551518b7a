//! The settings of the program around the server.

use serde::{Deserialize, Serialize};

use crate::logs::LogFormat;

encke::settings! {
    /// Settings of the program beside those of the server.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub(crate) struct Program;

    "The program" {
        /// Serves the demo pages: `/service/demo/**`, `/service/echo`, and rules for `/demo/**`, which yours precede. Unless you set it,
        /// it is off with `[auth]`, in a cluster and on addresses that are not loopback. `encke demo` turns it on.
        demo: bool = true, restart();
        /// The demo's services answer on the channels of CometD's demo chat, too: `/service/members`, `/service/privatechat`, and the filter
        /// of `/chat/**`.
        demo_cometd_channels: bool = false, restart();
        /// The URLs of the NATS servers of a cluster that this server joins as a node: `servers` of the section `[cluster]`, which has all
        /// other settings about it.
        cluster: Vec<String> = Vec::new(), restart();
        /// Log levels: `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels by module such as `warn,encke=debug`.
        log: String = "info".into();
        /// Format of the logs: `text` or `json`.
        log_format: LogFormat = LogFormat::Text, restart();
    }
}
