#!/usr/bin/env bash
# Debian's nginx and HAProxy in front of the server, with the configurations of examples/behind-a-proxy: on free ports, in a folder under
# /tmp. Every transport goes through each of them, over HTTP, TLS and the PROXY protocol, and the server knows the client's address and
# scheme, whatever the client says about itself. `ENCKE_BIN` names another program to test.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

configurations=examples/behind-a-proxy
# No trusted proxy, but an address of this machine.
client_address=127.0.0.2
forged_address=192.0.2.66

# configure FILE SED…: a configuration of the examples, with paths and ports of this run.
configure() {
    sed -E -e "s|/etc/ssl/push\.example\.com|$work/cert|g; s|/run/encke/encke\.sock|$work/encke.sock|g" \
        -e "s|127\.0\.0\.1:8443|127.0.0.1:${port[tls]}|g; s|127\.0\.0\.1:8080|127.0.0.1:${port[http]}|g" \
        -e "s|127\.0\.0\.1:8081|127.0.0.1:${port[bytes]}|g; s|127\.0\.0\.1:8082|127.0.0.1:${port[through]}|g" \
        "${@:2}" "$configurations/$1"
}

start_encke() {
    configure encke.toml >"$work/encke.toml"
    : >"$work/encke.out"
    # The workers of nginx have the rights of another user.
    (umask 0 && exec "$ENCKE_BIN" serve --config "$work/encke.toml" --log warn,encke::http::guard=debug) \
        >"$work/encke.out" 2>>"$work/encke.log" &
    wait_until 'the server listens' grep -q '^encke listening on ' "$work/encke.out"
}

# start_nginx NAME BUFFERING
start_nginx() {
    configure nginx.conf -e "s|listen 80;|listen 127.0.0.1:${port[$1-http]};|; s|listen 443 |listen 127.0.0.1:${port[$1-https]} |" \
        -e "s|listen 8443;|listen 127.0.0.1:${port[$1-through]};|; s|proxy_buffering off|proxy_buffering $2|" \
        -e "s|^http \{|&\nclient_body_temp_path $work/$1-body; proxy_temp_path $work/$1-temp; access_log off;|" >"$work/$1.conf"
    nginx -c "$work/$1.conf" -e "$work/$1.log" -g "daemon off; pid $work/$1.pid; error_log $work/$1.log;" &
    wait_until "$1 listens" answers "http://127.0.0.1:${port[$1-http]}"
}

start_haproxy() {
    configure haproxy.cfg -e "s|maxconn .*|maxconn 1000|; s|bind :80$|bind 127.0.0.1:${port[haproxy-http]}|; s|bind :443 |bind 127.0.0.1:${port[haproxy-https]} |" \
        -e "s|bind :8443 |bind 127.0.0.1:${port[haproxy-bytes]} |; s|bind :9443|bind 127.0.0.1:${port[haproxy-through]}|" >"$work/haproxy.cfg"
    haproxy -db -f "$work/haproxy.cfg" >"$work/haproxy.log" 2>&1 &
    wait_until 'HAProxy listens' answers "http://127.0.0.1:${port[haproxy-http]}"
}

answers() { curl --silent --fail --max-time 5 "$1/readyz" >"$work/answer"; }

# handshake SCHEME NAME PAGE: the response to a handshake by the public name, as a page of this scheme sends it. The client lies about
# itself in each field that proxies write.
handshake() {
    local scheme=$1 host=push.example.com:${port[$2]}
    curl --silent --include --max-time "$event_seconds_max" --cacert "$work/cert.pem" --interface "$client_address" \
        --resolve "$host:127.0.0.1" --header "origin: $3://$host" --header "x-forwarded-for: $forged_address" \
        --header 'x-forwarded-host: evil.example' --header "forwarded: for=$forged_address;host=evil.example;proto=gopher" \
        --data '[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"]}]' "$scheme://$host/cometd"
}

