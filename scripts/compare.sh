#!/usr/bin/env bash
# Measures Encke beside CometD, Faye and Bun, one core each for server and load, and writes docs/benchmarks.md.
# Installs what is missing: Node, a JDK and Maven (root on Debian). About 25 minutes, 14 with ROUNDS=1;
# longer where servers are much faster or slower than the rates that searches begin at.
#
#   ROUNDS=2               how often the servers take turns; the burst and the idle sessions come in the first only
#   COMPARE_ONLY="…"       only these servers, of: encke cometd faye bun
#   COMPARE_CASES="…"      only these cases, of: chat-max rooms-max rooms-rate random-channel polling-max burst idle
#   BENCH_PREFIX=…         put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   COMPARE_QUICK=yes      small numbers, to see whether it works; the page goes to the folder of the reports
#   COMPARE_RUNS=…         the folder of the reports, for `encke bench report`; emptied first
#   COMPARE_INTO=docs      the folder that benchmarks.md is written to
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-2}
quick=${COMPARE_QUICK:-no}
read -ra servers <<<"${COMPARE_ONLY:-encke cometd faye bun}"
read -ra cases <<<"${COMPARE_CASES:-chat-max rooms-max rooms-rate random-channel polling-max burst idle}"
runs=${COMPARE_RUNS:-$target_dir/compare}
into=${COMPARE_INTO:-docs}
idle_sessions=9000
[ "$quick" = yes ] && idle_sessions=300
integers='{"n":12345678901234567890,"m":9007199254740993}'

say() { echo "$(date +%T)  $*"; }

# scenario SERVER CASE: sets `scenario` to the words after `encke bench`. Rates: chat counts messages, a thousand deliveries
# each; rooms count deliveries.
scenario() {
    local duration=6s search=90s sessions=$idle_sessions messages=2000
    [ "$quick" = yes ] && duration=1s search=20s messages=200
    local find=(--find-max --p99 500ms --search-time "$search")
    [ "$quick" = yes ] && find+=(--duration 1s)
    case $2 in
        chat-max) scenario=(chat --rate "$(start_rate "$1" 17000 128 86 5500)" "${find[@]}") ;;
        burst) scenario=(chat --messages "$messages" --late-after 5m) ;;
        rooms-max) scenario=(rooms --rate "$(start_rate "$1" 9000000 105000 69000 4000000)" "${find[@]}") ;;
        rooms-rate) scenario=(rooms --rate 20000 --duration "$duration") ;;
        polling-max) scenario=(rooms --transport long-polling --rate "$(start_rate "$1" 1800000 168000 102000)" "${find[@]}") ;;
        random-channel) scenario=(random-channel --clients 1000 --rate 2000 --duration "$duration") ;;
        idle) scenario=(idle --own-channels --sessions "$sessions") ;;
    esac
}

# start_rate SERVER ENCKE COMETD FAYE BUN: where a search begins: somewhat below what was found before, so that it is short.
start_rate() {
    case $1 in encke) echo "$2" ;; cometd) echo "$3" ;; faye) echo "$4" ;; bun) echo "$5" ;; esac
}

# measure SERVER CASE ROUND: one run against a server started for it and warmed up; a failed one is reported and skipped.
measure() {
    local server=$1 case=$2 report=$runs/$2.$1.$3.json transport=()
    [ "$server" = bun ] && transport=(--transport raw)
    [ "$server.$case" = cometd.idle ] && export COMETD_JVM=$cometd_idle_jvm
    start_server "$server"
    unset COMETD_JVM
    note_settings "$server"
    scenario "$server" "$case"
    if [ "$case" = idle ]; then
        warm_up_sessions "${transport[@]}"
    else
        warm_up "$server" "${transport[@]}"
    fi
    local began=$SECONDS
    bench "${scenario[@]}" "${transport[@]}" --label "$server" --json "$report" >"$work/out" 2>&1 || true
    if [ -s "$report" ]; then
        say "$server: $case, $((SECONDS - began)) s"
    else
        say "$server: $case gave nothing: $(tail -n 1 "$work/out")"
    fi
    stop_server
}

