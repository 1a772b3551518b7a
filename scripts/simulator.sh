#!/usr/bin/env bash
# Runs seeds of the simulator: sessions, switches and faults over the shards, under virtual time.
# `scripts/simulator.sh [SEEDS=10000]`
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
cargo run --quiet --release --locked -p simulator -- --seeds "${1:-10000}"
