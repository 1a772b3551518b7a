//! Remote calls: a client asks, the server looks something up and answers. The address book is behind a wait, as a
//! database would be.
//!
//! To run it: `cargo run -p encke --example remote_call -- 127.0.0.1:8080`

use std::error::Error;
use std::time::Duration;

use encke::{Builder, Data, Failure, Server, with_timeout};
use serde::{Deserialize, Serialize};

/// A question for the contacts of a user.
#[derive(Deserialize)]
struct Question {
    user: String,
}

/// A contact.
#[derive(Serialize)]
struct Contact {
    name: &'static str,
    telephone: &'static str,
}

/// The server with the service.
pub fn server() -> Builder {
    Server::builder().service("/service/contacts", with_timeout(Duration::from_secs(1), contacts))
}

/// Answers with the contacts of a user, or with a failure.
async fn contacts(Data(question): Data<Question>) -> Result<Data<Vec<Contact>>, Failure> {
    if question.user.is_empty() {
        return Err(Failure::new("no_user", "whose contacts?"));
    }
    Ok(Data(look_up(&question.user).await))
}

/// The database. Its answer takes a moment; nobody waits for it but the caller.
async fn look_up(user: &str) -> Vec<Contact> {
    match user {
        "ann" => {
            tokio::time::sleep(Duration::from_millis(5)).await;
            vec![Contact { name: "bob", telephone: "555-0100" }, Contact { name: "cid", telephone: "555-0101" }]
        }
        // This one hangs: the caller gets a failure of the class `timeout`.
        "zoe" => std::future::pending().await,
        _ => Vec::new(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server().listen(listen).start()?;
    println!("ask /service/contacts on http://{}/cometd", running.address());
    running.join();
    Ok(())
}
