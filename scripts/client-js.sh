#!/usr/bin/env bash
# The JavaScript client (clients/js): its types and their reference, seeded faults under virtual time, the real server behind proxies that break it, Faye,
# Chromium and Firefox, its size, and a fresh project that installs it. `ENCKE_BIN` names another program to test; with --reference CometD's own server
# is one of those it is tested with.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_npm clients/js clients/js/reference
need_chromium
need_debian firefox-esr || note skipped 'the JavaScript client in Firefox: there is no Firefox'
npm --prefix clients/js run --silent build
npm --prefix clients/js run --silent docs
clients/js/node_modules/.bin/tsc -p clients/js/tsconfig.examples.json
if [ "${1:-}" = --reference ]; then
    need_java
    (cd tests/java/reference && mvn -q -B -ntp process-classes)
    REFERENCE_SERVER=$(realpath tests/java/reference/run.sh)
    export REFERENCE_SERVER
fi
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
export ENCKE_BIN
twice client-js npm --prefix clients/js run --silent test
