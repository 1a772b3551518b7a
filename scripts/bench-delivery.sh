#!/usr/bin/env bash
# Measures what acknowledgement, history, its log on disk and replay cost, each beside the same without it; some six minutes.
# Writes docs/benchmarks/delivery.md and delivery.svg and prints the table; fails if a figure is not what is wanted.
#
#   ROUNDS=2           how often what is compared takes turns
#   BENCH_SECONDS=3    length of a measurement at a fixed rate
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   BENCH_ONLY=…       only these parts, of: most fanout log others
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-2}
seconds=${BENCH_SECONDS:-3}
read -ra parts <<<"${BENCH_ONLY:-most fanout log others}"
runs=$work/runs
mkdir "$runs"
cat >"$work/history.toml" <<'TOML'
history_commit = "interval"

[[channels]]
pattern = "/bench/**"
history_messages = 10000
TOML

# load LABEL CASE SCENARIO OPTION…: one measurement from core 1; a failed one is reported and skipped.
load() {
    local label=$1 case=$2
    shift 2
    echo "── $label: $*"
    bench "$@" --warm-up 500ms --label "$label" --json "$runs/$case.$label.$round.json" >/dev/null ||
        echo "   $label: $case does not hold" >&2
}

# measure LABEL CASE SCENARIO OPTION…: the same against a server started for it; LABEL also selects the server's settings.
measure() {
    local options=()
    case $1 in
        plain | ack) ;;
        durable)
            rm -rf "$work/data"
            options=(--config "$work/history.toml" --data "$work/data")
            ;;
        *) options=(--config "$work/history.toml") ;;
    esac
    start_server encke "${options[@]}"
    load "$@"
    stop_server
}

# The highest rate, plain and with acknowledgement.
part_most() {
    local search=(--find-max --p99 1s --rate 24k --duration 1s --search-time 45s)
    measure plain most broadcast "${search[@]}"
    measure ack most broadcast "${search[@]}" --ack
}

# Processor time at a fixed rate.
part_fanout() {
    local rate=(--rate 100 --duration "${seconds}s")
    measure plain fanout broadcast "${rate[@]}"
    measure ack fanout broadcast "${rate[@]}" --ack
    measure history fanout broadcast "${rate[@]}"
    measure replay fanout broadcast "${rate[@]}" --replay
}

# What the log on disk takes. A search is long, so there is one.
part_log() {
    [ "$round" = 1 ] || return 0
    local search=(--clients 1 --message-size 200 --find-max --p99 1s --rate 400k --duration 2s --search-time 60s)
    measure durable log broadcast "${search[@]}"
    measure memory log broadcast "${search[@]}"
}

# Latency of a broadcast, alone and beside a replay that goes on all the time.
part_others() {
    local rate=(--rate 100 --duration "$((2 * seconds))s") replaying
    measure quiet others broadcast "${rate[@]}"
    start_server encke --config "$work/history.toml"
    pin 1 nice -n 10 "$encke" bench replay --target "http://$address" --quiet --warm-up 200ms \
        --duration "$((2 * seconds + 3))s" --json "$runs/replay.busy.$round.json"
    "${pinned[@]}" >/dev/null &
    replaying=$!
    # The history is filled, the first round has begun.
    sleep 1
    load busy others broadcast "${rate[@]}"
    wait "$replaying" || echo "   busy: the replay does not hold" >&2
    stop_server
}

need_two_cores
need_server encke
cargo build --quiet --release --locked -p benches --bin measured_report

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for part in "${parts[@]}"; do "part_$part"; done
done

echo
"$target_dir/release/measured_report" delivery "$runs" --into docs/benchmarks
