#!/usr/bin/env bash
# Measures the speed and memory of the core against the floor, and against Bun where npm can install it.
# Writes docs/benchmarks/core.md and core.svg and prints the table; fails if a figure is not what is wanted.
#
#   ROUNDS=3           how often the servers take turns
#   BENCH_BUN=no       leaves Bun out
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   BENCH_ONLY=encke   only these servers, of: floor encke bun
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

rounds=${ROUNDS:-3}
read -ra prefix <<<"${BENCH_PREFIX:-}"
read -ra lanes <<<"${BENCH_ONLY:-floor encke bun}"
work=$(mktemp -d)
runs=$work/runs
mkdir "$runs"
server_pid=

stop_server() {
    if [ -n "$server_pid" ]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
        server_pid=
    fi
}
trap 'stop_server; rm -rf "$work"' EXIT

# start_server floor|encke|bun: on core 0; sets server_pid and address.
start_server() {
    local command
    case $1 in
        floor) command=("$target_dir/release/floor") ;;
        encke) command=("$encke" serve --port 0 --shards 1) ;;
        bun) command=("$bun" benches/rivals/bun/server.js) ;;
    esac
    # The line of the server before must not be taken for this one's.
    : >"$work/ready"
    taskset -c 0 "${prefix[@]}" "${command[@]}" >"$work/ready" 2>"$work/log" &
    server_pid=$!
    for _ in $(seq 100); do
        address=$(sed -n 's/.*listening on \(http:\/\/\)\?\(127\.0\.0\.1:[0-9]*\).*/\2/p' "$work/ready")
        [ -n "$address" ] && return
        sleep 0.1
    done
    echo "$1 did not get ready:" >&2
    cat "$work/log" >&2
    return 1
}

# load LANE CASE SCENARIO OPTION…: one measurement from core 1; a failed one is said and passed over.
load() {
    local lane=$1 case=$2 transport=()
    shift 2
    [ "$lane" = encke ] || transport=(--transport raw)
    echo "── $lane: $*"
    taskset -c 1 "${prefix[@]}" "$encke" bench "$@" "${transport[@]}" --target "http://$address" --pid "$server_pid" \
        --quiet --label "$lane" --json "$runs/$case.$lane.$round.json" || echo "   $lane: $case does not hold" >&2
}

# measure LANE CASE SCENARIO OPTION…: the same against a server of its own.
measure() {
    start_server "$1"
    load "$@"
    stop_server
}

# need_bun: sets `bun` to the program, or takes it out of the lanes.
need_bun() {
    bun=benches/rivals/bun/node_modules/.bin/bun
    if [ "${BENCH_BUN:-yes}" = yes ] && command -v npm >/dev/null &&
        npm --prefix benches/rivals/bun ci --silent --no-audit --no-fund >/dev/null 2>&1 && "$bun" --version >/dev/null 2>&1; then
        return
    fi
    echo "without Bun: npm could not install it, or it was left out" >&2
    local lane kept=()
    for lane in "${lanes[@]}"; do [ "$lane" = bun ] || kept+=("$lane"); done
    lanes=("${kept[@]}")
}

if [ "$(nproc)" -lt 2 ]; then
    echo "two cores are needed: one for the server, one for the load" >&2
    exit 1
fi
ulimit -n "$(ulimit -Hn)"
command -v taskset >/dev/null || need_debian util-linux
need_encke
cargo build --quiet --release --locked -p benches
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
"$target_dir/release/core_report" "$runs" --into docs/benchmarks
