//! `encke config`: write, check and show a configuration.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use toml::Value;

use crate::config::{Sources, defaults};
use crate::{FAILED, USAGE, complain, options};

/// Writes a file with every setting, commented out, unless there is one.
pub(crate) fn init(path: &Path) -> ExitCode {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    match file.and_then(|mut file| file.write_all(template().as_bytes())) {
        Ok(()) => {
            println!("{} written: every setting with its default", path.display());
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            complain(&format_args!("{} is there already and stays as it is", path.display()));
            ExitCode::from(FAILED)
        }
        Err(error) => {
            complain(&format_args!("{}: {error}", path.display()));
            ExitCode::from(FAILED)
        }
    }
}

/// Reports the errors in a file and the environment, or that there are none.
pub(crate) fn check(sources: &Sources) -> ExitCode {
    match sources.read() {
        Ok(config) => {
            for note in &config.notes {
                println!("note: {note}");
            }
            match &config.file {
                Some(path) => println!("{}: good", path.display()),
                None => println!("no file, so the defaults hold: good"),
            }
            ExitCode::SUCCESS
        }
        Err(problems) => complain_all(&problems),
    }
}

/// Shows every effective setting and its source.
pub(crate) fn show(sources: &Sources) -> ExitCode {
    match sources.read() {
        Ok(config) => {
            for (option, value, origin) in config.effective() {
                match origin {
                    Some(origin) => println!("{} = {value}  # {origin}", option.name),
                    None => println!("{} = {value}", option.name),
                }
            }
            if config.sections.auth.is_some() {
                // Not its settings: a secret may be among them.
                println!("[auth]");
            }
            for (name, scopes) in config.sections.api_keys.names() {
                println!("[[api_keys]] {name}: {scopes}");
            }
            if let Some(proxy) = &config.sections.proxy {
                println!("[proxy] {}: {}", proxy.backend, proxy.paths.join(", "));
            }
            for source in &config.sections.sources {
                println!("[[source]] {}: {} publishes to {}", source.name, source.kind.name(), source.channel);
            }
            for webhook in &config.sections.webhooks {
                let events: Vec<_> = webhook.events.iter().map(|event| event.as_str()).collect();
                println!("[[webhooks]] {}: {}", webhook.url, events.join(", "));
            }
            ExitCode::SUCCESS
        }
        Err(problems) => complain_all(&problems),
    }
}

/// Prints `docs/configuration.md`.
pub(crate) fn docs() -> ExitCode {
    print!("{}", reference());
    ExitCode::SUCCESS
}

/// One line for each problem.
pub(crate) fn complain_all(problems: &[crate::layers::Problem]) -> ExitCode {
    problems.iter().for_each(|problem| complain(problem));
    ExitCode::from(USAGE)
}

/// The file that `init` writes.
fn template() -> String {
    let defaults = defaults();
    let mut out = String::from("# Settings of encke serve. Each line shows a default; take away its # to change it.\n");
    for group in options::GROUPS {
        let _ = write!(out, "\n# ---- {}\n", group.title);
        for option in group.options {
            let _ = write!(out, "\n# {}\n# {} = {}\n", option.doc, option.name, default_of(option.name, &defaults));
        }
    }
    out
}

/// The text of `docs/configuration.md`.
fn reference() -> String {
    let defaults = defaults();
    let mut out = String::from(INTRODUCTION);
    for group in options::GROUPS {
        let _ =
            write!(out, "\n## {}\n\n| name | default | CometD | meaning |\n| --- | --- | --- | --- |\n", group.title);
        for option in group.options {
            let cometd: Vec<String> = option.cometd.iter().map(|name| format!("`{name}`")).collect();
            let default = default_of(option.name, &defaults);
            let _ = writeln!(out, "| `{}` | `{default}` | {} | {} |", option.name, cometd.join(", "), option.doc);
        }
    }
    out.push_str(CHANNELS);
    out.push_str(options::AUTH);
    out.push_str(API_KEYS);
    out.push_str(PROXY);
    out.push_str(SOURCES);
    out.push_str(WEBHOOKS);
    out.push_str(COMETD);
    let prefixes: Vec<String> = options::PREFIXES.iter().map(|prefix| format!("`{prefix}`")).collect();
    let _ = writeln!(out, "Prefixes: {}.", prefixes.join(", "));
    for (title, list) in [
        ("accepted with a warning, without effect | why", options::IGNORED),
        ("refused | why, or the replacement", options::REFUSED),
    ] {
        let _ = write!(out, "\n| {title} |\n| --- | --- |\n");
        for (name, why) in list {
            let _ = writeln!(out, "| `{name}` | {why} |");
        }
    }
    out
}

