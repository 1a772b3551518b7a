//! `encke bench` from a user's view, against `encke serve`: small runs, to check the effect of each scenario.

mod avalanche;
mod errors;
mod faulty;
mod http2;
mod interrupt;
mod jitter;
mod order_service;
mod program;
mod proxy;
mod scenarios;
mod workers;
