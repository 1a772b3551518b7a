#!/usr/bin/env bash
# Runs the Autobahn test suite (cases 1 to 10, all of the protocol but compression) against the echo example and writes
# tests/autobahn/results.txt. The suite speaks only Python 2.7; without one this is skipped.
# `scripts/autobahn.sh EXAMPLE` tests another example that prints `listening on ws://HOST:PORT`, such as `echo_std`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

example=${1:-echo}
venv=$PWD/target/autobahn-venv
work=$PWD/target/autobahn
suite_seconds_max=480

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

# Builds the example, starts it on a free port and sets `url`.
start_echo() {
    # With the build of the tests: it judges bytes, not speed.
    need_built dev --workspace --example "$example"
    trap 'kill "$server_pid" 2>/dev/null || true' EXIT
    start_server echo 'listening on ' "$target_dir/debug/examples/$example" --port 0
}

run_suite() {
    rm -rf "$work/reports"
    cat >"$work/spec.json" <<SPEC
{
    "outdir": "$work/reports",
    "servers": [{"agent": "echo", "url": "$url"}],
    "cases": ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"],
    "exclude-cases": [],
    "exclude-agent-cases": {}
}
SPEC
    if ! PYTHONWARNINGS=ignore timeout "$suite_seconds_max" "$venv/bin/wstest" \
        --mode fuzzingclient --spec "$work/spec.json" >"$work/suite.log" 2>&1; then
        echo 'the Autobahn test suite itself failed:' >&2
        tail -n 20 "$work/suite.log" >&2
        return 1
    fi
}

mkdir -p "$work"
find_python || skip 'the Autobahn test suite needs Python 2.7, and there is none here'
prepare_suite
start_echo
run_suite
"$venv/bin/python" tests/autobahn/results.py "$work/reports/index.json" tests/autobahn/results.txt
