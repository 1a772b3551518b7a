//! Prints what a cluster needs for 1, 10 and 100 million sessions, computed from measured costs, and the simulation that checks how many
//! subscriptions and envelopes the model assumes. docs/deploying.md has the same tables.
//!
//! ```sh
//! cargo run --release -p encke-cluster --example sizing
//! ```

mod costs;
mod model;
mod simulation;

fn main() {
    println!("{}", costs::table());
    println!("{}", model::table(model::CALM));
    println!("{}", model::table(model::BUSY));
    println!("{}", model::records_table());
    let simulated: Vec<_> = simulation::CASES.iter().map(simulation::Case::simulated).collect();
    println!("{}", simulation::table(&simulated));
}
