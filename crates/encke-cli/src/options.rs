//! Every option of `encke serve`: its name, CometD's name for it, and its description. Flags, environment, file and
//! `docs/configuration.md` all come from this table.

mod auth;
mod cometd;
mod limits;
mod rates;

pub(crate) use auth::{AUTH, rows as auth_rows};
use cometd::OF_EACH_TRANSPORT;
pub(crate) use cometd::{IGNORED, PREFIXES, REFUSED};

/// One option.
#[derive(Debug)]
pub(crate) struct Opt {
    /// Its name in the file. The flag has dashes (`--timeout-ms`), the environment `ENCKE_` and capitals.
    pub(crate) name: &'static str,
    /// CometD's names for it.
    pub(crate) cometd: &'static [&'static str],
    /// Its description in Markdown; the same words as in `encke::Settings`.
    pub(crate) doc: &'static str,
}

/// Options that belong together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) options: &'static [Opt],
}

/// An option found by one of its names.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) option: &'static Opt,
    /// The name was CometD's.
    pub(crate) is_alias: bool,
    /// CometD has it for one transport (`ws.timeout`), Encke for all.
    pub(crate) is_widened: bool,
}

/// The reason why a name is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// CometD's, without effect here: the reason.
    Ignored(&'static str),
    /// CometD's, without an equivalent: the reason, or the replacement.
    Refused(&'static str),
    /// Unknown, with the most similar name.
    Unknown { nearest: Option<&'static str> },
}

/// All options in the order in which they are shown.
pub(crate) fn all() -> impl Iterator<Item = &'static Opt> {
    GROUPS.iter().flat_map(|group| group.options)
}

/// Finds an option by its name, or by CometD's with or without a transport's prefix.
pub(crate) fn find(name: &str) -> Result<Found, NotFound> {
    if let Some(option) = all().find(|option| option.name == name) {
        return Ok(Found { option, is_alias: false, is_widened: false });
    }
    let prefix = PREFIXES.iter().find(|prefix| name.starts_with(**prefix)).copied().unwrap_or("");
    let bare = &name[prefix.len()..];
    if let Some(option) = all().find(|option| option.cometd.contains(&bare)) {
        return Ok(Found {
            option,
            is_alias: true,
            is_widened: !prefix.is_empty() && OF_EACH_TRANSPORT.contains(&bare),
        });
    }
    if let Some(why) = cometd::reason(IGNORED, bare) {
        return Err(NotFound::Ignored(why));
    }
    if let Some(why) = cometd::reason(REFUSED, bare) {
        return Err(NotFound::Refused(why));
    }
    Err(NotFound::Unknown { nearest: nearest(bare) })
}

/// Finds an option by the rest of an `ENCKE_…` variable: any name in capitals, `_` for all that is no letter or digit.
pub(crate) fn find_variable(rest: &str) -> Result<Found, NotFound> {
    let aliases = all().flat_map(|option| option.cometd).chain(IGNORED.iter().chain(REFUSED).map(|(name, _)| name));
    let spellings =
        aliases.flat_map(|alias| PREFIXES.iter().chain(&[""]).map(move |prefix| format!("{prefix}{alias}")));
    let names = all().map(|option| option.name.to_string()).chain(spellings);
    let mut names = names.filter(|name| variable(name) == rest);
    find(&names.next().unwrap_or_else(|| rest.to_ascii_lowercase()))
}

/// The environment's spelling of a name, without `ENCKE_`.
pub(crate) fn variable(name: &str) -> String {
    let capital = |byte: char| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { '_' };
    name.chars().map(capital).collect()
}

/// The flag's spelling of a name, without `--`.
pub(crate) fn flag(name: &str) -> String {
    name.replace('_', "-")
}

/// The option whose name, ours or CometD's, is most similar to `name`, if any is similar.
fn nearest(name: &str) -> Option<&'static str> {
    let plain = |text: &str| text.replace(|char: char| !char.is_ascii_alphanumeric(), "").to_ascii_lowercase();
    let wanted = plain(name);
    let names = all().flat_map(|option| [option.name].into_iter().chain(option.cometd.iter().copied()));
    let distances = names.map(|known| (strsim::levenshtein(&wanted, &plain(known)), known));
    let (distance, best) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + wanted.len() / 4).then_some(best)
}

