#!/usr/bin/env bash
# Runs seeds of the simulator: sessions, switches, faults and restarts over the shards and the log, under virtual time.
# `scripts/simulator.sh [SEEDS]`: so many; without a number as many of 50,000 as two minutes allow.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
options=(--seeds 50000 --seconds 110)
[ $# -eq 0 ] || options=(--seeds "$1")
cargo run --quiet --release --locked -p simulator -- "${options[@]}"
