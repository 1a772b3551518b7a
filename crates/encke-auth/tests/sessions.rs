//! Real servers with `[auth]`: clients with good tokens, and with every bad one, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use encke::{Raw, Running, Server, Settings};
use encke_auth::{AuthSettings, Jwt, KeyPair, Secret, SigningKey};
use encke_client::{Client, ClientBuilder, Error, Extension, Outgoing, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const TRANSPORTS: [Transport; 2] = [Transport::WebSocket, Transport::LongPolling];

/// Puts a token into the `ext` of handshakes.
struct InExt(Arc<str>);

impl Extension for InExt {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.insert("auth".into(), json!({"token": &*self.0}));
        }
    }
}

fn settings() -> Settings {
    Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        drain_timeout_ms: 100,
        drain_spread_ms: 20,
        shards: 1,
        ..Settings::default()
    }
}

fn start(auth: AuthSettings) -> Running {
    start_with(settings(), auth)
}

fn start_with(settings: Settings, auth: AuthSettings) -> Running {
    let jwt = Jwt::new(&auth).expect("good settings");
    Server::builder().settings(settings).authenticate(jwt).start().expect("starts")
}

fn end(running: Running) {
    running.handle().drain();
    running.join();
}

fn with_secret() -> AuthSettings {
    AuthSettings { secret: Some(Secret::new(SECRET)), ..AuthSettings::default() }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn token(more: Value) -> String {
    let mut claims = json!({"sub": "alice", "exp": now_s() + 600}).as_object().expect("an object").clone();
    claims.extend(more.as_object().expect("an object").clone());
    let key = SigningKey::of_secret(SECRET.as_bytes(), None).expect("a key");
    key.token(&claims, None).expect("a token")
}

fn client(transport: Transport) -> ClientBuilder {
    Client::builder().transport(transport).reconnect(false)
}

async fn connect(running: &Running, builder: ClientBuilder) -> Result<Client, Error> {
    builder.connect(&format!("http://{}", running.address())).await
}

async fn with_token(running: &Running, transport: Transport, token: &str) -> Result<Client, Error> {
    connect(running, client(transport).extension(InExt(token.into()))).await
}

/// The error of a handshake that is refused, such as `401:token_expired:handshake_denied`.
async fn refusal(running: &Running, transport: Transport, token: &str) -> String {
    match with_token(running, transport, token).await {
        Err(Error::Refused(refusal)) => refusal.error,
        other => panic!("{other:?}"),
    }
}

/// The answer to a handshake, by a client that does not try again.
async fn handshake(running: &Running, token: &str) -> String {
    let message = json!([{
        "channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"],
        "ext": {"token": token},
    }]);
    post(running, "", &message.to_string()).await
}

/// The answer to a request with these lines in its head.
async fn post(running: &Running, lines: &str, body: &str) -> String {
    let head = format!(
        "POST /cometd HTTP/1.1\r\nhost: {}\r\n{lines}content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        running.address(),
        body.len()
    );
    let mut stream = TcpStream::connect(running.address()).await.expect("a connection");
    stream.write_all((head + body).as_bytes()).await.expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    answer
}

#[tokio::test]
async fn a_token_opens_a_session_from_each_of_its_sources() {
    let settings = AuthSettings { token_cookie: "jwt".into(), token_query: "access_token".into(), ..with_secret() };
    let running = start(settings);
    let good = token(json!({}));
    for transport in TRANSPORTS {
        let bearer = client(transport).header("authorization", &format!("Bearer {good}"));
        let cookie = client(transport).header("cookie", &format!("a=b; jwt={good}"));
        let in_ext = client(transport).extension(InExt(good.as_str().into()));
        for builder in [bearer, cookie, in_ext] {
            let client = connect(&running, builder).await.expect("accepted");
            client.subscribe("/news/a").await.expect("subscribes");
            client.disconnect().await.expect("disconnects");
        }
        let missing = connect(&running, client(transport)).await.expect_err("no token");
        assert!(missing.to_string().contains("401:token_missing:handshake_denied"), "{missing}");
    }
    let url = format!("http://{}/cometd?access_token={good}", running.address());
    client(Transport::WebSocket).connect(&url).await.expect("accepted by its query");
    end(running);
}

