//! Text, JSON, CSV, and runs side by side.

use std::fs;
use std::path::PathBuf;

use encke_bench::report::text::Paint;
use encke_bench::report::{
    Destination, FORMAT_VERSION, Faults, Figure, Flow, Latency, Outputs, Report, Sample, Server, Setting, Table, Trial,
    compare, comparison, csv, html, json, text, write,
};
use proptest::prelude::*;

use crate::samples;

#[test]
fn the_text_fits_a_hundred_columns() {
    for report in
        [samples::throughput("encke", 1.0), samples::flood("async", 10_820), samples::reconnect(), samples::hostile()]
    {
        let text = text::of(&report, Paint::Plain);
        let transcript = report.transcript.len();
        for line in text.lines().skip(transcript) {
            assert!(line.chars().count() <= 100 || line.contains("alert"), "{line}");
        }
        assert!(!text.contains('\x1b'), "no colours where none are wanted");
    }
}

#[test]
fn the_transcript_comes_first_and_word_for_word() {
    let report = samples::rooms();
    let text = text::of(&report, Paint::Plain);
    assert!(text.starts_with(&(report.transcript.join("\n") + "\n\n")));
    assert!(text.contains("sessions opened per second  15,568/s"));
    assert!(text.contains("Nothing lost"));
    assert!(text.ends_with("Everything asked for holds.\n"));
}

#[test]
fn faults_are_named() {
    let mut report = samples::rooms();
    report.trials[0].faults = Faults { lost: 1_234, doubled: 5, dropped_sessions: 6, ..Faults::default() };
    report.holds = false;
    report.reasons = vec!["1,234 deliveries were lost.".into()];
    let text = text::of(&report, Paint::Plain);
    for word in ["lost", "1,234", "doubled", "dropped"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.contains("reordered"), "what did not happen has no column");
    assert!(!text.contains("Nothing lost"));
    assert!(text.ends_with("Does not hold: 1,234 deliveries were lost.\n"));
}

#[test]
fn a_lower_bound_is_reported_as_one() {
    let bound = "At least 900 messages/s: the load was at its own limit, the server may do more.";
    let report = Report { at_least: vec![bound.into()], ..samples::rooms() };
    let ends = format!("Everything asked for holds. {bound}\n");
    assert!(text::of(&report, Paint::Plain).replace('\n', " ").trim_end().ends_with(ends.trim_end()));
    assert!(html::of(&report).contains(bound));
    let beside = comparison::of(&[samples::rooms(), report]);
    let printed = comparison::text(&beside, Paint::Plain);
    assert!(printed.contains(bound) && printed.ends_with("All runs hold.\n"), "{printed}");
}

#[test]
fn a_report_of_an_older_version_reads_as_before() {
    let report = Report { format: FORMAT_VERSION, trials: vec![Trial::default()], ..Report::default() };
    let text = json::of(&report).expect("JSON");
    let mut old: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    old.as_object_mut().expect("an object").remove("at_least").expect("is there");
    old["trials"][0].as_object_mut().expect("an object").remove("load_is_limit").expect("is there");
    assert_eq!(json::parse(&old.to_string()).expect("a report"), report);
}

#[test]
fn an_empty_report_is_still_a_report() {
    let report = Report { format: FORMAT_VERSION, ..Report::default() };
    assert!(text::of(&report, Paint::Plain).contains("Does not hold."));
    assert_eq!(csv::of(&report).lines().count(), 1);
    let read = json::parse(&json::of(&report).expect("JSON")).expect("read back");
    assert_eq!(read, report);
}

#[test]
fn figures_that_are_no_numbers_survive_json_as_such() {
    let read = json::parse(&json::of(&samples::not_numbers()).expect("JSON")).expect("read back");
    let trial = &read.trials[0];
    assert!(trial.load_cores.is_nan() && trial.figures[0].value.is_nan() && trial.planned_per_s.is_none());
    assert!(text::of(&read, Paint::Plain).contains('–'));
}

#[test]
fn no_cell_of_a_hostile_report_is_a_formula() {
    let text = csv::of(&samples::hostile());
    assert!(text.contains("'=1+1"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("=")), "{text}");
    let text = csv::of_table(&csv::trials(&samples::hostile()));
    assert!(text.lines().next().is_some_and(|head| head.starts_with("scenario,label,target,trial,clients")));
}

#[test]
fn reports_go_where_they_are_asked_to() {
    let folder = folder("outputs");
    let file = |name: &str| Some(Destination::File(folder.join(name)));
    let outputs = Outputs { json: file("a.json"), csv: file("a.csv"), html: file("a.html") };
    let report = samples::rooms();
    write(&report, &outputs).expect("written");
    assert_eq!(fs::read_to_string(folder.join("a.json")).expect("JSON"), json::of(&report).expect("JSON"));
    assert_eq!(json::read(&folder.join("a.json")).expect("a report").transcript, report.transcript);
    assert_eq!(fs::read_to_string(folder.join("a.csv")).expect("CSV"), csv::of(&report));
    assert!(fs::read_to_string(folder.join("a.html")).expect("a page").starts_with("<!doctype html>"));
}

