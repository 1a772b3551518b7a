#!/usr/bin/env bash
# Measures a broadcast to 1,000 clients over plain WebSockets and over other transports, in turns: the highest rate, and the processor time of
# a delivery at a fixed rate. Some four to seven minutes. Writes docs/benchmarks/SUBJECT.md and SUBJECT.svg and prints the table; fails if a
# figure is not what is wanted.
#
#   scripts/bench-transports.sh streams   streams of server-sent events
#   scripts/bench-transports.sh http2     WebSockets over HTTP/2, with one and with ten on each connection
#
#   ROUNDS=3           how often they take turns
#   BENCH_SECONDS=5    length of a measurement at a fixed rate
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   TRANSPORTS_INTO=…  the folder to write to
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

subject=${1:-}
case $subject in
    streams) transports=(websocket eventsource) ;;
    http2) transports=(websocket http2-1 http2-10) ;;
    *) echo "usage: scripts/bench-transports.sh streams|http2" >&2; exit 2 ;;
esac
rounds=${ROUNDS:-3}
seconds=${BENCH_SECONDS:-5}
runs=$work/runs
mkdir "$runs"

# measure TRANSPORT CASE OPTION…: one broadcast from core 1 against a server started for it; a failed one is reported and skipped.
measure() {
    local options=(--transport "$1")
    [[ $1 == http2-* ]] && options=(--http2 --streams-per-connection "${1#http2-}")
    start_server encke
    echo "── $1: broadcast ${*:3}"
    bench broadcast --clients 1000 "${options[@]}" --warm-up 500ms --label "$1" --json "$runs/$2.$1.$round.json" "${@:3}" >/dev/null ||
        echo "   $1: $2 does not hold" >&2
    stop_server
}

need_two_cores
need_server encke
cargo build --quiet --release --locked -p benches --bin measured_report

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for transport in "${transports[@]}"; do
        measure "$transport" most --find-max --duration "$((seconds < 3 ? seconds : 3))s" --search-time 60s --p99 1s --rate 2000
        measure "$transport" fanout --rate 100 --duration "${seconds}s"
    done
    # Each round begins with another one.
    transports=("${transports[@]:1}" "${transports[0]}")
done

echo
"$target_dir/release/measured_report" "$subject" "$runs" --into "${TRANSPORTS_INTO:-docs/benchmarks}"
