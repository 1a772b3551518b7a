//! Checks of texts (those written into headers and those compared with client input) and of the rules for channels.

use bayeux::channel::covers;
use encke_core::{ChannelRule, ListenerSettings, Settings};

use crate::authority::Host;
use crate::error::SettingsError;

/// Collects the settings that cannot work.
#[derive(Default)]
pub(super) struct Found(pub(super) Vec<SettingsError>);

impl Found {
    pub(super) fn add(&mut self, name: &'static str, value: impl Into<String>, wanted: &'static str) {
        self.0.push(SettingsError::new(name, value, wanted));
    }

    /// A value alone.
    fn one(&mut self, name: &'static str, value: &str, is_right: impl Fn(&str) -> bool, wanted: &'static str) {
        if !is_right(value) {
            self.add(name, shown(value), wanted);
        }
    }

    /// A value of one entry of a list.
    fn of_entry(&mut self, name: &'static str, entry: usize, value: &str, is_right: bool, wanted: &'static str) {
        if !is_right {
            self.0.push(SettingsError { entry: Some(entry), ..SettingsError::new(name, shown(value), wanted) });
        }
    }

    /// Each text of a list.
    fn each(&mut self, name: &'static str, values: &[String], is_right: impl Fn(&str) -> bool, wanted: &'static str) {
        for (entry, value) in values.iter().enumerate() {
            self.of_entry(name, entry, value, is_right(value), wanted);
        }
    }
}

/// A value on one line.
fn shown(value: &str) -> String {
    if value.contains(char::is_control) { format!("{value:?}") } else { value.to_string() }
}

