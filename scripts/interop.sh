#!/bin/sh
# The official CometD clients against the server: Node, Chromium and Java, one scenario list
# (tests/interop/scenarios.json).
#
#   scripts/interop.sh                 all three suites
#   scripts/interop.sh node chromium   only these
#   scripts/interop.sh --reference …   against CometD's own server instead of ours
#
# INTEROP_SERVER names another program to test. Installs what is missing. Ends non-zero when a
# suite fails; every suite asked for is run.
set -eu
cd "$(dirname "$0")/.."
root=$PWD

# A suite takes about half a minute; this is when it counts as hanging.
SUITE_SECONDS=120

install_missing() {
    for suite in $suites; do
        case $suite in
        chromium) command -v chromium >/dev/null || apt_install chromium ;;
        java)
            command -v java >/dev/null || apt_install openjdk-17-jdk-headless
            command -v mvn >/dev/null || apt_install maven
            ;;
        esac
    done
    case " $suites " in
    *" node "* | *" chromium "*)
        lock=tests/interop/package-lock.json
        installed=tests/interop/node_modules/.package-lock.json
        if [ ! -e "$installed" ] || [ "$lock" -nt "$installed" ]; then
            (cd tests/interop && npm ci --silent)
            touch "$installed"
        fi
        ;;
    esac
}

apt_install() {
    echo "installing $1"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$1" >/dev/null ||
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$1" >/dev/null; }
}

choose_server() {
    if [ "$reference" = 1 ]; then
        (cd tests/java/reference && mvn -q -B -ntp process-classes)
        export INTEROP_SERVER="$root/tests/java/reference/run.sh" INTEROP_COMETD=1
    elif [ -z "${INTEROP_SERVER:-}" ]; then
        cargo build --release -p encke --example interop_server
        export INTEROP_SERVER="${CARGO_TARGET_DIR:-$root/target}/release/examples/interop_server"
    fi
    if [ ! -x "$INTEROP_SERVER" ]; then
        echo "no such program: $INTEROP_SERVER" >&2
        exit 1
    fi
}

run_suite() {
    case $1 in
    node) (cd tests/interop && timeout "$SUITE_SECONDS" npm run --silent test:node) ;;
    chromium) (cd tests/interop && timeout "$SUITE_SECONDS" npm run --silent test:chromium) ;;
    java) (cd tests/java && timeout "$SUITE_SECONDS" mvn -q -B -ntp test) ;;
    esac
}

reference=0
suites=
for argument in "$@"; do
    case $argument in
    --reference) reference=1 ;;
    node | chromium | java) suites="$suites $argument" ;;
    *)
        echo "usage: scripts/interop.sh [--reference] [node] [chromium] [java]" >&2
        exit 2
        ;;
    esac
done
suites=${suites:-node chromium java}

install_missing
choose_server
failed=
for suite in $suites; do
    echo "== $suite"
    run_suite "$suite" || failed="$failed $suite"
done
if [ -n "$failed" ]; then
    echo "interop: failed:$failed" >&2
    exit 1
fi
echo "interop: all scenarios passed ($suites)"
