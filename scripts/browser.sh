#!/usr/bin/env bash
# Checks that the built pages are what their sources build, then tests them in Chromium against the real program:
# two pages chat, on every transport, across a restart. `ENCKE_BIN` names another program to test.
# Screenshots of the run are left in target/browser.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_npm web tests/browser
need_chromium
need_debian curl
npm --prefix web run --silent check
web/node_modules/.bin/tsc --noEmit -p screenpush

if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
export ENCKE_BIN
twice browser npm --prefix tests/browser run --silent test
