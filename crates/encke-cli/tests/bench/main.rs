//! `encke bench` as a user meets it, against `encke serve`: small, to see that each scenario does what it says.

mod avalanche;
mod errors;
mod faulty;
mod interrupt;
mod jitter;
mod program;
mod scenarios;
mod workers;
