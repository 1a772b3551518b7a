//! Precedence, aliases, and what is said about values that cannot be.

use super::*;

/// A file with a unique name that is removed with the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> TempFile {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("encke-config-{}-{number}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let file = TempFile::new(file);
    let flag = |(name, value): &(&str, &str)| Given {
        name: (*name).into(),
        value: Raw::Text((*value).into()),
        source: Origin::Flag(format!("--{}", options::flag(name))).into(),
    };
    let sources = Sources {
        file: Some(file.0.clone()),
        environment: environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        flags: flags.iter().map(flag).collect(),
        ..Sources::default()
    };
    let shown = file.0.display().to_string();
    sources.read().map_err(|problems| problems.iter().map(|problem| problem.0.replace(&shown, "FILE")).collect())
}

fn problem(file: &str) -> String {
    read(file, &[], &[]).expect_err(file).join("\n")
}

#[test]
fn every_option_but_port_has_a_default() {
    let defaults = defaults();
    let missing: Vec<&str> =
        options::all().map(|option| option.name).filter(|name| !defaults.contains_key(*name)).collect();
    assert_eq!(missing, ["port"]);
    assert_eq!(defaults.len() + 1, options::all().count());
}

#[test]
fn flags_come_before_environment_before_file_before_defaults() {
    let file = "timeout_ms = 1\ninterval_ms = 1\nmax_interval_ms = 1\n";
    let config = read(file, &[("ENCKE_INTERVAL_MS", "2"), ("ENCKE_MAX_INTERVAL_MS", "2")], &[("max_interval_ms", "3")]);
    let settings = config.expect("valid").settings;
    assert_eq!((settings.timeout_ms, settings.interval_ms, settings.max_interval_ms), (1, 2, 3));
    assert_eq!(settings.lazy_timeout_max_ms, Settings::default().lazy_timeout_max_ms);
}

#[test]
fn port_changes_the_port_of_listen_only() {
    let listen = |file, environment, flags| read(file, environment, flags).expect("valid").settings.listen.to_string();
    assert_eq!(listen("port = 9000", &[], &[]), "127.0.0.1:9000");
    assert_eq!(listen("port = 9000\nlisten = \"0.0.0.0:1\"", &[], &[]), "0.0.0.0:9000");
    assert_eq!(listen("port = 9000", &[("ENCKE_LISTEN", "[::1]:2")], &[]), "[::1]:2");
    assert_eq!(listen("listen = \"0.0.0.0:1\"", &[("ENCKE_PORT", "3")], &[("port", "0")]), "0.0.0.0:0");
}

#[test]
fn cometds_names_and_values_are_accepted_everywhere() {
    let file = "maxInterval = \"15000\"\nws.maxMessageSize = 70000\nallowedTransports = \"long-polling, websocket\"\n\
                cometdURLMapping = \"/cometd/*\"\nmultiSessionInterval = -1\n";
    let environment = [("ENCKE_LONG_POLLING_JSON_TIMEOUT", "7000"), ("ENCKE_TRUSTCLIENTSESSION", "true")];
    let config = read(file, &environment, &[("browserCookieName", "B")]).expect("valid");
    let settings = config.settings;
    assert_eq!((settings.max_interval_ms, settings.message_bytes_max, settings.timeout_ms), (15_000, 70_000, 7_000));
    assert_eq!(settings.transports, [encke::TransportName::LongPolling, encke::TransportName::Websocket]);
    assert_eq!((settings.mounts, settings.browser_surplus_interval_ms), (vec!["/cometd".to_string()], 0));
    assert!(settings.trust_client_session);
    assert_eq!(settings.cookie_name, "B");
    assert_eq!(config.notes.len(), 2, "what was meant for one transport gets a word: {:?}", config.notes);
}

#[test]
fn an_alias_and_a_name_that_disagree_are_refused() {
    assert_eq!(problem("timeout_ms = 1\ntimeout = 2\n"), "FILE:1: timeout_ms is 1 here, but 2 at FILE:2");
    assert!(read("timeout_ms = 2\ntimeout = 2\n", &[], &[]).is_ok());
}

