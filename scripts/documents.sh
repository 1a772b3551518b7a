#!/usr/bin/env bash
# The code blocks of all documents, each run in its language: commands in a sandbox with a server, configurations by `encke config check`,
# programs in JavaScript, Python, Go and Java. `ENCKE_BIN` names another program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

unshare --net --pid --fork --mount-proc true 2>/dev/null || skip 'a sandbox needs root: unshare is not permitted'
need_debian iproute2 curl openssl
need_npm tests/documents clients/js
command -v go >/dev/null || skip 'go is missing: install Go 1.25 or newer'
need_java
need_venv "$target_dir/documents-venv" tests/documents/requirements.txt
npm --prefix clients/js run --silent build
mvn -q -B -ntp -f tests/java/pom.xml dependency:build-classpath -Dmdep.outputFile="$(realpath "$target_dir")/documents-classpath"
CLASSPATH=$(cat "$target_dir/documents-classpath")
PYTHON=$(realpath "$target_dir")/documents-venv/bin/python
export PYTHON CLASSPATH
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
export ENCKE_BIN
npm --prefix tests/documents run --silent test
