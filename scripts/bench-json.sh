#!/usr/bin/env bash
# Times JSON engines at what a server does with publications: parse and generate. Writes docs/benchmarks/json.md.
# Twice: built as the program is shipped, and built for this processor.
#
#   ITERATIONS=5       counted iterations of each engine
#   EFFORT=1           scales the work of an iteration
#   BENCH_PREFIX=…     put before the program, such as "chrt -f 5" on a machine that has other work
#   JSON_PAGE=…        the page to write
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

read -ra prefix <<<"${BENCH_PREFIX:-}"
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# measure FOLDER BUILD: the program in a target folder, on one core.
measure() {
    echo "── built $2"
    taskset -c 0 "${prefix[@]}" "$1/release/json" measure --build "$2" --results "$results" \
        --iterations "${ITERATIONS:-5}" --effort "${EFFORT:-1}"
}

need_rust
command -v taskset >/dev/null || need_debian util-linux
cargo build --quiet --release --locked -p benches --bin json
RUSTFLAGS='-C target-cpu=native' cargo build --quiet --release --locked -p benches --bin json --target-dir "$target_dir/native"

measure "$target_dir" 'as shipped'
measure "$target_dir/native" 'for this processor'
"$target_dir/release/json" page "$results" --into "${JSON_PAGE:-docs/benchmarks/json.md}"
echo "written: ${JSON_PAGE:-docs/benchmarks/json.md}"
