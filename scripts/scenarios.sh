#!/usr/bin/env bash
# Runs every scenario of `encke bench` small, against Encke; chat, rooms and request-reply also against CometD 9 and Faye.
# About three minutes; the figures mean nothing, it shows that all of them work.
#
#   scripts/scenarios.sh                all
#   scripts/scenarios.sh encke faye     only these servers, of: encke cometd faye
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

# run SERVER WORDS…: one scenario; its last lines where it does not hold.
run() {
    local server=$1 began=$SECONDS
    shift
    if timeout 120 "$encke" bench "$@" --quiet >"$work/out" 2>&1; then
        echo "   $server: $1 $((SECONDS - began)) s"
        passed=$((passed + 1))
    else
        echo "   $server: $1 FAILED: encke bench $*"
        tail -n 5 "$work/out"
        failed=$((failed + 1))
    fi
}

# common SERVER: what speaks Bayeux and has a service that echoes can do.
common() {
    local target="--target http://$address"
    # shellcheck disable=SC2086 # Two words.
    {
        run "$1" chat $target --clients 50 --messages 200 --warm-up 0s
        run "$1" chat $target --clients 50 --rate 20 --duration 2s --transport long-polling
        run "$1" rooms $target --clients 50 --batches 100 --rooms-per-client 5
        run "$1" rooms $target --clients 50 --batches 20 --batch-pause 50ms --rooms-per-client 5 --transport long-polling
        run "$1" request-reply $target --clients 20 --duration 2s
        run "$1" request-reply $target --clients 20 --duration 2s --transport long-polling
    }
}

# encke_only: the rest.
encke_only() {
    local target="--target http://$address" pid="--pid $server_pid"
    # shellcheck disable=SC2086 # Two words each.
    {
        run encke broadcast $target --clients 100 --rate 100 --duration 1s
        run encke broadcast $target --clients 100 --find-max --rate 100000 --search-time 90s --duration 1s --p99 1s
        run encke throughput $target --clients 50,100 --rate 1000,5000 --duration 1s
        run encke random-channel $target --clients 100 --ramp 100 --up-to 300 --rate 200 --duration 1s
        run encke reconnect $target --clients 200 --rounds 2
        run encke broadcast $target --clients 100 --rate 100 --duration 1s --ack
        run encke broadcast $target --clients 100 --rate 100 --duration 1s --http2 --streams-per-connection 10
        run encke replay $target --clients 10 --messages 2000 --duration 1s
        run encke jitter $target --clients 200 --rate 10 --duration 3s --cut-every 1s --offline 200ms --replay
        run encke jitter $target --clients 200 --rate 10 --duration 3s --cut-every 1s --offline 200ms --transport long-polling --ack
        run encke avalanche --clients 200 --around 500ms --kill term --ack
        run encke avalanche --clients 200 --around 500ms --kill kill --replay
        run encke soak $target --clients 50 --duration 5s
        run encke idle $target $pid --sessions 500
        run encke open $target --sessions 500
        # Bounds that a busy machine keeps, too: here it is to work, not to be fast.
        run encke self-test --clients 100 --wanted 100000 --added-p99 1s --duration 2s
        run encke http $target --files "$files" --duration 1s
        run encke http $target --files "$files" --users --think 100ms --p90 200ms --search-time 60s --duration 1s
        run encke flood $target --connections 100 --rate 100 --chunk-every 1s --duration 3s
    }
}

# flood_target async|threads: the post's two servers.
flood_target() {
    "$encke" flood-target --io "$1" --port 0 --chunk-every 1s >"$work/ready" 2>"$work/log" &
    server_pid=$!
    sleep 0.5
    address=$(sed -n 's/.*listening on \(http:\/\/\)\?\(127\.0\.0\.1:[0-9]*\).*/\2/p' "$work/ready")
    run "flood-target, $1" flood --target "http://$address" --connections 100 --rate 100 --chunk-every 1s --duration 3s
    stop_server
}

servers=("$@")
[ ${#servers[@]} -gt 0 ] || servers=(encke cometd faye)
need_server encke "${servers[@]}"
files=$work/files
mkdir "$files"
cat >"$work/history.toml" <<'TOML'
[[channels]]
pattern = "/bench/replay/**"
history_messages = 10000

[[channels]]
pattern = "/jitter/**"
history_messages = 1000
TOML
passed=0 failed=0
for server in "${servers[@]}"; do
    options=()
    [ "$server" = encke ] && options=(--config "$work/history.toml" --files "$files")
    start_server "$server" "${options[@]}"
    echo "── $server at $address"
    common "$server"
    if [ "$server" = encke ]; then encke_only; fi
    stop_server
done
if [[ " ${servers[*]} " == *" encke "* ]]; then
    flood_target async
    flood_target threads
fi
echo "$passed scenarios hold, $failed do not"
[ "$failed" -eq 0 ]
