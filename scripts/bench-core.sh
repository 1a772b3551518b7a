#!/usr/bin/env bash
# Measures the speed and memory of the core against the floor, and against Bun where npm can install it.
# Writes docs/benchmarks/core.md and core.svg and prints the table; fails if a figure is not what is wanted.
#
#   ROUNDS=3           how often the servers take turns
#   BENCH_BUN=no       leaves Bun out
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   BENCH_ONLY=encke   only these servers, of: floor encke bun
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/lanes.sh

rounds=${ROUNDS:-3}
read -ra lanes <<<"${BENCH_ONLY:-floor encke bun}"
runs=$work/runs
mkdir "$runs"

# load LANE CASE SCENARIO OPTION…: one measurement from core 1; a failed one is said and passed over.
load() {
    local lane=$1 case=$2 transport=()
    shift 2
    [ "$lane" = encke ] || transport=(--transport raw)
    echo "── $lane: $*"
    bench "$@" "${transport[@]}" --label "$lane" --json "$runs/$case.$lane.$round.json" >/dev/null ||
        echo "   $lane: $case does not hold" >&2
}

# measure LANE CASE SCENARIO OPTION…: the same against a server of its own.
measure() {
    start_server "$1"
    load "$@"
    stop_server
}

# need_bun: Bun, or the lanes without it.
need_bun() {
    if [ "${BENCH_BUN:-yes}" = yes ] && command -v npm >/dev/null && need_lane bun && "$bun" --version >/dev/null 2>&1; then
        return
    fi
    echo "without Bun: npm could not install it, or it was left out" >&2
    local lane kept=()
    for lane in "${lanes[@]}"; do [ "$lane" = bun ] || kept+=("$lane"); done
    lanes=("${kept[@]}")
}

need_two_cores
need_lane encke floor
cargo build --quiet --release --locked -p benches --bin measured_report
[[ " ${lanes[*]} " == *" bun "* ]] && need_bun

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for lane in "${lanes[@]}"; do
        start_server "$lane"
        load "$lane" broadcast broadcast --rate 100 --duration 5s
        load "$lane" broadcast-max broadcast --find-max --p99 1s --rate 2000
        stop_server
        [ "$lane" = bun ] || measure "$lane" open open
    done
done
if [[ " ${lanes[*]} " == *" encke "* ]]; then
    measure encke idle idle
    measure encke idle-own idle --own-channels
    measure encke idle-polling idle --transport long-polling
fi

echo
"$target_dir/release/measured_report" core "$runs" --into docs/benchmarks