/// Programs in PHP write slashes so.
#[tokio::test]
async fn a_bearer_token_is_found_however_the_channel_of_the_handshake_is_written() {
    let running = start(with_secret());
    let line = format!("authorization: Bearer {}\r\n", token(json!({})));
    for channel in [r"\/meta\/handshake", r"\u002fmeta/handshake"] {
        let answer = post(&running, &line, &format!(r#"[{{"channel":"{channel}","version":"1.0"}}]"#)).await;
        assert!(answer.contains(r#""successful":true"#), "{answer}");
    }
    end(running);
}

#[tokio::test]
async fn a_bad_token_is_refused_with_its_reason_and_the_neighbour_does_not_notice() {
    let running = start(AuthSettings { audience: vec!["push".into()], ..with_secret() });
    let good = token(json!({"aud": "push"}));
    let neighbour = with_token(&running, Transport::WebSocket, &good).await.expect("accepted");
    let mut news = neighbour.subscribe("/news").await.expect("subscribes");
    let other = SigningKey::of_secret(&[7; 32], None).expect("a key");
    let claims = json!({"sub": "alice", "exp": now_s() + 600, "aud": "push"});
    let claims = claims.as_object().expect("an object");
    let rsa = KeyPair::generate("RS256").expect("a pair");
    let rsa = SigningKey::of_pem(rsa.private.as_bytes(), None).expect("a key");
    let (_, rest) = good.split_once('.').expect("parts");
    let cases = [
        // {"alg":"none"}
        (format!("eyJhbGciOiJub25lIn0.{rest}"), "token_unsigned"),
        (rsa.token(claims, None).expect("a token"), "token_algorithm_refused"),
        (other.token(claims, None).expect("a token"), "token_signature_wrong"),
        (token(json!({"aud": "push", "exp": now_s() - 60})), "token_expired"),
        (token(json!({"aud": "push", "nbf": now_s() + 60})), "token_not_yet_valid"),
        (token(json!({"aud": "shop"})), "token_audience_refused"),
        (token(json!({"aud": "push", "subscribe": 7})), "token_claim_wrong"),
        (token(json!({"aud": "push", "padding": "x".repeat(10_000)})), "token_too_long"),
        ("garbage".into(), "token_malformed"),
    ];
    for (token, reason) in &cases {
        for transport in TRANSPORTS {
            let error = refusal(&running, transport, token).await;
            assert_eq!(error, format!("401:{reason}:handshake_denied"), "{transport:?}");
        }
    }
    // Longer than any message may be.
    let huge = token(json!({"padding": "x".repeat(1024 * 1024)}));
    for transport in TRANSPORTS {
        assert!(with_token(&running, transport, &huge).await.is_err());
    }
    running.handle().publish("/news", "1").expect("published");
    let message = news.next().await.expect("the session is open").expect("no gap");
    assert_eq!(message.json::<u32>().expect("a number"), 1);
    end(running);
}

#[tokio::test]
async fn a_token_limits_the_channels_of_its_session() {
    let running = start(with_secret());
    let token = token(json!({"subscribe": ["/news/**"], "publish": ["/chat/alice"]}));
    for transport in TRANSPORTS {
        let client = with_token(&running, transport, &token).await.expect("accepted");
        client.subscribe("/news/**").await.expect("allowed");
        client.subscribe("/news/a").await.expect("allowed");
        for channel in ["/**", "/orders", "/newsletter"] {
            let error = client.subscribe(channel).await.expect_err(channel).to_string();
            assert!(error.contains("subscribe_denied"), "{error}");
        }
        client.publish("/chat/alice", &1).await.expect("allowed");
        let error = client.publish("/chat/bob", &1).await.expect_err("not allowed").to_string();
        assert!(error.contains("publish_denied"), "{error}");
    }
    end(running);
}

#[tokio::test]
async fn nobody_opens_a_session_only_where_it_is_configured() {
    let running = start(AuthSettings {
        anonymous: true,
        anonymous_subscribe: Some(vec!["/public/**".into()]),
        anonymous_publish: Some(Vec::new()),
        ..with_secret()
    });
    for transport in TRANSPORTS {
        let client = connect(&running, client(transport)).await.expect("accepted");
        client.subscribe("/public/a").await.expect("allowed");
        assert!(client.subscribe("/private").await.is_err());
        assert!(client.publish("/public/a", &1).await.is_err());
        assert_eq!(refusal(&running, transport, "bad").await, "401:token_malformed:handshake_denied");
    }
    end(running);
}

#[tokio::test]
async fn handshakes_wait_for_keys_that_do_not_come_and_the_neighbour_does_not_notice() {
    // A server that accepts and does not answer.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let pair = KeyPair::generate("EdDSA").expect("a pair");
    let key = SigningKey::of_pem(pair.private.as_bytes(), None).expect("a key");
    let running = start(AuthSettings {
        jwks_url: Some(format!("http://{}/keys", silent.local_addr().expect("an address")).into()),
        jwks_timeout_ms: 60_000,
        ..with_secret()
    });
    let neighbour = with_token(&running, Transport::WebSocket, &token(json!({}))).await.expect("accepted");
    let mut news = neighbour.subscribe("/news").await.expect("subscribes");
    let claims = json!({"sub": "bob", "exp": now_s() + 600});
    let waiting = key.token(claims.as_object().expect("an object"), key.kid().as_deref()).expect("a token");
    let mut refused = Box::pin(handshake(&running, &waiting));
    let meanwhile = async {
        let request = silent.accept().await.expect("a request for keys");
        running.handle().publish("/news", "1").expect("published");
        news.next().await.expect("the session is open").expect("no gap");
        request
    };
    // The message comes while the other handshake waits: it is the first to be ready.
    let request = tokio::select! {
        answer = &mut refused => panic!("the handshake did not wait: {answer}"),
        request = meanwhile => request,
    };
    drop((request, silent));
    let answer = refused.await;
    assert!(answer.contains(r#""error":"503:token_keys_unavailable:handshake_denied""#), "{answer}");
    // The client may try again.
    assert!(answer.contains(r#""reconnect":"handshake""#), "{answer}");
    end(running);
}

#[tokio::test]
async fn a_client_is_notified_and_refreshes_its_session_or_loses_it() {
    let settings = Settings { auth_expiry_notice_ms: 4_000, ..settings() };
    let running = start_with(settings, AuthSettings { leeway_s: 0, ..with_secret() });
    let [one, other] = TRANSPORTS;
    tokio::join!(refreshed_or_lost(&running, one), refreshed_or_lost(&running, other));
    end(running);
}

/// Two sessions with a short token: one is refreshed and goes on, the other one ends.
async fn refreshed_or_lost(running: &Running, transport: Transport) {
    let short = token(json!({"exp": now_s() + 8, "subscribe": ["/news", "/old"]}));
    let session = with_token(running, transport, &short).await.expect("accepted");
    let lost = with_token(running, transport, &short).await.expect("accepted");
    let mut notices = session.listen("/service/auth/expiring").await.expect("listens");
    let mut news = session.subscribe("/news").await.expect("allowed");
    let _old = session.subscribe("/old").await.expect("allowed");

    let notice: Value = notices.next().await.expect("open").expect("no gap").json().expect("JSON");
    assert!(notice["expires_in_ms"].as_u64().is_some_and(|left_ms| left_ms <= 4_000), "{notice}");

    let refresh = async |token: &str| session.request("/service/auth/refresh", &json!({"token": token})).await;
    for (bad, reason) in [
        (token(json!({"sub": "bob"})), "403:token_of_another_user:refresh_denied"),
        (token(json!({"exp": 5})), "401:token_expired:refresh_denied"),
        ("garbage".into(), "401:token_malformed:refresh_denied"),
    ] {
        let error = refresh(&bad).await.expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    let answer = refresh(&token(json!({"subscribe": ["/news"]}))).await.expect("refreshed");
    let answer: Value = answer.json().expect("JSON");
    assert_eq!(answer["unsubscribed"], json!(["/old"]), "{answer}");
    assert!(answer["expires_in_ms"].as_u64().is_some_and(|left_ms| left_ms > 60_000), "{answer}");

    let error = lost.closed().await.expect_err("its token has ended").to_string();
    assert!(error.contains("401::token_expired"), "{error}");
    running.handle().publish("/news", "1").expect("published");
    news.next().await.expect("the refreshed session is open").expect("no gap");
}

#[tokio::test]
async fn a_revoked_token_opens_no_session_and_its_sessions_end() {
    let running = start(with_secret());
    let (stolen, other) = (token(json!({"jti": "stolen"})), token(json!({"jti": "other"})));
    for transport in TRANSPORTS {
        let mine = with_token(&running, transport, &other).await.expect("accepted");
        let theirs = match transport {
            Transport::WebSocket => Some(with_token(&running, transport, &stolen).await.expect("accepted")),
            _ => None,
        };
        running.handle().revoke("stolen", (now_s() + 600) * 1_000).await.expect("revoked");
        if let Some(theirs) = theirs {
            let error = theirs.closed().await.expect_err("revoked").to_string();
            assert!(error.contains("401::token_revoked"), "{error}");
        }
        assert_eq!(refusal(&running, transport, &stolen).await, "401:token_revoked:handshake_denied");
        mine.subscribe("/news").await.expect("the other session is open");
    }
    end(running);
}

#[tokio::test]
async fn the_claim_for_publications_covers_services_but_the_refresh_of_the_own_session() {
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let service = move || {
        called.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Raw("\"called\"".to_owned()))
    };
    let jwt = Jwt::new(&with_secret()).expect("good settings");
    let server = Server::builder().settings(settings()).authenticate(jwt).service("/service/demo/*", service);
    let running = server.start().expect("starts");
    for transport in TRANSPORTS {
        for (publish, may) in [
            (json!([]), false),
            (json!(["/demo/**"]), false),
            (json!(["/service/demo/members"]), true),
            (json!("/service/**"), true),
        ] {
            let before = calls.load(Ordering::Relaxed);
            let client = with_token(&running, transport, &token(json!({"publish": publish}))).await.expect("accepted");
            match client.request("/service/demo/members", &json!({"room": "/demo/chat/lobby", "user": "eve"})).await {
                Ok(_) => assert!(may, "{publish}"),
                Err(error) => assert!(!may && error.to_string().contains("403::publish_denied"), "{publish}: {error}"),
            }
            assert_eq!(calls.load(Ordering::Relaxed) - before, usize::from(may), "{publish}");
            let fresh = json!({"token": token(json!({"publish": publish}))});
            client.request("/service/auth/refresh", &fresh).await.expect("refreshed");
        }
    }
    end(running);
}

#[tokio::test]
async fn a_session_from_before_the_tokens_does_not_come_back_under_them() {
    let folder = std::env::temp_dir().join(format!("encke-auth-policy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let keeping = || Settings { data: folder.to_string_lossy().into_owned(), ..settings() };
    let issued = |issuer: &str| AuthSettings { issuer: vec![issuer.into()], ..with_secret() };
    let other_key = AuthSettings { secret: Some(Secret::new("another secret of thirty-two bytes")), ..issued("b") };
    // The servers that follow each other on one directory, and the sessions of the one before that come back. Where none does,
    // one is opened.
    let servers = [
        (None, 0),
        (None, 1),
        (Some(issued("a")), 0),
        (Some(issued("a")), 1),
        (Some(issued("b")), 0),
        (Some(other_key), 1),
        (None, 0),
    ];
    for (number, (auth, restored)) in servers.into_iter().enumerate() {
        let issuer = auth.as_ref().map_or("", |auth| &auth.issuer[0]).to_owned();
        let running = match auth {
            Some(auth) => start_with(keeping(), auth),
            None => Server::builder().settings(keeping()).start().expect("starts"),
        };
        assert_eq!(running.handle().sessions(), restored, "server {number}");
        if restored == 0 {
            let answer = handshake(&running, &token(json!({"iss": issuer}))).await;
            assert!(answer.contains(r#""successful":true"#), "{answer}");
        }
        end(running);
    }
    std::fs::remove_dir_all(&folder).expect("gone");
}
