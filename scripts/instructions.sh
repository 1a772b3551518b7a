#!/usr/bin/env bash
# Two gates: how many instructions parse, publish and fan-out take, and what an idle session costs in memory.
#
# Instructions are counted by callgrind, so other work on the machine does not matter. Each count is compared with
# benches/instructions.txt and may be 5 % above it; `scripts/instructions.sh --update` writes the counts there instead. All of them have
# thousandths of an instruction: a delivery of 20 instructions would else be compared in steps of 5 %.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

baselines=benches/instructions.txt
allowed_percent=5
# case:times
cases=(parse:10000 publish:10000 fanout:50000 fanout-gathered:320000 fanout-history:50000 fanout-replay:50000)

# count CASE TIMES: instructions of the whole program.
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$target_dir/release/instructions" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

# per_time CASE TIMES: thousandths of the instructions of one time, without what comes before.
per_time() {
    local with without
    if ! with=$(count "$1" "$2") || ! without=$(count "$1" 0); then
        echo "callgrind counted nothing for $1: $target_dir/release/instructions $1 $2" >&2
        return 1
    fi
    echo $((1000 * (with - without) / $2))
}

# decimal THOUSANDTHS: as a number with three decimals.
decimal() {
    printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
}

# check CASE THOUSANDTHS: against the baseline.
check() {
    local baseline
    baseline=$(awk -v name="$1" '$1 == name { printf "%.0f", 1000 * $2 }' "$baselines")
    if [ -z "$baseline" ]; then
        echo "$1: $(decimal "$2") instructions, and no baseline in $baselines: run scripts/instructions.sh --update" >&2
        return 1
    fi
    echo "$1: $(decimal "$2") instructions, $(decimal $((1000 * $2 / baseline))) of the baseline"
    if [ $((100 * $2)) -gt $(((100 + allowed_percent) * baseline)) ]; then
        echo "$1 takes over $allowed_percent % more than its baseline of $(decimal "$baseline")" >&2
        return 1
    fi
}

command -v valgrind >/dev/null || need_debian valgrind || skip 'valgrind is missing'
need_built release -p encke-cli -p benches --bin encke --bin instructions

failed=0
written=
for entry in "${cases[@]}"; do
    name=${entry%:*}
    instructions=$(per_time "$name" "${entry#*:}") || exit 1
    written+="$name $(decimal "$instructions")"$'\n'
    [ "${1:-}" = --update ] || check "$name" "$instructions" || failed=1
done
if [ "${1:-}" = --update ]; then
    printf '%s' "$written" | tee "$baselines"
    exit
fi

need_encke
ulimit -n "$(ulimit -Hn)"
# One after the other, because both need a quiet machine. Each starts a server and reads its memory.
ENCKE_BIN=$(realpath "$encke") cargo test --quiet --locked --workspace --test heap_per_session -- --nocapture --test-threads=1 || failed=1
exit "$failed"