/// Checks the texts.
pub(super) fn texts(settings: &Settings, found: &mut Found) {
    found.each("mounts", &settings.mounts, is_mount, "a path such as /cometd, without a slash at its end, or /");
    let wanted = "another path: this one is the server's own";
    found.each("mounts", &settings.mounts, |mount| !OWN_PATHS.contains(&mount), wanted);
    let is_path_below = |path: &str| path.is_empty() || path != "/" && is_mount(path) && !OWN_PATHS.contains(&path);
    let wanted = "a path such as /hold or /stream, without a slash at its end, or empty; not the server's own";
    found.one("hold_path", &settings.hold_path, is_path_below, wanted);
    found.one("stream_path", &settings.stream_path, is_path_below, wanted);
    found.one("history_path", &settings.history_path, is_path_below, wanted);
    let wanted =
        "an origin as browsers send it, such as https://example.com: lower case, no path, no default port; or *";
    found.each("allowed_origins", &settings.allowed_origins, |origin| origin == "*" || is_origin(origin), wanted);
    let wanted = "a host name such as push.example.com, or an address, without scheme and port";
    found.each("allowed_hosts", &settings.allowed_hosts, is_host, wanted);
    // A slash is not allowed in a token, but CometD's documents name `bayeux/1.0`, and clients offer it.
    let is_protocol =
        |name: &str| all(name, |byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte));
    found.one("websocket_protocol", &settings.websocket_protocol, is_protocol, "one token such as bayeux, or empty");
    let is_token = |text: &str| all(text, |byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    found.one(
        "cookie_name",
        &settings.cookie_name,
        |name| !name.is_empty() && is_token(name),
        "letters, digits, - and _",
    );
    // Visible, and not the end of a cookie's attribute.
    let is_of_path = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    let is_path = |path: &str| path.is_empty() || path.starts_with('/') && all(path, is_of_path);
    found.one(
        "cookie_path",
        &settings.cookie_path,
        is_path,
        "a path that begins with a slash, without spaces and ;, or empty",
    );
    let is_domain = |domain: &str| domain.is_empty() || is_domain(domain.strip_prefix('.').unwrap_or(domain));
    found.one("cookie_domain", &settings.cookie_domain, is_domain, "a domain such as example.com, or empty");
    let same_site = ["", "Lax", "Strict", "None"];
    found.one(
        "cookie_same_site",
        &settings.cookie_same_site,
        |it| same_site.contains(&it),
        "Lax, Strict, None or empty",
    );
    let is_parameter = |name: &str| {
        let is_plain = all(name, |byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
        !name.is_empty() && name != "message" && is_plain
    };
    let wanted = "letters, digits, - _ . and ~, and not message, which names the messages";
    found.one("callback_parameter", &settings.callback_parameter, is_parameter, wanted);
}

/// Checks the further addresses.
pub(super) fn listeners(settings: &Settings, found: &mut Found) {
    let wanted =
        "an address and a port such as 0.0.0.0:8443, or unix: and the path of a socket such as unix:/run/encke.sock";
    let is_address = |listener: &ListenerSettings| match listener.unix_path() {
        Some(path) => !path.is_empty() && !path.contains('\0') && path.len() <= UNIX_PATH_BYTES_MAX,
        None => listener.socket_address().is_some(),
    };
    for (entry, listener) in settings.listeners.iter().enumerate() {
        let mut check = |name, value: &str, is_right, wanted| found.of_entry(name, entry, value, is_right, wanted);
        check("listeners.address", &listener.address, is_address(listener), wanted);
        check("listeners.tls", "true", !listener.tls || settings.has_tls(), "only with tls_cert or dev_tls");
        let has_proxy = !listener.proxy_protocol || !settings.trusted_proxies.is_empty();
        check("listeners.proxy_protocol", "true", has_proxy, "only with trusted_proxies");
        let has_client = listener.tls_client.is_none() || listener.tls && !settings.tls_client_ca.is_empty();
        check("listeners.tls_client", "", has_client, "only with tls = true, and with tls_client_ca");
    }
    if settings.listeners.len() > LISTENERS_MAX {
        found.add("listeners", settings.listeners.len().to_string(), "at most 31 further addresses");
    }
}

/// Checks the rules for files.
pub(super) fn file_rules(settings: &Settings, found: &mut Found) {
    for (entry, rule) in settings.files_rules.iter().enumerate() {
        let wanted = "a path such as /index.html or a pattern such as /assets/**";
        found.of_entry("files_rules.pattern", entry, &rule.pattern, rule.pattern.starts_with('/'), wanted);
        let is_value = |text: &str| !text.is_empty() && all(text, |byte| byte.is_ascii_graphic() || byte == b' ');
        let wanted = "the field Cache-Control, such as public, max-age=31536000, immutable";
        let value = &rule.cache_control;
        found.of_entry("files_rules.cache_control", entry, value, is_value(value), wanted);
    }
}

/// Checks the rules for channels.
pub(super) fn rules(settings: &Settings, found: &mut Found) {
    let limits = bayeux::Limits::from(settings);
    for (entry, rule) in settings.channels.iter().enumerate() {
        if rule.min_interval_ms > bayeux::limits::INTERVAL_MS_MAX {
            let (name, value) = ("channels.min_interval_ms", rule.min_interval_ms.to_string());
            found.0.push(SettingsError { entry: Some(entry), ..SettingsError::new(name, value, "at most 60000") });
        }
        let wanted = match bayeux::ChannelName::parse(&rule.pattern, &limits) {
            Ok(name) if name.kind() == bayeux::ChannelKind::Broadcast => continue,
            Ok(_) => "a channel that is published to; no rule holds below /meta/ and /service/",
            Err(bayeux::ChannelError::TooLong) => "a channel within channel_bytes_max",
            Err(bayeux::ChannelError::TooManySegments) => "a channel within channel_segments_max",
            Err(_) => "a channel such as /stock/GOOG or a pattern such as /stock/**",
        };
        found.of_entry("channels.pattern", entry, &rule.pattern, false, wanted);
    }
}

/// The index of each rule that can never apply, preceded by that of an earlier rule that matches all its channels.
pub fn hidden_rules(rules: &[ChannelRule]) -> Vec<(usize, usize)> {
    let hider = |hidden: usize| {
        let pattern = rules[hidden].pattern.as_str();
        // `/a/*` matches one segment, so it does not hide `/a/**`.
        let is_deep = pattern.ends_with("/**");
        let hides = |rule: &ChannelRule| covers(&rule.pattern, pattern) && (!is_deep || rule.pattern.ends_with("/**"));
        rules[..hidden].iter().position(hides).map(|first| (first, hidden))
    };
    (0..rules.len()).filter_map(hider).collect()
}

/// The longest path of a Unix socket.
const UNIX_PATH_BYTES_MAX: usize = 107;
/// Further addresses. All sockets travel to the process that takes over in one message.
const LISTENERS_MAX: usize = 31;
/// Paths that the server itself answers.
pub(crate) const OWN_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

fn all(text: &str, is_right: impl Fn(u8) -> bool) -> bool {
    text.bytes().all(is_right)
}

/// True for a path in the form of requests. Browsers resolve dots and escape other bytes, so no request would match
/// those.
fn is_mount(mount: &str) -> bool {
    let is_segment = |segment: &str| {
        let is_plain = all(segment, |byte| byte.is_ascii_graphic() && !b"\"#<>?\\^`{|}".contains(&byte));
        !segment.is_empty() && segment != "." && segment != ".." && is_plain
    };
    mount.strip_prefix('/').is_some_and(|path| path.is_empty() || path.split('/').all(is_segment))
}

/// True for `scheme://host[:port]` (RFC 6454 §6.2).
fn is_origin(origin: &str) -> bool {
    let Some((scheme, host)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "no default",
    };
    let is_scheme = scheme.starts_with(|letter: char| letter.is_ascii_lowercase())
        && all(scheme, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
    let name = Host::parse(host).map(Host::name);
    let is_host = name.is_some_and(|name| name.contains(':') || is_domain(name));
    is_scheme && is_host && !host.ends_with(default_port) && !host.ends_with(':') && !host.contains(char::is_uppercase)
}

/// True for a name or an address in the form of a `Host` field, without a port.
fn is_host(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() || is_domain(host)
}

fn is_domain(name: &str) -> bool {
    let is_label =
        |label: &str| !label.is_empty() && all(label, |byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the setting that is wrong, if one is.
    fn wrong(change: impl FnOnce(&mut Settings)) -> Option<&'static str> {
        let mut settings = Settings::default();
        change(&mut settings);
        super::super::check_settings(&settings).err().map(|error| error.name)
    }

    #[test]
    fn a_cookie_cannot_get_other_attributes_or_lines_by_its_path_or_domain() {
        for path in ["/x; Domain=evil.example", "/x\r\nset-cookie: a=b", "/x y", "/\u{e9}", "x"] {
            assert_eq!(wrong(|settings| settings.cookie_path = path.into()), Some("cookie_path"), "{path:?}");
        }
        for domain in ["example.com; Secure", "example.com\n", "exa mple.com", "http://example.com", ".", "a..b"] {
            assert_eq!(wrong(|settings| settings.cookie_domain = domain.into()), Some("cookie_domain"), "{domain:?}");
        }
        for (path, domain) in [("", ""), ("/", ".example.com"), ("/app/cometd", "push.example.com")] {
            let set = |settings: &mut Settings| {
                (settings.cookie_path, settings.cookie_domain) = (path.into(), domain.into());
            };
            assert_eq!(wrong(set), None, "{path} {domain}");
        }
    }

    #[test]
    fn an_allowed_origin_is_one_that_a_browser_can_send() {
        for origin in [
            "https://example.com/app",
            "https://example.com/",
            "https://example.com?x",
            "https://example.com:443",
            "http://example.com:80",
            "https://example.com:",
            "https://example.com:99999",
            "https://Example.com",
            "HTTPS://example.com",
            "https://*.example.com",
            "https://user@example.com",
            "https://ex\u{e4}mple.com",
            "https://",
            "://example.com",
            "example.com",
            "null",
            "",
        ] {
            let set =
                |settings: &mut Settings| settings.allowed_origins = vec!["https://ok.example".into(), origin.into()];
            assert_eq!(wrong(set), Some("allowed_origins"), "{origin}");
        }
        for origin in
            ["*", "https://example.com", "http://localhost:3000", "http://[::1]:3000", "chrome-extension://abc"]
        {
            assert_eq!(wrong(|settings| settings.allowed_origins = vec![origin.into()]), None, "{origin}");
        }
    }

    #[test]
    fn an_allowed_host_is_a_name_without_more() {
        for host in ["http://example.com", "example.com:8080", "example.com/", "*.example.com", "a b", "", "."] {
            assert_eq!(wrong(|settings| settings.allowed_hosts = vec![host.into()]), Some("allowed_hosts"), "{host}");
        }
        for host in ["example.com", "build_1", "192.0.2.7", "::1", "[::1]"] {
            assert_eq!(wrong(|settings| settings.allowed_hosts = vec![host.into()]), None, "{host}");
        }
    }

    #[test]
    fn a_mount_is_a_valid_path_that_is_free() {
        for mount in ["/metrics", "/healthz", "/readyz", "cometd", "/cometd/", "/a//b", "/a/../b", "/a?b", "/a b", "/#"]
        {
            assert_eq!(wrong(|settings| settings.mounts = vec!["/ok".into(), mount.into()]), Some("mounts"), "{mount}");
        }
        for mount in ["/", "/cometd", "/app/push", "/metrics2", "/a.b/~c", "/metrics/push"] {
            assert_eq!(wrong(|settings| settings.mounts = vec![mount.into()]), None, "{mount}");
        }
    }

    #[test]
    fn a_callback_parameter_is_one_name_in_a_query() {
        for name in ["", "a&b", "a=b", "a b", "a%20", "message", "\u{e9}"] {
            let set = |settings: &mut Settings| settings.callback_parameter = name.into();
            assert_eq!(wrong(set), Some("callback_parameter"), "{name}");
        }
    }

    #[test]
    fn a_websocket_protocol_is_one_token() {
        for name in ["a, b", "a\r\nset-cookie: a=b", "a b", "\u{e9}"] {
            let set = |settings: &mut Settings| settings.websocket_protocol = name.into();
            assert_eq!(wrong(set), Some("websocket_protocol"), "{name:?}");
        }
        for name in ["v1.bayeux", "bayeux/1.0"] {
            assert_eq!(wrong(|settings| settings.websocket_protocol = name.into()), None);
        }
    }

    #[test]
    fn json_depth_max_is_at_most_the_limit_of_the_parser() {
        assert_eq!(wrong(|settings| settings.json_depth_max = 128), None);
        for depth in [0, 129, 100_000_000] {
            assert_eq!(wrong(|settings| settings.json_depth_max = depth), Some("json_depth_max"));
        }
    }

    #[test]
    fn durations_have_an_upper_limit() {
        assert_eq!(wrong(|settings| settings.timeout_ms = u64::MAX), Some("timeout_ms"));
        assert_eq!(wrong(|settings| settings.drain_spread_ms = i64::MAX as u64), Some("drain_spread_ms"));
    }

    #[test]
    fn a_rule_is_for_a_channel_that_can_be_published_to() {
        let set = |pattern: &str| {
            let rule = ChannelRule { pattern: pattern.into(), ..ChannelRule::default() };
            wrong(|settings| settings.channels = vec![rule])
        };
        let deep = "/a".repeat(17);
        for pattern in [deep.as_str(), "/meta/connect", "/service/**", "stock", "/a/*/b"] {
            assert_eq!(set(pattern), Some("channels.pattern"), "{pattern}");
        }
        for pattern in [&deep[2..], "/**", "/stock/GOOG"] {
            assert_eq!(set(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn the_interval_of_a_rule_is_a_minute_at_most() {
        let wrong_interval = |min_interval_ms| {
            let rule = ChannelRule { pattern: "/a".into(), min_interval_ms, ..ChannelRule::default() };
            wrong(|settings| settings.channels = vec![rule])
        };
        assert_eq!((wrong_interval(60_000), wrong_interval(60_001)), (None, Some("channels.min_interval_ms")));
    }

    #[test]
    fn a_rule_that_an_earlier_one_hides_is_refused_with_both() {
        let error = |patterns: &[&str]| {
            let rule = |pattern: &&str| ChannelRule { pattern: (*pattern).into(), ..ChannelRule::default() };
            let settings = Settings { channels: patterns.iter().map(rule).collect(), ..Settings::default() };
            super::super::check_settings(&settings).err().map(|error| error.to_string())
        };
        for (first, hidden) in [
            ("/chat/**", "/chat/*"),
            ("/chat/**", "/chat/a/b"),
            ("/chat/**", "/chat/a/**"),
            ("/chat/**", "/chat/**"),
            ("/chat/*", "/chat/a"),
            ("/**", "/*"),
            ("/**", "/a"),
            ("/a", "/a"),
        ] {
            let text = error(&["/other/**", first, hidden]).expect(hidden);
            assert!(text.contains(&format!("{hidden} (rule 3) after {first} (rule 2)")), "{text}");
            assert!(first == hidden || error(&[hidden, first]).is_none(), "the narrower one first: {hidden}");
        }
        // Each has channels that the other does not match.
        for rules in [
            ["/chat/*", "/chat/**"],
            ["/chat/**", "/chat"],
            ["/chat/*", "/chat/a/b"],
            ["/*", "/**"],
            ["/a/**", "/ab/*"],
        ] {
            assert_eq!(error(&rules), None, "{rules:?}");
        }
    }

    #[test]
    fn a_value_with_line_breaks_is_shown_in_one_line() {
        let settings = Settings { cookie_path: "/\r\nx".into(), ..Settings::default() };
        let error = super::super::check_settings(&settings).expect_err("refused");
        assert!(error.to_string().starts_with(r#"cookie_path = "/\r\nx": a path"#), "{error}");
    }
}