fn default_of(name: &str, defaults: &toml::Table) -> Value {
    match name {
        "port" => Value::Integer(i64::from(encke::Settings::default().listen.port())),
        name => defaults[name].clone(),
    }
}

const INTRODUCTION: &str = "# Configuration

<!-- Made by `encke config docs` from crates/encke-cli/src/options.rs; a test compares. -->

`encke serve` runs without any configuration: on loopback, port 8080. Every setting below has one name with three spellings:

| source | spelling | example |
| --- | --- | --- |
| flag | with dashes | `encke serve --timeout-ms 5000` |
| environment | `ENCKE_` and capitals | `ENCKE_TIMEOUT_MS=5000` |
| file | as it is | `timeout_ms = 5000` |

A flag comes before the environment, the environment before the file, the file before the default. The file is TOML:
`--config FILE`, or `ENCKE_CONFIG`, or else `encke.toml` in the working folder if it exists. `--set NAME=VALUE` accepts any
name, also CometD's. In flags and in the environment, commas separate the items of a list: `--transports websocket,long-polling`.
A setting that is `true` or `false` is a switch as a flag: `--timestamps`, `--no-demo`.

- `encke config init` writes a file with every setting and its default.
- `encke config check` reports the errors in a file: line, name, value, and the allowed values.
- `encke config show` shows all effective settings and the source of each.

On SIGHUP the server reads file and environment again and applies the settings that can change while it runs; for the others it logs
that a restart is needed. A file with an error changes nothing.
";

const CHANNELS: &str = "
### Rules for channels

```toml
[[channels]]
pattern = \"/stock/**\"
slow_consumer = \"keep-latest\"   # or \"disconnect\" (the default), \"drop-oldest\"; with the ack extension always \"disconnect\"
slow_consumer_bytes = 65536      # bytes in an outbox from which on the policy drops messages; 0: when the outbox is full
lazy = true                      # messages wait for the next message that is not lazy, or for their time
lazy_timeout_ms = 1000           # 0: lazy_timeout_max_ms
broadcast_to_publisher = false   # overrides the setting of this name
history_messages = 1000          # retained for clients that come later (the replay extension); 0: none
history_ms = 600000              # the time they are retained; 0: 10 minutes
history_bytes = 67108864         # bytes of each channel; 0: 64 MiB
persistent = false               # true: an empty history stays, with its positions, and makes no room for others
presence = false                 # true: who is on each channel is known and announced: docs/presence.md
publishers = \"anyone\"            # or \"users\": sessions with a user; \"server\": only the program itself
subscribers_max = 0              # subscriptions to each channel; 0: no limit
messages_per_s_max = 0           # messages of clients on each channel; 0: no limit
bytes_per_s_max = 0              # their bytes; 0: no limit
```

**Persistent.** CometD sweeps a channel without subscribers and listeners, and a persistent one stays. In Encke a channel without subscribers
costs nothing and loses nothing, so there is nothing to sweep, but for a history: if it is empty, the server removes it after a day, or when
`history_channels_max` is reached. Then a client that comes back with a position gets no answer to the question if it has missed
something. A persistent history stays.

**Lazy** messages do not wake a held connect. They go out with the next message that is not lazy, with the reply to the connect, or when
their time is over; on a WebSocket, too.

**Publishers.** A client that may not publish gets `403:denied_by_security_policy:publish_denied`. The rule is checked before the
application is asked. Services, handles and the HTTP API always publish.

A pattern of a subscription is a separate name: `subscribers_max` of `/game/7` counts the subscriptions to `/game/7`, and not those to
`/game/*`.

