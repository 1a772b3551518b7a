//! An ordinary request that waits until an order is complete: `GET /orders/wait/NAME`, answered by the program itself.
//!
//! `cargo run -p encke --example held_orders`, then `curl http://127.0.0.1:8080/orders/wait/tea`, and within 30 seconds publish
//! `{"state":"complete"}` on `/orders/tea`: `encke publish /orders/tea '{"state":"complete"}'`.

use std::time::Duration;

use encke::{Builder, ConditionPanicked, Message, Raw, Release, RouteRequest, Server, SubscribeError};
use serde_json::{Value, from_str};

/// The server with its route.
pub fn server() -> Builder {
    Server::builder().route("/orders/wait/*", wait)
}

/// Waits for the order of this name. The wait ends when the client leaves: then this future is dropped.
async fn wait(request: RouteRequest) -> Result<Result<Raw, ConditionPanicked>, SubscribeError> {
    let hold = request.hold().on(&format!("/orders/{}", request.last_segment()))?;
    let release = hold.timeout(Duration::from_secs(30)).until(is_complete).await;
    Ok(release.map(|release| match release {
        Release::Message(message) => Raw(message.data().into()),
        _ => Raw("null".into()),
    }))
}

/// True for the message that completes an order.
fn is_complete(message: Option<&Message>) -> bool {
    message.is_some_and(|message| from_str(message.data()).is_ok_and(|order: Value| order["state"] == "complete"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = server().start()?;
    println!("curl http://{}/orders/wait/tea", running.address());
    running.join();
    Ok(())
}
