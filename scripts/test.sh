#!/usr/bin/env bash
# Runs what must hold before a change goes in, shows progress, and ends with one table: passed, flaky, skipped, failed, with times.
#
#   scripts/test.sh            everything (`make test`)
#   scripts/test.sh --check    what fits between two edits (`make check`)
#   scripts/test.sh STEP…      only these steps
#   scripts/test.sh --list     names them
#
#   STRICT=1                   a step that was skipped is a failure, but for those in MAY_SKIP
#   MAY_SKIP="autobahn deny"   see STRICT
#
# A step passes (exit code 0), is skipped because its tool is missing (77), or fails, also when it takes longer than SECONDS_MAX, which is
# several times what it takes on a quiet machine with all that it builds. Its output is in target/test/STEP.log. It may `note`
# what it counted: see scripts/lib.sh. Steps marked `aside` mostly wait; they run beside the others, one after another.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

logs=$(realpath --canonicalize-missing "$target_dir/test")
progress_seconds=30
shown_lines=60

steps=()
declare -A set_of limit_of title_of command_of

# step NAME SET SECONDS_MAX TITLE COMMAND…: SET is `check` (in `make check`, too), `test`, `aside` (only in `make test`), or `alone`
# (after all others).
step() {
    steps+=("$1")
    set_of[$1]=$2 limit_of[$1]=$3 title_of[$1]=$4
    shift 4
    command_of[${steps[-1]}]=$(printf '%q ' "$@")
}

step tidy check 60 'rules of the house' bash scripts/tidy.sh
step words check 60 'words that are not ours' bash scripts/words.sh
step final check 60 'the rule for failures that are never retried' bash scripts/final-failures-test.sh
step format check 120 'formatting' cargo fmt --all --check
step lints check 1800 'lints and the minimum Rust version, warnings are errors' cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
step unit check 2400 'unit tests' bash scripts/cargo-tests.sh unit
step seeds check 300 'simulator: 2,000 seeds' bash scripts/simulator.sh 2000
step deny check 300 'licences, sources and advisories of dependencies' bash scripts/deny.sh
step tests test 3000 'unit, integration and documentation tests' bash scripts/cargo-tests.sh
step tls test 1500 'the server over real sockets, with TLS' bash scripts/cargo-tests.sh tls
step http2 test 900 'the server over real sockets, with HTTP/2' bash scripts/cargo-tests.sh http2
step http2-tls test 900 'the server over real sockets, with HTTP/2 and TLS' bash scripts/cargo-tests.sh http2-tls
step docs test 900 'documentation, warnings are errors; crates that can be published' bash scripts/docs.sh
step simulator test 600 'simulator: seeded faults under virtual time' bash scripts/simulator.sh
step fuzz test 900 'fuzz targets, ten seconds each' bash scripts/fuzz.sh
step instructions test 1500 'gates: heap per session, instruction counts' bash scripts/twice.sh instructions
step webhooks test 1200 'webhooks: backends in five languages, signatures by the official libraries' bash scripts/twice.sh webhooks
step node aside 1600 'interop: the official clients in Node' bash scripts/interop.sh node
step node-tls aside 1600 'interop: the official clients in Node, over TLS' bash scripts/interop.sh node-tls
step java aside 1600 'interop: the official client for Java' bash scripts/interop.sh java
step java-tls aside 1600 'interop: the official client for Java, over TLS' bash scripts/interop.sh java-tls
step chromium aside 1600 'interop: the official client in Chromium' bash scripts/interop.sh chromium
step chromium-tls aside 1600 'interop: the official client in Chromium, over TLS' bash scripts/interop.sh chromium-tls
step python aside 900 'interop: aiocometd in Python, over TLS and without' bash scripts/interop.sh python python-tls
step autobahn aside 1200 'Autobahn: the WebSocket conformance suite' bash scripts/twice.sh autobahn
step h2spec aside 900 'h2spec: the HTTP/2 conformance suite' bash scripts/twice.sh h2spec
step tls-scan aside 300 'sslscan: no finding about TLS' bash scripts/twice.sh tls-scan
step api aside 1200 'HTTP API: the schema fuzzer, and clients in four languages' bash scripts/twice.sh api
step held aside 900 'held requests: backends in Python, Node and Go' bash scripts/twice.sh held
step mail aside 900 'mail: the notifier with a real POP3 and IMAP server' bash scripts/twice.sh mail
step proxies aside 900 'proxies: nginx and HAProxy in front, with every transport' bash scripts/twice.sh proxies
step acme aside 900 'ACME: certificates of an authority, their renewal' bash scripts/twice.sh acme
step cluster aside 1200 'cluster: nodes on a real NATS server' bash scripts/cluster.sh
step mongodb aside 1200 'cluster: sessions in MongoDB, on a server that speaks its protocol' bash scripts/mongodb.sh
step documents aside 900 'documents: every code block runs, in its language' bash scripts/twice.sh documents
step deploy aside 2400 'deploying: container file, compose file, chart, alerts; the topology of the compose file runs' bash scripts/twice.sh deploy
step client-js aside 900 'the JavaScript client: seeded faults, the real server, Faye, Chromium, Firefox' bash scripts/client-js.sh
step browser aside 2400 'browser: pages in Chromium, the chat in Firefox' bash scripts/browser.sh
step hostile alone 2400 'hostile: attackers beside witnesses that must not notice' bash scripts/hostile.sh

