//! Quotes of another server, polled.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use encke_fetch::{Fetcher, Limits};
use tokio::time::Instant;

use super::{Quote, Quotes, QuotesSettings, table};
use crate::run::{End, Failure};

/// Requests the URL again and again, and publishes the quotes that have changed.
pub(super) async fn run(settings: &QuotesSettings, mut quotes: Quotes<'_>) -> Result<End, Failure> {
    let limits = Limits { response_bytes_max: RESPONSE_BYTES_MAX, ..Limits::default() };
    let ca_file = Some(Path::new(&settings.ca_file)).filter(|path| !path.as_os_str().is_empty());
    let fetcher = Fetcher::new(limits, ca_file)?;
    let interval = Duration::from_millis(settings.interval_ms(5_000));
    let mut last: HashMap<String, Quote> = HashMap::new();
    loop {
        let next = Instant::now() + interval;
        let current = fetch(&fetcher, settings, &quotes).await.map_err(|error| format!("{}: {error}", settings.url))?;
        quotes.publisher.works();
        quotes.next_round();
        for quote in &current {
            if last.get(&quote.symbol) != Some(quote) {
                quotes.publish(quote);
            }
        }
        // Only the symbols of this response: others would stay for ever.
        last = current.into_iter().map(|quote| (quote.symbol.clone(), quote)).collect();
        quotes.latest.wait_until(quotes.publisher, next).await;
    }
}

async fn fetch(fetcher: &Fetcher, settings: &QuotesSettings, quotes: &Quotes<'_>) -> Result<Vec<Quote>, Failure> {
    let response = fetcher.get(settings.url.reveal()).await?;
    if !response.status().is_success() {
        return Err(format!("the status is {}", response.status()).into());
    }
    let (current, wrong) = table::quotes(&String::from_utf8_lossy(response.body()))?;
    if let Some(error) = wrong {
        quotes.publisher.fault(format_args!("{}: {error}", settings.url));
    }
    Ok(current)
}

/// Most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
