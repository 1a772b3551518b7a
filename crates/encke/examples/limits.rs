//! Limits: on everybody by settings, on a channel by its rule, on a user by the identity that the handshake gives. Each refusal is an
//! error with the name of the limit, such as `429:session_messages_per_s_max:rate_exceeded`, and the session goes on.
//!
//! To run it: `cargo run -p encke --example limits -- 127.0.0.1:8080`

use std::error::Error;

use encke::{Builder, ChannelRule, Handshake, Identity, Refusal, Server, SessionLimits, Settings};

/// The server with its limits.
pub fn server() -> Builder {
    let polls = ChannelRule {
        pattern: "/poll/*".into(),
        // All clients together, on each of these channels.
        messages_per_s_max: 20,
        subscribers_max: 1_000,
        ..ChannelRule::default()
    };
    let settings = Settings {
        channels: vec![polls],
        // One session, unless its identity has other limits.
        session_messages_per_s_max: 5,
        session_bytes_per_s_max: 10_000,
        subscriptions_max: 2,
        // All sessions of a user, or of an address.
        user_messages_per_s_max: 100,
        user_sessions_max: 3,
        address_handshakes_per_s_max: 200,
        address_connections_max: 1_000,
        // All clients.
        messages_per_s_max: 50_000,
        connections_max: 100_000,
        ..Settings::default()
    };
    Server::builder().settings(settings).authenticate(by_plan)
}

/// Gives a client the limits of its plan: `ext` is `{"plan":"gold"}`, or absent. An application would look a token up.
async fn by_plan(handshake: Handshake) -> Result<Identity, Refusal> {
    let is_gold = handshake.ext().is_some_and(|ext| ext.contains("gold"));
    let gold = SessionLimits {
        messages_per_s_max: Some(1_000),
        bytes_per_s_max: Some(1_000_000),
        subscriptions_max: Some(100),
    };
    let limits = if is_gold { gold } else { SessionLimits::default() };
    Ok(Identity { limits, ..Identity::default() })
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server().listen(listen).start()?;
    println!("clients connect to http://{}/cometd", running.address());
    running.join();
    Ok(())
}
