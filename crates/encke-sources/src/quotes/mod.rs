//! `kind = "quotes"`: prices of symbols. Only the latest one of each symbol counts.

mod poll;
mod replay;
mod table;
mod walk;

use encke_fetch::SecretUrl;
use serde::Deserialize;

use crate::check::Check;
use crate::latest::Latest;
use crate::publisher::{Publisher, quoted};
use crate::run::{End, Failure};

encke::settings! {
    /// The settings of a source of this kind. A `file` is replayed, a `url` is polled; without either, prices walk at random.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    pub struct QuotesSettings;

    "The prices" {
        /// A CSV file of ticks. Its first line names the columns: `symbol`, `bid`, `ask`, `last`, and `time` in seconds or `time_ms`.
        file: String = String::new();
        /// Replays the file at this multiple of the pace of its times.
        speed: f64 = 1.0;
        /// True if the file begins again at its end.
        repeat: bool = false;
        /// The address of a CSV file of the same form, or of a JSON array of objects with these fields.
        url: SecretUrl = SecretUrl::default();
        /// A file of PEM certificates that are trusted beside those of the system. Empty: none.
        ca_file: String = String::new();
        /// Number of symbols that walk at random.
        symbols: u32 = 3_000;
        /// Time between two rounds of the walk (default 500), two polls (default 5,000), or two ticks of the file (default: its own pace),
        /// in milliseconds. 0: the default.
        interval_ms: u64 = 0;
    }
}

impl QuotesSettings {
    pub(crate) fn check(&self, channel: &str, check: &mut Check<'_>) {
        let one = self.file.is_empty() || self.url.is_empty();
        check.that(one, format_args!("url = {:?}: a file or a url, not both", self.url));
        let is_url =
            self.url.is_empty() || ["http://", "https://"].iter().any(|scheme| self.url.reveal().starts_with(scheme));
        check.that(is_url, format_args!("url = {:?}: begins with http:// or https://", self.url));
        let is_speed = self.speed.is_finite() && self.speed > 0.0;
        check.that(is_speed, format_args!("speed = {}: a number above 0", self.speed));
        check.range("symbols", self.symbols.into(), 1..=1_000_000);
        check.range("interval_ms", self.interval_ms, 0..=86_400_000);
        let problem = format_args!("channel = {channel:?}: contains {{symbol}}, such as /stock/{{symbol}}").to_string();
        check.that(channel.contains(SYMBOL), problem);
    }

    fn interval_ms(&self, default: u64) -> u64 {
        if self.interval_ms == 0 { default } else { self.interval_ms }
    }
}

/// Publishes quotes until the source stops, or the file ends.
pub(crate) async fn run(settings: &QuotesSettings, channel: &str, publisher: &Publisher) -> Result<End, Failure> {
    let quotes = Quotes { channel, publisher, latest: Latest::default(), round: 0 };
    if !settings.file.is_empty() {
        replay::run(settings, quotes).await
    } else if !settings.url.is_empty() {
        poll::run(settings, quotes).await
    } else {
        walk::run(settings, quotes).await
    }
}

/// Prices of a symbol. A price that is not known is none.
#[derive(Clone, Debug, Default, PartialEq)]
struct Quote {
    symbol: String,
    bid: Option<f64>,
    ask: Option<f64>,
    last: Option<f64>,
}

/// Publishes quotes, each with the number of its round: the loop counter of the quote server.
struct Quotes<'a> {
    channel: &'a str,
    publisher: &'a Publisher,
    latest: Latest,
    round: u64,
}

impl Quotes<'_> {
    /// Begins the next round.
    fn next_round(&mut self) {
        self.round += 1;
    }

    fn publish(&mut self, quote: &Quote) {
        self.latest.publish(self.publisher, channel_of(self.channel, &quote.symbol), quote.json(self.round));
    }
}

impl Quote {
    fn json(&self, round: u64) -> String {
        let price = |price: Option<f64>| match price {
            Some(price) if price.is_finite() => price.to_string(),
            _ => "null".into(),
        };
        let (bid, ask, last) = (price(self.bid), price(self.ask), price(self.last));
        let symbol = quoted(&self.symbol);
        format!(r#"{{"symbol":{symbol},"bid":{bid},"ask":{ask},"last":{last},"loop":{round}}}"#)
    }
}

/// The channel of a symbol. Characters that a channel cannot have, and slashes, become `_`.
fn channel_of(channel: &str, symbol: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$()+-.@_{~}".contains(c);
    let symbol: String = symbol.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    channel.replace(SYMBOL, &symbol)
}

/// The part of a channel that the symbol replaces.
pub(crate) const SYMBOL: &str = "{symbol}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_json_whatever_its_symbol_and_prices() {
        let quote = Quote { symbol: "A\"B/C ü".into(), bid: Some(1e-7), ask: Some(f64::NAN), last: None };
        let json: serde_json::Value = serde_json::from_str(&quote.json(7)).expect("JSON");
        assert_eq!(json, serde_json::json!({"symbol": "A\"B/C ü", "bid": 1e-7, "ask": null, "last": null, "loop": 7}));
        assert_eq!(channel_of("/stock/{symbol}/x", &quote.symbol), "/stock/A_B_C__/x");
    }
}
