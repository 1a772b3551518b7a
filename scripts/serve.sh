#!/usr/bin/env bash
# Builds the program and runs it; arguments go to `encke serve`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_encke
exec "$encke" serve "$@"
