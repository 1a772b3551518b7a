#!/usr/bin/env bash
# The HTTP API against its own description: the schema fuzzer schemathesis sends valid and invalid requests to every operation of
# the OpenAPI document, and the example clients of examples/http-api run. No answer may be a server error or differ from the document.
# `ENCKE_BIN` names another program to test.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

venv=$(realpath --canonicalize-missing "$target_dir/api-venv")
work=$(realpath --canonicalize-missing "$target_dir/api")
suite_seconds_max=480
# Random requests for each operation, always the same ones.
examples_max=${EXAMPLES_MAX:-25}
key=api-test-key-0123456789

# Starts the program with histories, a client and a key, and sets `url`.
start_encke() {
    cat >"$work/encke.toml" <<TOML
listen = "127.0.0.1:0"
shards = 2
demo = false
log = "warn"

[[channels]]
pattern = "/history/**"
history_messages = 100

[[api_keys]]
name = "test"
key = "$key"
scopes = ["publish", "deliver", "read", "manage", "metrics"]
TOML
    trap 'kill "$server_pid" 2>/dev/null || true' EXIT
    start_server encke 'encke listening on ' "$ENCKE_BIN" serve --config "$work/encke.toml"
}

fuzz() (
    config=$PWD/tests/api/schemathesis.toml
    # It leaves files where it runs.
    cd "$work"
    timeout "$suite_seconds_max" "$venv/bin/st" --config-file "$config" run "$url/api/v1/openapi.json" \
        --header "Authorization: Bearer $key" --phases examples,coverage,fuzzing --max-examples "$examples_max" \
        --generation-deterministic --generation-with-security-parameters false --workers 1 --request-timeout 60 \
        --continue-on-failure --no-shrink
)

# The example clients: each publishes and reads, and ends with an error if something is wrong.
run_examples() {
    local name ran=0
    export ENCKE_URL=$url ENCKE_API_KEY=$key
    for name in rust python node go; do
        case $name in
        rust) set -- "$target_dir/debug/examples/http_api" ;;
        python) set -- python3 examples/http-api/python/client.py ;;
        node) set -- node examples/http-api/node/client.mjs ;;
        go) set -- go run examples/http-api/go/client.go ;;
        esac
        if ! command -v "$1" >/dev/null; then
            note skipped "the example in $name: $1 is missing"
            continue
        fi
        echo "== the example in $name"
        "$@" | tee "$work/example-$name.out"
        grep -q 'history: 3 messages' "$work/example-$name.out"
        ran=$((ran + 1))
    done
    note passed "$ran"
}

mkdir -p "$work"
need_venv "$venv" tests/api/requirements.txt
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$encke
fi
need_built dev --workspace --example http_api
start_encke
run_examples
fuzz | tee "$work/fuzz.out"
kill -0 "$server_pid"
if grep -E 'panicked|ERROR' "$work/encke.err"; then
    echo 'the server has logged an error' >&2
    exit 1
fi
note passed "$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) generated.*/\1/p' "$work/fuzz.out" | tail -n 1)"
