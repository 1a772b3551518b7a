//! An application beside Encke in Rust: names users, protects channels, changes messages and answers a service.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use encke_webhooks::signature::{ID, SIGNATURE, Secret, TIMESTAMP};
use serde_json::{Value, json};

/// True if Encke signed this body at most five minutes ago.
fn is_signed(secret: &Secret, headers: &HeaderMap, body: &[u8]) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let now_s = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let Ok(time_s) = text(TIMESTAMP).parse::<u64>() else { return false };
    now_s.abs_diff(time_s) < 300 && secret.verifies(text(SIGNATURE), text(ID), time_s, body)
}

fn answer(kind: &str, data: &Value) -> Value {
    let (user, channel) = (&data["user"], data["channel"].as_str().unwrap_or_default());
    match kind {
        // The client sends its name in `ext`. A real application checks a password or a cookie here.
        "handshake" => match data["ext"]["name"].as_str() {
            Some(name) if !name.is_empty() => json!({"allow": true, "user": name}),
            _ => json!({"allow": false, "code": 401, "reason": "name_required"}),
        },
        // Everyone may read /public/…, and each user one private channel.
        "subscribe" if channel.starts_with("/public/") => json!({"allow": true}),
        "subscribe" if user.as_str().is_some_and(|user| channel == format!("/private/{user}")) => {
            json!({"allow": true})
        }
        "subscribe" => json!({"allow": false, "reason": "not_yours"}),
        // Adds the publisher to each message.
        "publish" => json!({"allow": true, "data": {"text": data["data"]["text"], "by": user}}),
        // Answers the caller, and publishes to everyone.
        "service" => json!({"reply": {"hello": user},
            "actions": [{"publish": {"channel": "/public/greeted", "data": {"user": user}}}]}),
        _ => json!({}),
    }
}

async fn event(State(secret): State<Arc<Secret>>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    if !is_signed(&secret, &headers, body.as_bytes()) {
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    let event: Value = serde_json::from_str(&body).unwrap_or_default();
    (StatusCode::OK, answer(event["type"].as_str().unwrap_or_default(), &event["data"]).to_string())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = Arc::new(Secret::parse(&std::env::var("WEBHOOK_SECRET")?)?);
    let port = std::env::var("PORT").unwrap_or("3000".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}/", listener.local_addr()?);
    Ok(axum::serve(listener, axum::Router::new().fallback(event).with_state(secret)).await?)
}
