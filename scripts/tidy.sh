#!/usr/bin/env bash
# The rules of the house that no other tool checks: files of one idea, nothing left undone, lock files without addresses.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

file_lines_max=500
found=0

complain() {
    echo "$1" >&2
    found=1
}

while IFS= read -r file; do
    lines=$(wc -l <"$file")
    [ "$lines" -le "$file_lines_max" ] || complain "$file has $lines lines: is it one idea? (at most $file_lines_max)"
done < <(git ls-files '*.rs' '*.ts' '*.js' '*.mjs' '*.java' '*.css' '*.sh' ':!web/dist')

while IFS= read -r line; do
    complain "left undone: $line"
done < <(git grep -nE 'TODO|FIXME|XXX:|todo!\(|unimplemented!\(|#\[ignore' -- '*.rs' '*.ts' '*.js' '*.java' ':!web/dist' || true)

while IFS= read -r file; do
    complain "$file holds download addresses"
done < <(git grep -lE '"resolved":' -- '*package-lock.json' || true)

while IFS= read -r file; do
    case $file in
    crates/encke-cli/src/allocator.rs) ;;
    *) complain "$file allows unsafe code" ;;
    esac
done < <(git grep -lE 'allow\(unsafe_code\)|expect\(unsafe_code\)' -- '*.rs' || true)

# Errors grow: a program that matches one must compile with the next variant, too.
while IFS= read -r line; do
    complain "an error that is not #[non_exhaustive]: $line"
done < <(git ls-files 'crates/*/src/*.rs' ':!crates/simulator' | xargs awk '
    /^#\[non_exhaustive\]/ { marked = FILENAME ":" FNR + 1 }
    /^pub enum [A-Za-z]*Error / && marked != FILENAME ":" FNR { print FILENAME ": " $0 }')

# Everyone builds with the oldest Rust that the crates say they need, so each build checks it.
oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
toolchain=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
[[ $toolchain == "$oldest".* ]] || complain "rust-toolchain.toml names $toolchain, Cargo.toml rust-version $oldest: they belong together"

# The walks through typical changes name files that are there.
while IFS= read -r path; do
    # Only braces are expanded: the expression lets nothing else through.
    for file in $(eval "echo $path"); do
        [ -e "$file" ] || complain "CONTRIBUTING.md names $file, which is not there"
    done
done < <(grep -oE '`(crates|tests|docs|scripts|web)/[A-Za-z0-9_./{},-]+`' CONTRIBUTING.md | tr -d '`' | sort -u)

# Links from one document to another lead somewhere. Those of encke-cli/src/reference count where they are copied to.
while IFS=: read -r page link; do
    page=./$page
    [ -e "${page%/*}/$link" ] || complain "$page has a link to $link, which is not there"
done < <(git grep -oE '\]\([A-Za-z0-9_/-]*[./][A-Za-z0-9_./-]*[)#]' -- '*.md' ':!crates/encke-cli/src/reference' | sed -E 's/:\]\((.*).$/:\1/' | sort -u)

# The first line of each file says what the file is for: scripts/map.sh shows it.
while IFS= read -r file; do
    head -n 1 "$file" | grep -qE "^(//|/[*][*])" || complain "$file does not begin with what it is for"
done < <(git ls-files 'crates/*/src/*.rs' 'benches/src/*.rs' 'tests/hostile/src/*.rs' {web,screenpush}/{,src/}'*.ts' 'web/*.mjs')

# ARCHITECTURE.md is a map, so it stays small.
architecture_bytes_max=25600
[ "$(wc -c <ARCHITECTURE.md)" -le "$architecture_bytes_max" ] || complain "ARCHITECTURE.md has more than $architecture_bytes_max bytes"

exit "$found"
