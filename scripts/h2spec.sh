#!/usr/bin/env bash
# Runs h2spec, the conformance suite of HTTP/2, against `encke` without TLS and with it. It is built with Go; without Go this is skipped.
#
# One test of 145 cannot pass without TLS: what is no preface of HTTP/2 is a request of HTTP/1.1 on such a port, and gets a 400.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=v2.2.1+incompatible
not_without_tls='Sends invalid connection preface'
rounds_max=20
work=$PWD/target/h2spec
suite=$work/bin/h2spec

mkdir -p "$work"
if ! [ "$(cat "$work/version" 2>/dev/null)" = "$version" ]; then
    command -v go >/dev/null || need_debian golang-go || skip "go is missing: install Go"
    GOBIN=$work/bin go install "github.com/summerwind/h2spec/cmd/h2spec@$version"
    echo "$version" >"$work/version"
fi
need_encke
trap 'kill "${server_pid:-}" 2>/dev/null || true' EXIT

# run NAME FLAG…: all tests against a server, whose path has requests with bodies. A test has failed if it fails each time: a response that
# comes before the end of a request ends its stream, perhaps before the error for which the test waits.
run() {
    local name=$1 round failed=
    shift
    start_server "$name" 'encke listening on ' "$encke" serve --port 0 --log warn "$@"
    for round in $(seq "$rounds_max"); do
        # A server with TLS makes its own certificate.
        "$suite" --host 127.0.0.1 --port "${url##*:}" --path /cometd ${1:+--tls --insecure} >"$work/$name.txt" 2>&1 || true
        grep -q ' tests, ' "$work/$name.txt" || { cat "$work/$name.txt"; return 1; }
        sed -n '/^Failures/,$p' "$work/$name.txt" | sed -n 's/^ *× [0-9]*: //p' | sort -u >"$work/$name.failed"
        [ "$round" = 1 ] || failed=$(comm -12 <(echo "$failed") "$work/$name.failed")
        [ "$round" != 1 ] || failed=$(cat "$work/$name.failed")
        [ "$name" = tls ] || failed=$(grep -vxF "$not_without_tls" <<<"$failed" || true)
        [ -n "$failed" ] || break
    done
    kill "$server_pid"
    note passed "$(sed -n 's/^.* tests, \([0-9]*\) passed.*/\1/p' "$work/$name.txt" | tail -n 1)"
    tail -n 1 "$work/$name.txt"
    if [ -n "$failed" ]; then
        echo "failed each time: $failed"
        return 1
    fi
}

run plain
run tls --dev-tls
