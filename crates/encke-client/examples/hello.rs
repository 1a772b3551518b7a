//! The first steps of the server's start page: `cargo run -p encke-client --example hello`.

use encke_client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), encke_client::Error> {
    let client = Client::connect("http://127.0.0.1:8080").await?;
    let mut messages = client.subscribe("/demo/hello").await?;
    client.publish("/demo/hello", "hi from Rust").await?;
    while let Some(Ok(message)) = messages.next().await {
        println!("{}", message.data());
    }
    Ok(())
}