# knows_client SCHEME NAME: the page of this scheme and the public name is one of the server's. Over TLS the cookie is Secure, and a page
# of http is foreign. The refusal of a page names the client's address.
knows_client() {
    local response
    response=$(handshake "$1" "$2" "$1")
    grep -q '"successful":true' <<<"$response" || { echo "$2 refused its own page: $response" >&2; return 1; }
    [ "$(grep -ci '^set-cookie:.*; Secure' <<<"$response")" = "$([ "$1" = http ]; echo $?)" ] ||
        { echo "$2: the cookie does not fit $1: $response" >&2; return 1; }
    : >"$work/encke.log"
    response=$(handshake "$1" "$2" "$([ "$1" = https ] && echo http || echo ftp)")
    grep -q ' 403' <<<"$response" || { echo "$2 let a foreign page in: $response" >&2; return 1; }
    grep -q "address=\"$client_address\"" "$work/encke.log" || { echo "$2: the server does not know the client:" >&2; cat "$work/encke.log" >&2; return 1; }
}

# passes SCHEME NAME: every transport works through a proxy.
passes() {
    local url=$1://127.0.0.1:${port[$2]} transport subscriber
    echo "== $2"
    NODE_EXTRA_CA_CERTS=$work/cert.pem timeout "$event_seconds_max" node tests/interop/src/through-proxy.js "$url"
    for transport in websocket long-polling; do
        : >"$work/got"
        timeout "$event_seconds_max" "$ENCKE_BIN" subscribe --url "$url" --ca "$work/cert.pem" --transport "$transport" --count 1 \
            "/proxied/$2" >>"$work/got" 2>"$work/got.err" &
        subscriber=$!
        # A publication before the subscription is for nobody.
        wait_until "a message over $transport" delivered "$url" "$2" "$transport"
        wait "$subscriber"
    done
    knows_client "$1" "$2"
    note passed 1
}

delivered() {
    timeout "$event_seconds_max" "$ENCKE_BIN" publish --url "$1" --ca "$work/cert.pem" --transport "$3" "/proxied/$2" "\"over $3\"" 2>>"$work/publish.err"
    grep -q "over $3" "$work/got"
}

stop() {
    local pid
    for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}

need_services nginx libnginx-mod-stream haproxy openssl curl || skip 'nginx and HAProxy are missing, and cannot be installed here'
need_npm tests/interop
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
work=$(mktemp -d /tmp/encke-proxies.XXXXXX)
chmod 755 "$work"
trap stop EXIT
declare -A port
names=(tls http bytes through nginx-http nginx-https nginx-through buffering-http buffering-https buffering-through
    haproxy-http haproxy-https haproxy-bytes haproxy-through)
read -r -a ports < <(free_ports ${#names[@]})
for at in "${!names[@]}"; do port[${names[at]}]=${ports[at]}; done
make_certificate "$work/cert" push.example.com
cat "$work/cert.pem" "$work/cert.key" >"$work/cert.both.pem"
start_encke
start_nginx nginx off
start_nginx buffering on
start_haproxy
passes http nginx-http
passes https nginx-https
passes https nginx-through
passes http buffering-http
passes http haproxy-http
passes https haproxy-https
passes https haproxy-bytes
passes https haproxy-through
# Nothing of them is for this machine's programs only.
for name in nginx-http haproxy-http; do
    status=$(curl --silent --output "$work/answer" --write-out '%{http_code}' "http://127.0.0.1:${port[$name]}/metrics")
    [ "$status" = 403 ] || { echo "$name shows the metrics: $status" >&2; exit 1; }
done
for transport in websocket long-polling eventsource; do
    "$ENCKE_BIN" bench jitter --target "http://127.0.0.1:${port[nginx-http]}" --clients 20 --rate 10 --duration 2s --cut-every 500ms \
        --offline 100ms --transport "$transport" --ack >"$work/jitter.out" 2>&1 || { cat "$work/jitter.out" >&2; exit 1; }
done
note passed 3
metrics=$(curl --silent --cacert "$work/cert.pem" "https://127.0.0.1:${port[tls]}/metrics")
grep -q '^encke_proxy_heads_refused_total 0$' <<<"$metrics" || { echo 'a PROXY head was refused' >&2; exit 1; }
