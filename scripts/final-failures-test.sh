#!/usr/bin/env bash
# Tests the rule of scripts/final-failures.txt with made-up failures: what is final, and that the scripts run no such failure again.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TEST_LOGS=$work/logs TEST_NOTES=$work/notes

fail() {
    echo "$1" >&2
    exit 1
}

# expect_notes TEXT: what was noted since the last call.
expect_notes() {
    local notes
    notes=$(cat "$TEST_NOTES")
    : >"$TEST_NOTES"
    [ "$notes" = "$1" ] || fail "expected the notes '$1', got '$notes'"
}

: >"$TEST_NOTES"

final=(
    '9 of 3,240 messages that were confirmed never arrived.'
    '{"faults":{"doubled":0,"lost":3}}'
    'Faults { lost: 10, doubled: 0 }'
    'message 7 arrived TWICE'
    'round 3: publisher 1 out of order: [1, 3, 2]'
    'witness 2 got message 7 in place of 5'
)
for text in "${final[@]}"; do
    printf 'a line before\n%s\n' "$text" | final_failure >/dev/null || fail "not final: $text"
done
{ echo 'it was lost'; seq 100000; } | final_failure >/dev/null || fail 'not final: a long output'
harmless=(
    'gave up waiting: the server listens'
    "thread 'restarts::a_killed_server_loses_nothing_confirmed' panicked at 'timeout'"
    '{"faults":{"doubled":0,"lost":0,"reordered": 0}} is late'
    'Faults { lost: 0, doubled: 0 }, 0 lost, 0 doubled'
    '{"name":"messages confirmed","value":97}'
    'the glossary is closed'
    'Nothing lost, doubled, out of order, misdelivered or late; no session dropped.'
)
for text in "${harmless[@]}"; do
    if final_failure <<<"$text"; then fail "final: $text"; fi
done

# suite MESSAGE: fails the first time with this message, and passes the second time.
suite() {
    echo '✔ nothing is lost'
    if [ -e "$work/ran" ]; then return 0; fi
    touch "$work/ran"
    echo "$1"
    return 1
}
# listing MESSAGE: the same, and lists the failed test, whose name and output do not count.
listing() {
    if [ -e "$work/ran" ]; then return 0; fi
    touch "$work/ran"
    echo 'the connection is lost'
    printf 'a.js\ta.js: nothing is lost: %s\t%s\n' "$1" "$1" >>"$TEST_FAILED"
    return 1
}
for kind in suite listing; do
    rm -f "$work/ran"
    if twice "$kind" "$kind" 'two messages were lost' >/dev/null; then fail "$kind: a final failure was run again"; fi
    expect_notes "failed $kind: two messages were lost"
    rm -f "$work/ran"
    twice "$kind" "$kind" 'it is late' >/dev/null || fail "$kind: another failure was not run again"
    grep -q "^flaky $kind: " "$TEST_NOTES" || fail "$kind: a failure that passed then was not flaky"
    : >"$TEST_NOTES"
done

# A cargo whose only test binary fails with $MESSAGE, and passes when it runs alone.
mkdir "$work/bin"
cat >"$work/bin/cargo" <<'END'
#!/usr/bin/env bash
[ "$1" = test ] || exit 0
cat <<OUTPUT
     Running tests/some/main.rs ($FAKE_BINARY)
test a_test_of_nothing_lost ... ok

failures:

---- loses::nothing_is_confirmed_twice stdout ----
$MESSAGE

failures:
    loses::nothing_is_confirmed_twice

test result: FAILED. 1 passed; 1 failed; 0 ignored

error: 1 target failed:
OUTPUT
exit 101
END
printf '#!/usr/bin/env bash\necho "test result: ok. 1 passed"\n' >"$work/bin/some-1a2b"
chmod +x "$work/bin"/*
echo "$work/bin/some-1a2b: $PWD/crates/encke-cli/tests/some/main.rs" >"$work/bin/some-1a2b.d"
# run_cargo_tests MESSAGE: scripts/cargo-tests.sh with that cargo.
run_cargo_tests() {
    MESSAGE=$1 FAKE_BINARY=$work/bin/some-1a2b PATH=$work/bin:$PATH bash scripts/cargo-tests.sh >"$work/out" 2>&1
}
if run_cargo_tests 'two messages were doubled'; then fail 'a final failure of a test was run again'; fi
expect_notes $'failed loses::nothing_is_confirmed_twice: two messages were doubled\npassed 1'
run_cargo_tests 'timeout' || fail "another failure of a test was not run again: $(cat "$work/out")"
grep -q '^flaky loses::nothing_is_confirmed_twice: ' "$TEST_NOTES" || fail 'a test that passed then was not flaky'
note passed $((${#final[@]} + ${#harmless[@]} + 6))
echo 'ok'