# warm_up SERVER OPTION…: the same kind of load as will be measured; a JVM compiles meanwhile.
warm_up() {
    local seconds=3 rate=30
    [ "$1" = cometd ] && seconds=20 rate=100
    [ "$quick" = yes ] && seconds=1
    [[ " ${scenario[*]} " == *" long-polling "* ]] && set -- "$@" --transport long-polling
    bench chat --rate "$rate" --duration "${seconds}s" "${@:2}" >/dev/null 2>&1 || true
}

# warm_up_sessions OPTION…: opens and closes as many sessions as will be measured, so that what a JVM compiles for them is not
# taken for their memory. Few at a time: a server that keeps the memory of all would seem to need none the next time.
warm_up_sessions() {
    local groups=30
    for _ in $(seq "$groups"); do
        bench open --own-channels --sessions "$((idle_sessions / groups))" "$@" >/dev/null 2>&1 || true
    done
}

# note_settings SERVER: the versions that the programs report, and the command line of the running server.
note_settings() {
    [ -e "$runs/$1.settings" ] && return
    {
        case $1 in
            encke) echo "- $("$encke" --version), one shard, every setting as it comes" ;;
            cometd)
                for jar in cometd-java-server-common jetty-server jetty-websocket-core-server jackson-databind; do
                    find tests/java/reference/target/lib -name "$jar-[0-9]*.jar" -printf '- %f\n' | sed 's/\.jar$//'
                done
                echo "- $(java -version 2>&1 | sed -n 2p)"
                [[ " ${cases[*]} " != *" idle "* ]] || echo "- for idle sessions instead: \`$cometd_idle_jvm\`"
                ;;
            faye)
                for package in faye faye-websocket websocket-driver; do
                    echo "- $package $(node -p "require('./benches/rivals/faye/node_modules/$package/package.json').version")"
                done
                echo "- Node $(node --version)"
                ;;
            bun) echo "- Bun $("$bun" --version)" ;;
        esac
        echo "- \`$(tr '\0' ' ' <"/proc/$server_pid/cmdline" | sed "s|$PWD/||g; s|$target_dir/release/||; s|-cp [^ ]*|-cp …|; s| *$||")\`"
    } >"$runs/$1.settings"
}

# check_integers SERVER: what a subscriber gets of data with large integers.
check_integers() {
    start_server "$1"
    if [ "$1" = bun ]; then
        timeout 10 "$bun" benches/rivals/bun/relay.js "ws://$address" "$integers" >"$runs/$1.integers" || true
    else
        timeout 10 "$encke" subscribe --url "http://$address" --count 1 /bench/integers >"$work/came" &
        local subscriber=$!
        sleep 2
        timeout 10 "$encke" publish --url "http://$address" /bench/integers "$integers" || true
        wait "$subscriber" || true
        sed 's/.*"data"://; s/}$//' "$work/came" >"$runs/$1.integers"
    fi
    stop_server
}

# A heap that shows what sessions hold: collected every second, and given back.
cometd_idle_jvm='-Xms32m -Xmx2g -XX:+UseG1GC -XX:G1PeriodicGCInterval=1000 -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15'

need_two_cores
need_server encke "${servers[@]}"
cargo build --quiet --release --locked -p benches --bin compare_report
mkdir -p "$runs"
rm -f "$runs"/*.json "$runs"/*.settings "$runs"/*.integers
if [ "$quick" = yes ]; then
    rounds=1 into=$runs
fi

echo "$integers" >"$runs/sent.integers"
for server in "${servers[@]}"; do
    check_integers "$server"
done
for round in $(seq "$rounds"); do
    say "round $round of $rounds"
    for case in "${cases[@]}"; do
        case $case in burst | idle) [ "$round" = 1 ] || continue ;; esac
        for server in "${servers[@]}"; do
            [ "$server.$case" = bun.polling-max ] || measure "$server" "$case" "$round"
        done
    done
done
"$target_dir/release/compare_report" "$runs" --into "$into" || [ "$quick" = yes ]
