# The servers that Encke is measured beside; sourced after lib.sh by the scripts that start them.
#
# A script sets `cores` to `yes` to keep the server on core 0 and the load on core 1, and calls `need_server` for each server
# it starts. `BENCH_PREFIX` is put before server and load, such as "chrt -f 5" on a machine that has other work.

cores=no
read -ra prefix <<<"${BENCH_PREFIX:-}"
work=$(mktemp -d)
bun=benches/rivals/bun/node_modules/.bin/bun
server_pid=

stop_server() {
    if [ -n "$server_pid" ]; then
        kill "$server_pid" 2>/dev/null || true
        wait "$server_pid" 2>/dev/null || true
        server_pid=
    fi
}
trap 'stop_server; rm -rf "$work"' EXIT

# The rivals end when their input does.
mkfifo "$work/held_open"
exec 9<>"$work/held_open"

# pin N COMMAND…: sets `pinned` to the command, restricted to that core if `cores` is `yes`.
pin() {
    pinned=("${prefix[@]}" "${@:2}")
    [ "$cores" = no ] || pinned=(taskset -c "$1" "${pinned[@]}")
}

# need_server SERVER…: builds or installs these servers.
need_server() {
    local server
    for server in "$@"; do
        case $server in
            encke) need_encke ;;
            floor | polling_floor) cargo build --quiet --release --locked -p benches --bin "$server" ;;
            cometd)
                command -v javac >/dev/null || need_debian openjdk-17-jdk-headless
                command -v mvn >/dev/null || need_debian maven
                (cd tests/java/reference && mvn -q -B -ntp process-classes)
                ;;
            faye | bun)
                command -v npm >/dev/null || need_debian nodejs npm
                npm --prefix "benches/rivals/$server" ci --no-audit --no-fund --loglevel=error
                ;;
        esac
    done
}

# need_two_cores: one for the server, one for the load.
need_two_cores() {
    if [ "$(nproc)" -lt 2 ]; then
        echo "two cores are needed: one for the server, one for the load" >&2
        exit 1
    fi
    command -v taskset >/dev/null || need_debian util-linux
    cores=yes
    ulimit -n "$(ulimit -Hn)"
}

# start_server SERVER [OPTION…]: sets server_pid, scheme and address; options are for encke, which has `encke_shards` shards, or one.
start_server() {
    local server=$1 command
    shift
    case $server in
        encke) command=("$encke" serve --port 0 --shards "${encke_shards:-1}" "$@") ;;
        floor | polling_floor) command=("$target_dir/release/$server") ;;
        cometd) command=(benches/rivals/cometd/run.sh) ;;
        faye) command=(node --max-old-space-size=8192 benches/rivals/faye/server.js) ;;
        bun) command=("$bun" benches/rivals/bun/server.js) ;;
    esac
    # The line of the server before must not be taken for this one's.
    : >"$work/ready"
    pin 0 "${command[@]}"
    "${pinned[@]}" <&9 >"$work/ready" 2>"$work/log" &
    server_pid=$!
    for _ in $(seq 200); do
        address=$(sed -n 's/.*listening on \(https\?:\/\/\)\?\(127\.0\.0\.1:[0-9]*\).*/\2/p' "$work/ready")
        scheme=http
        grep -q 'listening on https:' "$work/ready" && scheme=https
        [ -n "$address" ] && return
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "$server did not get ready:" >&2
    cat "$work/log" >&2
    return 1
}

# bench SCENARIO OPTION…: against the server that runs.
bench() {
    pin 1 "$encke" bench "$@" --target "$scheme://$address" --pid "$server_pid" --quiet
    "${pinned[@]}"
}
