//! Iterations, engines in turns.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::engine::Contestant;
use super::shapes::Shape;
use super::{check, engines, shapes};

/// The timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Bytes are read.
    Parsing,
    /// Writing the messages for subscribers.
    Generating,
}

/// One iteration of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// The kind of build, such as `as shipped`.
    pub build: String,
    /// Name of the shape.
    pub shape: String,
    /// The timed operation.
    pub work: Work,
    /// Name of the engine.
    pub engine: String,
    /// Nanoseconds a batch.
    pub ns: f64,
}

/// Times all engines with all shapes: one discarded iteration, then the given number of iterations, which are printed
/// to `screen` and returned. `effort` scales the work of an iteration.
///
/// # Errors
/// The engines disagree, or `screen` cannot be written to.
pub fn all(build: &str, iterations: u32, effort: f64, screen: &mut impl Write) -> Result<Vec<Iteration>, String> {
    let (mut engines, mut found) = (engines::all(), Vec::new());
    for shape in shapes::all() {
        check::same(&mut engines, &shape)?;
        for work in [Work::Parsing, Work::Generating] {
            let times = ((f64::from(shape.times) * effort) as u32).max(1);
            say(screen, format_args!("{work:?} {}, {times} times: {}", shape.name, shape.what))?;
            for iteration in 0..=iterations {
                for engine in &mut engines {
                    let taken_ns = time(engine.as_mut(), work, &shape, times)?;
                    if iteration == 0 {
                        continue;
                    }
                    let name = engine.name();
                    say(screen, format_args!("{name} iteration {iteration}: {:.0} ms", taken_ns / 1e6))?;
                    found.push(Iteration {
                        build: build.to_owned(),
                        shape: shape.name.to_owned(),
                        work,
                        engine: name.to_owned(),
                        ns: taken_ns / f64::from(times),
                    });
                }
            }
        }
    }
    Ok(found)
}

fn time(engine: &mut dyn Contestant, work: Work, shape: &Shape, times: u32) -> Result<f64, String> {
    let text = shape.text.as_bytes();
    let taken = match work {
        Work::Parsing => engine.time_parse(text, times),
        Work::Generating => engine.time_generate(text, times),
    };
    let taken = taken.ok_or_else(|| format!("{} refuses the batch {}", engine.name(), shape.name))?;
    Ok(taken.as_secs_f64() * 1e9)
}

fn say(screen: &mut impl Write, line: std::fmt::Arguments<'_>) -> Result<(), String> {
    writeln!(screen, "{line}").map_err(|error: io::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_timed_with_each_shape_and_printed_as_an_iteration() {
        let mut screen = Vec::new();
        let found = all("test", 2, 0.0, &mut screen).expect("measured");
        let wanted = shapes::all().len() * engines::all().len() * 2 * 2;
        assert_eq!(found.len(), wanted);
        let screen = String::from_utf8(screen).expect("text");
        assert!(screen.contains("\nencke envelope iteration 2: "), "{screen}");
        assert_eq!(screen.lines().filter(|line| line.contains(" iteration ") && line.ends_with(" ms")).count(), wanted);
    }
}