### Rates

A rate is a token bucket that holds the tokens of one second: after a pause a client may send a second's worth at once. A message of more bytes
than that needs a full bucket, and the following ones wait for its debt. A message above a rate is answered with `429:LIMIT:rate_exceeded`,
where LIMIT is the name of the setting (`channel_messages_per_s_max` for the rule of a channel), and has no other effect. Its session goes
on. The metrics `encke_session_rates_exceeded`, `encke_user_…`, `encke_address_…`, `encke_channel_…` and `encke_server_rates_exceeded` count
them. Numbers above a limit are answered with `413:LIMIT:subscriptions_max` or `413:LIMIT:sessions_max`.

- **Counted** are publications, messages to services, subscribes and unsubscribes; their bytes are those of the channel, `data`, `ext`,
  `subscription` and custom fields. Connects and disconnects are not counted, because a session lives by them. Handshakes have separate
  rates; a client above one is advised to try again.
- **A limit holds for the whole server**, whatever its number of shards: 100 messages a second for a user are 100 for all its sessions
  together. The shards share one table without locks. It holds `rate_entries_max` rates, 16 bytes each, and takes memory when a rate of users,
  addresses or channels is first used.
  A user, address or channel that has sent nothing for a second needs no entry. If the table is full of others, those that sent least
  are forgotten (`encke_rates_forgotten`): they may send a burst too many, and nobody is refused because of others.
- **The narrowest limit is first**: session, user, address, channel, server. So a session that sends too much does not use up what its
  user, its address or the server may send.
- **The identity of a session may have separate limits** (`messages_per_s_max`, `bytes_per_s_max`, `subscriptions_max`), which replace those of
  the settings for a session.
- **An address** is an IPv4 address or a network of 2^64 IPv6 addresses, because a host has a whole one. Behind a proxy all clients
  have the proxy's address: leave limits by address off there.
- A limit on the sessions or subscriptions of a user counts those that were opened since it was set.
";

const API_KEYS: &str = "
## Keys of the HTTP API

```toml
[[api_keys]]
name = \"backend\"                 # in errors and in `encke config show`
key_file = \"/run/secrets/encke\"  # or key = \"…\", or key_env = \"NAME\": 16 to 1,024 visible ASCII characters
scopes = [\"publish\", \"read\"]    # and \"deliver\", \"manage\", \"metrics\"
```

[http-api.md](http-api.md) describes the operations and the scopes. Keys are only in the file. On SIGHUP the server reads them again: a
key that is not in the file any more is revoked. Without any key only programs on this machine can use the API, and only with
`api_loopback`.
";

const PROXY: &str = "
## A backend behind Encke

```toml
[proxy]
backend = \"http://127.0.0.1:3000\" # the path of a request is appended to it
paths = [\"/\"]                    # these paths and everything below them; / is all that Encke does not answer itself
connect_timeout_ms = 3000          # longest time to connect
timeout_ms = 30000                 # longest time for the whole answer
request_bytes_max = 1048576        # bytes of the body of one request
requests_bytes_max = 67108864      # bytes of all bodies under way; a body of up to 16 KiB has room in any case
response_bytes_max = 8388608       # bytes of the body of one answer
requests_max = 256                 # requests to the backend at the same time; more wait
upgraded_connections_max = 10000   # connections at the same time that speak another protocol, such as WebSockets
keep_alive_ms = 60000              # time after which an unused connection is closed
held_max = 100000                  # responses and streams that are held at the same time
held_bytes_max = 268435456         # bytes of these responses, which are sent at the end of their time
hold_timeout_ms = 55000            # time for which a response is held if the backend names none
hold_timeout_max_ms = 600000       # longest time for which a response is held
hold_channels_max = 16             # channels that one response is held on
```

Encke passes requests to the backend, which may hold its responses by headers: [held-requests.md](held-requests.md). The section is
only in the file, and a change of it needs a restart.
";

const SOURCES: &str = "
## Sources

