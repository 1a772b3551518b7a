//! A price board: shows the latest price of each symbol, and goes on where it stopped when it starts again.
//!
//! `cargo run -p encke-client --example price_board -- http://127.0.0.1:8080 positions.json`; prices come from
//! `encke publish /stock/GOOG '{"cents":19900}'`, on a server whose rule for `/stock/*` has a history.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use encke_client::{Client, Position, ReplayFrom};
use serde::Deserialize;

#[derive(Deserialize)]
struct Price {
    cents: u64,
}

/// Shows each price once, over all runs of the program, until the session ends.
pub async fn board(client: &Client, stored: &Path, show: impl Fn(&str, u64)) -> Result<(), Box<dyn Error>> {
    let mut positions: BTreeMap<String, Position> = match fs::read(stored) {
        Ok(json) => serde_json::from_slice(&json)?,
        Err(_) => BTreeMap::new(),
    };
    let mut prices = client.subscribe_from_positions("/stock/*", positions.clone(), ReplayFrom::Earliest).await?;
    while let Some(item) = prices.next().await {
        match item {
            Ok(message) => {
                let symbol = message.channel.rsplit('/').next().unwrap_or_default();
                show(symbol, message.json::<Price>()?.cents);
                if let Some(position) = message.position {
                    positions.insert(message.channel.into(), position);
                    fs::write(stored, serde_json::to_vec(&positions)?)?;
                }
            }
            Err(gap) => eprintln!("{gap}"),
        }
    }
    Ok(client.closed().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (url, stored) = (args.next().ok_or("give the URL of a server")?, args.next().ok_or("give a file")?);
    let client = Client::builder().replay(ReplayFrom::Earliest).retry_first_connect(true).connect(&url).await?;
    board(&client, Path::new(&stored), |symbol, cents| println!("{symbol:8} {:.2}", cents as f64 / 100.0)).await
}
