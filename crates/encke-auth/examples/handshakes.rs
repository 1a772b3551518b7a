//! Handshakes of one shard, with and without tokens: the number that a second of its processor serves. Prints a page;
//! `make bench-tokens` writes it to docs/benchmarks/tokens.md.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use encke::{Server, Settings};
use encke_auth::{AuthSettings, Jwt, KeyPair, Secret, SigningKey};

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const CONNECTIONS: usize = 8;
const MEASURED: Duration = Duration::from_secs(3);

/// The measurements of each kind, whose median counts.
const ROUNDS: usize = 3;
/// The kinds of tokens, each with the least rate that Encke promises.
const KINDS: [(Option<&str>, &str, &str); 5] = [
    (None, "none, no `[auth]`", ""),
    (Some("EdDSA"), "EdDSA", "5000"),
    (Some("ES256"), "ES256", ""),
    (Some("RS256"), "RS256 (2,048 bits)", ""),
    (Some("HS256"), "HS256", ""),
];

fn main() {
    let mut rates = [const { Vec::new() }; KINDS.len()];
    for _ in 0..ROUNDS {
        for ((algorithm, ..), rates) in KINDS.iter().zip(&mut rates) {
            rates.push(measure(*algorithm));
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    print!(
        "# Handshakes with tokens

Made by `make bench-tokens`. The server has one shard. Eight connections open sessions over HTTP, one after another, as fast as they get
answers. The figures are handshakes for each second of processor time of the shard, which other work on the machine does not change much.
The keys are in a set of keys (JWKS), but for HS256; each token has claims for channels. Medians of {ROUNDS} rounds.

| token | handshakes/s of a core | promised | ÷ without |
| --- | ---: | ---: | ---: |
"
    );
    for ((_, name, promised), median) in KINDS.iter().zip(medians) {
        println!("| {name} | {median:.0} | {promised} | {:.2} |", median / medians[0]);
    }
}

/// The handshakes in one second of the shard's processor.
fn measure(algorithm: Option<&str>) -> f64 {
    let settings =
        Settings { listen: ([127, 0, 0, 1], 0).into(), shards: 1, drain_timeout_ms: 100, ..Settings::default() };
    let server = Server::builder().settings(settings);
    let (server, ext) = match algorithm {
        Some(algorithm) => {
            let (auth, token) = issuer(algorithm);
            (
                server.authenticate(Jwt::new(&auth).expect("good settings")),
                format!(r#","ext":{{"auth":{{"token":"{token}"}}}}"#),
            )
        }
        None => (server, String::new()),
    };
    let running = server.start().expect("starts");
    let body = format!(
        r#"[{{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket","long-polling"]{ext}}}]"#
    );
    let (address, done, count) = (running.address(), AtomicBool::new(false), AtomicU64::new(0));
    let rate = thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| repeat(address, &body, &done, &count));
        }
        thread::sleep(Duration::from_millis(300));
        let (before, used) = (count.load(Ordering::Relaxed), processor_s());
        thread::sleep(MEASURED);
        let rate = (count.load(Ordering::Relaxed) - before) as f64 / (processor_s() - used);
        done.store(true, Ordering::Relaxed);
        rate
    });
    running.handle().drain();
    running.join();
    rate
}

/// Settings with a key, and a token that it signed.
fn issuer(algorithm: &str) -> (AuthSettings, String) {
    let pair = KeyPair::generate(algorithm).expect("a pair");
    let (settings, key) = match &pair.jwks {
        Some(jwks) => {
            let path = std::env::temp_dir().join(format!("encke-handshakes-{}.json", std::process::id()));
            fs::write(&path, jwks).expect("a file");
            let settings = AuthSettings { jwks_file: Some(path), ..AuthSettings::default() };
            (settings, SigningKey::of_pem(pair.private.as_bytes(), Some(algorithm)))
        }
        None => {
            let settings = AuthSettings { secret: Some(Secret::new(SECRET)), ..AuthSettings::default() };
            (settings, SigningKey::of_secret(SECRET.as_bytes(), Some(algorithm)))
        }
    };
    let claims = serde_json::json!({
        "sub": "alice", "exp": 4_102_444_800_u64, "jti": "1", "subscribe": ["/news/**"], "publish": ["/chat/alice"],
    });
    let key = key.expect("a key");
    let token = key.token(claims.as_object().expect("an object"), key.kid().as_deref()).expect("a token");
    (settings, token)
}

/// Handshakes over one connection, one after another.
fn repeat(address: SocketAddr, body: &str, done: &AtomicBool, count: &AtomicU64) {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut reader = BufReader::new(stream);
    let request = format!(
        "POST /cometd HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = Vec::new();
    while !done.load(Ordering::Relaxed) {
        reader.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).expect("a head") > 0, "the server has closed the connection");
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
        }
        answer.resize(length, 0);
        reader.read_exact(&mut answer).expect("a body");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(r#""successful":true"#), "{text}");
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The time that the shard's thread has used the processor, in seconds.
fn processor_s() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let mut shards =
        tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("shard-")));
    let stat = fs::read_to_string(shards.next().expect("a shard").path().join("schedstat")).expect("its times");
    // The first number: nanoseconds on the processor.
    stat.split(' ').next().and_then(|number| number.parse::<f64>().ok()).expect("a number") / 1e9
}
