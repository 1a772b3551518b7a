#!/usr/bin/env bash
# Runs the Autobahn test suite against the echo example: cases 1 to 10, the whole protocol, and some of 12 and 13, which are about
# compression. `scripts/autobahn.sh all` runs all 517 cases over ws, then over wss: twenty minutes on two busy cores. Writes
# tests/autobahn/results.txt, or results-all.txt. The suite speaks only Python 2.7; without one this is skipped. It speaks HTTP/1.1 only, so
# nothing here is over HTTP/2.
# `scripts/autobahn.sh SOME EXAMPLE [FLAG…]` tests another example that prints `listening on ws://HOST:PORT`, such as `echo_std`, which does
# not compress: SOME is `plain` then, cases 1 to 10. With flags, such as `all echo --dev-tls`, there is one run with these.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cases=${1:-some}
example=${2:-echo}
flags=("${@:3}")
venv=$PWD/target/autobahn-venv
work=$PWD/target/autobahn
protocol='"1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"'
results=tests/autobahn/results.txt
progress_seconds=15
# Each of groups 12 and 13 sends 1,000 messages: these are short and long ones, and all kinds of offers.
case $cases in
    plain) list=$protocol count=301 suite_seconds_max=480 ;;
    some) list="$protocol"', "12.1.1", "12.1.5", "12.3.11", "13.2.4", "13.3.5", "13.5.3", "13.7.6"' count=308 suite_seconds_max=480 ;;
    all) list='"*"' count=517 suite_seconds_max=3600 results=tests/autobahn/results-all.txt ;;
    *) echo "usage: scripts/autobahn.sh [plain|some|all] [EXAMPLE]" >&2 && exit 2 ;;
esac

# Sets `python`; a 2.7 may be on the path, or one of pyenv's that is not selected.
find_python() {
    for python in python2.7 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7*/bin/python2.7; do
        "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (2, 7))' 2>/dev/null && return
    done
    return 1
}

# A virtual environment with the suite, made once for each version of the list of requirements.
prepare_suite() {
    local requirements=tests/autobahn/requirements.txt
    cmp --silent "$requirements" "$venv/installed.txt" && return
    echo 'installing the Autobahn test suite' >&2
    rm -rf "$venv" "$work/virtualenv"
    command -v cc >/dev/null || need_debian gcc libc6-dev
    # Into a log: Python 2.7 makes pip warn at length.
    if ! {
        "$python" -m pip install --target "$work/virtualenv" virtualenv==16.7.12 &&
            PYTHONPATH=$work/virtualenv "$python" -m virtualenv --no-download "$venv" &&
            "$venv/bin/pip" install -r "$requirements"
    } >"$work/install.log" 2>&1; then
        tail -n 20 "$work/install.log" >&2
        return 1
    fi
    cp "$requirements" "$venv/installed.txt"
}

# Starts the example on a free port, with these flags, and sets `url`.
start_echo() {
    start_server echo 'listening on ' "$target_dir/debug/examples/$example" --port 0 "$@"
}

# run_suite NAME: runs the cases against `url`. Their reports are in $work/NAME then.
run_suite() {
    local name=$1 status=0 suite_pid log=$work/$1.log
    rm -rf "${work:?}/$name"
    cat >"$work/$name.json" <<SPEC
{
    "outdir": "$work/$name",
    "servers": [{"agent": "echo", "url": "$url"}],
    "cases": [$list],
    "exclude-cases": [],
    "exclude-agent-cases": {}
}
SPEC
    PYTHONWARNINGS=ignore timeout "$suite_seconds_max" "$venv/bin/wstest" \
        --mode fuzzingclient --spec "$work/$name.json" >"$log" 2>&1 &
    suite_pid=$!
    show_progress "$name" "$log" "$suite_pid"
    wait "$suite_pid" || status=$?
    if [ "$status" -ne 0 ]; then
        echo "the Autobahn test suite itself failed over $name:" >&2
        tail -n 20 "$log" >&2
    fi
    return "$status"
}

# show_progress NAME LOG PROCESS: says now and then how many cases have begun, until the process ends.
show_progress() {
    local began=$SECONDS shown=$SECONDS
    while kill -0 "$3" 2>/dev/null; do
        sleep 1
        [ $((SECONDS - shown)) -ge "$progress_seconds" ] || continue
        shown=$SECONDS
        echo "$1: case $(grep -c 'Running test case ID' "$2") of $count, $((SECONDS - began)) s" >&2
    done
}

mkdir -p "$work"
find_python || skip 'the Autobahn test suite needs Python 2.7, and there is none here'
prepare_suite
# With the build of the tests: it judges bytes, not speed.
need_built dev --workspace --example "$example"
trap 'kill "$server_pid" 2>/dev/null || true' EXIT
names=()
# one_run FLAG…: one run, named by the scheme of the server's address.
one_run() {
    local name
    start_echo "$@"
    name=${url%%://*}
    run_suite "$name"
    names+=("$name=$work/$name/index.json")
    kill "$server_pid"
}
one_run "${flags[@]}"
if [ "$cases" = all ] && [ "$#" -lt 2 ]; then one_run --dev-tls; fi
"$venv/bin/python" tests/autobahn/results.py "$results" "$count" "${names[@]}"
