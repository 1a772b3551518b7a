#!/usr/bin/env bash
# Measures the speed and memory of the core against the floor, and against Bun where npm can install it.
# Writes docs/benchmarks/core.md and core.svg and prints the table; fails if a figure is not what is wanted.
#
#   ROUNDS=3           how often the servers take turns
#   BENCH_BUN=no       leaves Bun out
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   BENCH_ONLY=encke   only these servers, of: floor encke bun
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-3}
read -ra servers <<<"${BENCH_ONLY:-floor encke bun}"
runs=$work/runs
mkdir "$runs"

# load SERVER CASE SCENARIO OPTION…: one measurement from core 1; a failed one is reported and skipped.
load() {
    local server=$1 case=$2 transport=()
    shift 2
    [ "$server" = encke ] || transport=(--transport raw)
    echo "── $server: $*"
    bench "$@" "${transport[@]}" --label "$server" --json "$runs/$case.$server.$round.json" >/dev/null ||
        echo "   $server: $case does not hold" >&2
}

# measure SERVER CASE SCENARIO OPTION…: the same against a server started for it.
measure() {
    start_server "$1"
    load "$@"
    stop_server
}

# unicast SERVER: large messages to one of many clients each; with Encke also such whose publishers decline replies.
unicast() {
    local options=(rooms --clients 5000 --rooms 5000 --rooms-per-client 1 --batch-size 1 --message-size 1400 --rate 20000 --duration 5s)
    start_server "$1"
    load "$1" unicast "${options[@]}" --no-reply
    [ "$1" != encke ] || load encke unicast-replies "${options[@]}"
    stop_server
}

# bayeux SERVER LABEL CASE SCENARIO OPTION…: Bayeux against a server started for it.
bayeux() {
    local server=$1 label=$2 case=$3
    shift 3
    start_server "$server"
    echo "── $server: $*"
    bench "$@" --label "$label" --json "$runs/$case.$label.$round.json" >/dev/null || echo "   $server: $case does not hold" >&2
    stop_server
}

# beside_bayeux_floor SERVER LABEL: what Encke does beside a floor that answers the same messages.
beside_bayeux_floor() {
    bayeux "$@" polling rooms --transport long-polling --rate 10000 --duration 5s
    bayeux "$@" open-full open
}

# need_bun: installs Bun, or takes it out of `servers`.
need_bun() {
    if [ "${BENCH_BUN:-yes}" = yes ] && command -v npm >/dev/null && need_server bun && "$bun" --version >/dev/null 2>&1; then
        return
    fi
    echo "without Bun: npm could not install it, or it was left out" >&2
    local server others=()
    for server in "${servers[@]}"; do [ "$server" = bun ] || others+=("$server"); done
    servers=("${others[@]}")
}

need_two_cores
need_server encke floor polling_floor
cargo build --quiet --release --locked -p benches --bin measured_report
[[ " ${servers[*]} " == *" bun "* ]] && need_bun

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for server in "${servers[@]}"; do
        start_server "$server"
        load "$server" broadcast broadcast --rate 100 --duration 5s
        case $server in
            encke) load "$server" broadcast-equal broadcast --rate 100 --duration 5s ;;
            # The data that makes a frame as long as a Bayeux message with 50 bytes of data.
            floor) load "$server" broadcast-equal broadcast --rate 100 --duration 5s --message-size 93 ;;
        esac
        load "$server" broadcast-max broadcast --find-max --p99 1s --rate 2000
        stop_server
        unicast "$server"
        measure "$server" calls request-reply --clients 1000 --duration 5s
        [ "$server" = bun ] || measure "$server" open open
        case $server in
            encke) beside_bayeux_floor encke encke ;;
            floor) beside_bayeux_floor polling_floor floor ;;
        esac
    done
done
if [[ " ${servers[*]} " == *" encke "* ]]; then
    measure encke idle idle
    measure encke idle-own idle --own-channels
    measure encke idle-polling idle --transport long-polling
fi

echo
"$target_dir/release/measured_report" core "$runs" --into docs/benchmarks