# say TEXT: a line with the time.
say() { printf '%5d s  %s\n' $((SECONDS - began)) "$1"; }

# run_step NAME: runs it, with progress, and writes `RESULT SECONDS` to target/test/NAME.result.
run_step() {
    local name=$1 start=$SECONDS status=0 result pid next
    say "$name: ${title_of[$name]}"
    : >"$logs/$name.notes"
    TEST_LOGS=$logs TEST_NOTES=$logs/$name.notes setsid timeout --kill-after=10 "${limit_of[$name]}" \
        bash -c "exec ${command_of[$name]}" >"$logs/$name.log" 2>&1 &
    pid=$!
    next=$((start + progress_seconds))
    while kill -0 "$pid" 2>/dev/null; do
        if [ "$SECONDS" -ge "$next" ]; then
            say "$name: $((SECONDS - start)) s … $(tail -n 1 "$logs/$name.log" | tr -d '\r' | cut -c1-90)"
            next=$((SECONDS + progress_seconds))
        fi
        sleep 0.2
    done
    wait "$pid" || status=$?
    case $status in
    0) if grep -q '^flaky ' "$logs/$name.notes"; then result=flaky; else result=passed; fi ;;
    "$exit_skipped") result=skipped ;;
    124) result=failed && note_of "$name" failed "it took longer than ${limit_of[$name]} s" ;;
    *) result=failed ;;
    esac
    echo "$result $((SECONDS - start))" >"$logs/$name.result"
    say "$name: $result after $((SECONDS - start)) s"
    case $result in
    failed | flaky)
        tail -n "$shown_lines" "$logs/$name.log" | sed 's/^/    │ /'
        echo "    └ all of it: $logs/$name.log; again: scripts/test.sh $name"
        ;;
    esac
}

note_of() { echo "$2 $3" >>"$logs/$1.notes"; }

# Steps whose programs are built while others run already wait for them first, which is no part of their time.
run_steps() {
    local name
    for name in "$@"; do
        if [ -n "${PREBUILT:-}" ] && is_optimised "$name"; then
            until [ -e "$logs/release.built" ] || [ -e "$logs/release.failed" ]; do sleep 1; done
        fi
        run_step "$name"
    done
}

# in_set SET NAME…: those of the names that are in this set.
in_set() {
    local wanted=$1 name
    shift
    for name in "$@"; do [ "${set_of[$name]}" = "$wanted" ] && echo "$name"; done
    return 0
}

# Builds what several steps need, once, so that none builds it with other options. The optimised programs come last: `need_encke`
# waits for them.
build_programs() {
    say 'building the programs that are tested'
    cargo build --quiet --locked --workspace --bin simulator --bin hostile --example interop_server --example echo \
        --example http_api --example webhook_backend --example mongodb_node &&
        say 'built those of the tests'
}
build_release() {
    cargo build --quiet --release --locked -p encke-cli -p benches --bin encke --bin instructions &&
        touch "$logs/release.built" && say 'built the optimised ones'
}

