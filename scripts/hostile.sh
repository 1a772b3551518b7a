#!/usr/bin/env bash
# Attackers against the program, each attack beside healthy clients that must not notice it: two minutes.
#
#   scripts/hostile.sh                    every scenario, with two shards and with one
#   scripts/hostile.sh --list             their names
#   scripts/hostile.sh --only flood       those whose names begin so
#   scripts/hostile.sh --shards 2         with two shards only
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_encke
need_built dev --workspace --bin hostile
output=${TEST_LOGS:-$target_dir/test}/hostile.out
mkdir -p "${output%/*}"
status=0
"$target_dir/debug/hostile" --encke "$encke" "$@" | tee "$output" || status=$?
while IFS= read -r line; do note "${line%%: *}" "${line#*: }"; done < <(grep -E '^(flaky|skipped|failed): ' "$output" || true)
exit "$status"
