#!/usr/bin/env bash
# Runs seeds of the simulator: sessions, switches, faults and restarts over the shards and the log, under virtual time.
#
#   scripts/simulator.sh          as many of 50,000 as a minute allows, optimised
#   scripts/simulator.sh SEEDS    so many, with the build of the tests and its checks of overflow
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seeds=${1:-50000}
seconds_max=60
processes=$(nproc)

need_rust
# One build for everything that tests: see `[profile.dev]` in Cargo.toml.
cargo build --quiet --locked --workspace --bin simulator
share=$(((seeds + processes - 1) / processes))
running=()
for process in $(seq 0 $((processes - 1))); do
    "$target_dir/debug/simulator" --seeds "$share" --from $((1 + process * share)) --seconds "$seconds_max" &
    running+=($!)
done
failed=0
for process in "${running[@]}"; do wait "$process" || failed=1; done
exit "$failed"
