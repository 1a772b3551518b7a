//! A CSV file of ticks, replayed.

use std::time::Duration;

use tokio::fs::File;
use tokio::io::BufReader;
use tokio::time::Instant;

use super::table::Columns;
use super::{Quotes, QuotesSettings};
use crate::lines::{self, Line};
use crate::run::{End, Failure};

/// Publishes the ticks of the file, from its first line to its last.
pub(super) async fn run(settings: &QuotesSettings, mut quotes: Quotes<'_>) -> Result<End, Failure> {
    loop {
        once(settings, &mut quotes).await.map_err(|error| format!("{}: {error}", settings.file))?;
        quotes.latest.finish(quotes.publisher).await;
        if !settings.repeat {
            return Ok(End::Finished);
        }
    }
}

async fn once(settings: &QuotesSettings, quotes: &mut Quotes<'_>) -> Result<(), Failure> {
    let (mut file, mut line) = (BufReader::new(File::open(&settings.file).await?), Vec::new());
    if lines::next(&mut file, &mut line, LINE_BYTES_MAX).await? != Line::Whole {
        return Err("its first line does not name the columns".into());
    }
    let columns = Columns::parse(&String::from_utf8_lossy(&line))?;
    if settings.interval_ms == 0 && !columns.has_time() {
        return Err("no column is named time or time_ms, and interval_ms is not set".into());
    }
    quotes.publisher.works();
    let mut pace = Pace::new(settings);
    loop {
        match lines::next(&mut file, &mut line, LINE_BYTES_MAX).await? {
            Line::End => return Ok(()),
            Line::TooLong => {
                quotes.publisher.fault(format_args!("{}: a line has more than {LINE_BYTES_MAX} bytes", settings.file));
                continue;
            }
            Line::Whole if line.trim_ascii().is_empty() => continue,
            Line::Whole => {}
        }
        let (quote, time) = match columns.row(&String::from_utf8_lossy(&line)) {
            Ok(row) => row,
            Err(error) => {
                quotes.publisher.fault(format_args!("{}: {error}", settings.file));
                continue;
            }
        };
        if let Some(due) = pace.next(time) {
            quotes.next_round();
            quotes.latest.wait_until(quotes.publisher, due).await;
        }
        quotes.publish(&quote);
    }
}

/// The times at which ticks are due.
struct Pace {
    /// Time between two ticks. None: the file's own pace.
    interval: Option<Duration>,
    speed: f64,
    start: Instant,
    /// The first time in the file, and the latest one.
    times: Option<(f64, f64)>,
    due: Instant,
}

impl Pace {
    fn new(settings: &QuotesSettings) -> Pace {
        let interval = Some(Duration::from_millis(settings.interval_ms)).filter(|interval| !interval.is_zero());
        let start = Instant::now();
        Pace { interval, speed: settings.speed, start, times: None, due: start }
    }

    /// The time to wait for, unless the tick belongs to the last one. A time that goes back counts as the last one.
    fn next(&mut self, time: Option<f64>) -> Option<Instant> {
        if let Some(interval) = self.interval {
            self.due += interval;
            return Some(self.due);
        }
        let (first, latest) = match (self.times, time) {
            (None, time) => {
                let time = time.unwrap_or_default();
                self.times = Some((time, time));
                return Some(self.start);
            }
            (Some((first, latest)), Some(time)) if time > latest => (first, time),
            (Some(_), _) => return None,
        };
        self.times = Some((first, latest));
        let elapsed_ms = (latest - first) / self.speed;
        // A time beyond all clocks is due in a day.
        Some(self.start + Duration::try_from_secs_f64(elapsed_ms / 1_000.0).unwrap_or(DAY).min(DAY))
    }
}

/// Longest line of a file.
const LINE_BYTES_MAX: usize = 4_096;

/// The longest time until a tick.
const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ticks_are_due_at_the_files_pace_or_at_a_chosen_one() {
        let due = |settings: &QuotesSettings, times: &[f64]| -> Vec<Option<u128>> {
            let mut pace = Pace::new(settings);
            let start = pace.start;
            times.iter().map(|time| Some(pace.next(Some(*time))?.duration_since(start).as_millis())).collect()
        };
        let own = QuotesSettings { speed: 2.0, ..QuotesSettings::default() };
        assert_eq!(due(&own, &[500.0, 500.0, 700.0, 600.0, 1_500.0]), [Some(0), None, Some(100), None, Some(500)]);
        assert_eq!(due(&own, &[0.0, 1e300]), [Some(0), Some(86_400_000)]);
        let chosen = QuotesSettings { interval_ms: 10, ..QuotesSettings::default() };
        assert_eq!(due(&chosen, &[5.0, 5.0, 1.0]), [Some(10), Some(20), Some(30)]);
    }
}
