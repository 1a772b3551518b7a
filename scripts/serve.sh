#!/usr/bin/env bash
# Builds the program quickly and runs it; arguments go to `encke serve`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_rust
if [ ! -e "$target_dir/serve/encke" ]; then
    echo "building encke with the profile serve, which takes less than half the time of a release and is a few per cent slower;" >&2
    echo "the packaged program: cargo build --release --locked -p encke-cli" >&2
fi
cargo build --quiet --locked --profile serve -p encke-cli
exec "$target_dir/serve/encke" serve "$@"
