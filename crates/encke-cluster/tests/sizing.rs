//! The figures of docs/deploying.md are those that the example `sizing` prints, and its model is what the nodes do.

#[path = "../examples/sizing/costs.rs"]
mod costs;
#[path = "../examples/sizing/model.rs"]
mod model;
#[path = "../examples/sizing/simulation.rs"]
mod simulation;

use std::sync::LazyLock;

use simulation::{CASES, Case, Figures};

/// All cases, simulated once.
static SIMULATED: LazyLock<Vec<Figures>> = LazyLock::new(|| CASES.iter().map(Case::simulated).collect());

const PAGE: &str = include_str!("../../../docs/deploying.md");

#[test]
fn the_page_about_deploying_has_the_figures_of_the_example() {
    let tables = [
        costs::table(),
        model::table(model::CALM),
        model::table(model::BUSY),
        model::records_table(),
        simulation::table(&SIMULATED),
    ];
    for table in tables {
        assert!(PAGE.contains(&table), "docs/deploying.md has another table than the example prints:\n{table}");
    }
}

#[test]
fn each_cost_is_on_the_page_that_is_named_for_it() {
    for line in costs::table().lines().skip(2) {
        let (_, path) = line.rsplit_once("](").expect("a link");
        let path = path.trim_end_matches(") |");
        let page = format!("{}/../../docs/{path}", env!("CARGO_MANIFEST_DIR"));
        assert!(std::path::Path::new(&page).exists(), "{page} is not there");
    }
}

#[test]
fn nodes_subscribe_and_receive_as_the_model_says() {
    for (case, simulated) in CASES.iter().zip(SIMULATED.iter()) {
        let computed = case.computed();
        let is_near = |one: f64, other: f64| (one - other).abs() <= 0.03 * one.max(other) + 0.002;
        let what = format!("{} on {} nodes", case.name, case.nodes);
        assert!(
            is_near(computed.subscriptions, simulated.subscriptions),
            "{what}: {} subscriptions",
            simulated.subscriptions
        );
        assert!(is_near(computed.reached, simulated.reached), "{what}: {} reach a node", simulated.reached);
        assert!(is_near(computed.unwanted, simulated.unwanted), "{what}: {} are unwanted", simulated.unwanted);
    }
}
