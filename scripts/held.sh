#!/usr/bin/env bash
# The example backends of examples/held-requests behind the program: a held response, a stream, and `/hold` get an order.
# `ENCKE_BIN` names another program to test.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

work=$PWD/$target_dir/held
key=held-test-key-0123456789

start_encke() {
    cat >"$work/encke.toml" <<TOML
listen = "127.0.0.1:0"
demo = false
log = "warn"

[proxy]
backend = "http://127.0.0.1:$port"

[[api_keys]]
name = "backend"
key = "$key"
scopes = ["publish"]
TOML
    trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
    start_server encke 'encke listening on ' "$ENCKE_BIN" serve --config "$work/encke.toml"
}

holds() { [ "$(curl -s "$url/metrics" | sed -n "s/^$1 //p")" = "$2" ]; }
answers() { [ "$(curl -s -o "$work/answer" -w '%{http_code}' "$url/nothing")" = 404 ]; }
is_gone() { ! answers; }

# is NAME TEXT: compares an answer. Spaces in JSON do not count.
is() {
    [ "$(tr -d ' ' <"$work/$1")" = "$2" ] || { echo "$1: $(<"$work/$1")" >&2; return 1; }
}

# try_backend COMMAND…: runs one backend.
try_backend() {
    ENCKE_URL=$url ENCKE_API_KEY=$key PORT=$port "$@" >"$work/backend.out" 2>&1 &
    local backend=$! next stream hold
    wait_until 'the backend answers' answers
    wait_until 'nothing is held' holds encke_proxy_held 0
    wait_until 'nothing is subscribed' holds encke_in_process_subscriptions 0
    curl -sS --max-time "$event_seconds_max" "$url/orders/next" >"$work/next" & next=$!
    curl -sSN --max-time "$event_seconds_max" "$url/orders/stream" >"$work/stream" & stream=$!
    curl -sS --max-time "$event_seconds_max" "$url/hold/orders" >"$work/hold" & hold=$!
    wait_until 'both responses are held' holds encke_proxy_held 2
    wait_until 'the request is held' holds encke_in_process_subscriptions 3
    curl -sS --fail --max-time "$event_seconds_max" -d '{"item":"tea"}' "$url/orders"
    wait "$next" "$hold"
    wait_until 'the order is in the stream' grep -q tea "$work/stream"
    kill "$stream" "$backend" 2>/dev/null || true
    wait "$stream" "$backend" 2>/dev/null || true
    is next '{"item":"tea"}'
    is hold '[{"channel":"/orders","data":{"item":"tea"}}]'
    is stream $'orders:\n{"item":"tea"}'
    wait_until 'the backend is gone' is_gone
}

command -v curl >/dev/null || skip 'curl is missing'
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$encke
fi
mkdir -p "$work"
read -r port _ < <(free_ports)
start_encke
ran=0
for name in python node go; do
    case $name in
    python) set -- python3 examples/held-requests/python/backend.py ;;
    node) set -- node examples/held-requests/node/backend.mjs ;;
    go)
        if command -v go >/dev/null; then go build -o "$work/backend-go" examples/held-requests/go/backend.go; fi
        set -- "$work/backend-go"
        ;;
    esac
    if ! command -v "$1" >/dev/null; then
        note skipped "the backend in $name: $1 is missing"
        continue
    fi
    echo "== the backend in $name"
    try_backend "$@"
    ran=$((ran + 1))
done
note passed "$ran"
