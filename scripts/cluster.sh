#!/usr/bin/env bash
# Nodes of a cluster on a real NATS server: publications between them, interest, order, and what happens when one of them or NATS ends.
#
#   scripts/cluster.sh             all tests
#   scripts/cluster.sh FILTER…     those whose names contain it
#
# `NATS_SERVER` names another program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_nats
export NATS_SERVER RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
exec bash scripts/cargo-tests.sh cluster "$@"