#[test]
fn runs_are_laid_side_by_side_from_their_files() {
    let folder = folder("side-by-side");
    let paths: Vec<PathBuf> = ["encke", "bun"].iter().map(|label| folder.join(label)).collect();
    for (path, (label, speed)) in paths.iter().zip([("encke", 1.0), ("bun", 0.5)]) {
        let text = json::of(&samples::throughput(label, speed)).expect("JSON");
        fs::write(path, text).expect("written");
    }
    let file = |name: &str| Some(Destination::File(folder.join(name)));
    compare(&paths, &Outputs { json: file("both.json"), csv: file("both.csv"), html: file("both.html") })
        .expect("compared");
    let rows = fs::read_to_string(folder.join("both.csv")).expect("CSV");
    assert!(rows.starts_with("section,figure,unit,encke,bun,bun / encke\nresult,"), "{rows}");
    let both = fs::read_to_string(folder.join("both.json")).expect("JSON");
    assert!(both.contains("\"comparison\": 1"));
    let problem = compare(&[folder.join("both.json")], &Outputs::default()).expect_err("no report").to_string();
    assert!(problem.ends_with("both.json is no report of encke bench"), "{problem}");
    let problem = compare(&[], &Outputs::default()).expect_err("nothing to compare").to_string();
    assert_eq!(problem.lines().count(), 1);
}

#[test]
fn side_by_side_each_run_has_its_ratio() {
    let runs = [samples::throughput("encke", 1.0), samples::throughput("bun", 0.25), samples::throughput("faye", 0.02)];
    let text = comparison::text(&comparison::of(&runs), Paint::Plain);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let rate = text.lines().find(|line| line.starts_with("received/s")).expect("a rate");
    assert_eq!(rate.matches('×').count(), 2, "{rate}");
}

#[test]
fn a_run_beside_itself_has_only_ones() {
    let runs = [samples::rooms(), samples::rooms()];
    let ratios = comparison::of(&runs).sections.into_iter().flat_map(|section| section.rows).flat_map(|row| row.ratios);
    assert!(ratios.flatten().all(|ratio| ratio == 1.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_reads_back_as_it_was(report in any_report()) {
        let text = json::of(&report).expect("JSON");
        prop_assert_eq!(json::parse(&text).expect("a report"), report);
    }
}

/// Figures of at most 15 digits: those that every JSON reader gives back to the last one.
fn number() -> impl Strategy<Value = f64> {
    (-999_999_999_999i64..999_999_999_999).prop_map(|thousandths| thousandths as f64 / 1000.0)
}

fn any_trial() -> impl Strategy<Value = Trial> {
    let counts = prop::array::uniform12(any::<u64>());
    let numbers = prop::array::uniform5(number());
    let curve = prop::collection::vec((number(), any::<u64>()), 0..5);
    (".*", counts, numbers, curve, any::<[bool; 3]>(), prop::option::of(number())).prop_map(
        |(name, counts, numbers, curve, some, maybe)| {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = counts;
            let flow = Flow { messages: a, batches: b, bytes: c, window_ms: d };
            let faults = Faults { lost: e, doubled: f, reordered: g, misdelivered: h, late: i, dropped_sessions: j };
            let latency = Latency { count: k, mean_us: numbers[0], max_us: l, curve, ..Latency::default() };
            let server =
                Server { cores: numbers[1], ns_per_delivery: numbers[2], rss_peak_bytes: a, ..Server::default() };
            let sample =
                Sample { at_ms: b, p99_us: c, server_cores: maybe, server_rss_bytes: Some(d), ..Sample::default() };
            Trial {
                figures: vec![Figure { name: name.clone(), value: numbers[3], unit: name.clone() }],
                reasons: vec![name.clone()],
                name,
                clients: e,
                planned_per_s: maybe,
                expected: f,
                faults,
                outgoing: flow,
                incoming: flow,
                latency: some[0].then_some(latency),
                server: some[1].then_some(server),
                load_cores: numbers[4],
                load_is_limit: some[1],
                others_cores: maybe,
                samples: vec![sample],
                holds: some[2],
            }
        },
    )
}

prop_compose! {
    fn any_report()(
        texts in prop::array::uniform5(".*"),
        cells in prop::option::of(prop::collection::vec(prop::collection::vec(".*", 2), 0..4)),
        trials in prop::collection::vec(any_trial(), 0..4),
        result in prop::option::of(0usize..9),
        began_unix_ms: u64,
        interrupted: bool,
        holds: bool,
    ) -> Report {
        let [scenario, title, label, target, line] = texts;
        Report {
            format: FORMAT_VERSION,
            stands_for: line.clone(),
            settings: vec![Setting { name: line.clone(), value: label.clone() }],
            table: cells.map(|rows| Table { columns: vec!["a".into(), "b".into()], rows }),
            transcript: vec![line.clone()],
            at_least: vec![line.clone()],
            reasons: vec![line],
            scenario, title, label, target, trials, result, began_unix_ms, interrupted, holds,
            ..Report::default()
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}
