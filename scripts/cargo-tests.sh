#!/usr/bin/env bash
# Runs the tests of the workspace and counts them.
#
#   scripts/cargo-tests.sh         all of them, documentation included
#   scripts/cargo-tests.sh unit    without those that use real sockets, processes and clocks
#   scripts/cargo-tests.sh tls     those of the server over real sockets, with TLS on both ends
#   scripts/cargo-tests.sh http2   the same over HTTP/2, by a gateway in front of each server; `http2-tls` with TLS
#   scripts/cargo-tests.sh cluster [FILTER…]   those of nodes of a cluster, by scripts/cluster.sh
#   scripts/cargo-tests.sh mongodb [FILTER…]   those of sessions in MongoDB, by scripts/mongodb.sh
#
# A test of the crates in `real_time` that fails is run once more, alone. If it passes then, it is flaky: it is counted and listed, and
# both outputs stay in target/test/flaky. All other tests are deterministic, so their failure is final, as is one that says that a
# message was lost (scripts/final-failures.txt).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Crates whose `tests/` folders need real time. Their unit tests do not.
real_time=(encke encke-auth encke-bench encke-cli encke-client encke-fetch encke-mongodb encke-proxy encke-sources encke-webhooks)
# More failures than this are no accident.
repeats_max=10
repeat_seconds_max=600
# The tests wait more than they compute.
threads=${RUST_TEST_THREADS:-8}

# Tests that the gateway in front of servers of HTTP/2 does not fit: bytes of HTTP/1.1 and hosts that it does not pass on, settings that are
# for HTTP/1.1, its own connections and buffers, and the ends of connections in a drain.
http1_only=(
    delivery:: examples:: tls:: http2:: http_requests:: hosts:: api::keys::metrics api::keys::programs number_of_header_lines header_bytes_max_is
    very_long_origins is_closed_after_its_answer browser_sessions_max_advises further_windows second_window a_surplus_window
    held_requests_are_answered_when_the_server_drains gets_413_before_it_is_read
    connections_max_answers an_ended_slow_consumer_is_reset never_closes_its_side pongs_are_not_read a_drain_answers_held_requests
    a_draining_server_disconnects_its_clients messages_published_during_a_drain a_client_of_http_1_0 floods_its_stream
)

packages=(--workspace)
logs=${TEST_LOGS:-target/test}
output=$logs/cargo-tests-${1:-all}.out

# is_real_time FOLDER: whether the tests in the folder of this crate need real time.
is_real_time() {
    [[ " ${real_time[*]} " == *" ${1##*/} "* ]]
}

# Prints the cargo options that choose the unit tests and the deterministic ones of `tests/` folders.
unit_options() {
    local file
    printf '%s\n' --lib --bins
    for file in crates/*/tests/*.rs crates/*/tests/*/main.rs; do
        is_real_time "${file%%/tests/*}" && continue
        file=${file%/main.rs}
        file=${file##*/}
        printf '%s\n' --test "${file%.rs}"
    done
}

# Prints `BINARY NAME` for each test that failed, from the output of cargo.
failures() {
    awk '
        /^ +Running .*\(.*\)$/ { binary = $NF; gsub(/[()]/, "", binary); count = 0; listed = 0 }
        /^ +Doc-tests / { binary = "documentation"; count = 0; listed = 0 }
        # There are two such lines: before the outputs, and before the names.
        /^failures:$/ { listed = 1; count = 0; next }
        listed && /^    [^ ]+$/ { names[count++] = $1 }
        /^test result: FAILED/ { for (at = 0; at < count; at++) print binary, names[at]; count = 0; listed = 0 }
    ' "$output"
}

# first_output BINARY NAME: the part of cargo's output that belongs to this test.
first_output() {
    awk -v binary="($1)" -v title="---- $2 stdout ----" '
        /^ +Running / { here = $NF == binary }
        here && $0 == title { inside = 1 }
        inside && (/^---- / && $0 != title || /^failures:$/) { inside = 0 }
        inside
    ' "$output"
}

