#!/usr/bin/env bash
# Measures files of 2 kB, 14 kB and 954 kB, and the mixes of ApacheBench and Faban of 2006 and 2008, beside Debian's nginx, in turns on the
# same core; some 25 minutes. Writes docs/benchmarks/files.md and files.svg and prints the table; fails if a figure is not what is wanted.
#
#   ROUNDS=3           how often the two take turns
#   BENCH_SECONDS=5    length of a measurement
#   BENCH_PREFIX=…     put before the server and the load, such as "chrt -f 5" on a machine that has other work
#   BENCH_ONLY=…       only these cases, of: small medium large faban users, each also with -tls, -h2 and -h2-tls
#   FILES_INTO=…       the folder to write to
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/servers.sh

rounds=${ROUNDS:-3}
seconds=${BENCH_SECONDS:-5}
all=$(printf '%s ' {small,medium,large,users}{,-tls,-h2,-h2-tls} faban faban-h2-tls)
read -ra cases <<<"${BENCH_ONLY:-$all}"
runs=$work/runs
files=$work/www
mkdir "$runs" "$files"

# scenario CASE: sets `scenario` to the words after `encke bench http`.
scenario() {
    case ${1%%-*} in
        small) scenario=(--path /2kB.bin --connections 300) ;;
        medium) scenario=(--path /14kB.bin --connections 300) ;;
        large) scenario=(--path /954kB.bin --connections 300) ;;
        faban) scenario=(--path /index.html --connections 2000) ;;
        users) scenario=(--users --users-start 10000 --users-max 10000) ;;
    esac
    [[ $1 != *-h2* ]] || scenario+=(--http2)
}

# write_files: those of `encke bench http`, and a page of 2 kB.
write_files() {
    local name size
    for name in 2kB=2000 14kB=14000 954kB=954000; do
        size=${name#*=}
        head -c "$size" /dev/urandom >"$files/${name%=*}.bin"
    done
    head -c 1500 /dev/urandom | base64 -w 0 | head -c 2000 >"$files/index.html"
}

# start_nginx CASE: sets server_pid, scheme and address. It has one process, so that its processor time is that of `server_pid`.
start_nginx() {
    local port options=
    port=$(free_ports 1)
    address=127.0.0.1:$port
    scheme=http
    if [[ $1 == *-tls ]]; then scheme=https options+=' ssl'; fi
    if [[ $1 == *-h2* ]]; then options+=' http2'; fi
    cat >"$work/nginx.conf" <<END
daemon off; master_process off; pid $work/nginx.pid; error_log $work/nginx.log;
events { worker_connections 30000; }
http {
    types { text/html html; application/octet-stream bin; }
    client_body_temp_path $work/nginx-body; proxy_temp_path $work/nginx-proxy; fastcgi_temp_path $work/nginx-fastcgi;
    uwsgi_temp_path $work/nginx-uwsgi; scgi_temp_path $work/nginx-scgi;
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 65;
    ssl_certificate $work/cert.pem; ssl_certificate_key $work/cert.key;
    server { listen $address backlog=4096$options; root $files; }
}
END
    pin 0 nginx -c "$work/nginx.conf" -e "$work/nginx.log"
    "${pinned[@]}" &
    server_pid=$!
    wait_until 'nginx listens' listens "$port"
}

listens() { (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# start_of LABEL CASE: starts the server of this label.
start_of() {
    case $1:$2 in
        nginx:*) start_nginx "$2" ;;
        encke:*-tls) start_server encke --files "$files" --tls-cert "$work/cert.pem" --tls-key "$work/cert.key" ;;
        encke:*) start_server encke --files "$files" ;;
    esac
}

# measure LABEL CASE: one measurement from core 1 against a server started for it; a failed one is reported and skipped.
measure() {
    start_of "$1" "$2"
    scenario "$2"
    echo "── $1, $2: http ${scenario[*]}"
    bench http "${scenario[@]}" --duration "${seconds}s" --warm-up 500ms --label "$1" --json "$runs/$2.$1.$round.json" >/dev/null ||
        echo "   $1: $2 does not hold" >&2
    stop_server
}

need_two_cores
need_services nginx || skip 'nginx is missing, and cannot be installed here'
need_server encke
make_certificate "$work/cert"
write_files
cargo build --quiet --release --locked -p benches --bin measured_report

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for case in "${cases[@]}"; do
        # Each round begins with the other one.
        if [ $((round % 2)) = 1 ]; then labels=(nginx encke); else labels=(encke nginx); fi
        for label in "${labels[@]}"; do measure "$label" "$case"; done
    done
done

echo
"$target_dir/release/measured_report" files "$runs" --into "${FILES_INTO:-docs/benchmarks}"
