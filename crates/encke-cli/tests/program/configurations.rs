//! `encke config check`: each mistake of a file with its line, its path and what would be right.

use rustix::process::Signal;

use crate::common::{Folder, Server, encke, text};

/// The complaints about a file, with `FILE` for its path.
fn complaints(file: &str) -> Vec<String> {
    let folder = Folder::new();
    let path = folder.write("encke.toml", file);
    let output = encke(&["config", "check", &path]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2), "{file}");
    let said = text(&output.stderr).replace(&path, "FILE");
    said.lines().map(|line| line.trim_start_matches("encke: ").to_owned()).collect()
}

/// Files with mistakes, and the beginnings of all complaints about each.
const BROKEN: &[(&str, &[&str])] = &[
    ("timeout_ms = = 5", &["FILE:1: "]),
    ("\ntimout_ms = 5", &["FILE:2: timout_ms: there is no such setting; did you mean timeout_ms?"]),
    (
        "timeout_ms = \"20 apples\"",
        &["FILE:1: timeout_ms = \"20 apples\": a whole number of milliseconds, or a time such as \"20s\""],
    ),
    (
        "message_bytes_max = \"16 mugs\"",
        &["FILE:1: message_bytes_max = \"16 mugs\": a whole number of bytes, or a size such as \"64KiB\""],
    ),
    ("json_depth_max = 1000", &["FILE:1: json_depth_max = 1000: at most 128"]),
    (
        "shards = true\ndemo = \"yes\"\nlisten = \"localhost\"",
        &[
            "FILE:1: shards = true: a whole number",
            "FILE:2: demo = \"yes\": true or false",
            "FILE:3: listen = \"localhost\": an address and a port such as 127.0.0.1:8080",
        ],
    ),
    (
        "[[channels]]\npattern = \"/a\"\n\n[[channels]]\npattern = \"/b\"\nhistory_mesages = 5",
        &["FILE:6: channels[1].history_mesages: there is no such setting; did you mean history_messages?"],
    ),
    (
        "[[channels]]\npattern = \"/a\"\nslow_consumer = \"wait\"\nlazy = 3",
        &[
            "FILE:4: channels[0].lazy = 3: true or false",
            "FILE:3: channels[0].slow_consumer = \"wait\": one of disconnect, drop-oldest, keep-latest",
        ],
    ),
    ("[[channels]]\npattern = \"/a\"\n[[channels]]\nlazy = true", &["FILE:3: channels[1]: pattern is missing"]),
    (
        "[[channels]]\npattern = \"/a\"\n[[channels]]\npattern = \"b\"\n[[channels]]\npattern = \"/meta/x\"",
        &[
            "FILE:4: channels[1].pattern = b: a channel such as",
            "FILE:6: channels[2].pattern = /meta/x: a channel that",
        ],
    ),
    (
        "[[channels]]\npattern = \"/chat/**\"\n[[channels]]\npattern = \"/chat/*\"",
        &["FILE:3: the rule for /chat/* can never apply: the one for /chat/** at FILE:1 comes first"],
    ),
    (
        "[[api_key]]\nname = \"a\"\nkey = \"0123456789abcdef\"\nscopes = [\"read\"]",
        &["FILE:1: api_key: there is no such section; did you mean [[api_keys]]?"],
    ),
    ("[aut]\nsecret = \"x\"", &["FILE:1: aut: there is no such section; did you mean [auth]?"]),
    (
        "[[api_keys]]\nname = \"a\"\nkey = \"0123456789abcdef\"\nscopes = [\"read\"]\n[[api_keys]]\nname = \"b\"\nkey = \"short\"\n\
         scopes = [\"read\"]\n[[api_keys]]\nname = \"c\"\nkeys = \"x\"\nscopes = [\"all\"]",
        &[
            "FILE:5: api_keys[1], \"b\": a key has 16 to 1024 visible",
            "FILE:11: api_keys[2].keys: there is no such setting; did you mean key?",
            "FILE:12: api_keys[2].scopes: ",
        ],
    ),
    (
        "[[api_keys]]\nname = \"a\"\nkey = \"short\"\nscopes = [\"read\"]\n[[api_keys]]\nname = \"b\"\nkey_file = \"/nowhere\"\n\
         scopes = [\"read\"]",
        &["FILE:1: api_keys[0], \"a\": a key has 16 to 1024 visible", "FILE:5: api_keys[1], \"b\": key_file /nowhere"],
    ),
    (
        "[[webhooks]]\nurl = \"http://127.0.0.1:1/\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\nevents = [\"publish\"]\n\
         queue_messages_max = 0\n[[webhooks]]\nurl = \"ftp://x/\"\nevents = [\"publish\"]",
        &[
            "FILE:5: webhooks[0].queue_messages_max = 0: a whole number",
            "FILE:7: webhooks[1].url = \"ftp://x/\": a URL such as",
        ],
    ),
    (
        "[[source]]\nkind = \"quotes\"\n[[source]]\nkind = \"mial\"\n[[source]]\nkind = \"file\"\nname = \"log\"\npath = 7\nstart = \"middle\"",
        &[
            "FILE:4: source[1].kind = \"mial\": one of mail, quotes, command, file",
            "FILE:8: source[2].path: a text in quotes",
            "FILE:9: source[2].start: end or beginning",
        ],
    ),
    (
        "tls_cert = \"/nowhere/cert.pem\"\ntls_key = \"/nowhere/key.pem\"\nfiles = \"/nowhere\"",
        &["FILE:3: files = /nowhere: a directory that is there", "FILE:1: tls_cert = /nowhere/cert.pem: "],
    ),
    (
        "[cluster]\nservers = [\"nats://127.0.0.1:1\"]\nleave_delay_ms = \"soon\"\nserver = \"x\"",
        &[
            "FILE:3: cluster.leave_delay_ms: a whole number of milliseconds",
            "FILE:4: cluster.server: there is no such setting; did you mean servers?",
        ],
    ),
    (
        "mounts = [\n  \"/cometd\",\n  \"/metrics\",\n]\nallowed_origins = [\"https://a.example\", \"example.com\"]",
        &[
            "FILE:3: mounts[1] = /metrics: another path",
            "FILE:5: allowed_origins[1] = example.com: an origin as browsers send it",
        ],
    ),
    (
        "[[listeners]]\naddress = \"127.0.0.1:9\"\n[[listeners]]\naddress = \"everywhere\"\ntls = true",
        &[
            "FILE:4: listeners[1].address = everywhere: an address",
            "FILE:5: listeners[1].tls = true: only with tls_cert",
        ],
    ),
    // Mistakes of each stage of the check, all at once.
    (
        "timeout_ms = true\ntls_cert = \"/nowhere/cert.pem\"\n[cluster]\nservers = [\"nats://127.0.0.1:1\"]\nreplicas = 2\n\
         leave_delay_ms = \"soon\"\nsubscriptions_max = 0\n[proxy]\nbackend = \"ftp://a\"\nconnect_timeout_ms = 0\n\
         [[webhooks]]\nurl = \"http://127.0.0.1:1/\"\nevents = [\"publish\"]\ndecision_timeout_ms = 60000\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
         [[webhooks]]\nurl = \"http://127.0.0.2:1/\"\nevents = [\"publish\"]\ndecision_timeout_ms = 60000\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n",
        &[
            "FILE:1: timeout_ms = true: a whole number of milliseconds",
            "FILE:2: tls_cert = /nowhere/cert.pem: only with tls_key, the PEM file of its private key",
            "FILE:5: cluster.replicas = 2: 1, 3 or 5",
            "FILE:6: cluster.leave_delay_ms: a whole number of milliseconds",
            "FILE:7: cluster.subscriptions_max = 0: ",
            "FILE:9: proxy.backend: \"ftp://a\" is not a URL such as http://127.0.0.1:3000",
            "FILE:10: proxy.connect_timeout_ms = 0: ",
            "FILE:14: webhooks[0].decision_timeout_ms = 60000: ",
            "FILE:19: webhooks[1].decision_timeout_ms = 60000: ",
        ],
    ),
    (
        "channel_bytes_max = 400\n[cluster]\nservers = [\"http://127.0.0.1:1\"]\nreplicas = 2",
        &[
            "FILE:1: channel_bytes_max = 400: at most 327 in a cluster",
            "FILE:3: cluster.servers = \"http://127.0.0.1:1\": a URL such as nats://",
            "FILE:4: cluster.replicas = 2: 1, 3 or 5",
        ],
    ),
    (
        "[auth]\nsecret = \"0123456789abcdef0123456789abcdef\"\n[[webhooks]]\nurl = \"http://127.0.0.1:1/\"\n\
         events = [\"handshake\"]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n",
        &["FILE:1: auth: a webhook decides about handshakes, too: remove one of them"],
    ),
    (
        "[proxy]\nbackend = \"http://127.0.0.1:1\"\npath = [\"/app\"]",
        &["FILE:3: proxy.path: there is no such setting; did you mean paths?"],
    ),
];

