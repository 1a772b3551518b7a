#!/usr/bin/env bash
# The example backends of examples/webhooks in Rust, Node, Python and Go behind a server, the order service in Python and Java, and the official
# libraries of Standard Webhooks, which must accept the signatures. What has no tool on this machine is skipped.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

built=$PWD/$target_dir/webhooks
venv=$built/venv
suite_seconds_max=480

# try NAME TEST COMMAND…: runs a test with the backend that this command starts.
try() {
    local name=$1 test=$2
    shift 2
    echo "== $name"
    BACKEND=$* timeout "$suite_seconds_max" cargo test --quiet --locked --workspace --test examples "$test" -- --exact
    ran=$((ran + 1))
}

# try_with TOOL NAME TEST COMMAND…: the same, if there is this tool.
try_with() {
    local tool=$1
    shift
    if command -v "$tool" >/dev/null; then
        try "$@"
    else
        note skipped "$1: $tool is missing"
    fi
}

# A virtual environment with the official library for Python.
prepare_python() {
    local requirements=tests/webhooks/requirements.txt
    cmp --silent "$requirements" "$venv/installed.txt" && return
    rm -rf "$venv"
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --requirement "$requirements" &&
        cp "$requirements" "$venv/installed.txt"
}

prepare_node() { (need_npm tests/webhooks); }

prepare_go() { (cd tests/webhooks/go && go build -o "$built/verify-go" .); }

# library TOOL NAME PREPARE COMMAND…: the test with an official library, if it can be had.
library() {
    local tool=$1 name=$2 prepare=$3
    shift 3
    if command -v "$tool" >/dev/null && "$prepare" >&2; then
        try "$name" the_official_library_accepts_signatures_and_no_others "$@"
    else
        note skipped "$name: $tool or the library cannot be had"
    fi
}

need_rust
mkdir -p "$built"
ran=0
whole=a_backend_names_users_protects_channels_changes_messages_and_answers
orders=an_order_service_takes_orders_by_webhooks_and_publishes_by_the_api
need_built dev --workspace --example webhook_backend
try 'the example in Rust' "$whole" "$(realpath "$target_dir/debug/examples/webhook_backend")"
if command -v go >/dev/null; then go build -o "$built/backend-go" examples/webhooks/go/backend.go; fi
try_with node 'the example in Node' "$whole" node examples/webhooks/node/backend.mjs
try_with python3 'the example in Python' "$whole" python3 examples/webhooks/python/backend.py
try_with go 'the example in Go' "$whole" "$built/backend-go"
try_with python3 'the order service in Python' "$orders" python3 examples/python/order_service.py
if command -v javac >/dev/null; then javac -Xlint:all -Werror -d "$built/java" examples/java/*.java; fi
try_with javac 'the order service in Java' "$orders" java -cp "$built/java" OrderService
try_with node 'the chat' the_chat_lists_members_delivers_private_messages_and_filters node examples/webhooks/node/chat.mjs
library npm 'the library for Node' prepare_node node tests/webhooks/verify.mjs
library python3 'the library for Python' prepare_python "$venv/bin/python" tests/webhooks/verify.py
library go 'the library for Go' prepare_go "$built/verify-go"
note passed "$ran"
