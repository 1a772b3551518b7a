//! Users with JSON Web Tokens: a login gives a token, a client opens a session with it and refreshes it, a logout revokes it.
//!
//! `cargo run -p encke-auth --example login -- 127.0.0.1:8080` reads `login USER` and `logout TOKEN_ID` from standard input. A client
//! shows the token in its handshake (`ext.auth.token`), and a fresh one on `/service/auth/refresh`: docs/authentication.md.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use encke::{Builder, Call, Data, Handle, Revocation, RevocationError, Server};
use encke_auth::{AuthSettings, Jwt, KeyPair, Secret, SigningKey};
use serde_json::{Value, json};

/// The application, which makes tokens. It may run anywhere: it shares a key with the server, and nothing else.
pub struct Application {
    key: SigningKey,
    tokens: u64,
}

impl Application {
    /// A token of a user, and its id. It opens sessions for this time, which may read all channels, publish on one, and call
    /// one service.
    pub fn login(&mut self, user: &str, time: Duration) -> Result<(String, String), Box<dyn Error>> {
        self.tokens += 1;
        let id = format!("{user}-{}", self.tokens);
        let expires = (SystemTime::now() + time).duration_since(UNIX_EPOCH)?.as_secs();
        let claims = json!({
            "sub": user, "exp": expires, "jti": id, "subscribe": ["/**"], "publish": [&*format!("/home/{user}"), "/service/whoami"],
        });
        Ok((self.key.token(claims.as_object().ok_or("an object")?, None)?, id))
    }
}

/// Revokes a token: its sessions end, and it opens no other.
pub async fn logout(handle: &Handle, token_id: &str) -> Result<Revocation, RevocationError> {
    let day_later = SystemTime::now() + Duration::from_secs(86_400);
    let expires = day_later.duration_since(UNIX_EPOCH).unwrap_or_default();
    handle.revoke(token_id, expires.as_millis() as u64).await
}

/// A server that checks tokens, and the application that makes them.
pub fn server() -> Result<(Builder, Application), Box<dyn Error>> {
    let secret = KeyPair::generate("HS256")?.private;
    let key = SigningKey::of_secret(secret.as_bytes(), None)?;
    let settings = AuthSettings { secret: Some(Secret::new(&secret)), ..AuthSettings::default() };
    let server = Server::builder().authenticate(Jwt::new(&settings)?).service("/service/whoami", whoami);
    Ok((server, Application { key, tokens: 0 }))
}

/// Answers with the user of the session.
async fn whoami(call: Call) -> Data<Value> {
    Data(json!({ "user": call.identity().map(|identity| &*identity.user) }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let (server, mut application) = server()?;
    let running = server.listen(listen).start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    println!("clients connect to http://{}/cometd", running.address());
    for line in std::io::stdin().lines() {
        match line?.split_once(' ') {
            Some(("login", user)) => {
                let (token, id) = application.login(user, Duration::from_secs(900))?;
                println!("{id}: {token}");
            }
            Some(("logout", id)) => {
                let revoked = runtime.block_on(logout(&running.handle(), id))?;
                println!("revoked: {} sessions end", revoked.sessions);
            }
            _ => println!("login USER, or logout TOKEN_ID"),
        }
    }
    running.handle().drain();
    running.join();
    Ok(())
}
