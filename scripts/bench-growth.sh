#!/usr/bin/env bash
# Measures cost against work: the core alone at growing sizes beside maps and copies, a whole server with growing numbers of clients beside
# the floor, and with growing numbers of shards; some fifteen minutes. Writes docs/benchmarks/growth.md and its charts, and prints
# the table; fails if a cost grows faster than its work.
#
#   ROUNDS=5           how often Encke and floor take turns
#   BENCH_SECONDS=4    length of a measurement of a whole server
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   GROWTH_ONLY=…      only the curves of the core with this text in what grows
#   GROWTH_INTO=…      the folder to write to
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-5}
seconds=${BENCH_SECONDS:-4}
deliveries_per_s=200000
runs=$work/runs
mkdir "$runs"

# measure SERVER CASE CLIENTS OPTION…: a broadcast against a server started for it; a failed one is reported and skipped.
measure() {
    local server=$1 case=$2 clients=$3 transport=()
    shift 3
    start_server "$server" "$@"
    [ "$server" = encke ] || transport=(--transport raw)
    echo "── $server: $case"
    bench broadcast --clients "$clients" --rate $((deliveries_per_s / clients)) --duration "${seconds}s" --warm-up 500ms "${transport[@]}" \
        --label "$server" --json "$runs/$case.$server.$round.json" >/dev/null || echo "   $server: $case does not hold" >&2
    stop_server
}

need_two_cores
need_server encke floor
cargo build --quiet --release --locked -p benches --bin growth

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for clients in 100 1000 5000 18000; do
        if [ $((round % 2)) = 1 ]; then order=(encke floor); else order=(floor encke); fi
        for server in "${order[@]}"; do measure "$server" "clients-$clients" "$clients"; done
    done
    cores=no
    for encke_shards in 1 $(nproc); do measure encke "shards-$encke_shards" 1000; done
    unset encke_shards
    cores=yes
done

echo
"$target_dir/release/growth" "$runs" --rounds "$rounds" --only "${GROWTH_ONLY:-}" --into "${GROWTH_INTO:-docs/benchmarks}"
