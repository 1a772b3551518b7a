#!/usr/bin/env bash
# The official CometD clients against the server: Node, Chromium and Java, one scenario list
# (tests/interop/scenarios.json).
#
#   scripts/interop.sh                 all three suites
#   scripts/interop.sh node chromium   only these
#   scripts/interop.sh node-tls        that of Node over TLS
#   scripts/interop.sh jitter          100 clients of Node that acknowledge, while their connections break: two minutes
#   scripts/interop.sh --reference …   against CometD's own server instead of ours
#
# `INTEROP_SERVER` names another program to test. Ends non-zero when a suite fails; every suite
# asked for is run. A suite uses real time, so one that fails is run once more; then it counts as flaky.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A suite takes a minute, jitter two, a Maven that has nothing yet some more, and a busy machine several times that; this is when it
# counts as hanging.
suite_seconds=750

# need_suites: the programs and packages of the chosen suites.
need_suites() {
    case " ${suites[*]} " in *" node "* | *" node-tls "* | *" chromium "* | *" jitter "*) need_npm tests/interop ;; esac
    case " ${suites[*]} " in *" chromium "*) need_chromium ;; esac
    case " ${suites[*]} " in *" java "*) need_java ;; esac
}

# need_server: the program under test, in INTEROP_SERVER.
need_server() {
    if [ "$reference" = yes ]; then
        need_java
        (cd tests/java/reference && mvn -q -B -ntp process-classes)
        INTEROP_SERVER=tests/java/reference/run.sh
        export INTEROP_COMETD=1
    elif [ -z "${INTEROP_SERVER:-}" ]; then
        # With the build of the tests: nothing is measured here.
        need_built dev --workspace --example interop_server
        INTEROP_SERVER=$target_dir/debug/examples/interop_server
    fi
    INTEROP_SERVER=$(realpath "$INTEROP_SERVER")
    export INTEROP_SERVER
}

run_suite() {
    case $1 in
    node | chromium | jitter) twice "interop-$1" timeout "$suite_seconds" npm --prefix tests/interop run --silent "test:$1" ;;
    # The server makes its own certificate.
    node-tls)
        INTEROP_TLS=1 NODE_TLS_REJECT_UNAUTHORIZED=0 NODE_NO_WARNINGS=1 \
            twice interop-node-tls timeout "$suite_seconds" npm --prefix tests/interop run --silent test:node
        ;;
    java) twice interop-java timeout "$suite_seconds" mvn -q -B -ntp -f tests/java/pom.xml test ;;
    esac
}

reference=no
suites=()
for argument in "$@"; do
    case $argument in
    --reference) reference=yes ;;
    node | node-tls | chromium | java | jitter) suites+=("$argument") ;;
    *)
        echo "usage: scripts/interop.sh [--reference] [node] [node-tls] [chromium] [java] [jitter]" >&2
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
