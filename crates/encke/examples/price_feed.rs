//! A price feed: each line on standard input, such as `GOOG 19900`, is pushed to everyone who subscribes to `/stock/GOOG`.
//!
//! To run it: `cargo run -p encke --example price_feed -- 127.0.0.1:8080`

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use encke::{
    Actions, Answer, Application, Handle, Handshake, Identity, Pending, Publishing, Refusal, Server, Service, Settings,
    Verdict,
};
use serde_json::{Value, from_str};

/// The latest price of each symbol, in cents.
#[derive(Clone, Default)]
pub struct Prices(Arc<Mutex<HashMap<String, u64>>>);

impl Application for Prices {
    /// A client has to send `"ext":{"token":"open sesame"}` with its handshake.
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let ext: Value = handshake.ext.and_then(|ext| from_str(ext).ok()).unwrap_or_default();
        let is_right = ext["token"] == "open sesame";
        Answer::Now(if is_right { Ok(None) } else { Err(Refusal::new(403, "wrong_token")) })
    }

    /// Clients do not publish. Messages of the server's own handle do not pass here.
    fn publish(&self, _: &Publishing<'_>) -> Answer<Verdict> {
        Answer::Now(Verdict::deny("read_only"))
    }

    /// `/service/latest` answers a symbol with its latest price.
    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let symbol: String = message.data.and_then(|data| from_str(data).ok()).unwrap_or_default();
        match self.0.lock().expect("no thread panics with it").get(&symbol) {
            Some(cents) => actions.reply(&cents.to_string()),
            None => actions.fail(r#""there is no price yet""#),
        }
        None
    }
}

/// Takes a line such as `GOOG 19900`.
pub fn push(handle: &Handle, prices: &Prices, line: &str) -> Result<(), Box<dyn Error>> {
    let (symbol, cents) = line.split_once(' ').ok_or("a line is a symbol and a price")?;
    prices.0.lock().expect("no thread panics with it").insert(symbol.into(), cents.parse()?);
    Ok(handle.publish(&format!("/stock/{symbol}"), cents)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let prices = Prices::default();
    let running = Server::new(Settings { listen, ..Settings::default() }).application(prices.clone()).start()?;
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
