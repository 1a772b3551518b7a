//! The page: figures, data that passes unchanged, and the conclusion.

use std::fmt::Write as _;

use super::check::{BROKEN, FAITHFUL, Passage, Probed};
use super::measure::{Iteration, Work};
use super::shapes::Shape;

/// The page in Markdown, from all iterations of all builds and the checks of each engine. The other engines are
/// compared with the first of `probed`.
///
/// `machine` is a sentence about the machine.
pub fn page(iterations: &[Iteration], shapes: &[Shape], probed: &[Probed], machine: &str) -> String {
    let figures = Figures { iterations, shapes, probed };
    let mut text = String::from("# Is another JSON engine worthwhile?\n\n");
    text += &figures.verdict();
    text += WHAT_IS_MEASURED;
    for shape in shapes {
        let _ = writeln!(text, "- *{}*: {} ({} bytes)", shape.name, shape.what, shape.text.len());
    }
    for build in figures.builds() {
        for work in [Work::Parsing, Work::Generating] {
            let _ = write!(text, "\n## {work:?}, built {build}\n\n");
            text += &figures.table(build, work);
        }
    }
    text + &passages(probed) + HOW_TO_REPEAT + machine + "\n"
}

struct Figures<'a> {
    iterations: &'a [Iteration],
    shapes: &'a [Shape],
    probed: &'a [Probed],
}

impl<'a> Figures<'a> {
    fn builds(&self) -> Vec<&'a str> {
        let mut builds: Vec<&str> = Vec::new();
        for iteration in self.iterations {
            if !builds.contains(&iteration.build.as_str()) {
                builds.push(&iteration.build);
            }
        }
        builds
    }

    fn median_ns(&self, build: &str, work: Work, shape: &str, engine: &str) -> Option<f64> {
        let belongs = |i: &&Iteration| i.build == build && i.work == work && i.shape == shape && i.engine == engine;
        let mut ns: Vec<f64> = self.iterations.iter().filter(belongs).map(|iteration| iteration.ns).collect();
        ns.sort_by(f64::total_cmp);
        ns.get(ns.len() / 2).copied()
    }

    /// Time of an engine over the envelope's, for parsing and generating one batch of a shape together.
    fn ratio(&self, build: &str, shape: &str, engine: &str) -> Option<f64> {
        let both = |engine| {
            let parsing = self.median_ns(build, Work::Parsing, shape, engine)?;
            Some(parsing + self.median_ns(build, Work::Generating, shape, engine)?)
        };
        Some(both(engine)? / both(self.probed.first()?.engine)?)
    }

    /// The geometric mean of the ratios of all shapes.
    fn mean_ratio(&self, build: &str, engine: &str) -> Option<f64> {
        let logs: Option<Vec<f64>> =
            self.shapes.iter().map(|shape| self.ratio(build, shape.name, engine).map(f64::ln)).collect();
        let logs = logs.filter(|logs| !logs.is_empty())?;
        Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    fn verdict(&self) -> String {
        let (mut winners, mut lines) = (Vec::new(), String::new());
        for build in self.builds() {
            for engine in self.probed.iter().skip(1) {
                let Some(mean) = self.mean_ratio(build, engine.engine) else { continue };
                if mean <= WORTHWHILE_AT && engine.is_safe() {
                    winners.push(format!("{} (built {build})", engine.engine));
                }
                let _ = writeln!(lines, "- {}", self.in_words(build, engine, mean));
            }
        }
        let answer = match winners.as_slice() {
            [] => "**No.** None of them is both safe and that fast.".to_owned(),
            winners => format!("**Yes:** {}.", winners.join(", ")),
        };
        format!(
            "An engine would be worthwhile between the text and the messages if data came through it unchanged, \
             if nothing came through that is not JSON, and if it took at most {WORTHWHILE_AT} of the time of Encke's \
             envelope parser for parsing and generating together (geometric mean over all shapes).\n\n{answer}\n\n{lines}\n"
        )
    }

    fn in_words(&self, build: &str, engine: &Probed, mean: f64) -> String {
        let ratios =
            self.shapes.iter().filter_map(|shape| Some((shape.name, self.ratio(build, shape.name, engine.engine)?)));
        let faster: Vec<String> =
            ratios.filter(|(_, ratio)| *ratio < 1.0).map(|(name, ratio)| format!("{name} ({ratio:.2})")).collect();
        let mut words = format!("{}, built {build}: {mean:.2} × the envelope's time", engine.engine);
        if !faster.is_empty() {
            let _ = write!(words, "; faster with {}", faster.join(", "));
        }
        let lost = engine.passages.iter().filter(|passage| **passage != Passage::Unchanged).count();
        let let_through = engine.refused.iter().filter(|refused| !**refused).count();
        if lost + let_through > 0 {
            let _ = write!(words, "; not safe: changes or refuses {lost} of {} valid pieces of data", FAITHFUL.len());
            let _ = write!(words, ", lets {let_through} of {} broken ones through", BROKEN.len());
        }
        words
    }

    fn table(&self, build: &str, work: Work) -> String {
        let names: Vec<&str> = self.probed.iter().map(|probed| probed.engine).collect();
        let mut text = format!("| ns a batch (× envelope) | {} |\n", names.join(" | "));
        let _ = writeln!(text, "| --- |{}", " ---: |".repeat(names.len()));
        for shape in self.shapes {
            let base = names.first().and_then(|name| self.median_ns(build, work, shape.name, name));
            let cells = names.iter().map(|name| {
                let figure = self.median_ns(build, work, shape.name, name);
                let cell = figure.zip(base).map(|(ns, base)| format!("{ns:.0} ({:.2})", ns / base));
                cell.unwrap_or_else(|| "–".to_owned())
            });
            let _ = writeln!(text, "| {} | {} |", shape.name, cells.collect::<Vec<_>>().join(" | "));
        }
        text
    }
}