#[test]
fn values_that_differ_by_transport_cause_a_warning_only() {
    for (file, timeout_ms, says) in [
        (
            "ws.timeout = 2\ntimeout = 1\n",
            1,
            "ws.timeout = 2 has no effect: timeout_ms applies to all transports, and is 1",
        ),
        ("long-polling.json.timeout = 1\nws.timeout = 2\n", 1, "ws.timeout = 2 has no effect"),
        ("ws.timeout = 2\n", 2, "ws.timeout applies to all transports, as timeout_ms"),
    ] {
        let config = read(file, &[], &[]).expect("valid");
        assert_eq!(config.settings.timeout_ms, timeout_ms, "{file}");
        assert!(config.notes.iter().any(|note| note.contains(says)), "{:?}", config.notes);
    }
    assert!(read("timeout = 2\nws.timeout = 2\n", &[], &[]).expect("valid").notes.is_empty());
}

#[test]
fn cometd_options_without_effect_cause_a_warning_only() {
    let file = "sweepPeriod = 997\nws.enableExtension.permessage-deflate = false\nmaxQueue = 500\nhandshakeReconnect = true\n\
                ws.protocol = \"bayeux\"\nmaxMessageSize = 512\n";
    let config = read(file, &[("ENCKE_JSONCONTEXT", "x")], &[]).expect("valid");
    let warned = |name: &str| config.notes.iter().filter(|note| note.contains(name)).count();
    assert_eq!(["sweepPeriod", "enableExtension", "JSONCONTEXT"].map(warned), [1, 1, 1], "{:?}", config.notes);
    let settings = config.settings;
    assert_eq!((settings.outbox_messages_max, settings.message_bytes_max), (500, 512));
    assert_eq!((settings.handshake_reconnect, settings.websocket_protocol.as_str()), (true, "bayeux"));
    let unlimited = read("maxQueue = -1\nmaxMessageSize = -1\n", &[], &[]).expect("valid").settings;
    assert_eq!(unlimited, Settings::default());
}

#[test]
fn any_mapping_of_a_servlet_is_a_mount() {
    for (mapping, mount) in
        [("/*", "/"), ("/", "/"), ("/a/b/*", "/a/b"), ("/cometd/", "/cometd"), ("/cometd", "/cometd")]
    {
        let settings = read(&format!("cometdURLMapping = \"{mapping}\""), &[], &[]).expect("valid").settings;
        assert_eq!(settings.mounts, [mount], "{mapping}");
    }
}

#[test]
fn a_wrong_name_is_reported_with_its_line_and_the_nearest_name() {
    assert_eq!(
        problem("\ntimout_ms = 5\noort.url = 7\n"),
        "FILE:3: oort.url: CometD's option has no equivalent: a cluster needs no options of Oort: see [cluster]\nFILE:2: timout_ms: there is no such setting; did you mean timeout_ms?"
    );
    let problems = read("", &[("ENCKE_TIMOUT_MS", "5")], &[]).expect_err("no such name");
    assert_eq!(problems, ["ENCKE_TIMOUT_MS: there is no such setting; did you mean ENCKE_TIMEOUT_MS?"]);
}

