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
results=$work/results.jsonl
server_pid=

stop_server() {
    if [ -n "$server_pid" ]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
        server_pid=
    fi
}
trap 'stop_server; rm -rf "$work"' EXIT

# start_server floor|encke|bun: on core 0; sets server_pid, address and dialect.
start_server() {
    local command
    case $1 in
        floor) dialect=floor command=("$target_dir/release/floor") ;;
        encke) dialect=bayeux command=("$target_dir/release/encke" serve --port 0 --shards 1) ;;
        bun) dialect=floor command=("$bun" benches/rivals/bun/server.js) ;;
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

# load LANE MODE…: one measurement from core 1; a failed one is said and passed over.
load() {
    local lane=$1
    shift
    echo "── $lane: $*"
    taskset -c 1 "${prefix[@]}" "$target_dir/release/load" --target "$address" --dialect "$dialect" --pid "$server_pid" \
        --label "$lane" --json "$@" >>"$results" || echo "   $lane: $1 gave no valid figure" >&2
}

# measure LANE MODE…: the same against a server of its own.
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
need_rust
command -v taskset >/dev/null || need_debian util-linux
cargo build --quiet --release --locked -p benches -p encke-cli
[[ " ${lanes[*]} " == *" bun "* ]] && need_bun

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for lane in "${lanes[@]}"; do
        start_server "$lane"
        load "$lane" fanout --rate 100 --seconds 5
        load "$lane" fanout --find-max --rate 2000
        stop_server
        [ "$lane" = bun ] || measure "$lane" open --sessions 8000
    done
done
if [[ " ${lanes[*]} " == *" encke "* ]]; then
    measure encke idle --sessions 9000
    measure encke idle --sessions 9000 --own-channels
    measure encke idle --sessions 9000 --transport long-polling
fi

echo
"$target_dir/release/report" "$results" --into docs/benchmarks
