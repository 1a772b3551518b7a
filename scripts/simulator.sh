#!/usr/bin/env bash
# Runs seeds of the simulator: sessions, switches, faults and restarts over the shards and the log, under virtual time; seeds of clusters, if wanted.
#
#   scripts/simulator.sh                 as many of 50,000 as a minute allows, optimised
#   scripts/simulator.sh SEEDS           so many and no clusters, with the build of the tests and its checks of overflow
#   scripts/simulator.sh 0 CLUSTERS      so many clusters, however long it takes
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seeds=${1:-50000}
clusters=${2:-0}
seconds_max=60
cluster_seconds_max=86400
processes=$(nproc)

need_rust
# One build for everything that tests: see `[profile.dev]` in Cargo.toml.
cargo build --quiet --locked --workspace --bin simulator
failed=0
# run SEEDS SECONDS OPTION…: runs so many seeds, one process per core.
run() {
    local share=$((($1 + processes - 1) / processes)) seconds=$2 running=() process
    shift 2
    ((share > 0)) || return 0
    for process in $(seq 0 $((processes - 1))); do
        "$target_dir/debug/simulator" "$@" --seeds "$share" --from $((1 + process * share)) --seconds "$seconds" &
        running+=($!)
    done
    for process in "${running[@]}"; do wait "$process" || failed=1; done
}
run "$seeds" "$seconds_max"
run "$clusters" "$cluster_seconds_max" --cluster
exit "$failed"