#[test]
fn each_mistake_is_reported_with_its_line_its_path_and_what_would_be_right() {
    assert!(BROKEN.len() >= 20);
    for (file, expected) in BROKEN {
        let complaints = complaints(file);
        assert_eq!(complaints.len(), expected.len(), "{file}\n{complaints:#?}");
        for expected in *expected {
            let is_there = complaints.iter().any(|complaint| complaint.starts_with(expected));
            assert!(is_there, "{file}\n{expected}\n{complaints:#?}");
        }
    }
}

#[test]
fn times_and_sizes_may_have_units_in_files_variables_and_flags() {
    let folder = Folder::new();
    let file = "timeout_ms = \"20s\"\nmessage_bytes_max = \"1MiB\"\ntimeout = \"20s\"\n[[channels]]\npattern = \"/a\"\n\
                history_messages = 5\nhistory_ms = \"10m\"\nhistory_bytes = \"2MiB\"\n";
    folder.write("encke.toml", file);
    let mut command = folder.encke(&["config", "show", "--config", "encke.toml", "--drain-spread-ms", "3s"]);
    let output = command.env("ENCKE_OUTBOX_BYTES_MAX", "32MiB").output().expect("runs");
    let shown = text(&output.stdout);
    for line in [
        "timeout_ms = 20000",
        "message_bytes_max = 1048576",
        "history_ms = 600000",
        "history_bytes = 2097152",
        "drain_spread_ms = 3000",
        "outbox_bytes_max = 33554432",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}{}", text(&output.stderr));
    }
}

