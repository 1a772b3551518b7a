#!/usr/bin/env bash
# The official clients against the server, one scenario list (tests/interop/scenarios.json): CometD's in Node, Chromium and Java, with
# Faye's and Salesforce's in Node; and aiocometd in Python.
#
#   scripts/interop.sh                 all four suites
#   scripts/interop.sh node chromium   only these
#   scripts/interop.sh node-tls        that of Node over TLS; the others have one, too
#   scripts/interop.sh jitter          100 clients of Node that acknowledge, while their connections break: two minutes
#   scripts/interop.sh --reference …   against CometD's own server instead of ours
#
# `INTEROP_SERVER` names another program to test. Ends non-zero when a suite fails; every suite
# asked for is run. A suite uses real time, so one that fails is run once more; then it counts as flaky.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A suite takes a minute, jitter two, a Maven that has nothing yet some more, and a busy machine several times that; this is when it
# counts as hanging.
suite_seconds=750
venv=$target_dir/interop-venv

# need_suites: the programs and packages of the chosen suites.
need_suites() {
    local suite
    for suite in "${suites[@]%-tls}"; do
        case $suite in
        node | jitter) need_npm tests/interop ;;
        chromium) need_npm tests/interop && need_chromium ;;
        java) need_java ;;
        python) need_venv "$venv" tests/interop/requirements.txt ;;
        esac
    done
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

# need_certificate SUITE: makes a certificate for the server, which the clients of this suite then trust. None of them skips a check.
need_certificate() {
    local path
    path=$(mktemp -d)/cert
    trap 'rm -r "${INTEROP_TLS%/*}"' EXIT
    make_certificate "$path"
    export INTEROP_TLS=$path CHROMIUM_TRUSTS=$path.pem NODE_EXTRA_CA_CERTS=$path.pem SSL_CERT_FILE=$path.pem
    if [ "$1" = java ]; then
        keytool -importcert -noprompt -alias encke -file "$path.pem" -keystore "$path.p12" -storepass "$truststore_password" 2>/dev/null
        maven_options=("-Dtruststore=-Djavax.net.ssl.trustStore=$path.p12 -Djavax.net.ssl.trustStorePassword=$truststore_password")
    fi
}
truststore_password=changeit
maven_options=()

run_suite() {
    local suite=${1%-tls} run=(twice "interop-$1" timeout "$suite_seconds")
    [ "$suite" = "$1" ] || need_certificate "$suite"
    case $suite in
    node | chromium | jitter) "${run[@]}" npm --prefix tests/interop run --silent "test:$suite" ;;
    java) "${run[@]}" mvn -q -B -ntp -f tests/java/pom.xml "${maven_options[@]}" test ;;
    python) "${run[@]}" "$venv/bin/python" tests/interop/test/aiocometd.py ;;
    esac
}

reference=no
suites=()
for argument in "$@"; do
    case $argument in
    --reference) reference=yes ;;
    node | chromium | java | python | node-tls | chromium-tls | java-tls | python-tls | jitter) suites+=("$argument") ;;
    *)
        echo "usage: scripts/interop.sh [--reference] [node[-tls]] [chromium[-tls]] [java[-tls]] [python[-tls]] [jitter]" >&2
        exit 2
        ;;
    esac
done
[ ${#suites[@]} -gt 0 ] || suites=(node chromium java python)

need_suites
need_server
failed=()
for suite in "${suites[@]}"; do
    echo "== $suite"
    (run_suite "$suite") || failed+=("$suite")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "interop: failed: ${failed[*]}" >&2
    exit 1
fi
echo "interop: all scenarios passed: ${suites[*]}"
