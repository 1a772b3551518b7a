#!/usr/bin/env bash
# Finds words that Encke does not use (scripts/words.txt) in code and documents. Those in scripts/words-left.txt are still to be
# replaced: a word leaves that list with its last occurrence and cannot come back.
#
#   scripts/words.sh              checks
#   scripts/words.sh --count      how often each of the words left occurs, and in how many files
#   scripts/words.sh --show WORD  where a word of words.txt occurs
#   scripts/words.sh --update     takes words that are gone off the list of those left
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

files=('*.rs' '*.md' '*.sh' '*.toml' '*.yml' '*.ts' '*.js' '*.mjs' '*.java' '*.css' Makefile
    ':!web/dist' ':!docs/benchmarks' ':!scripts/words.sh' ':!deny.toml')
shown_max=5

# pattern_of WORDS: the regular expression for whole lines.
pattern_of() {
    case $1 in
    re:*) echo "${1#re:}" ;;
    # A word begins after what is no letter, or as a capital inside of a name; it does not go on with a small letter.
    *) echo "(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:$1)(?![a-z])" ;;
    esac
}

# lines_with WORDS EXCEPT: `FILE:NUMBER:LINE` of each occurrence.
lines_with() {
    git grep -nP "$(pattern_of "$1")" -- "${files[@]}" | { if [ -n "$2" ]; then grep -vP "$2"; else cat; fi; } || true
}

# Reads words.txt into `words`, `instead` and `except`.
words=()
declare -A instead except
while IFS= read -r line; do
    [[ $line == '#'* || -z $line ]] && continue
    # The columns are divided by ` | `; a `|` without spaces belongs to an expression.
    word=${line%% | *}
    rest=${line#* | }
    words+=("$word")
    instead[$word]=${rest%% |*}
    except[$word]=${rest#"${instead[$word]}"}
    except[$word]=${except[$word]# |}
    except[$word]=${except[$word]# }
done <scripts/words.txt

left=$(grep -v '^#' scripts/words-left.txt || true)
found=0
case ${1:-} in
--count)
    while IFS= read -r word; do
        [ -n "$word" ] || continue
        lines_with "$word" "${except[$word]:-}" | awk -F: -v word="$word" '{ files[$1] } END { printf "%5d in %3d files  %s\n", NR, length(files), word }'
    done <<<"$left"
    exit
    ;;
--update)
    still=$(while IFS= read -r word; do
        [ -z "$(lines_with "$word" "${except[$word]:-}")" ] || echo "$word"
    done <<<"$left")
    { grep '^#' scripts/words-left.txt; echo "$still"; } >scripts/words-left.new
    mv scripts/words-left.new scripts/words-left.txt
    exit
    ;;
--show) lines_with "$2" "${except[$2]:-}"; exit ;;
esac
for word in "${words[@]}"; do
    lines=$(lines_with "$word" "${except[$word]}")
    if grep -qxF -- "$word" <<<"$left"; then
        [ -n "$lines" ] || { echo "“$word” is gone: take it off the list with scripts/words.sh --update" >&2; found=1; }
    elif [ -n "$lines" ]; then
        echo "“$word” is not a word of ours; write: ${instead[$word]}" >&2
        head -n "$shown_max" <<<"$lines" | cut -c1-200 >&2
        found=1
    fi
done
while IFS= read -r word; do
    [ -z "$word" ] || [ -n "${instead[$word]:-}" ] || { echo "scripts/words-left.txt: no such line in words.txt: $word" >&2; found=1; }
done <<<"$left"
exit "$found"