#[test]
fn a_wrong_value_is_reported_with_the_allowed_values() {
    let cases = [
        (
            "timeout_ms = \"5\"",
            "FILE:1: timeout_ms = \"5\": a whole number of milliseconds, or a time such as \"20s\" or \"10m\"",
        ),
        (
            "timeout_ms = -5",
            "FILE:1: timeout_ms = -5: a whole number of milliseconds, or a time such as \"20s\" or \"10m\", 0 or more",
        ),
        ("duplicate_connect_status = 70000", "FILE:1: duplicate_connect_status = 70000: a smaller number"),
        ("duplicate_connect_status = 200", "FILE:1: duplicate_connect_status = 200: an HTTP status from 400 to 599"),
        ("demo = \"yes\"", "FILE:1: demo = \"yes\": true or false"),
        (
            "transports = [\"sse\"]",
            "FILE:1: transports = [\"sse\"]: one of websocket, eventsource, json-stream, long-polling, callback-polling",
        ),
        ("log_format = \"xml\"", "FILE:1: log_format = \"xml\": text or json"),
        ("log = \"loud\"", "FILE:1: log = \"loud\": off, error, warn, info, debug, trace, or such as warn,encke=debug"),
        ("listen = \"localhost\"", "FILE:1: listen = \"localhost\": an address and a port such as 127.0.0.1:8080"),
        ("port = 70000", "FILE:1: port = 70000: a whole number from 0 to 65535"),
        ("mounts = 7", "FILE:1: mounts = 7: a list"),
        ("files = \"/nowhere\"", "FILE:1: files = /nowhere: a directory that is there and can be read"),
        ("cookie_name = 7", "FILE:1: cookie_name = 7: a text in quotes"),
        (
            "cookie_path = \"/;x\"",
            "FILE:1: cookie_path = /;x: a path that begins with a slash, without spaces and ;, or empty",
        ),
        ("mounts = [\"/metrics\"]", "FILE:1: mounts[0] = /metrics: another path: this one is the server's own"),
        ("json_depth_max = 100000000", "FILE:1: json_depth_max = 100000000: at most 128"),
    ];
    for (file, expected) in cases {
        assert_eq!(problem(file), expected);
    }
    let rule = problem("[[channels]]\npattern = \"/a\"\nslow_consumer = \"wait\"");
    assert_eq!(rule, "FILE:3: channels[0].slow_consumer = \"wait\": one of disconnect, drop-oldest, keep-latest");
    let pattern = problem("shards = 1\n[[channels]]\npattern = \"a\"");
    assert!(pattern.starts_with("FILE:3: channels[0].pattern = a: "), "{pattern}");
}

#[test]
fn all_errors_are_reported_together() {
    assert_eq!(problem("timeout_ms = \"5\"\nshards = true\nx = 1\n").lines().count(), 3);
}

#[test]
fn a_config_file_given_by_name_must_exist() {
    let sources = Sources { file: Some("/nowhere/encke.toml".into()), ..Sources::default() };
    let problems = sources.read().expect_err("no such file");
    assert!(problems[0].0.starts_with("/nowhere/encke.toml: "), "{problems:?}");
}

#[test]
fn channel_rules_may_come_from_a_flag() {
    let rules = r#"[{ pattern = "/stock/*", slow_consumer = "keep-latest" }]"#;
    let config = read("", &[], &[("channels", rules)]).expect("valid");
    assert_eq!(config.settings.channels[0].slow_consumer, encke::SlowConsumer::KeepLatest);
}

#[test]
fn changes_are_reported_with_both_values() {
    let old = read("timeout_ms = 1", &[], &[]).expect("valid");
    let new = read("timeout_ms = 2", &[], &[]).expect("valid");
    assert_eq!(new.changes_from(&old), [("timeout_ms", "1".to_string(), "2".to_string())]);
}

#[test]
fn a_webhook_that_may_take_longer_than_the_server_waits_is_refused() {
    let webhook = "[[webhooks]]\nurl = \"http://127.0.0.1:1/\"\nevents = [\"publish\"]\n\
                   secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\ndecision_timeout_ms = 6000\n";
    let problem = problem(webhook);
    assert!(problem.starts_with("FILE:5: webhooks[0].decision_timeout_ms = 6000: at most 5000, the time"), "{problem}");
    read(webhook, &[("ENCKE_DECISION_TIMEOUT_MS", "6000")], &[]).expect("the server waits as long");
}

#[test]
fn a_rule_that_an_earlier_one_hides_is_reported_with_both_lines() {
    let rule = |pattern: &str| format!("[[channels]]\npattern = \"{pattern}\"\n");
    let file = format!("{}\n{}publishers = \"server\"\n", rule("/chat/**"), rule("/chat/*"));
    let expected = "FILE:4: the rule for /chat/* can never apply: the one for /chat/** at FILE:1 comes first";
    assert!(problem(&file).starts_with(expected), "{}", problem(&file));
    let inline = "channels = [\n{pattern = \"/a\"},\n{pattern = \"/a\"}]";
    assert!(problem(inline).starts_with("FILE:3: the rule for /a can never apply: the one for /a at FILE:2"));
    read(&(rule("/chat/*") + &rule("/chat/**")), &[], &[]).expect("the narrower one first");
    let all = read(&rule("/**"), &[], &[]).expect("the rules of the demo give way").server_settings();
    assert_eq!(encke::hidden_rules(&all.channels), []);
}

