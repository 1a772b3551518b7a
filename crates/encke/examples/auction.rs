//! An auction: users bid on items, everybody sees the highest bid, and nobody else may publish it.
//!
//! To run it: `cargo run -p encke --example auction -- 127.0.0.1:8080`. A client sends its name with the handshake:
//! `"ext":{"user":"ann"}`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use encke::{
    Access, Actions, AppState, Builder, Data, Failure, Grant, Handshake, Identity, Operation, Refusal, Server, User,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An item of the auction.
#[derive(Clone, Serialize)]
pub struct Item {
    /// The thing itself.
    pub name: &'static str,
    /// The highest bid so far, in cents.
    pub cents: u64,
    /// The user with the highest bid.
    pub bidder: Option<String>,
}

/// The items by their numbers.
pub type Items = Arc<Mutex<BTreeMap<u32, Item>>>;

/// A bid.
#[derive(Deserialize)]
struct Bid {
    item: u32,
    cents: u64,
}

/// The server with its hooks.
pub fn server() -> Builder {
    let item = |name, cents| Item { name, cents, bidder: None };
    let items = BTreeMap::from([(1, item("a telescope", 5_000)), (2, item("a comet, used", 100_000_000))]);
    Server::builder()
        .state(Items::new(Mutex::new(items)))
        .authenticate(name_yourself)
        .authorize("/auction/**", |access: &Access| match access.operation() {
            // The service publishes; what it publishes passes no authorizer.
            Operation::Publish => Grant::deny("bid_by_the_service"),
            Operation::Create | Operation::Subscribe => Grant::Grant,
        })
        .service("/service/auction/items", async |AppState(items): AppState<Items>| {
            Data(items.lock().expect("no thread panics with it").clone())
        })
        .service("/service/auction/bid", bid)
}

/// Everybody is who they say: an example only.
async fn name_yourself(handshake: Handshake) -> Result<Identity, Refusal> {
    let ext: Value = handshake.ext().and_then(|ext| serde_json::from_str(ext).ok()).unwrap_or_default();
    Ok(ext["user"].as_str().map(Identity::of_user).unwrap_or_default())
}

/// Takes a bid if it is the highest. Its bidder gets the item back, everybody else sees it on `/auction/items/1`.
async fn bid(
    User(bidder): User,
    AppState(items): AppState<Items>,
    Data(bid): Data<Bid>,
) -> Result<(Data<Item>, Actions), Failure> {
    let mut items = items.lock().expect("no thread panics with it");
    let item = items.get_mut(&bid.item).ok_or(Failure::new("unknown", "there is no such item"))?;
    if bid.cents <= item.cents {
        return Err(Failure::json(
            &json!({"class": "too_low", "message": "somebody offers more", "cents": item.cents}),
        ));
    }
    (item.cents, item.bidder) = (bid.cents, Some(bidder.user.to_string()));
    let mut actions = Actions::default();
    actions.publish(&format!("/auction/items/{}", bid.item), &json!(item).to_string());
    Ok((Data(item.clone()), actions))
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server().listen(listen).start()?;
    println!("bid on http://{}/cometd", running.address());
    running.join();
    Ok(())
}
