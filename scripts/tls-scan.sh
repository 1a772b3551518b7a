#!/usr/bin/env bash
# Debian's sslscan against `encke` with TLS: any finding is a failure. Half a minute at most. `ENCKE_BIN` names another program to test.
#
# It does not see:
# - compression: Debian's OpenSSL has none to offer. rustls has none, either.
# - cipher suites and groups that Debian's OpenSSL does not have, such as those of SSL 3 and hybrid key exchange.
# - attacks that need many connections or long ones; `cargo test` (docs/contributing/bad-input.md) and `scripts/hostile.sh` make them.
# A client that was talked out of 1.3 sees it in the random number of the server, too (RFC 8446 §4.1.3). This script tests the number.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

work=$PWD/target/tls-scan

# is WHAT WANTED FOUND: fails if they differ.
is() {
    [ "$2" = "$3" ] || { echo "$1: wanted '$2', found '$3'" >&2; return 1; }
    echo "passed: $1"
    note passed 1
}

# found ELEMENT ATTRIBUTE: the values that the elements of the report have, each once.
found() { sed -n "s/^ *<$1 .*$2=\"\([^\"]*\)\".*/\1/p" "$work/report.xml" | sort -u | paste -s -d ' '; }

# server_hello ADDRESS: the first message to a client that does not go beyond TLS 1.2, in hexadecimal digits.
server_hello() { openssl s_client -connect "$1" -tls1_2 -msg </dev/null 2>"$work/openssl.log" | sed -n '/<<< .*ServerHello/,/^[<>]/p' | tr -d ' \n'; }

need_debian sslscan openssl || skip 'sslscan is missing, and cannot be installed here'
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$encke
fi
mkdir -p "$work"
make_certificate "$work/cert"
trap 'kill "${server_pid:-}" 2>/dev/null || true' EXIT
start_server encke 'encke listening on ' "$ENCKE_BIN" serve --port 0 --log warn --tls-cert "$work/cert.pem" --tls-key "$work/cert.key"
address=${url#https://}
# The time for one answer is for a busy machine.
timeout "$event_seconds_max" sslscan --no-colour --timeout=5 --xml="$work/report.xml" "$address" >"$work/sslscan.txt"

is 'the versions of TLS, and none of SSL' '1.2 1.3' "$(grep 'enabled="1"' "$work/report.xml" | sed 's/.*version="\([^"]*\)".*/\1/' | paste -s -d ' ')"
is 'no renegotiation' 0 "$(found renegotiation supported)"
is 'no Heartbleed' 0 "$(found heartbleed vulnerable)"
is 'no compression' '' "$(found compression supported)"
is 'no weak cipher suite' 'acceptable strong' "$(found cipher strength)"
is 'forward secrecy with each cipher suite' "$(grep -c '<cipher ' "$work/report.xml")" "$(grep -c '<cipher .*ecdhebits=' "$work/report.xml")"
is 'no key exchange below 128 bits' '128 192' "$(found group bits)"
is 'a mark against a fallback from TLS 1.3' 1 "$(server_hello "$address" | grep -c 444f574e47524401)"
is 'no fallback to an older version' 1 "$(grep -c "Server supports TLS Fallback SCSV" "$work/sslscan.txt")"
