#!/usr/bin/env bash
# Measures Screenpush with a publisher's page, a viewer's page and 49 other subscribers, and writes docs/benchmarks/screenpush.md. Fails if
# the p95 of a picture's way is not under 300 ms.
#
#   BENCH_SECONDS=300  the time of the measurement
#   SUBSCRIBERS=50     the number of subscribers
#   SCREENPUSH_PAGE=…  the page to write
#   BENCH_PREFIX=…     put before everything, such as "nice -n -15" on a machine that has other work
#   ENCKE_BIN=…        another program to measure
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_npm tests/browser
need_chromium
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
export ENCKE_BIN
page=${SCREENPUSH_PAGE:-docs/benchmarks/screenpush.md}
written=$(mktemp)
status=0
read -ra prefix <<<"${BENCH_PREFIX:-}"
"${prefix[@]}" node tests/browser/bench-screenpush.mjs --seconds "${BENCH_SECONDS:-300}" --subscribers "${SUBSCRIBERS:-50}" >"$written" || status=$?
cat "$written"
[ ! -s "$written" ] || cp "$written" "$page"
rm "$written"
exit "$status"
