//! A price feed: each line on standard input, such as `GOOG 19900`, is pushed to everyone who subscribes to `/stock/GOOG`.
//!
//! To run it: `cargo run -p encke --example price_feed -- 127.0.0.1:8080`

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use encke::{
    AppState, Builder, Data, Failure, Handle, Handshake, Identity, Publishing, Refusal, Server, Settings, Verdict,
};
use serde_json::{Value, from_str};

/// The latest price of each symbol, in cents.
pub type Prices = Arc<Mutex<HashMap<String, u64>>>;

/// The server with its hooks.
pub fn server(prices: &Prices) -> Builder {
    let server = Server::builder().authenticate(admit).state(prices.clone()).service("/service/latest", latest);
    // Clients do not publish. Messages of the server's own handle pass no filter.
    server.filter("/**", |_: &Publishing| Verdict::deny("read_only"))
}

/// A client has to send `"ext":{"token":"open sesame"}` with its handshake.
async fn admit(handshake: Handshake) -> Result<Identity, Refusal> {
    let ext: Value = handshake.ext().and_then(|ext| from_str(ext).ok()).unwrap_or_default();
    if ext["token"] == "open sesame" { Ok(Identity::default()) } else { Err(Refusal::new(403, "wrong_token")) }
}

/// `/service/latest` answers a symbol with its latest price.
async fn latest(AppState(prices): AppState<Prices>, Data(symbol): Data<String>) -> Result<Data<u64>, Failure> {
    let cents = prices.lock().expect("no thread panics with it").get(&symbol).copied();
    cents.map(Data).ok_or(Failure::new("unknown", "there is no price yet"))
}

/// Takes a line such as `GOOG 19900`.
pub fn push(handle: &Handle, prices: &Prices, line: &str) -> Result<(), Box<dyn Error>> {
    let (symbol, cents) = line.split_once(' ').ok_or("a line is a symbol and a price")?;
    prices.lock().expect("no thread panics with it").insert(symbol.into(), cents.parse()?);
    Ok(handle.publish(&format!("/stock/{symbol}"), cents)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let prices = Prices::default();
    let running = server(&prices).settings(Settings { listen, ..Settings::default() }).start()?;
    println!("clients connect to http://{}/cometd", running.address());
    for line in std::io::stdin().lines() {
        if let Err(error) = push(&running.handle(), &prices, &line?) {
            eprintln!("not pushed: {error}");
        }
    }
    running.handle().drain();
    running.join();
    Ok(())
}