```toml
[[source]]
kind = \"mail\"                   # or \"quotes\", \"command\", \"file\"
name = \"home\"                   # in logs and metrics; the default is the kind
channel = \"/mail/home\"          # the default of this kind and name
restart_pause_ms = 1000         # the pause after a failure; it doubles with each further one
restart_pause_max_ms = 60000    # the longest pause
host = \"imap.example.org\"       # from here on the settings of the kind
user = \"ann\"
password_file = \"/run/secrets/mail\"
```

A source publishes by itself: new mails of an account, prices, the output of a program, the lines of a growing file.
[sources.md](sources.md) lists the kinds with their settings. Sources are only in the file. On SIGHUP those that are new, gone or
changed start and stop.
";

const WEBHOOKS: &str = "
## Webhooks

```toml
[[webhooks]]
url = \"http://127.0.0.1:3000/encke\"
events = [\"handshake\", \"refresh\", \"opened\", \"ended\", \"subscribe\", \"publish\", \"service\"]
channels = [\"/**\"]                 # the channels and patterns of subscribe, publish and service
secret_file = \"/run/secrets/hook\"  # one secret on each line; or secret = \"whsec_… whsec_…\", or secret_env = \"NAME\"
name = \"\"                          # in logs and metrics; empty: the host of the URL
ca_file = \"/etc/ssl/backend.pem\"   # certificates to trust beside those of the system; the default is none
connect_timeout_ms = 1000           # the longest time to open a connection
request_timeout_ms = 2000           # the longest time of one request
decision_timeout_ms = 4000          # the longest time of a decision with all its retries
call_timeout_ms = 25000             # the longest time of a service call with all its retries
retry_pause_ms = 100                # the first pause before a retry; it doubles each time, less a random part
retry_pause_ms_max = 60000          # the longest such pause, also if the backend asks for more
notification_attempts_max = 100     # requests for a notification of an opened or ended session, before it is dropped
notification_age_ms_max = 3600000   # the age at which such a notification is dropped
response_bytes_max = 1048576        # the longest response
requests_in_flight_max = 64         # requests at the same time
queue_messages_max = 10000          # events that wait or are under way
queue_bytes_max = 16777216          # the bytes of these events
breaker_failures = 5                # failures in a row after which requests pause
breaker_pause_ms = 1000             # this pause; it doubles each time the backend still fails
breaker_pause_ms_max = 30000        # the longest such pause

[webhooks.when_down]                # the decision without an answer of the backend
handshake = \"deny\"                # or \"allow\", \"queue\"; also for refresh
subscribe = \"deny\"                # or \"allow\", \"queue\"
publish = \"deny\"                  # or \"allow\", \"queue\"
service = \"deny\"                  # or \"allow\", \"queue\"
opened = \"queue\"                  # or \"drop\"
ended = \"queue\"                   # or \"drop\"
```

A backend in any language decides about sessions and messages and answers services: see [webhooks.md](webhooks.md). `url`, `events` and a
secret are required; the other values above are the defaults. A webhook decides within the time that the server itself gives a decision
or a call, so its `decision_timeout_ms` and `call_timeout_ms` are at most the settings of these names. Webhooks are only in the
file. They change with a restart.
";

const COMETD: &str = "
## CometD's names

Encke accepts the names of CometD's server options in all three sources, with or without the prefix of a transport. It has one value for all
transports: `ws.timeout` sets `timeout_ms`, and the log has a warning about it. An option without a prefix takes precedence over the same
option with a prefix, and the first of several prefixes over the others. A warning names each value that has no effect. `maxQueue` and `maxMessageSize` of 0
or less mean the default.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_what_the_options_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(stored == reference(), "run: cargo run -p encke-cli -- config docs > docs/configuration.md");
    }

    #[test]
    fn the_file_of_init_holds_every_option_with_its_default() {
        let template = template();
        let is_setting = |line: &str| options::all().any(|option| line.starts_with(&format!("# {} = ", option.name)));
        let text: String =
            template.lines().filter(|line| is_setting(line)).map(|line| format!("{}\n", &line[2..])).collect();
        let mut table: toml::Table = toml::from_str(&text).expect("TOML");
        assert_eq!(table.remove("port"), Some(Value::Integer(8080)));
        assert_eq!(table, defaults());
    }
}
