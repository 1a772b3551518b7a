//! A shop: an axum application with Encke inside. Customers see the stock change, buy by a service, and get their orders, also those
//! from before they came.
//!
//! To run it: `cargo run -p encke --example shop -- 127.0.0.1:8080`

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use encke::{
    Access, AppState, ChannelRule, Data, Failure, Grant, Handle, Handshake, Identity, Operation, Refusal, Running,
    Server, Settings, StartError, User,
};
use serde::{Deserialize, Serialize};

/// The number of each item in stock.
type Stock = Arc<Mutex<BTreeMap<String, u32>>>;

/// An order, as its customer gets it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The item.
    pub item: String,
    /// The number of pieces that are left.
    pub left: u32,
}

/// The name of the customer is in the `ext` of the handshake. A real shop checks a token.
async fn customer(handshake: Handshake) -> Result<Identity, Refusal> {
    #[derive(Deserialize)]
    struct Login {
        customer: String,
    }
    let login = serde_json::from_str::<Login>(handshake.ext().unwrap_or_default());
    login.map(|login| Identity::of_user(&login.customer)).map_err(|_| Refusal::new(401, "name_yourself"))
}

/// Customers read the stock and their own orders. Only the shop publishes.
fn rights(access: &Access, User(identity): User) -> Grant {
    let is_own = access.channel() == format!("/orders/{}", identity.user);
    match access.operation() {
        Operation::Publish => Grant::deny("read_only"),
        _ if is_own || access.channel().starts_with("/stock/") => Grant::Grant,
        _ => Grant::deny("not_yours"),
    }
}

/// Sells one piece: everybody sees the new stock, and the customer has the order when it is stored.
async fn buy(
    AppState(stock): AppState<Stock>,
    User(identity): User,
    Data(item): Data<String>,
    handle: Handle,
) -> Result<Data<Order>, Failure> {
    let left = {
        let mut stock = stock.lock().expect("no thread panics with it");
        let count = stock.get_mut(&item).filter(|count| **count > 0);
        let count = count.ok_or_else(|| Failure::new("sold_out", "there are none left"))?;
        *count -= 1;
        *count
    };
    let order = Order { item, left };
    let failed = |error: &dyn Error| Failure::new("internal", &error.to_string());
    handle.publish_json(&format!("/stock/{}", order.item), &left).map_err(|error| failed(&error))?;
    let text = serde_json::to_string(&order).map_err(|error| failed(&error))?;
    let stored = handle.publish_stored(&format!("/orders/{}", identity.user), &text).await;
    stored.map_err(|error| failed(&error))?;
    Ok(Data(order))
}

/// The orders of a customer, for the office.
async fn orders(State((handle, _)): State<(Handle, Stock)>, Path(customer): Path<String>) -> (StatusCode, String) {
    match handle.read_history(&format!("/orders/{customer}"), None, 100) {
        Some(page) => {
            let orders: Vec<&str> = page.messages.iter().map(|message| message.data()).collect();
            (StatusCode::OK, format!("[{}]", orders.join(",")))
        }
        None => (StatusCode::NOT_FOUND, "[]".into()),
    }
}

/// More pieces have arrived.
async fn restock(
    State((handle, stock)): State<(Handle, Stock)>,
    Path((item, count)): Path<(String, u32)>,
) -> Result<StatusCode, StatusCode> {
    let count = {
        let mut stock = stock.lock().expect("no thread panics with it");
        let all = stock.entry(item.clone()).or_default();
        *all += count;
        *all
    };
    let published = handle.publish_json(&format!("/stock/{item}"), &count);
    published.map(|()| StatusCode::ACCEPTED).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// The shop at this address: the server, and the router of its application.
pub fn shop(listen: SocketAddr) -> Result<(Running, Router), StartError> {
    let stock = Stock::default();
    let history = |pattern: &str, history_messages| ChannelRule {
        pattern: pattern.into(),
        history_messages,
        ..ChannelRule::default()
    };
    let channels = vec![history("/orders/*", 100), history("/stock/*", 1)];
    let running = Server::builder()
        .settings(Settings { listen, channels, ..Settings::default() })
        .state(stock.clone())
        .authenticate(customer)
        .authorize("/orders/*", rights)
        .authorize("/stock/*", rights)
        .service("/service/buy", buy)
        .without_listener()
        .start()?;
    let handle = running.handle();
    // Everything that is not the shop's own path: /cometd, /metrics, /healthz, /hold, /api/v1.
    let encke = encke::all_paths(&handle).with_peer(|parts| {
        let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.ip())
    });
    let router = Router::new()
        .route("/", get(async || "the shop"))
        .route("/orders/{customer}", get(orders))
        .route("/restock/{item}/{count}", post(restock))
        .with_state((handle, stock))
        .fallback_service(encke);
    Ok((running, router))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let (running, router) = shop(listen)?;
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
    running.handle().drain();
    running.join();
    Ok(())
}
