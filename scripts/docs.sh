#!/usr/bin/env bash
# The documentation of all crates, warnings are errors; and the crates can be published, but for what only a build of them would show.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked
log=$(realpath "$target_dir")/publish.log
if ! cargo publish --workspace --dry-run --no-verify --allow-dirty --locked >"$log" 2>&1; then
    cat "$log"
    # It reads the index of all crates, which a build does not.
    grep -qE 'failed to (download|update|fetch|query)|network' "$log" || exit 1
    note skipped 'crates that can be published: the index of crates.io cannot be read'
fi
