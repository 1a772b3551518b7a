#!/usr/bin/env bash
# Nodes of a cluster on a real NATS server: publications between them, interest, order, and what happens when one of them or NATS ends. `NATS_SERVER`
# names another program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=v2.15.2

if [ -z "${NATS_SERVER:-}" ]; then
    command -v go >/dev/null || skip "go is missing: install Go 1.25 or newer"
    tools=$(realpath --canonicalize-missing "$target_dir/go")
    NATS_SERVER=$tools/nats-server-$version
    if [ ! -x "$NATS_SERVER" ]; then
        GOBIN=$tools go install "github.com/nats-io/nats-server/v2@$version"
        mv "$tools/nats-server" "$NATS_SERVER"
    fi
fi

need_rust
output=$(mktemp)
trap 'rm -f "$output"' EXIT
NATS_SERVER=$NATS_SERVER cargo test --locked -p encke-cli --test cluster -- --test-threads "${RUST_TEST_THREADS:-4}" "$@" 2>&1 | tee "$output"
note passed "$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$output")"
