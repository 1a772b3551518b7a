#!/usr/bin/env bash
# Checks that the built pages are what their sources build, then tests them in Chromium against the real program:
# two pages chat, on every transport, across a restart. `ENCKE_BIN` names another program to test.
# Screenshots of the run are left in tests/browser/screenshots.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v npm >/dev/null || { echo "npm is missing: install Node 20 or newer" >&2; exit 1; }
need_debian chromium fonts-liberation curl

for folder in web tests/browser; do
    npm --prefix "$folder" ci --no-audit --no-fund --loglevel=error
done
npm --prefix web run --silent check

if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
export ENCKE_BIN
npm --prefix tests/browser run --silent test
