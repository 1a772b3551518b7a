#!/usr/bin/env bash
# Measures the time that a webhook adds to a message when its backend answers at once. Writes docs/benchmarks/webhook.md.
#
#   MESSAGES=2000      messages of each kind
#   WEBHOOK_PAGE=…     the page to write
#   ENCKE_BIN=…        another program to measure
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$encke
fi
need_built release -p benches --bin webhook
page=${WEBHOOK_PAGE:-docs/benchmarks/webhook.md}
"$target_dir/release/webhook" "$ENCKE_BIN" --messages "${MESSAGES:-2000}" --into "$page"
echo "written: $page"
