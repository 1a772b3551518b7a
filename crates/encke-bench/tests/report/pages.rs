//! The page, its charts, and figures that are not numbers.

use std::fs;
use std::path::PathBuf;

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Plot, Scale, Series, Unit};
use encke_bench::report::{FORMAT_VERSION, Report, comparison, html};
use quick_xml::events::Event;

use crate::samples;

#[test]
fn every_sample_makes_a_page_that_needs_nothing_else() {
    let pages = [
        ("throughput", samples::throughput("encke", 1.0)),
        ("rooms", samples::rooms()),
        ("flood", samples::flood("async", 10_820)),
        ("reconnect", samples::reconnect()),
        ("soak", samples::soak(10_000)),
        ("random-channel", samples::random_channel()),
        ("hostile", samples::hostile()),
        ("not-numbers", samples::not_numbers()),
        ("empty", Report { format: FORMAT_VERSION, ..Report::default() }),
    ];
    for (name, report) in pages {
        check(name, &html::of(&report));
    }
}

#[test]
fn runs_side_by_side_make_a_page() {
    let runs = [samples::flood("async", 10_820), samples::flood("threads", 6_860)];
    check("side-by-side-flood", &html::of_several(&comparison::of(&runs), &runs));
    let runs = [("encke", 1.0), ("bun", 0.4), ("cometd", 0.06), ("faye", 0.03)]
        .map(|(label, speed)| samples::throughput(label, speed));
    check("side-by-side-throughput", &html::of_several(&comparison::of(&runs), &runs));
    let runs = [samples::hostile(), samples::not_numbers(), Report::default()];
    check("side-by-side-odd", &html::of_several(&comparison::of(&runs), &runs));
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let report = samples::hostile();
    let page = html::of(&report);
    assert!(!page.contains("<script>alert"), "a script got through");
    assert!(!page.contains("[2J\0") && !page.contains('\x1b'));
    let runs = [report.clone(), report];
    assert!(!html::of_several(&comparison::of(&runs), &runs).contains("<script>alert"));
}

#[test]
fn charts_come_as_they_apply() {
    let titles = |report: &Report| {
        let page = html::of(report);
        let titles = page.split("<figcaption><h2>").skip(1);
        titles.map(|rest| rest.split('<').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let throughput = titles(&samples::throughput("encke", 1.0));
    assert!(throughput.contains(&"p99 latency against throughput".into()), "{throughput:?}");
    assert!(throughput.contains(&"Latency by percentile".into()));
    assert!(!throughput.contains(&"Connection rate".into()), "nothing connects while it is measured");
    let flood = titles(&samples::flood("async", 10_820));
    assert_eq!(flood[..3], ["Connection rate", "Connected over time", "Latency by percentile"]);
    assert!(!titles(&samples::reconnect()).contains(&"Server memory over time".into()), "it was not watched");
    assert_eq!(titles(&samples::random_channel())[0], "Latency against clients");
    assert!(titles(&Report::default()).is_empty());
}

#[test]
fn a_long_table_is_cut_in_the_middle() {
    let mut report = samples::random_channel();
    let row = |number: u32| vec![format!("row {number}"); 8];
    report.table.as_mut().expect("a table").rows = (0..20_000).map(row).collect();
    let page = html::of(&report);
    check("long-table", &page);
    for shown in ["row 0<", "row 19999<", "19,880 rows more"] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn several_numbers_of_clients_are_several_lines() {
    let page = html::of(&samples::throughput("encke", 1.0));
    for clients in ["1,000 clients", "5,000 clients", "20,000 clients"] {
        assert!(page.contains(&format!(r#""name":"{clients}""#)), "{clients} has no line");
    }
    assert!(page.contains("Hollow marks"));
}

#[test]
fn files_of_their_own_are_whole_documents() {
    for (name, chart) in stand_alone() {
        for width in [320, 720] {
            let svg = chart.file(width);
            well_formed(&svg);
            assert!(svg.starts_with("<svg ") && svg.contains("xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
            assert!(svg.contains("prefers-color-scheme: dark"));
            save(&format!("{name}-{width}.svg"), &svg);
        }
    }
}

fn stand_alone() -> Vec<(&'static str, Chart)> {
    let names = ["Encke", "Bun", "CometD 9", "Faye 1.4"];
    let group = |name: &str, figures: [f64; 4]| Group { name: name.into(), bars: figures.map(Bar::of).into() };
    let groups =
        vec![group("chat", [4.2e6, 5.1e6, 1.8e5, 1.1e5]), group("rooms over long-polling", [9e5, 0.0, 8e4, 4e4])];
    let mut bars = Bars {
        title: "Deliveries per second on one core".into(),
        note: "Longer is better; nothing lost, p99 under 100 ms.".into(),
        axis: Axis::new("deliveries/s", Unit::Count, Scale::Log),
        series: names.map(Into::into).into(),
        groups,
    };
    bars.groups[1].bars[1] = Bar::default();
    let single = Bars {
        groups: names
            .iter()
            .zip([4.2e6, 5.1e6, 1.8e5, 1.1e5])
            .map(|(name, value)| group(name, [value; 4]))
            .map(|mut group| {
                group.bars.truncate(1);
                group
            })
            .collect(),
        series: Vec::new(),
        axis: Axis::new("deliveries/s", Unit::Count, Scale::Linear),
        ..bars.clone()
    };
    let line = Plot {
        title: "Connection rate".into(),
        note: "Connections opened in each interval of 100 s.".into(),
        x: Axis::new("time", Unit::Seconds, Scale::Linear),
        y: Axis::new("connections per 100 s", Unit::Count, Scale::Linear),
        series: vec![
            Series::line("planned", [(0.0, 200.0), (5_000.0, 200.0)]),
            Series::line("async", (0..50).map(|at| (f64::from(at) * 100.0, 200.0 - f64::from(at)))),
        ],
    };
    vec![("bars", Chart::Bars(bars)), ("single", Chart::Bars(single)), ("lines", Chart::Plot(line))]
}

/// A page is well-formed, asks for nothing from elsewhere, and is not large.
fn check(name: &str, page: &str) {
    save(&format!("{name}.html"), page);
    let markup = page.strip_prefix("<!doctype html>\n").expect("a document type");
    well_formed(markup);
    for outside in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{name}: {outside}");
    }
    assert!(page.len() < 1_000_000, "{name}: {} bytes", page.len());
    let markup = page.split("<script>//").next().unwrap_or_default();
    for broken in ["NaN", "inf\"", "undefined"] {
        assert!(!markup.contains(broken), "{name}: {broken}");
    }
}

fn well_formed(markup: &str) {
    let mut reader = quick_xml::Reader::from_str(markup);
    reader.config_mut().check_comments = true;
    let mut open = 0;
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Eof => break,
            Event::Start(tag) => {
                open += 1;
                tag.attributes().for_each(|attribute| drop(attribute.expect("a quoted attribute, once")));
            }
            Event::Empty(tag) => {
                tag.attributes().for_each(|attribute| drop(attribute.expect("a quoted attribute, once")))
            }
            Event::End(_) => open -= 1,
            Event::Text(text) => drop(text.xml10_content().expect("characters that XML has")),
            _ => {}
        }
    }
    assert_eq!(open, 0, "everything opened is closed");
}

/// Saves the page, to view it in a browser.
fn save(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report").join("pages");
    fs::create_dir_all(&folder).expect("a folder for pages");
    fs::write(folder.join(name), text).expect("a page");
}
