//! Prices that walk at random.

use std::time::Duration;

use tokio::time::Instant;

use super::{Quote, Quotes, QuotesSettings};
use crate::run::{End, Failure};

/// A symbol and its price in cents.
struct Walker {
    symbol: String,
    cents: u32,
}

/// Moves the price of each symbol once in each interval.
pub(super) async fn run(settings: &QuotesSettings, mut quotes: Quotes<'_>) -> Result<End, Failure> {
    let mut walkers: Vec<Walker> = (0..settings.symbols).map(Walker::new).collect();
    let interval = Duration::from_millis(settings.interval_ms(500));
    let mut next = Instant::now();
    quotes.publisher.works();
    loop {
        quotes.next_round();
        for walkers in walkers.chunks_mut(SYMBOLS_AT_ONCE) {
            for walker in walkers {
                let quote = walker.step();
                quotes.publish(&quote);
            }
            // Other sources share the thread.
            tokio::task::yield_now().await;
        }
        // Rounds that are late are left out.
        next = (next + interval).max(Instant::now());
        quotes.latest.wait_until(quotes.publisher, next).await;
    }
}

impl Walker {
    fn new(number: u32) -> Walker {
        Walker { symbol: format!("S{number:04}"), cents: fastrand::u32(1_000..100_000) }
    }

    /// Moves the price by up to half a percent.
    fn step(&mut self) -> Quote {
        let most = (self.cents / 200).max(1);
        self.cents = (self.cents + fastrand::u32(0..=2 * most)).saturating_sub(most).clamp(CENTS_MIN, CENTS_MAX);
        let spread = fastrand::u32(1..=5);
        let price = |cents: u32| Some(f64::from(cents) / 100.0);
        Quote {
            symbol: self.symbol.clone(),
            bid: price(self.cents - spread),
            ask: price(self.cents + spread),
            last: price(self.cents),
        }
    }
}

/// Quotes that are published without a pause for other sources.
const SYMBOLS_AT_ONCE: usize = 128;

/// The lowest and the highest price.
const CENTS_MIN: u32 = 100;
const CENTS_MAX: u32 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_stay_within_their_bounds_and_the_last_one_is_between_bid_and_ask() {
        for cents in [CENTS_MIN, 5_000, CENTS_MAX] {
            let mut walker = Walker { symbol: "S".into(), cents };
            let mut moves = 0;
            for _ in 0..10_000 {
                let before = walker.cents;
                let Quote { bid: Some(bid), ask: Some(ask), last: Some(last), .. } = walker.step() else {
                    panic!("a price is missing");
                };
                assert!(0.9 < bid && bid < last && last < ask && ask < 100_001.0, "{bid} {last} {ask}");
                moves += usize::from(before != walker.cents);
            }
            assert!(moves > 1_000);
        }
    }
}