# run_all NAME…: all of these; those aside beside the others, those alone in the end.
run_all() {
    local aside alone other name side=
    mapfile -t aside < <(in_set aside "$@")
    mapfile -t alone < <(in_set alone "$@")
    mapfile -t other < <(in_set check "$@"; in_set test "$@")
    if [ ${#aside[@]} -gt 0 ] && [ $# -gt 1 ]; then
        for name in "${other[@]}"; do if is_quick "$name"; then run_step "$name"; fi; done
        export PREBUILT=1 TEST_LOGS=$logs
        if ! build_programs; then
            for name in "$@"; do [ -e "$logs/$name.result" ] || echo 'failed 0' >"$logs/$name.result"; done
            return
        fi
        (trap stop TERM; run_steps "${aside[@]}") &
        side=$!
        build_release || touch "$logs/release.failed"
    fi
    for name in "${other[@]}"; do [ -e "$logs/$name.result" ] || run_step "$name"; done
    if [ -n "$side" ]; then
        # The shell forgets a process that ended long ago. The results are in files.
        wait "$side" || true
    else
        run_steps "${aside[@]}"
    fi
    run_steps "${alone[@]}"
}

# The steps that run the optimised programs, of those that run beside others.
is_optimised() { [[ " api h2spec tls-scan held mail proxies documents deploy client-js browser " == *" $1 "* ]]; }

# The steps that need no build come first: they fail soonest.
is_quick() { [[ " tidy words final format " == *" $1 "* ]]; }

# summary NAME…: the table; fails where something failed, or was skipped that may not be.
summary() {
    local name result seconds notes tests failed=0 line
    declare -A count=([passed]=0 [flaky]=0 [skipped]=0 [failed]=0)
    printf '\n%-14s %-8s %7s  %s\n' step result time tests
    for name in "$@"; do
        read -r result seconds <"$logs/$name.result"
        notes=$logs/$name.notes
        tests=$(awk '$1 == "passed" { sum += $2 } $1 == "flaky" || $1 == "failed" || $1 == "skipped" { more[$1]++ }
            END { if (sum) printf "%d passed", sum; for (kind in more) printf "%s%d %s", (sum ? ", " : ""), more[kind], kind }' \
            "$notes" 2>/dev/null || true)
        printf '%-14s %-8s %5d s  %s\n' "$name" "$result" "$seconds" "$tests"
        count[$result]=$((count[$result] + 1))
        if [ "$result" = failed ]; then failed=1; fi
        if [ "$result" = skipped ] && ! may_skip "$name"; then
            failed=1
            note_of "$name" failed 'it may not be skipped: STRICT is set and MAY_SKIP does not list it'
        fi
    done
    echo "${count[passed]} passed, ${count[flaky]} flaky, ${count[skipped]} skipped, ${count[failed]} failed in $((SECONDS - began)) s"
    for name in "$@"; do
        while IFS= read -r line; do echo "  $name, ${line%% *}: ${line#* }"; done < <(grep -v '^passed ' "$logs/$name.notes" 2>/dev/null)
    done
    [ "$failed" -eq 0 ]
}

may_skip() { [ "${STRICT:-0}" != 1 ] || [[ " ${MAY_SKIP:-} " == *" $1 "* ]]; }

# What is running ends with this script.
stop() {
    trap - INT TERM
    local pid
    for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true; done
    exit 130
}

chosen=()
case ${1:-} in
--list) printf '%s\n' "${steps[@]}"; exit ;;
--check) mapfile -t chosen < <(in_set check "${steps[@]}") ;;
# The unit tests and the seeds of `--check` are part of others.
'') for name in "${steps[@]}"; do case $name in unit | seeds) ;; *) chosen+=("$name") ;; esac done ;;
*)
    for name in "$@"; do
        [ -n "${set_of[$name]:-}" ] || { echo "no step $name; there are: ${steps[*]}" >&2; exit 2; }
        chosen+=("$name")
    done
    ;;
esac

need_rust
began=$SECONDS
rm -rf "$logs"
mkdir -p "$logs"
trap stop INT TERM
run_all "${chosen[@]}"
summary "${chosen[@]}"
