//! The page: a table, and a chart for each curve.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use encke_bench::machine;
use encke_bench::problem::Problem;
use encke_bench::report::chart::{Axis, Chart, Plot, Point as Mark, Scale, Series, Unit};
use encke_bench::report::units::number;

use super::{Line, Point, in_words};
use crate::measured::IMAGE_WIDTH_PIXELS;

/// Writes `growth.md` and a chart for each curve to a folder, and returns the table.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn write(lines: &[Line], folder: &Path) -> Result<String, Problem> {
    fs::create_dir_all(folder)?;
    let table = table(lines);
    let mut charts = String::new();
    for (index, line) in lines.iter().enumerate() {
        let name = format!("growth-{}.svg", index + 1);
        fs::write(folder.join(&name), chart(line).file(IMAGE_WIDTH_PIXELS))?;
        let _ = writeln!(charts, "![{}]({name})\n", line.over);
    }
    let facts = machine::facts();
    let machine = format!("Measured on {} cores ({}), {}.", facts.cores, facts.processor, facts.system);
    let page = format!("# Growth: cost against work\n\n{table}\n{EXPLANATION}\n{machine}\n\n{charts}");
    fs::write(folder.join("growth.md"), page)?;
    Ok(table)
}

fn table(lines: &[Line]) -> String {
    let mut text = String::from(
        "| what grows | work | floor | sizes | Encke, ns | floor, ns | exponent | floor's | in words | holds |\n\
         | --- | --- | --- | --- | --- | --- | ---: | ---: | --- | --- |\n",
    );
    for line in lines {
        let list = |read: &dyn Fn(&Point) -> Option<f64>| {
            let cell = |point| read(point).map_or("".into(), number);
            line.points.iter().map(cell).collect::<Vec<_>>().join(" · ")
        };
        let (encke, floor) = line.exponents();
        let shown = |exponent: Option<f64>| exponent.map(|exponent| format!("{exponent:.2}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            line.over,
            line.work,
            line.beside,
            list(&|point| Some(f64::from(point.size))),
            list(&|point| Some(point.encke_ns)),
            list(&|point| point.floor_ns),
            shown(encke),
            shown(floor),
            encke.map_or("", in_words),
            if line.holds() { "yes" } else { "**no**" },
        );
    }
    text
}

fn chart(line: &Line) -> Chart {
    let series = |name: &str, cost: &dyn Fn(&Point) -> Option<f64>| {
        let mark =
            |point: &Point| Some(Mark { x: f64::from(point.size), y: cost(point)? / 1_000.0, ..Mark::default() });
        Series { name: name.into(), points: line.points.iter().filter_map(mark).collect() }
    };
    let all = [series("Encke", &|point| Some(point.encke_ns)), series("floor", &|point| point.floor_ns)];
    Chart::Plot(Plot {
        title: format!("Processor time of {}", line.work),
        note: format!("Against the number of {}.", line.over),
        x: Axis::new(&line.over, Unit::Count, Scale::Log),
        y: Axis::new("µs", Unit::Micros, Scale::Log),
        series: all.into_iter().filter(|series| !series.points.is_empty()).collect(),
    })
}

const EXPLANATION: &str = "\
Repeat with `make bench-growth`. Each row is a curve: the processor time of one unit of work while something else grows. What costs
the same at every size has the exponent 0; a cost that grows as the size does has the exponent 1. Large sizes miss the caches of the
processor more often, the floor's as well. A row holds if its exponent is at most 0.15 above the floor's.

Most curves are of the core alone: one shard that gets messages and writes bytes, without threads, sockets and kernel
(`benches/src/growth/curves.rs`); the floor does the same with maps and copies, and checks nothing. Encke and floor take turns, and each
figure is the median of its rounds. The curves over sockets are `encke bench broadcast` with 200,000 deliveries a second,
for clients beside `benches/src/bin/floor.rs`.";
