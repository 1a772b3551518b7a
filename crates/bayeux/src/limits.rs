//! The limits on one message of a client.

/// The limit of positions in one subscribe: a server refuses more (`413::replay_channels_max`), a client sends several. It is the
/// number of subscriptions that a session may have by default.
pub const REPLAY_POSITIONS_MAX: usize = 1_000;
/// The longest interval that a subscribe asks for (`"ext":{"min_interval_ms":…}`), in milliseconds.
pub const INTERVAL_MS_MAX: u32 = 60_000;
/// The most messages in one text of a server that a client reads. A parsed message takes some 250 bytes however short it is.
pub const SERVER_BATCH_MESSAGES_MAX: usize = 100_000;

/// Limits on one message of a client.
///
/// The parser checks everything that a client sends against one of these bounds, so the cost of reading any text grows at most
/// linearly with its size. The transport limits the size of the whole text in bytes. The code that processes a message limits the
/// effects of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Messages in one batch (one HTTP body or one WebSocket message).
    pub batch_messages_max: usize,
    /// Levels of arrays and objects inside the value of one field. Values above 128 act as 128.
    pub json_depth_max: usize,
    /// Bytes of a channel name or pattern, its slashes included.
    pub channel_bytes_max: usize,
    /// Segments of a channel name or pattern. A publication is matched by one pattern more than its channel has
    /// segments, so this also bounds the work of a publication.
    pub channel_segments_max: usize,
    /// Bytes of a message id.
    pub id_bytes_max: usize,
    /// Fields of a message that Bayeux does not define and that are forwarded with a publication.
    pub custom_fields_max: usize,
    /// Names in the array of one subscribe or unsubscribe.
    pub subscription_names_max: usize,
}

impl Default for Limits {
    /// Far above what known clients send: CometD's clients nest their fields a few levels deep and number their ids.
    fn default() -> Self {
        Limits {
            batch_messages_max: 1000,
            json_depth_max: 64,
            channel_bytes_max: 256,
            channel_segments_max: 16,
            id_bytes_max: 128,
            custom_fields_max: 16,
            subscription_names_max: 1000,
        }
    }
}
