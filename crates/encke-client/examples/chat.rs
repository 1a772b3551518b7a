//! A chat in the terminal: prints the messages of a channel, and publishes each line that is typed.
//!
//! ```text
//! encke serve &
//! cargo run -p encke-client --example chat -- http://127.0.0.1:8080 alice
//! ```

use std::error::Error;

use encke_client::{Client, ReplayFrom};
use serde::{Deserialize, Serialize};

const CHANNEL: &str = "/chat/demo";

#[derive(Serialize, Deserialize)]
struct ChatMessage {
    user: String,
    chat: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("http://127.0.0.1:8080".into());
    let user = args.next().unwrap_or("anonymous".into());

    // Breaks lose nothing that the server retains, and a newcomer sees the messages from before.
    let client = Client::builder().ack(true).replay(ReplayFrom::Earliest).connect(&url).await?;
    let mut messages = client.subscribe(CHANNEL).await?;

    // A clone publishes while this task prints. Reading a terminal blocks, so that happens on a thread.
    let publisher = client.clone();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let message = ChatMessage { user: user.clone(), chat: line };
            if let Err(error) = runtime.block_on(publisher.publish(CHANNEL, &message)) {
                eprintln!("not published: {error}");
            }
        }
        runtime.block_on(publisher.disconnect())
    });

    // The stream ends when the session does.
    while let Some(item) = messages.next().await {
        match item.map(|message| message.json::<ChatMessage>()) {
            Ok(Ok(ChatMessage { user, chat })) => println!("{user}: {chat}"),
            Ok(Err(_)) => {}
            Err(gap) => eprintln!("{gap}"),
        }
    }
    Ok(client.closed().await?)
}
