#!/usr/bin/env bash
# Prints what each source file is for: its first sentence.
#
#   scripts/map.sh                         all crates, pages and the extension
#   scripts/map.sh crates/encke-core/src   one folder
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -gt 0 ] || set -- 'crates/*/src' web screenpush
git ls-files -- "${@/%//*.rs}" "${@/%//*.ts}" "${@/%//*.mjs}" | grep -vE '(^|/)(tests?|dist)(/|\.rs$|_)' | while IFS= read -r file; do
    # A comment of several lines may begin on its second one.
    printf '%-56s %s\n' "$file" "$(sed -n '1{/^\/\*\*$/n; s/^\( \*\|\/\/!\{0,1\}\|\/\*\*\{0,1\}\) *//; s/ *\*\/$//; s/\. .*//; p; q}' "$file")"
done
