//! The example program, against a real client.

#[expect(dead_code, reason = "its main is not called")]
#[path = "../examples/login.rs"]
mod login;

use std::time::Duration;

use encke_client::{Client, Error, Extension, Outgoing};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

struct Token(String);

impl Extension for Token {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.insert("auth".into(), json!({ "token": self.0 }));
        }
    }
}

#[tokio::test]
async fn a_login_opens_a_session_a_refresh_prolongs_it_and_a_logout_ends_it() {
    let (server, mut application) = login::server().expect("a server");
    let running = server.listen(([127, 0, 0, 1], 0).into()).start().expect("starts");
    let url = format!("http://{}", running.address());
    let with = |token: &str| Client::builder().reconnect(false).extension(Token(token.into())).connect(&url);
    let (token, _) = application.login("alice", MINUTE).expect("a token");
    let client = with(&token).await.expect("accepted");
    let whoami: Value = client.request("/service/whoami", &json!({})).await.expect("answered").json().expect("JSON");
    assert_eq!(whoami, json!({"user": "alice"}));
    client.publish("/home/alice", &1).await.expect("allowed by the token");
    client.publish("/home/bob", &1).await.expect_err("not allowed by the token");
    let (fresh, id) = application.login("alice", 2 * MINUTE).expect("a token");
    let answer = client.request("/service/auth/refresh", &json!({ "token": fresh })).await.expect("refreshed");
    let expires_in_ms = answer.json::<Value>().expect("JSON")["expires_in_ms"].as_u64().expect("a number");
    assert!(expires_in_ms > MINUTE.as_millis() as u64, "{expires_in_ms}");
    assert_eq!(login::logout(&running.handle(), &id).await.expect("revoked").sessions, 1);
    let ended = client.closed().await.expect_err("revoked").to_string();
    assert!(ended.contains("token_revoked"), "{ended}");
    for (bad, reason) in [(fresh.as_str(), "token_revoked"), ("guess", "token_malformed")] {
        let Err(Error::Refused(refusal)) = with(bad).await else { panic!("{reason}") };
        assert_eq!(refusal.error, format!("401:{reason}:handshake_denied"));
    }
    running.handle().drain();
    running.join();
}
