//! The images of the page.

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Plot, Scale, Series, Unit};

use super::cases::{CASES, Case};
use super::runs::Runs;

/// An image: its file name and its content.
#[derive(Debug)]
pub struct Image {
    /// The file name without its folder.
    pub file: &'static str,
    /// The chart.
    pub chart: Chart,
}

/// Returns all images whose figures were measured.
pub fn all(runs: &Runs) -> Vec<Image> {
    let charts = [
        ("compare-deliveries.svg", deliveries(runs)),
        ("compare-latency.svg", percentiles(runs)),
        ("compare-cpu.svg", bars(runs, "rooms-rate", "Processor time for a delivery", Unit::Micros, 1e-3)),
        ("compare-burst.svg", memory(runs)),
        ("compare-idle.svg", bars(runs, "idle", "Memory of an idle session", Unit::Bytes, 1.0)),
    ];
    charts.into_iter().filter_map(|(file, chart)| Some(Image { file, chart: chart? })).collect()
}

/// The most deliveries per second of each search.
fn deliveries(runs: &Runs) -> Option<Chart> {
    let servers = runs.servers();
    let group = |case: &Case| {
        let figures = servers.iter().map(|(label, _)| runs.median(case.name, label, case.rows[0].figure));
        let bars: Vec<Bar> = figures.map(|value| Bar { value, ..Bar::default() }).collect();
        let name = case.title.split(':').next().unwrap_or(case.title).to_owned();
        bars.iter().any(|bar| bar.value.is_some()).then_some(Group { name, bars })
    };
    let groups: Vec<Group> =
        CASES.iter().filter(|case| case.title.contains("most deliveries")).filter_map(group).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: "Most deliveries per second from one core".into(),
            note: "Nothing lost, nothing late; longer is better.".into(),
            axis: Axis::new("deliveries/s", Unit::Count, Scale::Linear),
            series: servers.iter().map(|(_, name)| (*name).to_owned()).collect(),
            groups,
        })
    })
}

/// A bar for each server with the figure that a case is about, times `factor`.
fn bars(runs: &Runs, case: &str, title: &str, unit: Unit, factor: f64) -> Option<Chart> {
    let case = CASES.iter().find(|known| known.name == case)?;
    let servers = runs.servers();
    let figures =
        servers.iter().filter_map(|(label, name)| Some((name, runs.median(case.name, label, case.rows[0].figure)?)));
    let group = |(name, value): (&&str, f64)| Group { name: (*name).to_owned(), bars: vec![Bar::of(value * factor)] };
    let groups: Vec<Group> = figures.map(group).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: title.into(),
            note: format!("{}; shorter is better.", case.title),
            axis: Axis::new(case.rows[0].what, unit, Scale::Linear),
            series: vec![case.rows[0].what.to_owned()],
            groups,
        })
    })
}

/// Latency by percentile at the rate that is the same for all.
fn percentiles(runs: &Runs) -> Option<Chart> {
    let case = CASES.iter().find(|known| known.name == "rooms-rate")?;
    let series = |(label, name): &(&'static str, &'static str)| {
        let trial = runs.middle(case.name, label, case.rows[0].figure)?.trial()?;
        let latency = trial.latency.as_ref().filter(|latency| latency.count > 1)?;
        // The highest of n lies at 1 - 1/n at most: beyond, nothing is known.
        let last = 1.0 - 1.0 / latency.count as f64;
        Some(Series::line(name, latency.curve.iter().map(|(share, us)| (share.min(last), *us as f64))))
    };
    plot(Plot {
        title: "Latency under the same load".into(),
        note: format!("{}; lower is better.", case.title),
        x: Axis::new("share of deliveries", Unit::Count, Scale::Nines),
        y: Axis::new("latency", Unit::Micros, Scale::Auto),
        series: runs.servers().iter().filter_map(series).collect(),
    })
}

/// The servers' memory in the burst.
fn memory(runs: &Runs) -> Option<Chart> {
    let case = CASES.iter().find(|known| known.name == "burst")?;
    let series = |(label, name): &(&'static str, &'static str)| {
        let trial = runs.middle(case.name, label, case.rows[0].figure)?.trial()?;
        let before = (0.0, trial.server?.rss_before_bytes as f64);
        let samples = trial.samples.iter();
        let points = samples.filter_map(|sample| Some((sample.at_ms as f64 / 1e3, sample.server_rss_bytes? as f64)));
        Some(Series::line(name, std::iter::once(before).chain(points)))
    };
    plot(Plot {
        title: "Memory in the burst".into(),
        note: "Messages that cannot be delivered at once are queued; a line ends when all has arrived.".into(),
        x: Axis::new("time", Unit::Seconds, Scale::Linear),
        y: Axis::new("resident memory", Unit::Bytes, Scale::Linear),
        series: runs.servers().iter().filter_map(series).collect(),
    })
}

fn plot(plot: Plot) -> Option<Chart> {
    (!plot.is_empty()).then_some(Chart::Plot(plot))
}
