#!/usr/bin/env bash
# Runs everything that must hold before a change goes in, and stops at the first failure.
# `scripts/test.sh STEP…` runs only the steps named; `scripts/test.sh --list` names them.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

steps=(tidy format lints tests docs simulator fuzz hostile interop browser autobahn instructions)

step_tidy() { run_script tidy; }
step_format() { cargo fmt --all --check; }
step_lints() { cargo clippy --quiet --workspace --all-targets --locked -- -D warnings; }
step_tests() { cargo test --quiet --workspace --locked --no-fail-fast; }
step_docs() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked; }
step_simulator() { run_script simulator; }
step_fuzz() { run_script fuzz; }
step_hostile() { run_script hostile; }
step_interop() { run_script interop; }
step_browser() { run_script browser; }
step_autobahn() { run_script autobahn; }
step_instructions() { run_script instructions; }

title_of() {
    case $1 in
        tidy) echo 'rules of the house' ;;
        format) echo 'formatting' ;;
        lints) echo 'lints, warnings are errors' ;;
        tests) echo 'unit and integration tests' ;;
        docs) echo 'documentation, warnings are errors' ;;
        simulator) echo 'simulator: seeded faults under virtual time' ;;
        fuzz) echo 'fuzz targets, ten seconds each' ;;
        hostile) echo 'hostile: attackers beside witnesses that must not notice' ;;
        interop) echo 'interop: the official clients against the program' ;;
        browser) echo 'browser: two pages chat' ;;
        autobahn) echo 'Autobahn: the WebSocket conformance suite' ;;
        instructions) echo 'gates: heap per session, instruction counts' ;;
    esac
}

run_script() {
    bash "scripts/$1.sh"
}

run_step() {
    local step=$1 began=$SECONDS
    echo "── $(title_of "$step")"
    # A shell of its own: `set -e` does not hold inside a condition.
    if bash -c 'source scripts/test.sh --define; "step_$1"' test.sh "$step"; then
        passed=$((passed + 1))
        echo "   passed in $((SECONDS - began)) s"
    else
        failed=$((failed + 1))
        echo "   FAILED after $((SECONDS - began)) s: repeat it with scripts/test.sh $step"
    fi
}

run_all() {
    local step
    passed=0 failed=0
    for step in "$@"; do
        run_step "$step"
        [ "$failed" -eq 0 ] || break
    done
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

case ${1:-} in
    --define) ;;
    --list) printf '%s\n' "${steps[@]}" ;;
    '') need_rust && run_all "${steps[@]}" ;;
    *)
        for step in "$@"; do
            [[ " ${steps[*]} " == *" $step "* ]] || { echo "no step $step; there are: ${steps[*]}" >&2; exit 2; }
        done
        need_rust && run_all "$@"
        ;;
esac
