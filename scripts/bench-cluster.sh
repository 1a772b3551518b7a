#!/usr/bin/env bash
# Nodes of a cluster under load, as processes of this machine on one NATS server. Prints figures; fails if messages are missing, come twice or out of
# order. `ENCKE_BIN`, `NATS_SERVER` and `CENTRIFUGO` name other programs.
#
#   scripts/bench-cluster.sh            everything: some 20 minutes
#   scripts/bench-cluster.sh PART…      breaks, cost, latency, journal, rival
#
#   BREAKS_SECONDS=60  length of a run in which connections break and nodes are killed
#   CLIENTS=1000       its clients
#   ROUNDS=3           how often the measurements take turns
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

breaks_seconds=${BREAKS_SECONDS:-60}
clients=${CLIENTS:-1000}
rounds=${ROUNDS:-3}
kill_every_seconds=20
fan_out=100
# Settings of the nodes before those of their cluster.
server_settings=
work=$(mktemp -d)
declare -A pid port

stop_all() {
    local name number
    rm -f "$work"/*.supervised
    for name in "${!pid[@]}"; do kill -KILL "${pid[$name]}" 2>/dev/null || true; done
    for number in "$work"/*.pid; do kill -KILL "$(cat "$number" 2>/dev/null)" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

# at NAME: its address.
at() { echo "127.0.0.1:${port[$1]}"; }
# wait_until TEXT COMMAND…: until the command succeeds.
wait_until() {
    local end=$((SECONDS + 60))
    until "${@:2}" >/dev/null 2>&1; do
        if [ "$SECONDS" -ge "$end" ]; then echo "not within a minute: $1" >&2; exit 1; fi
        sleep 0.1
    done
}
# stop NAME: kills it.
stop() {
    kill -KILL "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null || true
    unset "pid[$1]"
}

start_nats() {
    port[nats]=$(free_ports 1)
    "$NATS_SERVER" -a 127.0.0.1 -p "${port[nats]}" -js -sd "$work/nats" >"$work/nats.log" 2>&1 &
    pid[nats]=$!
    wait_until 'NATS listens' bash -c "</dev/tcp/127.0.0.1/${port[nats]}"
}

# start_node NUMBER [RULES]: a node of one shard. Nodes that start again have the same port.
start_node() {
    local name=encke-$1
    : "${port[$name]:=$(free_ports 1)}"
    printf 'listen = "%s"\nshards = 1\n%s\n[cluster]\nservers = ["nats://%s"]\nnode = "%s"\n%s\n' \
        "$(at "$name")" "$server_settings" "$(at nats)" "$name" "${2:-}" >"$work/$name.toml"
    "$ENCKE_BIN" serve --log warn --config "$work/$name.toml" >"$work/$name.out" 2>>"$work/$name.log" &
    pid[$name]=$!
}
is_ready() { curl --silent --fail --max-time 5 "http://$(at "$1")/readyz" | grep -qx ready; }
metric() { curl --silent --max-time 5 "http://$(at "$1")/metrics" | awk -v name="$2" '$1 == name { print $2 }'; }
# is_in_sync NODE: it leads or copies each partition of the histories.
is_in_sync() { [ "$(metric "$1" encke_cluster_history_partitions_in_sync)" = 64 ]; }

# A balancer that sends each request, and each WebSocket, to the next node.
start_balancer() {
    local number
    port[balancer]=$(free_ports 1)
    {
        printf 'global\n    maxconn 9000\ndefaults\n    mode http\n    option redispatch\n    retries 3\n    timeout connect 2s\n'
        printf '    timeout client 150s\n    timeout server 150s\n    timeout tunnel 1h\nfrontend clients\n    bind %s\n' "$(at balancer)"
        printf '    default_backend nodes\nbackend nodes\n    balance roundrobin\n    option httpchk\n'
        printf '    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1\n'
        printf '    default-server check inter 200ms fall 1 rise 1\n'
        for number in 1 2 3; do printf '    server encke-%s %s\n' "$number" "$(at "encke-$number")"; done
    } >"$work/haproxy.cfg"
    haproxy -db -f "$work/haproxy.cfg" >"$work/haproxy.log" 2>&1 &
    pid[balancer]=$!
    wait_until 'the balancer has nodes' curl --silent --fail "http://$(at balancer)/readyz"
}

# supervise NUMBER: a node that starts again a second after it was killed, until `drop_node`.
supervise() {
    local name=encke-$1
    # The nodes that start again have it from here.
    : "${port[$name]:=$(free_ports 1)}"
    touch "$work/$name.supervised"
    (
        while [ -e "$work/$name.supervised" ]; do
            start_node "$1" "$history_rules"
            echo "${pid[$name]}" >"$work/$name.pid"
            wait "${pid[$name]}" || sleep 1
        done
    ) 2>/dev/null &
    pid[supervisor-$1]=$!
}
kill_node() { kill -KILL "$(cat "$work/encke-$1.pid")" 2>/dev/null || true; }
drop_node() {
    rm "$work/encke-$1.supervised"
    kill_node "$1"
    wait "${pid[supervisor-$1]}" || true
    unset "pid[supervisor-$1]"
}
# await_nodes: until all three have the histories.
await_nodes() {
    local number
    for number in 1 2 3; do
        wait_until "encke-$number is ready" is_ready "encke-$number"
        wait_until "encke-$number has the histories" is_in_sync "encke-$number"
    done
}
# kill_nodes NUMBER…: kills one of these nodes every 20 s, in turn.
kill_nodes() {
    local number
    while :; do
        for number in "$@"; do
            sleep "$kill_every_seconds"
            kill_node "$number"
            echo "   killed encke-$number" >&2
        done
    done
}
# while_killing NUMBERS COMMAND…: runs a command while these nodes are killed.
while_killing() {
    local killer status=0
    # shellcheck disable=SC2086
    kill_nodes $1 &
    killer=$!
    "${@:2}" || status=1
    kill "$killer"
    wait "$killer" 2>/dev/null || true
    return "$status"
}

history_rules=$'[[channels]]\npattern = "/jitter/**"\nhistory_messages = 100000\n[[channels]]\npattern = "/avalanche/**"\nhistory_messages = 100000'
# The ways of `breaks`.
transports=(websocket 'websocket --http2 --streams-per-connection 10' long-polling eventsource)

# jitter OPTION…: the third node is not killed. It serves the publisher: what that has sent and no node has confirmed may be lost with its node, and the
# load cannot know.
jitter() {
    while_killing '1 2' "$ENCKE_BIN" bench jitter --target "http://$(at balancer)" --clients "$clients" --publish-to "http://$(at encke-3)" \
        --late-after 30s --duration "${breaks_seconds}s" --quiet "$@"
}
# avalanche OPTION…: it kills the first node itself, and waits for the replies to publications.
avalanche() {
    local status=0
    drop_node 1
    while_killing 2 "$ENCKE_BIN" bench avalanche --kill kill --clients "$clients" --around "$((kill_every_seconds + 5))s" --back-within 60s \
        --port "${port[encke-1]}" --through "http://$(at balancer)" \
        --server "$(realpath "$ENCKE_BIN") serve --log warn --config $work/encke-1.toml" --quiet "$@" || status=1
    supervise 1
    return "$status"
}

# breaks: `encke bench jitter` and `avalanche` over three nodes, of which one is killed every 20 s.
breaks() {
    local scenario transport number failed=0 reports=()
    need_services haproxy
    start_nats
    for number in 1 2 3; do supervise "$number"; done
    await_nodes
    start_balancer
    for scenario in jitter avalanche; do
        for transport in "${transports[@]}"; do
            echo "── $scenario --transport $transport --ack --replay, a node killed every $kill_every_seconds s"
            reports+=("$work/report-${#reports[@]}.json")
            # shellcheck disable=SC2086
            "$scenario" --transport $transport --ack --replay --label "${transport%% --s*}" --json "${reports[-1]}" || failed=1
            await_nodes
        done
    done
    python3 benches/cluster/table.py "${reports[@]}" || failed=1
    for number in 1 2 3; do drop_node "$number"; done
    stop balancer
    stop nats
    return "$failed"
}
end_nodes() {
    local name
    for name in "${!pid[@]}"; do if [[ $name == encke-* ]]; then stop "$name"; fi; done
}

load() { python3 benches/cluster/load.py --clients "$fan_out" "$@"; }
# per_second FILE: deliveries a second.
per_second() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(round(r["delivered"] / r["seconds"]))' "$@"; }
# per_core FILE COUNT: deliveries a second of processor time, of the first COUNT processes.
per_core() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(round(r["delivered"] / sum(r["cpu_s"][: int(sys.argv[2])])))' "$@"; }

# cost: deliveries by a second of processor time of all nodes: publisher and subscribers on one node, and on two.
cost() {
    local round rate
    start_nats
    for number in 1 2; do start_node "$number"; done
    for number in 1 2; do wait_until "encke-$number is ready" is_ready "encke-$number"; done
    for round in $(seq "$rounds"); do
        for rate in 200 2000; do
            load --server encke --rate "$rate" --subscribe-at "$(at encke-2)" --publish-at "$(at encke-2)" --pids "${pid[encke-2]}" >"$work/one.json"
            load --server encke --rate "$rate" --subscribe-at "$(at encke-2)" --publish-at "$(at encke-1)" \
                --pids "${pid[encke-1]},${pid[encke-2]},${pid[nats]}" >"$work/two.json"
            echo "cost, round $round: $rate publications/s to $fan_out subscribers: one node $(per_core "$work/one.json" 1) deliveries per second of a core, two nodes $(per_core "$work/two.json" 2) (with NATS $(per_core "$work/two.json" 3))"
        done
    done
    end_nodes
    stop nats
}

# latency: the p99 of a delivery at 200 publications/s on one node, and over two.
latency() {
    local round name target
    start_nats
    for number in 1 2; do start_node "$number"; done
    for number in 1 2; do wait_until "encke-$number is ready" is_ready "encke-$number"; done
    for round in $(seq "$rounds"); do
        for name in one two; do
            target=http://$(at encke-2)
            [ "$name" = one ] || target=http://$(at encke-1)
            "$ENCKE_BIN" bench broadcast --clients "$fan_out" --rate 200 --duration 5s --target "http://$(at encke-2)" --publish-to "$target" \
                --quiet --json "$work/latency.json" >/dev/null
            echo "latency, round $round: $name: $(python3 -c 'import json, sys; l = json.load(open(sys.argv[1]))["trials"][0]["latency"]; print(json.dumps(l))' "$work/latency.json")"
        done
    done
    end_nodes
    stop nats
}

# journal: histories over two nodes, without a journal and with one: deliveries by a second of processor time, and the p99 of a delivery.
journal() {
    local round commit number
    for round in $(seq "$rounds"); do
        for commit in memory replicated; do
            [ "$commit" = memory ] || server_settings='history_commit = "replicated"'
            start_nats
            for number in 1 2; do start_node "$number" $'[[channels]]\npattern = "/**"\nhistory_messages = 10000'; done
            for number in 1 2; do wait_until "encke-$number has the histories" is_in_sync "encke-$number"; done
            load --server encke --rate 2000 --subscribe-at "$(at encke-2)" --publish-at "$(at encke-1)" \
                --pids "${pid[encke-1]},${pid[encke-2]},${pid[nats]}" >"$work/journal-load.json"
            "$ENCKE_BIN" bench broadcast --clients "$fan_out" --rate 200 --duration 5s --target "http://$(at encke-2)" \
                --publish-to "http://$(at encke-1)" --quiet --json "$work/journal.json" >/dev/null
            echo "journal, round $round: $commit: 2000 publications/s to $fan_out subscribers: $(per_core "$work/journal-load.json" 2) deliveries per second of a core (with NATS $(per_core "$work/journal-load.json" 3)); latency at 200: $(python3 -c 'import json, sys; l = json.load(open(sys.argv[1]))["trials"][0]["latency"]; print(json.dumps(l))' "$work/journal.json")"
            end_nodes
            stop nats
            rm -rf "$work/nats"
            server_settings=
        done
    done
}

start_centrifugo() {
    local name=centrifugo-$1
    port[$name]=$(free_ports 1)
    port[$name-internal]=$(free_ports 1)
    cat >"$work/$name.json" <<JSON
{"http_server": {"address": "127.0.0.1", "port": ${port[$name]}, "internal_port": "${port[$name-internal]}"},
 "client": {"insecure": true, "allowed_origins": ["*"]}, "broker": {"enabled": true, "type": "nats", "nats": {"url": "nats://$(at nats)"}},
 "log": {"level": "error"}}
JSON
    "$CENTRIFUGO" --config "$work/$name.json" >"$work/$name.log" 2>&1 &
    pid[$name]=$!
    wait_until "$name listens" bash -c "</dev/tcp/127.0.0.1/${port[$name]}"
}

# rival: the same across two nodes of Centrifugo on the same NATS server. Without a rate it sends as much as arrives.
rival() {
    local round rate number
    need_go_tool centrifugo v6.9.1 github.com/centrifugal/centrifugo/v6
    CENTRIFUGO=${CENTRIFUGO:-$go_tool}
    start_nats
    for number in 1 2; do start_node "$number"; start_centrifugo "$number"; done
    for number in 1 2; do wait_until "encke-$number is ready" is_ready "encke-$number"; done
    for round in $(seq "$rounds"); do
        for rate in 200 1000 10000 0; do
            for name in encke centrifugo; do
                load --server "$name" --rate "$rate" --subscribe-at "$(at "$name-2")" --publish-at "$(at "$name-1")" \
                    --pids "${pid[$name-1]},${pid[$name-2]}" >"$work/$name.result"
                echo "rival, round $round: $name: $([ "$rate" = 0 ] && echo as many || echo "$rate") publications/s to $fan_out subscribers: $(per_second "$work/$name.result") deliveries/s, $(per_core "$work/$name.result" 2) per second of a core: $(cat "$work/$name.result")"
            done
        done
    done
    end_nodes
    for number in 1 2; do stop "centrifugo-$number"; done
    stop nats
}

if [ -z "${ENCKE_BIN:-}" ]; then need_encke; ENCKE_BIN=$encke; fi
need_nats
command -v python3 >/dev/null || need_debian python3
failed=0
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(breaks cost latency journal rival)
for part in "${parts[@]}"; do
    case $part in
    breaks | cost | latency | journal | rival) "$part" || failed=1 ;;
    *) echo "no part $part; there are: breaks, cost, latency, journal, rival" >&2; exit 2 ;;
    esac
done
exit "$failed"
