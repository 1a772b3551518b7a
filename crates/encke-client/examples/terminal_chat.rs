//! A chat in the terminal: prints the messages of a channel, and publishes each line that is typed.
//!
//! `encke serve` is a server for it; `cargo run -p encke-client --example terminal_chat -- http://127.0.0.1:8080 alice`

use std::error::Error;

use encke_client::{Client, ReplayFrom};
use serde::{Deserialize, Serialize};

const CHANNEL: &str = "/chat/demo";

#[derive(Serialize, Deserialize)]
struct ChatMessage {
    user: String,
    chat: String,
}

/// Publishes each line, and shows each message, until there are no more lines.
pub async fn chat(
    client: Client,
    user: String,
    lines: impl Iterator<Item = String> + Send + 'static,
    show: impl Fn(String),
) -> Result<(), Box<dyn Error>> {
    let mut messages = client.subscribe(CHANNEL).await?;

    // A clone publishes while this task shows messages. Reading a terminal blocks, so that happens on a thread.
    let (publisher, runtime) = (client.clone(), tokio::runtime::Handle::current());
    std::thread::spawn(move || {
        for chat in lines {
            let message = ChatMessage { user: user.clone(), chat };
            if let Err(error) = runtime.block_on(publisher.publish(CHANNEL, &message)) {
                eprintln!("not published: {error}");
            }
        }
        runtime.block_on(publisher.disconnect())
    });

    // The stream ends when the session does.
    while let Some(item) = messages.next().await {
        match item.map(|message| message.json::<ChatMessage>()) {
            Ok(Ok(ChatMessage { user, chat })) => show(format!("{user}: {chat}")),
            Ok(Err(_)) => {}
            Err(gap) => eprintln!("{gap}"),
        }
    }
    Ok(client.closed().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, user) = (args.next().ok_or("give the URL of a server")?, args.next().ok_or("give your name")?);

    // Breaks lose nothing that the server retains, and a newcomer sees the messages from before.
    let client = Client::builder().ack(true).replay(ReplayFrom::Earliest).connect(&url).await?;
    let typed = std::iter::from_fn(|| std::io::stdin().lines().next()?.ok());
    chat(client, user, typed, |line| println!("{line}")).await
}
