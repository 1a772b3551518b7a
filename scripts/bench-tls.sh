#!/usr/bin/env bash
# Measures the same load with TLS and without, in turns; some twelve minutes. Writes docs/benchmarks/tls.md and tls.svg and prints the
# table; fails if a figure is not what is wanted.
#
#   ROUNDS=3           how often the two take turns
#   BENCH_SECONDS=5    length of a measurement at a fixed rate
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   BENCH_ONLY=…       only these cases, of: most gathered rooms fanout polling idle open resume
#   TLS_INTO=…         the folder to write to
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-3}
seconds=${BENCH_SECONDS:-5}
read -ra cases <<<"${BENCH_ONLY:-most gathered rooms fanout polling idle open resume}"
runs=$work/runs
mkdir "$runs"

# scenario CASE: sets `scenario` to the words after `encke bench`.
scenario() {
    local search=(--find-max --duration "$((seconds < 3 ? seconds : 3))s" --search-time 60s)
    case $1 in
        most) scenario=(broadcast "${search[@]}" --p99 1s --rate 2000) ;;
        rooms) scenario=(rooms "${search[@]}" --p99 500ms --rate 100000) ;;
        gathered) scenario=(broadcast --rate 10000 --duration "${seconds}s") ;;
        fanout) scenario=(broadcast --rate 100 --duration "${seconds}s") ;;
        polling) scenario=(rooms --transport long-polling --rate 20000 --duration "${seconds}s") ;;
        idle | open) scenario=("$1") ;;
        resume) scenario=(open --tls-tickets) ;;
    esac
}

# measure LABEL CASE: one measurement from core 1 against a server started for it; a failed one is reported and skipped.
measure() {
    local options=()
    [ "$1" = plain ] || options=(--dev-tls)
    start_server encke "${options[@]}"
    scenario "$2"
    echo "── $1: ${scenario[*]}"
    bench "${scenario[@]}" --warm-up 500ms --label "$1" --json "$runs/$2.$1.$round.json" >/dev/null ||
        echo "   $1: $2 does not hold" >&2
    stop_server
}

need_two_cores
need_server encke
cargo build --quiet --release --locked -p benches --bin measured_report

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for case in "${cases[@]}"; do
        # Each round begins with the other one.
        if [ $((round % 2)) = 1 ]; then labels=(plain tls); else labels=(tls plain); fi
        for label in "${labels[@]}"; do measure "$label" "$case"; done
    done
done

echo
"$target_dir/release/measured_report" tls "$runs" --into "${TLS_INTO:-docs/benchmarks}"