#[test]
fn what_has_no_effect_is_reported_and_is_no_mistake() {
    let folder = Folder::new();
    let file = "history_commit = \"always\"\n[[channels]]\npattern = \"/a\"\nhistory_ms = 5\n";
    let path = folder.write("encke.toml", file);
    let output = encke(&["config", "check", "--config", &path]).output().expect("runs");
    let said = text(&output.stdout).replace(&path, "FILE");
    assert_eq!(output.status.code(), Some(0), "{said}");
    for note in [
        "note: FILE:1: history_commit has no effect without data",
        "note: FILE:4: channels[0].history_ms has no effect without history_messages or retain_last",
        "FILE: good",
    ] {
        assert!(said.contains(note), "{note}\n{said}");
    }
}

#[test]
fn a_node_with_histories_starts_with_the_environment_of_the_image_and_writes_no_data() {
    let folder = Folder::new();
    // Nothing listens there: the node serves its clients alone.
    let file =
        "[cluster]\nservers = [\"nats://127.0.0.1:1\"]\n[[channels]]\npattern = \"/a/**\"\nhistory_messages = 5\n";
    let path = folder.write("node.toml", file);
    let data = folder.0.join("data");
    let mut command = folder.encke(&["serve", "--config", &path, "--port", "0"]);
    command.env("ENCKE_DATA", &data);
    let mut server = Server::spawn(command);
    let log = server.log_until("has no effect");
    let named = [&format!("ENCKE_DATA = {}", data.display()), "node.toml:5: channels[0].history_messages for /a/**"];
    assert!(named.iter().all(|text| log.contains(*text)), "{log}");
    // A new rule does not change what the process has.
    server.signal(Signal::HUP);
    server.log_until("settings reloaded");
    assert!(!data.exists());
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn mistakes_in_variables_and_flags_are_reported_beside_those_of_a_file() {
    let folder = Folder::new();
    folder.write("encke.toml", "timeout_ms = = 5");
    let mut command = folder.encke(&["config", "show", "encke.toml", "--shards", "many"]);
    let output = command.env("ENCKE_DEMO", "perhaps").output().expect("runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for expected in
        ["encke.toml:1: ", "ENCKE_DEMO: demo = \"perhaps\": true or false", "--shards: shards = \"many\": a whole"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_file_to_show_is_named_as_one_to_check() {
    let folder = Folder::new();
    folder.write("other.toml", "timeout_ms = 20000\n");
    for args in [&["config", "show", "other.toml"][..], &["config", "show", "--config", "other.toml"]] {
        let output = folder.encke(args).output().expect("runs");
        assert!(text(&output.stdout).contains("timeout_ms = 20000  # other.toml:1"), "{}", text(&output.stdout));
    }
    let both = folder.encke(&["config", "show", "other.toml", "--config", "other.toml"]).output().expect("runs");
    assert_eq!(both.status.code(), Some(2));
}
