//! CometD's options that Encke does not have, and CometD's prefixes for values of one transport.

/// CometD's prefixes for one transport, the longest first.
pub(crate) const PREFIXES: &[&str] = &[
    "callback-polling.jsonp.",
    "long-polling.jsonp.",
    "long-polling.json.",
    "callback-polling.",
    "long-polling.",
    "ws.",
];

/// CometD's options that have no effect here, each with the reason. A `*` matches any end.
pub(crate) const IGNORED: &[(&str, &str)] = &[
    ("allowMessageDeliveryDuringHandshake", "messages follow with the first connect"),
    ("bayeuxServerContextAttributeName", "there is no servlet context"),
    ("bufferSize", "buffers grow with the waiting messages"),
    ("enableExtension.*", "no WebSocket extension is offered"),
    ("executorMaxThreads", "there is no thread pool; shards sets the number of threads"),
    ("jsonContext", "there is one JSON engine, which leaves data unchanged byte for byte"),
    ("jsonDebug", "use log = \"debug\""),
    ("maxProcessing", "requests are processed without waiting"),
    ("messagesPerFrame", "each message has its own frame, and frames are written together"),
    ("schedulerThreads", "timers belong to the shards; shards sets the number of threads"),
    ("sweepPeriod", "sessions end at their time; nothing is swept"),
    ("sweepThreads", "sessions end at their time; nothing is swept"),
    ("validateMessageFields", "messages are always checked"),
];

/// CometD's options without an equivalent that users may rely on. The server refuses to start with them.
pub(crate) const REFUSED: &[(&str, &str)] = &[
    ("allowMultiSessionsNoBrowser", "CometD removed it in 3.1; trust_client_session may be what you want"),
    ("oort.*", "a cluster needs no options of Oort: see [cluster]"),
    ("requireHandshakePerConnection", "a session may always continue over a new connection"),
    ("seti.*", "a cluster needs no options of Oort: see [cluster]"),
];

/// The reason beside a name in one of the lists.
pub(super) fn reason(list: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    let is = |listed: &str| match listed.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => listed == name,
    };
    list.iter().find(|(listed, _)| is(listed)).map(|(_, why)| *why)
}
