#!/usr/bin/env bash
# Measures publishing over the HTTP API beside publishing over a WebSocket and a floor. Writes docs/benchmarks/api.md.
#
#   SECONDS_EACH=5     the time of each measurement
#   ROUNDS=3           measurements of each kind
#   API_PAGE=…         the page to write
#   ENCKE_BIN=…        another program to measure
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$encke
fi
command -v taskset >/dev/null || need_debian util-linux
need_built release -p benches --bin api --bin api_floor
page=${API_PAGE:-docs/benchmarks/api.md}
# The load runs on the other cores.
cores=$(nproc)
[ "$cores" -gt 1 ] && load=(taskset -c "1-$((cores - 1))") || load=()
"${load[@]}" "$target_dir/release/api" "$ENCKE_BIN" "$target_dir/release/api_floor" --seconds "${SECONDS_EACH:-5}" --rounds "${ROUNDS:-3}" --into "$page"
echo "written: $page"
