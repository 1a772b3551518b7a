#!/usr/bin/env bash
# Runs scripts/NAME.sh, a suite that depends on real time, and once more if it fails: `scripts/twice.sh NAME`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

twice "$1" bash "scripts/$1.sh"
