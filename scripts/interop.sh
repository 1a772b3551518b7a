#!/usr/bin/env bash
# The official CometD clients against the server: Node, Chromium and Java, one scenario list
# (tests/interop/scenarios.json).
#
#   scripts/interop.sh                 all three suites
#   scripts/interop.sh node chromium   only these
#   scripts/interop.sh jitter          100 clients of Node that acknowledge, while their connections break: two minutes
#   scripts/interop.sh --reference …   against CometD's own server instead of ours
#
# `INTEROP_SERVER` names another program to test. Ends non-zero when a suite fails; every suite
# asked for is run.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A suite takes a minute at most, jitter two, and a Maven that has nothing yet some more; this is when it counts as hanging.
suite_seconds=240

# need_suites: the programs and packages of the chosen suites.
need_suites() {
    case " ${suites[*]} " in *" node "* | *" chromium "* | *" jitter "*)
        command -v npm >/dev/null || { echo "npm is missing: install Node 20.14 or newer" >&2; exit 1; }
        npm --prefix tests/interop ci --no-audit --no-fund --loglevel=error
        ;;
    esac
    case " ${suites[*]} " in *" chromium "*) need_debian chromium ;; esac
    case " ${suites[*]} " in *" java "*) need_java ;; esac
}

need_java() {
    command -v javac >/dev/null || need_debian openjdk-17-jdk-headless
    command -v mvn >/dev/null || need_debian maven
}

# need_server: the program under test, in INTEROP_SERVER.
need_server() {
    if [ "$reference" = yes ]; then
        need_java
        (cd tests/java/reference && mvn -q -B -ntp process-classes)
        INTEROP_SERVER=tests/java/reference/run.sh
        export INTEROP_COMETD=1
    elif [ -z "${INTEROP_SERVER:-}" ]; then
        need_rust
        cargo build --quiet --release --locked -p encke --example interop_server
        INTEROP_SERVER=$target_dir/release/examples/interop_server
    fi
    INTEROP_SERVER=$(realpath "$INTEROP_SERVER")
    export INTEROP_SERVER
}

run_suite() {
    case $1 in
    node | chromium | jitter) timeout "$suite_seconds" npm --prefix tests/interop run --silent "test:$1" ;;
    java) (cd tests/java && timeout "$suite_seconds" mvn -q -B -ntp test) ;;
    esac
}

reference=no
suites=()
for argument in "$@"; do
    case $argument in
    --reference) reference=yes ;;
    node | chromium | java | jitter) suites+=("$argument") ;;
    *)
        echo "usage: scripts/interop.sh [--reference] [node] [chromium] [java] [jitter]" >&2
        exit 2
        ;;
    esac
done
[ ${#suites[@]} -gt 0 ] || suites=(node chromium java)

need_suites
need_server
failed=()
for suite in "${suites[@]}"; do
    echo "== $suite"
    run_suite "$suite" || failed+=("$suite")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "interop: failed: ${failed[*]}" >&2
    exit 1
fi
echo "interop: all scenarios passed: ${suites[*]}"
