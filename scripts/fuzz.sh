#!/usr/bin/env bash
# Builds the fuzz targets with coverage instrumentation, on the stable toolchain, and runs each for some seconds:
# `scripts/fuzz.sh [SECONDS_PER_TARGET=10] [TARGET…]`. Before that it compares how requests are read here and by hyper. What they find stays in fuzz/corpus, crashes in fuzz/artifacts.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${1:-10}
shift $(($# > 0))
fuzz_dir=$PWD/fuzz
fuzz_target_dir=${CARGO_TARGET_DIR:-$fuzz_dir/target}
input_bytes_max=4096
input_seconds_max=10
memory_mb_max=1024
plain_requests=${PLAIN_REQUESTS:-1000000}

# What cargo-fuzz asks of the compiler, but for the address sanitizer: there is no unsafe code to watch.
coverage=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    --cfg fuzzing
)

# Sets `binaries`, the folder with the built targets. With the host as an explicit target, build scripts are not instrumented.
build_targets() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    command -v c++ >/dev/null || need_debian g++
    echo "building the fuzz targets with coverage; the first time takes some minutes" >&2
    RUSTFLAGS="${coverage[*]}" CARGO_TARGET_DIR=$fuzz_target_dir cargo build --quiet --release --locked \
        --manifest-path "$fuzz_dir/Cargo.toml" --target "$host" --bins
    binaries=$fuzz_target_dir/$host/release
}

# Runs one target and prints one line about it.
run_target() {
    local target=$1 log=$fuzz_dir/artifacts/$1.log status=0 began done_line
    mkdir -p "$fuzz_dir/corpus/$target" "$fuzz_dir/artifacts/$target"
    echo "$target: runs for $seconds s" >&2
    "$binaries/$target" -max_total_time="$seconds" -max_len="$input_bytes_max" -timeout="$input_seconds_max" \
        -rss_limit_mb="$memory_mb_max" -artifact_prefix="$fuzz_dir/artifacts/$target/" \
        "$fuzz_dir/corpus/$target" "$fuzz_dir/seeds/$target" >"$log" 2>&1 || status=$?
    began=$(sed -n 's/^#[0-9]*\tINITED cov: \([0-9]*\) .*/\1/p' "$log")
    done_line=$(sed -n 's/^#\([0-9]*\)\tDONE *cov: \([0-9]*\) .*/\1 inputs, \2 edges covered/p' "$log")
    if [ "$status" -ne 0 ] || [ -z "$done_line" ] || [ -z "$began" ]; then
        echo "$target: FAILED (log and input are in fuzz/artifacts)"
        grep --max-count=3 -E 'panicked|ERROR|SUMMARY' -A 1 "$log" >&2 || tail -n 5 "$log" >&2
        return 1
    fi
    echo "$target: $done_line ($began at the start)"
}

# Reads nearly right requests here and by hyper, which must agree; some 60 seconds. It prints one line.
run_differential() {
    echo "plain requests: $plain_requests, beside hyper" >&2
    PLAIN_REQUESTS=$plain_requests PLAIN_SEED=$RANDOM cargo test --quiet --locked --workspace --lib plain::differential -- --nocapture |
        grep -E 'were plain|panicked' -A 1
}

need_rust
build_targets
[ $# -gt 0 ] || run_differential || exit 1
if [ $# -gt 0 ]; then targets=("$@"); else
    mapfile -t targets < <(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' "$fuzz_dir/Cargo.toml")
fi
failed=0
running=()
for target in "${targets[@]}"; do
    # One for each core.
    if [ ${#running[@]} -ge "$(nproc)" ]; then
        wait "${running[0]}" || failed=1
        running=("${running[@]:1}")
    fi
    run_target "$target" &
    running+=($!)
done
for process in "${running[@]}"; do wait "$process" || failed=1; done
exit $failed