const fn option(name: &'static str, cometd: &'static [&'static str], doc: &'static str) -> Opt {
    Opt { name, cometd, doc }
}

/// The table.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        title: "The server",
        options: &[
            option("listen", &[], "Address and port to listen on. Port 0: any free port."),
            option("port", &[], "The port of `listen` alone. 0: any free port."),
            option("shards", &[], "Number of shards (threads with their own sessions). 0: one per core."),
            option(
                "application_threads",
                &[],
                "Number of threads for futures of the application that wait. 0: one per core.",
            ),
            option(
                "files",
                &[],
                "A directory whose files are served beside the built-in pages, its `index.html` as the start page. Empty: none.",
            ),
            option(
                "data",
                &[],
                "A directory that stores histories and sessions across a restart; created if it does not exist. Empty: they are in memory only.",
            ),
            option(
                "history_commit",
                &[],
                "The point at which a publication on a channel with a history is acknowledged, if `data` is set: `os` (the operating system has the message), `interval` (the same, and it is on disk soon) or `always` (it is on disk).",
            ),
            option(
                "history_commit_interval_ms",
                &[],
                "Longest time until a message is on disk with `history_commit = \"interval\"`, in milliseconds.",
            ),
        ],
    },
    Group {
        title: "Bayeux timing",
        options: &[
            option("timeout_ms", &["timeout"], "Time that a `/meta/connect` is held, in milliseconds."),
            option("interval_ms", &["interval"], "Time that a client waits between two connects, in milliseconds."),
            option(
                "max_interval_ms",
                &["maxInterval"],
                "Time that a silent session lives after `interval_ms`, in milliseconds.",
            ),
            option(
                "client_interval_max_ms",
                &[],
                "The longest hold time that a client may request, and the longest sum of its pause and grace, in milliseconds.",
            ),
            option(
                "lazy_timeout_max_ms",
                &["maxLazyTimeout"],
                "Longest time that a lazy message waits, in milliseconds.",
            ),
            option(
                "handshake_timeout_ms",
                &[],
                "Longest time that a WebSocket may stay without a Bayeux handshake, in milliseconds.",
            ),
            option(
                "websocket_idle_timeout_ms",
                &["idleTimeout"],
                "Longest time that a WebSocket may stay without any frame from its client, in milliseconds. 0: no limit.",
            ),
            option(
                "request_timeout_ms",
                &[],
                "Longest time that the headers or the body of a request take to arrive, in milliseconds.",
            ),
            option(
                "response_timeout_ms",
                &[],
                "Time after which the server resets a connection whose client reads nothing of its response, in milliseconds.",
            ),
            option(
                "keep_alive_timeout_ms",
                &[],
                "Time that an idle keep-alive connection stays open, in milliseconds.",
            ),
            option(
                "drain_timeout_ms",
                &[],
                "Time that a draining server waits for its clients to leave, in milliseconds.",
            ),
            option(
                "drain_spread_ms",
                &[],
                "Window over which a draining server spreads its clients' reconnects, in milliseconds.",
            ),
            option(
                "decision_timeout_ms",
                &[],
                "Time that the application may take for a decision, in milliseconds. The message is then refused.",
            ),
            option(
                "call_timeout_ms",
                &[],
                "Time that the application may take for the answer to a call, in milliseconds. The call has then failed.",
            ),
            option(
                "auth_expiry_notice_ms",
                &[],
                "Time before the end of a session's credentials at which its client is notified, in milliseconds. 0: it is not.",
            ),
        ],
    },
    Group {
        title: "Bayeux behaviour",
        options: &[
            option(
                "transports",
                &["allowedTransports"],
                "The transports offered, in this order: `websocket`, `long-polling`, `callback-polling`.",
            ),
            option("mounts", &["cometdURLMapping"], "The paths of the Bayeux endpoint, each with all its sub-paths."),
            option(
                "broadcast_to_publisher",
                &["broadcastToPublisher"],
                "A publisher that subscribes to its own channel gets its own messages.",
            ),
            option(
                "connect_deliver_only",
                &["metaConnectDeliverOnly"],
                "Messages are sent with connect replies only, also on a WebSocket.",
            ),
            option(
                "handshake_reconnect",
                &["handshakeReconnect"],
                "Advice includes `maxInterval`, so that clients handshake again by themselves after a longer break.",
            ),
            option(
                "websocket_protocol",
                &["protocol"],
                "The sub-protocol that a WebSocket must offer and the server selects. Empty: the server ignores offers.",
            ),
            option(
                "forward_ext",
                &[],
                "The `ext` of a published message is sent to the subscribers (the binary extension needs it).",
            ),
            option("timestamps", &[], "Replies and publications carry a `timestamp` (the timestamp extension)."),
            option(
                "activity_timeout_ms",
                &[],
                "Time without messages from its client after which a session is disconnected, in milliseconds (the activity extension). 0: off.",
            ),
            option("activity_counts_deliveries", &[], "Messages to a session also count as its activity."),
            option("channels", &[], "Rules for channels. The first rule that matches applies."),
        ],
    },
    Group {
        title: "Browsers",
        options: &[
            option(
                "allowed_origins",
                &[],
                "Origins (`https://example.com`) allowed in addition to the server's. `*` allows all, without credentials.",
            ),
            option(
                "allowed_hosts",
                &[],
                "Host names that requests may use for this server, in addition to addresses and `localhost`. Empty: any; on loopback none.",
            ),
            option(
                "browser_sessions_max",
                &["maxSessionsPerBrowser"],
                "Connects held at the same time for one browser; the others are advised to poll. -1: no limit, 0: none.",
            ),
            option(
                "browser_surplus_interval_ms",
                &["multiSessionInterval"],
                "Pause between polls of the surplus windows of one browser, in milliseconds. 0: they are refused.",
            ),
            option("trust_client_session", &["trustClientSession"], "A request needs no cookie, only a `clientId`."),
            option("cookie_name", &["browserCookieName"], "The name of the cookie that identifies a browser."),
            option("cookie_domain", &["browserCookieDomain"], "The domain of the cookie. Empty: none."),
            option("cookie_path", &["browserCookiePath"], "The path of the cookie."),
            option(
                "cookie_max_age_s",
                &["browserCookieMaxAge"],
                "The lifetime of the cookie in seconds. -1: until the browser closes.",
            ),
            option("cookie_http_only", &["browserCookieHttpOnly"], "Scripts cannot see the cookie."),
            option("cookie_secure", &["browserCookieSecure"], "Browsers send the cookie over TLS only."),
            option(
                "cookie_same_site",
                &["browserCookieSameSite"],
                "The cookie's `SameSite`: `Lax`, `Strict`, `None`, or empty for none.",
            ),
            option(
                "cookie_partitioned",
                &["browserCookiePartitioned"],
                "Browsers partition the cookie by top-level site.",
            ),
            option(
                "duplicate_connect_status",
                &["duplicateMetaConnectHttpResponseCode"],
                "The HTTP status that ends a held connect when a newer one replaces it (400 to 599).",
            ),
            option(
                "callback_parameter",
                &["callbackParameter"],
                "The query parameter that names the callback of callback-polling.",
            ),
            option(
                "api_loopback",
                &[],
                "Programs on this machine may use the HTTP API without a key. All others need one: `[[api_keys]]`.",
            ),
            option(
                "metrics_loopback",
                &[],
                "Programs on this machine may read `/metrics` without a key. A proxy on this machine that adds no header and calls the server by a loopback name looks like one: behind such a proxy, turn this off and give the scraper a key.",
            ),
            option(
                "idempotency_ms",
                &[],
                "Time for which the HTTP API remembers the answer to a request with an idempotency key, in milliseconds.",
            ),
            option(
                "hold_path",
                &[],
                "The path below which GET requests are held until a message comes on the channel that follows. Empty: no path.",
            ),
            option("hold_timeout_max_ms", &[], "The longest time for which such a request is held, in milliseconds."),
        ],
    },
    limits::LIMITS,
    Group { title: "Presence", options: rates::PRESENCE },
    Group { title: "Rates", options: rates::OPTIONS },
    Group {
        title: "The program",
        options: &[
            option(
                "demo",
                &[],
                "Runs the services of the demo pages (`/service/demo/**`, `/service/echo`), the filter of `/demo/chat/**`, and the rules of their channels below `/demo/**`: histories and presence. Your rules take precedence. Without a value of yours it is off with `[auth]`, and where `listen` is not a loopback address. `encke demo` always turns it on.",
            ),
            option(
                "demo_cometd_channels",
                &[],
                "The demo's services answer on the channels of CometD's demo chat, too: `/service/members`, `/service/privatechat`, and the filter of `/chat/**`.",
            ),
            option(
                "log",
                &[],
                "Log levels: `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels by module such as `warn,encke=debug`.",
            ),
            option("log_format", &[], "Format of the logs: `text` or `json`."),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(name: &str) -> &'static str {
        find(name).expect(name).option.name
    }

    /// The options' words must not drift from the library's.
    #[test]
    fn every_setting_of_the_library_is_an_option_with_the_same_words() {
        let source = include_str!("../../encke-core/src/settings.rs");
        let body = source.split("pub struct Settings {").nth(1).and_then(|rest| rest.split("\n}").next());
        let (mut doc, mut settings) = (String::new(), Vec::new());
        for line in body.expect("the struct").lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("///") {
                doc = format!("{doc} {}", words.trim()).trim().to_string();
            } else if let Some(field) = line.strip_prefix("pub ") {
                let name = field.split(':').next().expect("a name");
                settings.push((name.to_string(), std::mem::take(&mut doc)));
            }
        }
        let of_program = ["port", "demo", "demo_cometd_channels", "log", "log_format"];
        let options: Vec<(String, String)> = all()
            .filter(|option| !of_program.contains(&option.name))
            .map(|option| (option.name.into(), option.doc.into()))
            .collect();
        for setting in &settings {
            assert!(options.contains(setting), "the table lacks or words otherwise: {setting:?}");
        }
        assert_eq!(options.len(), settings.len(), "the table has an option that the library has not");
    }

    #[test]
    fn no_two_options_share_a_name() {
        let mut names: Vec<&str> =
            all().flat_map(|option| [option.name].into_iter().chain(option.cometd.iter().copied())).collect();
        names.extend(IGNORED.iter().chain(REFUSED).map(|(name, _)| name));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn cometds_names_are_found_with_and_without_prefix() {
        assert_eq!(name_of("timeout"), "timeout_ms");
        assert_eq!(name_of("long-polling.json.timeout"), "timeout_ms");
        assert_eq!(name_of("ws.maxMessageSize"), "message_bytes_max");
        assert_eq!(name_of("ws.idleTimeout"), "websocket_idle_timeout_ms");
        assert_eq!(name_of("long-polling.jsonp.callbackParameter"), "callback_parameter");
        assert!(find("ws.timeout").expect("found").is_widened);
        assert!(!find("timeout").expect("found").is_widened);
        assert!(!find("ws.idleTimeout").expect("found").is_widened);
        assert_eq!(find("ws.timeout_ms").err(), Some(NotFound::Unknown { nearest: Some("timeout_ms") }));
    }

    #[test]
    fn a_cometd_option_without_an_equivalent_is_ignored_or_refused_with_a_reason() {
        for name in ["oort.url", "seti.debug", "ws.requireHandshakePerConnection"] {
            assert!(matches!(find(name), Err(NotFound::Refused(_))), "{name}");
        }
        for name in ["sweepPeriod", "ws.messagesPerFrame", "ws.enableExtension.permessage-deflate"] {
            assert!(matches!(find(name), Err(NotFound::Ignored(_))), "{name}");
        }
    }

    #[test]
    fn a_typing_error_is_recognised() {
        let near = |name| find(name).expect_err("no such name");
        assert_eq!(near("timout_ms"), NotFound::Unknown { nearest: Some("timeout_ms") });
        assert_eq!(near("maxinterval"), NotFound::Unknown { nearest: Some("maxInterval") });
        assert_eq!(near("cookie-name"), NotFound::Unknown { nearest: Some("cookie_name") });
        assert_eq!(near("something_else_entirely"), NotFound::Unknown { nearest: None });
    }

    #[test]
    fn a_variable_may_mean_our_name_or_cometds() {
        assert_eq!(find_variable("TIMEOUT_MS").expect("ours").option.name, "timeout_ms");
        assert_eq!(find_variable("MAXINTERVAL").expect("CometD's").option.name, "max_interval_ms");
        assert_eq!(find_variable("LONG_POLLING_JSON_TIMEOUT").expect("CometD's").option.name, "timeout_ms");
        assert_eq!(find_variable("TIMOUT_MS").err(), Some(NotFound::Unknown { nearest: Some("timeout_ms") }));
        assert_eq!(find_variable("MAXQUEUE").expect("CometD's").option.name, "outbox_messages_max");
        assert!(matches!(find_variable("SWEEPPERIOD"), Err(NotFound::Ignored(_))));
    }
}