/// The examples of docs/files.md.
#[test]
fn the_table_of_files_is_read_as_its_page_shows_it() {
    let page = include_str!("../../../docs/files.md");
    let block = |kind: &str| page.split(kind).nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let folder = std::env::temp_dir().join(format!("encke-files-page-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("www")).expect("a folder");
    std::fs::write(folder.join("preload.json"), block("```json\n")).expect("a file");
    let text = block("```toml\n").replace("/srv", folder.to_str().expect("UTF-8"));
    let config = read(&text, &[], &[]).expect("valid");
    assert_eq!(config.settings.files, folder.join("www").display().to_string());
    assert_eq!(config.settings.files_rules.len(), 1);
    std::fs::write(folder.join("preload.json"), "{").expect("a file");
    let broken = problem(&text);
    assert!(broken.starts_with("FILE:3: files_preload = ") && broken.contains("EOF while parsing"), "{broken}");
    assert!(
        problem("[files]\nlist = true").contains("files_list: there is no such setting; did you mean files_listing?")
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn keys_of_the_api_are_read_from_the_file_and_no_error_shows_one() {
    let key = |fields: &str| format!("[[api_keys]]\nname = \"backend\"\nscopes = [\"read\", \"publish\"]\n{fields}\n");
    let config = read(&key("key = \"secret-0123456789\""), &[], &[]).expect("valid");
    let names: Vec<_> = config.sections.api_keys.names().collect();
    assert_eq!(names, [("backend", "publish, read".to_string())]);
    for (fields, reason) in [
        ("key = \"secret\"", "FILE:1: api_keys[0], \"backend\": a key has 16 to 1024 visible ASCII characters"),
        ("key = 7", "FILE:4: api_keys[0].key: a secret is a text in quotes"),
        ("keys = \"secret\"", "FILE:4: api_keys[0].keys: there is no such setting; did you mean key?"),
        ("", "one of key, key_file and key_env is needed"),
        ("key_file = \"/nowhere/secret\"", "/nowhere/secret"),
        ("key = \"secret-0123456789\"\n[[api_keys]]\nname = \"x\"\nscopes = [\"all\"]", "api_keys[1].scopes: one of "),
    ] {
        let problem = problem(&key(fields));
        assert!(problem.contains(reason), "{problem}");
        assert!(!problem.contains("secret-") && !problem.contains('\n'), "{problem}");
    }
}

#[test]
fn webhooks_are_read_from_the_file_and_no_error_shows_a_secret() {
    let webhook = |fields: &str| {
        format!(
            "[[webhooks]]\nurl = \"http://127.0.0.1:1/\"\nevents = [\"handshake\"]\nsecret = \"{WEBHOOK_SECRET}\"\n{fields}\n"
        )
    };
    let config = read(&webhook("[webhooks.when_down]\nhandshake = \"queue\""), &[], &[]).expect("valid");
    assert_eq!(config.sections.webhooks[0].when_down.handshake, encke_webhooks::Decide::Queue);
    for (fields, reason) in [
        ("url_of = 1", "FILE:5: webhooks[0].url_of: there is no such setting; did you mean url?"),
        ("queue_messages_max = 0", "FILE:5: webhooks[0].queue_messages_max = 0: a whole number from 1"),
        ("secret_file = \"/nowhere/secret\"", "webhooks[0].secret_file = \"/nowhere/secret\": "),
        ("[webhooks.when_down]\nended = \"deny\"", "queue or drop"),
    ] {
        let problem = problem(&webhook(fields));
        assert!(problem.contains(reason), "{problem}");
        assert!(!problem.contains("whsec_") && !problem.contains('\n'), "{problem}");
    }
}

const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn the_servers_of_a_cluster_come_from_flags_environment_or_file() {
    let servers = |file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]| {
        let cluster = read(file, environment, flags).expect(file).sections.cluster;
        cluster.map(|cluster| (cluster.nats.servers.join(" "), cluster.node.name))
    };
    let expected = |servers: &str, name: &str| Some((servers.to_owned(), name.to_owned()));
    let file = "[cluster]\nservers = [\"nats://file\"]\nname = \"other\"\n";
    assert_eq!(servers("", &[], &[]), None);
    assert_eq!(servers("cluster = []", &[], &[]), None);
    assert_eq!(servers(file, &[], &[]), expected("nats://file", "other"));
    assert_eq!(servers("cluster = [\"nats://file\"]", &[], &[]), expected("nats://file", "main"));
    assert_eq!(servers(file, &[("ENCKE_CLUSTER", "nats://a,nats://b")], &[]), expected("nats://a nats://b", "other"));
    assert_eq!(servers("", &[], &[("cluster", "nats://flag:1")]), expected("nats://flag:1", "main"));
}

#[test]
fn what_does_not_work_in_a_cluster_is_reported_by_name_and_value() {
    let cluster = |lines: &str| problem(&format!("{lines}\n[cluster]\nservers = [\"nats://a\"]\n"));
    let history = "data = \"data\"\n[[channels]]\npattern = \"/a/**\"\nhistory_messages = 10";
    assert!(cluster(history).starts_with("FILE:4: channels[0].history_messages = 10 for /a/**: 0 in a cluster"));
    assert!(cluster(history).contains("data = \"data\" (FILE:1)"), "both are named: {}", cluster(history));
    assert!(cluster("channel_bytes_max = 1000").starts_with("FILE:1: channel_bytes_max = 1000: at most 327"));
    assert!(problem("[cluster]\n").starts_with("FILE:1: cluster.servers = []: at least one URL"));
    assert!(
        problem("[cluster]\nserver = \"a\"\n")
            .contains("cluster.server: there is no such setting; did you mean servers?")
    );
    assert!(
        problem("[cluster]\nservers = [\"nats://a\"]\nname = \"a b\"\n")
            .starts_with("FILE:3: cluster.name = \"a b\": ")
    );
    assert!(problem("[cluster]\npending_bytes_max = \"x\"\n").contains("cluster.pending_bytes_max"));
}

#[test]
fn the_data_of_an_image_have_no_effect_beside_histories_of_a_cluster() {
    let image = [("ENCKE_DATA", "/var/lib/encke")];
    let (rule, cluster) =
        ("[[channels]]\npattern = \"/a/**\"\nhistory_messages = 10\n", "[cluster]\nservers = [\"nats://a\"]\n");
    let data = |file: &str| {
        let config = read(file, &image, &[]).expect(file);
        (config.server_settings().data, config.value("data").to_string(), config.notes)
    };
    let (used, shown, notes) = data(&format!("{rule}{cluster}"));
    assert_eq!((&*used, &*shown), ("", "\"\""));
    let [note] = &notes[..] else { panic!("{notes:?}") };
    let both = ["ENCKE_DATA = /var/lib/encke has no effect", ".toml:3: channels[0].history_messages for /a/**"];
    assert!(both.iter().all(|text| note.contains(text)), "{note}");
    for file in [rule, cluster] {
        let (used, _, notes) = data(file);
        assert_eq!((&*used, notes.len()), ("/var/lib/encke", 0), "{file}");
    }
    // A flag is for this server.
    let both = format!("{rule}{cluster}");
    let refused = read(&both, &image, &[("data", "own")]).expect_err("both").join(" ");
    assert!(refused.contains("FILE:3: channels[0].history_messages = 10") && refused.contains("(--data)"), "{refused}");
}

#[test]
fn in_a_cluster_the_demo_is_off_or_goes_without_histories() {
    let file = "[cluster]\nservers = [\"nats://a\"]\n";
    assert!(!read(file, &[], &[]).expect("valid").program.demo);
    let config = read(file, &[], &[("demo", "true")]).expect("valid");
    let rules = config.server_settings().channels;
    assert!(config.program.demo && !rules.is_empty() && rules.iter().all(|rule| rule.history().is_none()));
}
