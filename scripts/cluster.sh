#!/usr/bin/env bash
# Nodes of a cluster on a real NATS server: publications between them, interest, order, and what happens when one of them or NATS ends. `NATS_SERVER`
# names another program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_nats
need_rust
# With the features of the whole workspace, so that nothing is built again.
output=$(mktemp)
trap 'rm -f "$output"' EXIT
NATS_SERVER=$NATS_SERVER cargo test --locked --workspace --test cluster -- --test-threads "${RUST_TEST_THREADS:-4}" "$@" 2>&1 | tee "$output"
note passed "$(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$output")"