/// The result of each engine for each piece of data.
fn passages(probed: &[Probed]) -> String {
    let names: Vec<&str> = probed.iter().map(|probed| probed.engine).collect();
    let mut text = format!("\n## Unchanged and refused data\n\n| data | | {} |\n", names.join(" | "));
    let _ = writeln!(text, "| --- | --- |{}", " --- |".repeat(names.len()));
    for (index, (data, what)) in FAITHFUL.iter().enumerate() {
        let cells = probed.iter().map(|probed| match &probed.passages[index] {
            Passage::Unchanged => "unchanged".to_owned(),
            Passage::Changed(came) => format!("`{came}`"),
            Passage::Refused => "refused".to_owned(),
        });
        let _ = writeln!(text, "| `{data}` | {what} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    for (index, (data, what)) in BROKEN.iter().enumerate() {
        let cells = probed.iter().map(|probed| if probed.refused[index] { "refused" } else { "**let through**" });
        let data = visible(data);
        let _ = writeln!(text, "| `{data}` | not JSON: {what} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// Bytes as text, those that cannot be seen as numbers.
fn visible(data: &[u8]) -> String {
    let visible = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    data.iter().map(visible).collect()
}

/// The share of the envelope's time at which a second engine is worth its upkeep.
const WORTHWHILE_AT: f64 = 0.8;

const WHAT_IS_MEASURED: &str = "\
## What is measured

The two steps of a server with a publication. *Parsing* takes bytes and ends when channel, session and id of each message are
known and the text is known to be JSON. *Generating* writes `channel`, `data` and `ext` for subscribers. Encke's envelope
checks the text in one pass and leaves `data` as a slice. *Raw* and *lazy* do the same with the methods of the engine; a *tree*
is the engine's own value. simd-json writes into the text while it reads, so its time includes a copy. Before the measurement,
all engines must give the same results. Engines take turns; figures are medians of the iterations.

\"CometD JSON library pluggability\" (2011) asked the same question about Jackson and Jetty's JSON.

";

const HOW_TO_REPEAT: &str = "
Repeat with `make bench-json`. It measures two builds: the shipped one, for any processor, and one for the processor it runs on.
Only in the second build sonic-rs uses all instructions of the processor.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{check, engines, shapes};

    fn figures(challenger_ns: f64) -> (Vec<Iteration>, Vec<Shape>) {
        let shapes = shapes::all();
        let mut iterations = Vec::new();
        for shape in &shapes {
            for work in [Work::Parsing, Work::Generating] {
                for (engine, ns) in
                    [("encke envelope", 100.0), ("serde_json raw", challenger_ns), ("serde_json tree", 1.0)]
                {
                    let (build, shape, engine) = ("as shipped".into(), shape.name.into(), engine.into());
                    iterations.push(Iteration { build, shape, work, engine, ns });
                }
            }
        }
        (iterations, shapes)
    }

    fn probed() -> Vec<Probed> {
        engines::all().iter_mut().take(3).map(|engine| check::probe(engine.as_mut())).collect()
    }

    #[test]
    fn a_fast_engine_that_loses_digits_is_not_worthwhile() {
        let (iterations, shapes) = figures(90.0);
        let page = page(&iterations, &shapes, &probed(), "");
        assert!(page.contains("**No.**"), "{page}");
        assert!(
            page.contains("serde_json raw, built as shipped: 0.90 × the envelope's time; faster with small (0.90)")
        );
        assert!(page.contains("serde_json tree, built as shipped: 0.01 × the envelope's time"));
    }

    #[test]
    fn a_fast_engine_that_is_safe_is_worthwhile() {
        let (iterations, shapes) = figures(79.0);
        let mut probed = probed();
        probed[1].passages.fill(Passage::Unchanged);
        probed[1].refused.fill(true);
        assert!(page(&iterations, &shapes, &probed, "").contains("**Yes:** serde_json raw (built as shipped)."));
    }
}
