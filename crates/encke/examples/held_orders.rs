//! An ordinary request that waits until an order is complete: `GET /orders/wait/NAME`, answered by the program itself.
//!
//! `cargo run -p encke --example held_orders`, then `curl http://127.0.0.1:8080/orders/wait/tea`, and within 30 seconds publish
//! `{"state":"complete"}` on `/orders/tea`: `encke publish /orders/tea '{"state":"complete"}'`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use encke::{Fallback, FallbackResponse, Handle, Message, Release, RequestBody, ResponseBody, Server};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};

/// Answers the requests below `/orders/wait`.
pub struct Orders(pub Handle);

/// True for the message that completes an order.
fn is_complete(message: Option<&Message>) -> bool {
    message.is_some_and(|message| {
        let order: serde_json::Value = serde_json::from_str(message.data()).expect("orders are JSON");
        order["state"].as_str().expect("an order has a state") == "complete"
    })
}

/// Waits for the order of this name. The wait ends when the client leaves: then this future is dropped.
async fn wait(handle: Handle, name: String) -> (StatusCode, String) {
    let Ok(hold) = handle.hold().on(&format!("/orders/{name}")) else {
        return (StatusCode::BAD_REQUEST, "this is no name of an order\n".into());
    };
    match hold.timeout(Duration::from_secs(30)).until(is_complete).await {
        Ok(Release::Message(message)) => (StatusCode::OK, message.data().into()),
        Ok(_) => (StatusCode::OK, "null".into()),
        Err(panicked) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{panicked}\n")),
    }
}

impl Fallback for Orders {
    fn takes(&self, path: &str) -> bool {
        path.starts_with("/orders/wait/")
    }

    fn answer(&self, request: Request<RequestBody>, _: Option<IpAddr>) -> FallbackResponse {
        let name = request.uri().path().trim_start_matches("/orders/wait/").to_owned();
        let waiting = wait(self.0.clone(), name);
        Box::pin(async move {
            let (status, text) = waiting.await;
            let body: ResponseBody = Full::from(text).map_err(|never| match never {}).boxed_unsync();
            let mut response = Response::new(body);
            *response.status_mut() = status;
            response
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = Server::builder().start()?;
    println!("curl http://{}/orders/wait/tea", running.address());
    let handle = running.handle();
    handle.set_fallback(Some(Arc::new(Orders(handle.clone()))));
    running.join();
    Ok(())
}
