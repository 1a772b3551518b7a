#!/usr/bin/env bash
# Checks and packs the extension of Screenpush for Chromium and Firefox: target/screenpush/.
#
#   scripts/extension.sh           packs
#   scripts/extension.sh --lint    packs, and checks the Firefox one with Mozilla's web-ext, which npm downloads
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

web_ext=web-ext@10.7.0

need_npm web
web/node_modules/.bin/tsc --noEmit -p screenpush
node screenpush/build.mjs "$target_dir/screenpush"
if [ "${1:-}" = --lint ]; then
    npm exec --yes --package "$web_ext" -- web-ext lint --warnings-as-errors --source-dir "$target_dir/screenpush/firefox"
fi
