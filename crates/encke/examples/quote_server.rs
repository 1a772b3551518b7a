//! A quote server, as in "Comparing Server side Websockets" (2012): it pushes a random quote of many symbols, forever, each to
//! `/quotes/SYMBOL`. A slow client misses quotes, but never the latest one of a symbol.
//!
//! To run it: `cargo run --release -p encke --example quote_server -- 127.0.0.1:8080 50` (quotes each second)

use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use encke::{Builder, ChannelRule, Handle, PublishError, Publishing, Server, Settings, SlowConsumer, Verdict};

/// The market: the prices of all symbols, in cents.
pub struct Market {
    cents: Vec<i64>,
    chance: u64,
    quotes: u64,
}

impl Market {
    /// A market with this number of symbols: `S0`, `S1` and so on.
    pub fn new(symbols: usize) -> Market {
        Market { cents: vec![10_000; symbols], chance: 0x9E37_79B9_7F4A_7C15, quotes: 0 }
    }

    /// The next quote: its channel, and its data with bid, ask, last and the counter of the server's loop.
    pub fn quote(&mut self) -> (String, String) {
        // A xorshift generator: prices need not be unguessable.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let symbol = (self.chance >> 8) as usize % self.cents.len();
        let last = (self.cents[symbol] + (self.chance % 21) as i64 - 10).max(100);
        self.cents[symbol] = last;
        self.quotes += 1;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let (bid, ask, counter) = (last - 1, last + 1, self.quotes);
        let data = format!(r#"{{"counter":{counter},"time":{time},"bid":{bid},"ask":{ask},"last":{last}}}"#);
        (format!("/quotes/S{symbol}"), data)
    }
}

/// The server: clients read quotes only.
pub fn server() -> Builder {
    let quotes =
        ChannelRule { pattern: "/quotes/*".into(), slow_consumer: SlowConsumer::KeepLatest, ..ChannelRule::default() };
    let settings = Settings { channels: vec![quotes], ..Settings::default() };
    Server::builder().settings(settings).filter("/**", |_: &Publishing| Verdict::deny("read_only"))
}

/// Pushes a quote, and waits if the server is busy.
pub fn push(handle: &Handle, market: &mut Market) -> Result<(), PublishError> {
    let (channel, data) = market.quote();
    while let Err(error) = handle.publish(&channel, &data) {
        match error {
            PublishError::Busy => std::thread::sleep(Duration::from_millis(1)),
            mistake => return Err(mistake),
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or("127.0.0.1:8080".into()).parse()?;
    let per_second: u32 = arguments.next().unwrap_or("50".into()).parse()?;
    let running = server().listen(listen).start()?;
    let (handle, mut market, started) = (running.handle(), Market::new(3_000), Instant::now());
    println!("subscribe to /quotes/* on http://{}/cometd", running.address());
    for number in 0_u32.. {
        let due = Duration::from_secs(1) * number / per_second;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        push(&handle, &mut market)?;
    }
    Ok(())
}
