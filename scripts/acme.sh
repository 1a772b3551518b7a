#!/usr/bin/env bash
# Certificates by ACME from a real authority: Pebble, that of Let's Encrypt for tests, on free loopback ports. The server gets a certificate for
# two names, keeps it over a restart, and renews it before its end. Two minutes. `ENCKE_BIN` names another program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=v2.10.1
# The certificate's life in seconds; the server renews after two thirds of it.
life_seconds=45
names=(push.example b.push.example)

command -v go >/dev/null || skip "go is missing: install Go 1.24 or newer"
command -v openssl >/dev/null || need_debian openssl
command -v curl >/dev/null || need_debian curl
if [ -n "${ENCKE_BIN:-}" ]; then encke=$ENCKE_BIN; else need_encke; fi
tools=$(realpath --canonicalize-missing "$target_dir/go")
for tool in pebble pebble-challtestsrv; do
    [ -x "$tools/$tool-$version" ] && continue
    GOBIN=$tools go install "github.com/letsencrypt/pebble/v2/cmd/$tool@$version"
    mv "$tools/$tool" "$tools/$tool-$version"
done

work=$(mktemp -d)
processes=()
trap 'kill "${processes[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
read -r directory_port management_port <<<"$(free_ports)"
read -r dns_port dns_management_port <<<"$(free_ports)"
read -r port _ <<<"$(free_ports)"

# run NAME COMMAND…: in the background, with its output in $work/NAME.log.
run() {
    "${@:2}" >"$work/$1.log" 2>&1 &
    processes+=("$!")
}

make_certificate "$work/pebble"
cat >"$work/pebble.json" <<JSON
{"pebble": {
  "listenAddress": "127.0.0.1:$directory_port", "managementListenAddress": "127.0.0.1:$management_port",
  "certificate": "$work/pebble.pem", "privateKey": "$work/pebble.key", "httpPort": 1, "tlsPort": $port,
  "profiles": {"default": {"description": "short", "validityPeriod": $life_seconds}}
}}
JSON
cat >"$work/encke.toml" <<TOML
data = "$work/data"
acme = ["${names[0]}", "${names[1]}"]
acme_directory = "https://127.0.0.1:$directory_port/dir"
acme_email = "operator@push.example"
acme_ca = "$work/pebble.pem"
TOML
run dns "$tools/pebble-challtestsrv-$version" -dnsserver "127.0.0.1:$dns_port" -management "127.0.0.1:$dns_management_port" \
    -http01 "" -https01 "" -tlsalpn01 "" -doh "" -defaultIPv4 127.0.0.1 -defaultIPv6 ""
run pebble env PEBBLE_VA_NOSLEEP=1 "$tools/pebble-$version" -strict -config "$work/pebble.json" -dnsserver "127.0.0.1:$dns_port"
authority() { curl --silent --fail --cacert "$work/pebble.pem" "https://127.0.0.1:$management_port/roots/0" >"$work/root.pem"; }
wait_until "the authority answers" authority

start() {
    run encke "$encke" serve --port "$port" --config "$work/encke.toml"
    server=${processes[-1]}
}

# certificate NAME: the serial number of the certificate that clients of this name get, if they accept it.
certificate() {
    openssl s_client -connect "127.0.0.1:$port" -servername "$1" -verify_hostname "$1" -CAfile "$work/root.pem" -verify_return_error \
        </dev/null 2>/dev/null | openssl x509 -noout -serial 2>/dev/null
}

# differs SERIAL: true if there is a certificate, and its number is another one.
differs() {
    local now
    now=$(certificate "${names[0]}") && [ "$now" != "$1" ]
}

start
wait_until "there is a certificate" certificate "${names[0]}" >/dev/null
first=$(certificate "${names[0]}")
[ "$(certificate "${names[1]}")" = "$first" ]
[ "$(stat -c %a "$work/data/acme/certificate.pem")" = 600 ]
echo "passed: a certificate for two names"

# Nobody but the authority is answered by its protocol, and no name that is not examined.
if openssl s_client -connect "127.0.0.1:$port" -servername "${names[0]}" -alpn acme-tls/1 </dev/null 2>/dev/null | grep -q 'BEGIN CERT'; then
    echo "a client got a proof that nobody asked for" >&2
    exit 1
fi

kill "$server"
wait "$server" || true
start
wait_until "the server is back" certificate "${names[0]}" >/dev/null
[ "$(certificate "${names[0]}")" = "$first" ]
echo "passed: the certificate survives a restart"

wait_until "the certificate is renewed" differs "$first"
grep -q 'there is a new certificate' "$work/encke.log"
echo "passed: the certificate is renewed before its end, without a restart"
note passed 3
