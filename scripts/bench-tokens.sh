#!/usr/bin/env bash
# Measures handshakes with and without tokens, which takes a minute. Writes docs/benchmarks/tokens.md.
#
#   TOKENS_PAGE=…      the page to write
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_built release -p encke-auth --example handshakes
page=${TOKENS_PAGE:-docs/benchmarks/tokens.md}
"$target_dir/release/examples/handshakes" >"$target_dir/tokens.md"
cp "$target_dir/tokens.md" "$page"
cat "$page"
echo "written: $page"
