#!/usr/bin/env bash
# Nodes of a cluster on a real NATS server: publications between them, interest, order, and what happens when one of them or NATS ends; CometD's
# clients in Node and Java while nodes are killed.
#
#   scripts/cluster.sh             all tests
#   scripts/cluster.sh FILTER…     those whose names contain it
#
# `NATS_SERVER` names another program. Every second node runs the program `OTHER_BUILD`, if it is set: one of an earlier commit, to see that
# nodes of two builds work together.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_nats
need_npm tests/interop
need_java
mkdir -p "$target_dir"
mvn -q -B -ntp -f tests/java/pom.xml dependency:build-classpath -Dmdep.outputFile="$(realpath "$target_dir")/cluster-classpath"
COMETD_CLASSPATH=$(cat "$target_dir/cluster-classpath")
export COMETD_CLASSPATH
export NATS_SERVER RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
exec bash scripts/cargo-tests.sh cluster "$@"
