//! An order service: a client sends an order to `/service/order` and gets a reply, as with the request/reply server of
//! "Scaling Node.js" (2012), whose clients are `encke bench request-reply`:
//!
//! ```text
//! cargo run --release -p encke --example order_service -- 127.0.0.1:8080
//! encke bench request-reply --target http://127.0.0.1:8080/cometd --channel /service/order
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke::{AppState, Builder, Call, Data, Failure, Raw, Server};
use serde::{Deserialize, Serialize};
use serde_json::from_str;

/// An order of several executions.
#[derive(Deserialize)]
pub struct Order {
    /// Its number at the client.
    pub request: u64,
    /// The client's time, which the reply returns.
    pub timestamp: u64,
    /// The executions.
    #[serde(default)]
    pub execs: Vec<Exec>,
}

/// One execution.
#[derive(Deserialize)]
pub struct Exec {
    /// The symbol of a share.
    pub symbol: String,
    /// The number of shares.
    pub qty: u32,
}

/// The reply.
#[derive(Serialize)]
pub struct Receipt {
    request: u64,
    timestamp: u64,
    /// The number that the service gives it.
    order: u64,
    shares: u64,
}

/// The server with the service. `counter` counts orders.
pub fn server(counter: Arc<AtomicU64>) -> Builder {
    Server::builder().state(counter).service("/service/order", order)
}

/// Answers an order. The load sends a text instead of an order, and gets it back.
async fn order(call: Call, AppState(orders): AppState<Arc<AtomicU64>>, Raw(data): Raw) -> Result<Reply, Failure> {
    let number = orders.fetch_add(1, Ordering::Relaxed) + 1;
    if data.starts_with('"') {
        return Ok(Err(Raw(data)));
    }
    let order: Order = from_str(&data).map_err(|error| Failure::new("no_order", &error.to_string()))?;
    if let Some(exec) = order.execs.iter().find(|exec| exec.qty == 0) {
        return Err(Failure::new("no_shares", &format!("{} of {}", exec.symbol, call.session())));
    }
    let shares = order.execs.iter().map(|exec| u64::from(exec.qty)).sum();
    Ok(Ok(Data(Receipt { request: order.request, timestamp: order.timestamp, order: number, shares })))
}

/// A receipt, or the text of the load.
type Reply = Result<Data<Receipt>, Raw>;

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server(Arc::default()).listen(listen).start()?;
    println!("orders go to /service/order on http://{}/cometd", running.address());
    running.join();
    Ok(())
}