# repeat BINARY NAME: runs a test alone, in the folder and with the environment that cargo gives it. A failure that is final is in
# `reason`.
repeat() {
    local binary name=$2 folder file
    # The name of a test says what must not happen.
    if reason=$(first_output "$1" "$name" | sed "s/$name//g" | final_failure); then return 1; fi
    binary=$(realpath "$1")
    # What rustc noted down of the sources begins with the file of the test.
    folder=$(sed -n '1s/^[^:]*: .*\(crates\/[^/ ]*\)\/tests\/.*$/\1/p' "${1}.d")
    [ -n "$folder" ] && is_real_time "$folder" || return 1
    file=$logs/flaky/$(basename "$1" | sed 's/-[0-9a-f]*$//')-${name//::/-}.txt
    mkdir -p "$logs/flaky"
    {
        echo "── first, among all others ──"
        first_output "$1" "$name"
        echo "── again, alone ──"
    } >"$file"
    echo "── $name failed; once more, alone ──"
    (
        cd "$folder"
        CARGO_MANIFEST_DIR=$PWD timeout "$repeat_seconds_max" "$binary" --exact "$name" --nocapture
    ) >>"$file" 2>&1 && grep -q '^test result: ok. 1 passed' "$file" || return 1
    note flaky "$name: both outputs are in $file"
    echo "$name is flaky: both outputs are in $file; the end of the first one:"
    sed '/^── again, alone ──$/,$d' "$file" | tail -n "$first_run_lines"
}

# Runs what failed once more; fails where something failed that is final.
repeat_failures() {
    local failed broken=0 binary name reason
    mapfile -t failed < <(failures)
    # A binary that ended without its list of failures, or code that does not compile.
    if [ ${#failed[@]} -eq 0 ] || [ "$(grep -c '^test result: FAILED' "$output")" != "$(failed_targets)" ]; then
        return 1
    fi
    for entry in "${failed[@]}"; do
        read -r binary name <<<"$entry"
        reason=
        if [ ${#failed[@]} -gt "$repeats_max" ] || ! repeat "$binary" "$name"; then
            note failed "$name${reason:+: $reason}"
            echo "$name FAILED${reason:+, and is not run again: $reason}"
            broken=1
        fi
    done
    return "$broken"
}

# How many binaries failed, as cargo counts.
failed_targets() {
    sed -n 's/^error: \([0-9]*\) targets\{0,1\} failed:$/\1/p' "$output" | awk '{ sum += $1 } END { print sum + 0 }'
}

case ${1:-all} in
unit) mapfile -t options < <(unit_options) ;;
all) options=() ;;
tls)
    export ENCKE_TEST_TLS=1
    # With the features of the whole workspace, so that nothing is built again. Two more crates have tests of this name.
    packages=(--workspace --exclude encke-sources --exclude encke-webhooks)
    # The examples have their own servers, and the tests of proxies choose for each connection. A connection above a limit gets an alert
    # instead of a status (`tls.rs`). The tests of delivery go all ways by themselves.
    options=(--test wire -- --skip examples:: --skip proxies:: --skip delivery:: --skip connections_max_answers)
    ;;
http2 | http2-tls)
    export ENCKE_TEST_HTTP2=1
    [ "$1" = http2 ] || export ENCKE_TEST_TLS=1
    packages=(--workspace --exclude encke-sources --exclude encke-webhooks)
    options=(--test wire --)
    for skipped in "${http1_only[@]}"; do options+=(--skip "$skipped"); done
    # The tests of proxies choose TLS for each connection.
    [ "$1" = http2 ] || options+=(--skip proxies::)
    ;;
cluster | mongodb) options=(--test "$1" -- "${@:2}") ;;
*) echo "usage: scripts/cargo-tests.sh [unit|tls|http2|http2-tls|cluster|mongodb]" >&2; exit 2 ;;
esac

need_rust
mkdir -p "$logs"
status=0
RUST_TEST_THREADS=$threads cargo test "${packages[@]}" --locked --no-fail-fast "${options[@]}" 2>&1 | tee "$output" || status=$?
if [ "$status" -ne 0 ]; then
    status=0
    repeat_failures || status=1
fi
note passed "$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$output" | awk '{ sum += $1 } END { print sum + 0 }')"
exit "$status"
