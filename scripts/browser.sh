#!/usr/bin/env bash
# Checks that the built pages are what their sources build, then tests them in Chromium against the real program:
# two pages chat, on every transport, across a restart; and the chat in Firefox. `ENCKE_BIN` names another program to test.
# Screenshots of the run are left in target/browser. With --pictures it only makes those of the README, and puts them into docs/images.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_npm web tests/browser
need_chromium
need_debian curl python3
need_debian firefox-esr || note skipped 'the chat and the extension in Firefox: there is no Firefox'
npm --prefix web run --silent check
web/node_modules/.bin/tsc --noEmit -p screenpush

if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
export ENCKE_BIN
if [ "${1:-}" = --pictures ]; then
    (cd tests/browser && node --test readme.test.mjs)
    cp target/browser/readme/*.webp docs/images/
    exit
fi
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
make_certificate "$work/cert"
export BROWSER_TLS=$work/cert CHROMIUM_TRUSTS=$work/cert.pem NODE_EXTRA_CA_CERTS=$work/cert.pem
twice browser npm --prefix tests/browser run --silent test
