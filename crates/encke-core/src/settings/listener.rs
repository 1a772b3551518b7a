//! Further addresses of the server.

use serde::{Deserialize, Serialize};

/// A further address at which the server accepts connections, written as `ListenerSettings { address: …,
/// ..ListenerSettings::default() }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerSettings {
    /// An address and a port such as `0.0.0.0:8443`, or `unix:` and the path of a Unix socket.
    pub address: String,
    /// True: it speaks TLS, with the certificates of the server.
    #[serde(default)]
    pub tls: bool,
}

impl ListenerSettings {
    /// The path of a Unix socket, if it is one.
    pub fn unix_path(&self) -> Option<&str> {
        self.address.strip_prefix("unix:")
    }
}
