//! Sets of keys from servers that are gone, slow, huge, or redirect for ever: tokens are refused, and old keys go on.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use encke_auth::{AuthSettings, Jwt, KeyPair, SigningKey, TokenError};
use serde_json::json;

/// The answer of a server to its next requests.
#[derive(Clone)]
enum Answer {
    Text(String),
    Silence,
    Endless,
}

/// A server whose answer can be changed: its URL, the answer, the number of requests.
fn server(first: Answer) -> (String, Arc<Mutex<(Answer, usize)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/keys", listener.local_addr().expect("an address"));
    let state = Arc::new(Mutex::new((first, 0)));
    let shared = state.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = shared.clone();
            thread::spawn(move || serve(stream, &state));
        }
    });
    (url, state)
}

fn serve(stream: TcpStream, state: &Mutex<(Answer, usize)>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let answer = {
        let mut state = state.lock().expect("unpoisoned");
        state.1 += 1;
        state.0.clone()
    };
    let stream = reader.get_mut();
    match answer {
        Answer::Text(text) => _ = stream.write_all(text.as_bytes()),
        Answer::Silence => _ = std::io::copy(&mut reader, &mut std::io::sink()),
        Answer::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"keys\":[");
            while stream.write_all(&[b' '; 65_536]).is_ok() {}
        }
    }
}

fn ok(body: &str) -> Answer {
    Answer::Text(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()))
}

struct Issuer {
    jwks: String,
    token: String,
}

fn issuer() -> Issuer {
    let pair = KeyPair::generate("EdDSA").expect("a pair");
    let key = SigningKey::of_pem(pair.private.as_bytes(), None).expect("a key");
    let claims = json!({"sub": "alice", "exp": 4_102_444_800_u64});
    let token = key.token(claims.as_object().expect("an object"), key.kid().as_deref()).expect("a token");
    Issuer { jwks: pair.jwks.expect("a set"), token }
}

/// Asks for keys at each token, so that a test need not wait.
fn eager(url: &str) -> Jwt {
    let settings = AuthSettings {
        jwks_url: Some(url.into()),
        jwks_refresh_min_s: 0,
        jwks_max_age_s: 0,
        jwks_timeout_ms: 300,
        jwks_bytes_max: 10_000,
        ..AuthSettings::default()
    };
    Jwt::new(&settings).expect("good settings")
}

fn hostile() -> Vec<(&'static str, Answer)> {
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /keys\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"keys\":";
    vec![
        ("slow", Answer::Silence),
        ("huge", Answer::Endless),
        ("redirects for ever", Answer::Text(redirect.into())),
        ("closes in the middle", Answer::Text(part.into())),
        ("closes at once", Answer::Text(String::new())),
        ("garbage", Answer::Text("SSH-2.0-OpenSSH\r\n\r\n".into())),
        ("an error", Answer::Text("HTTP/1.1 500 Oops\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}".into())),
        ("a page", ok("<html>")),
        ("too many keys", ok(&format!("{{\"keys\":[{}]}}", vec!["{}"; 65].join(",")))),
    ]
}

#[tokio::test]
async fn a_token_is_refused_for_now_while_no_keys_can_be_had() {
    let issuer = issuer();
    for (name, answer) in hostile() {
        let (url, state) = server(answer);
        let jwt = eager(&url);
        assert_eq!(jwt.verify(&issuer.token).await, Err(TokenError::KeysUnavailable), "{name}");
        state.lock().expect("unpoisoned").0 = ok(&issuer.jwks);
        assert!(jwt.verify(&issuer.token).await.is_ok(), "after {name}");
    }
}

#[tokio::test]
async fn old_keys_go_on_while_the_server_misbehaves() {
    let issuer = issuer();
    for (name, answer) in hostile() {
        let (url, state) = server(ok(&issuer.jwks));
        let jwt = eager(&url);
        assert!(jwt.verify(&issuer.token).await.is_ok(), "before {name}");
        state.lock().expect("unpoisoned").0 = answer;
        assert!(jwt.verify(&issuer.token).await.is_ok(), "{name}");
        assert!(state.lock().expect("unpoisoned").1 >= 2, "{name}: the set was asked for again");
    }
}

#[tokio::test]
async fn a_new_key_is_found_and_an_unknown_one_is_refused() {
    let (old, new) = (issuer(), issuer());
    let (url, state) = server(ok(&old.jwks));
    let settings =
        AuthSettings { jwks_url: Some(url.clone().into()), jwks_refresh_min_s: 0, ..AuthSettings::default() };
    let jwt = Jwt::new(&settings).expect("good settings");
    assert!(jwt.verify(&old.token).await.is_ok());
    assert_eq!(jwt.verify(&new.token).await.expect_err("unknown").reason(), "token_key_unknown");
    state.lock().expect("unpoisoned").0 = ok(&new.jwks);
    assert!(jwt.verify(&new.token).await.is_ok());
    assert_eq!(jwt.verify(&old.token).await.expect_err("gone").reason(), "token_key_unknown");
}

#[tokio::test]
async fn a_set_that_was_had_and_has_no_key_withdraws_all() {
    let issuer = issuer();
    let symmetric = r#"{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}]}"#;
    for set in [r#"{"keys":[]}"#, symmetric] {
        let (url, state) = server(ok(&issuer.jwks));
        let jwt = eager(&url);
        assert!(jwt.verify(&issuer.token).await.is_ok());
        state.lock().expect("unpoisoned").0 = ok(set);
        assert!(jwt.verify(&issuer.token).await.is_err_and(|error| error.reason() != "token_keys_unavailable"));
        state.lock().expect("unpoisoned").0 = ok(&issuer.jwks);
        assert!(jwt.verify(&issuer.token).await.is_ok(), "it comes back with the set");
    }
}
