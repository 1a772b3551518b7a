#!/usr/bin/env bash
# Nodes of a cluster whose sessions are in MongoDB, on a real NATS server and on a server that speaks the protocol of MongoDB: take-over,
# conflicts, scavenge and purge, a server that is gone and comes back.
#
#   scripts/mongodb.sh             all tests
#   scripts/mongodb.sh FILTER…     those whose names contain it
#
# `NATS_SERVER` names another program, `MONGODB_URL` another server, such as a real one: each test has its own collection there.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_nats
export NATS_SERVER RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
need_built dev --workspace --example mongodb_node
MONGODB_NODE=$(realpath "$target_dir")/debug/examples/mongodb_node
export MONGODB_NODE
if [ -z "${MONGODB_URL:-}" ]; then
    need_java
    work=$(mktemp -d)
    trap 'kill "$server_pid" 2>/dev/null || true; rm -r "$work"' EXIT
    mvn -q -B -ntp -f tests/mongodb/pom.xml dependency:build-classpath -Dmdep.outputFile="$work/classpath"
    # One compiler tier and the serial collector: it lives for a minute.
    start_server mongodb 'listening on ' java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$(cat "$work/classpath")" tests/mongodb/Main.java
    MONGODB_URL=$url
    export MONGODB_URL
fi
bash scripts/cargo-tests.sh mongodb "$@"
