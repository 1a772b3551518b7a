#!/usr/bin/env bash
# Checks licences, sources and known advisories of all dependencies: deny.toml.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fetch_seconds_max=60

need_rust
command -v cargo-deny >/dev/null || skip 'cargo-deny is missing: cargo install --locked cargo-deny'
cargo deny --locked check --hide-inclusion-graph licenses bans sources
if timeout "$fetch_seconds_max" cargo deny --locked fetch db >/dev/null 2>&1; then
    cargo deny --locked check advisories
else
    note skipped 'advisories: their database cannot be reached'
    echo 'skipped: advisories: their database cannot be reached'
fi
