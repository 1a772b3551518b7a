#!/usr/bin/env bash
# Measures a broadcast to 1,000 clients over WebSockets and over streams of server-sent events, in turns; some four minutes. Prints the runs of
# each round side by side, with ratios to the WebSockets: the highest rate, and the processor time of a delivery at a fixed rate.
#
#   ROUNDS=3           how often the two take turns
#   BENCH_SECONDS=5    length of a measurement at a fixed rate
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-3}
seconds=${BENCH_SECONDS:-5}

# measure TRANSPORT CASE OPTION…: one broadcast from core 1 against a server started for it.
measure() {
    start_server encke
    echo "── $1: broadcast ${*:3}"
    bench broadcast --clients 1000 --transport "$1" --warm-up 500ms --label "$1" --json "$work/$2.$1.json" "${@:3}" >/dev/null ||
        echo "   $1: $2 does not hold" >&2
    stop_server
}

need_two_cores
need_server encke

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    # Each round begins with the other one.
    if [ $((round % 2)) = 1 ]; then transports=(websocket eventsource); else transports=(eventsource websocket); fi
    for transport in "${transports[@]}"; do
        measure "$transport" most --find-max --duration "$((seconds < 3 ? seconds : 3))s" --search-time 60s --p99 1s --rate 2000
        measure "$transport" fanout --rate 100 --duration "${seconds}s"
    done
    for case in most fanout; do
        "$encke" bench report "$work/$case.websocket.json" "$work/$case.eventsource.json"
    done
done
