#!/usr/bin/env bash
# The files below deploy/: linters for each of them, the program in a root like the one of the image, and the nodes, NATS servers and HAProxy of
# the compose file as processes on free ports of this machine. `ENCKE_BIN` and `NATS_SERVER` name other programs.
#
#   scripts/deploy.sh           everything
#   scripts/deploy.sh PART…     lint, chart, image, compose
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The oldest and the newest version of Kubernetes that the chart is checked against.
kubernetes=(v1.30.0 v1.37.0)
user=65532

check() { "$venv/bin/python" tests/deploy/check.py "$@"; }

# passed TEXT: one more check is good.
passed() {
    echo "good: $1"
    note passed 1
}

lint() {
    local file
    "$venv/bin/hadolint" deploy/Dockerfile
    passed 'the container file'
    context_is_enough
    passed 'the context of the image has every manifest'
    promtool check rules deploy/helm/encke/files/alerts.yaml >"$work/promtool.log" || { cat "$work/promtool.log" >&2; return 1; }
    cp deploy/helm/encke/files/alerts.yaml tests/deploy/alerts_test.yaml "$work"
    promtool test rules "$work/alerts_test.yaml" >"$work/promtool.log" || { cat "$work/promtool.log" >&2; return 1; }
    passed 'the alerts, on series'
    "$venv/bin/python" -m json.tool deploy/grafana/encke.json >/dev/null
    passed 'the dashboard'
    haproxy -c -q -f deploy/compose/haproxy.cfg
    for file in deploy/compose/.env.example; do ! grep -E '^[A-Z_]+=.' "$file" || { echo "$file has a secret" >&2; return 1; }; done
    need_go_tool compose-go v2.16.2 github.com/compose-spec/compose-go/v2/cmd
    # The program of the library does not pass its environment on, so variables get their values here.
    sed -E 's/\$\{[A-Z_]+:-([^}]*)\}/\1/g; s/\$\{[A-Z_]+:\?[^}]*\}/a/g' deploy/compose/compose.yaml >"$work/compose.yaml"
    "$go_tool" -format json "$work/compose.yaml" >"$work/compose.json"
    check compose "$work/compose.json" "$work/settings"
    passed 'the compose file, and the configurations beside it'
    if command -v systemd-analyze >/dev/null; then
        mkdir -p "$work/units"
        cp deploy/systemd/* "$work/units"
        sed -i "s|/usr/local/bin/encke|$(realpath "$ENCKE_BIN")|" "$work/units/encke.service"
        (cd "$work/units" && systemd-analyze verify ./encke.socket ./encke.service)
        passed 'the units of systemd'
    fi
}

# The image is built from what .dockerignore lets through: every package of the workspace has its manifest and sources there.
context_is_enough() {
    local context=$work/context
    mkdir -p "$context"
    # shellcheck disable=SC2046
    git ls-files -z -- $(sed -n 's/^!//p' .dockerignore) | xargs -0 cp --parents -t "$context"
    (cd "$context" && cargo metadata --locked --offline --no-deps --format-version 1 >/dev/null)
    cmp web/dist/embedded.rs "$context/web/dist/embedded.rs"
}

# The chart, with the values of deploy/helm/encke/ci and with its defaults.
chart() {
    local helm kubeconform schemas values name version variables
    need_go_tool helm v3.22.0 helm.sh/helm/v3/cmd/helm
    helm=$go_tool
    need_go_tool kubeconform v0.8.0 github.com/yannh/kubeconform/cmd/kubeconform
    kubeconform=$go_tool
    schemas=$(echo "$venv"/lib/python3*/site-packages/kubernetes_validate/kubernetes-json-schema)
    for version in "${kubernetes[@]}"; do check schemas "$schemas/$version-local-strict" "$work/schemas/$version"; done
    for values in deploy/helm/encke/values.yaml deploy/helm/encke/ci/*.yaml; do
        name=$(basename "$values" .yaml)
        "$helm" lint --strict --quiet --kube-version 1.30.0 --values "$values" deploy/helm/encke
        "$helm" template push deploy/helm/encke --namespace push --kube-version 1.30.0 --values "$values" >"$work/$name.yaml"
        for version in "${kubernetes[@]}"; do
            # The schemas of the operator of Prometheus are nowhere among them.
            "$kubeconform" -strict -summary -skip ServiceMonitor,PrometheusRule \
                -schema-location "$work/schemas/$version/{{.ResourceKind}}{{.KindSuffix}}.json" "$work/$name.yaml"
        done
        mkdir -p "$work/chart-$name"
        check chart "$work/$name.yaml" "$work/settings" "$work/chart-$name"
        # The program takes the configuration and the environment that the chart makes.
        mapfile -t variables <"$work/chart-$name/environment"
        env NATS_PASSWORD=a NATS_TOKEN=b "${variables[@]}" "$ENCKE_BIN" config check "$work/chart-$name/encke.toml"
        passed "the chart, $name"
    done
    for values in replicas=3 autoscaling.enabled=true drain.spreadMs=20000 metrics.serviceMonitor.enabled=true settings.listen=a \
        settings.data=a replicas=none; do
        if "$helm" template push deploy/helm/encke --kube-version 1.30.0 --set "$values" >/dev/null 2>"$work/refused.log"; then
            echo "the chart takes $values" >&2
            return 1
        fi
        passed "the chart refuses $values"
    done
}

# The program in a root that has what distroless/cc has: the C library and certificates. The root is read-only, the user is nobody.
image() {
    local root=$work/root library variables process
    [ "$(id -u)" = 0 ] || { echo 'not root: the program is not run in the root of an image'; return 0; }
    mkdir -p "$root"/{usr/local/bin,etc/ssl/certs,var/lib/encke,etc/encke,proc,dev}
    cp "$ENCKE_BIN" "$root/usr/local/bin/encke"
    while IFS= read -r library; do
        case $(basename "$library") in
        libc.so.6 | libm.so.6 | libgcc_s.so.1 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-*.so.*) ;;
        *) echo "the program needs $library, which the image does not have" >&2; return 1 ;;
        esac
        cp --parents --dereference "$library" "$root"
    done < <(ldd "$ENCKE_BIN" | grep -oE '/[^ ]+')
    chmod 700 "$root/var/lib/encke"
    chown "$user:$user" "$root/var/lib/encke"
    mapfile -t variables < <(sed -n 's/.*\(ENCKE_[A-Z_]*=[^ ]*\).*/\1/p' deploy/Dockerfile | sed "s/0\.0\.0\.0:8080/$(at image)/")
    cat >"$work/inside.sh" <<INSIDE
mount --bind "$root" "$root"
mount --bind "$root/var/lib/encke" "$root/var/lib/encke"
mount --rbind /proc "$root/proc"
mount -o remount,bind,ro "$root"
exec env -i ${variables[*]} setpriv --no-new-privs "$(command -v chroot)" --userspec="$user:$user" --groups= "$root" /usr/local/bin/encke serve
INSIDE
    unshare --mount bash "$work/inside.sh" >"$work/image.out" 2>"$work/image.err" &
    process=$!
    wait_until 'the program in the root of the image is ready' answers "http://$(at image)"
    [ "$(awk '$1 == "Uid:" { print $2 }' "/proc/$process/status")" = "$user" ]
    [ "$(awk '$1 == "CapEff:" { print $2 }' "/proc/$process/status")" = 0000000000000000 ]
    kill -TERM "$process"
    wait "$process"
    [ -n "$(ls -A "$root/var/lib/encke")" ] || { echo 'nothing was stored in the volume' >&2; return 1; }
    passed 'the program in a root like that of the image: read-only, no root, no capability, a clean end'
}

# at SERVICE: the address of a node, and of a NATS server for its clients and for routes.
at() { echo "127.0.0.1:${port[$1]}"; }

# The configurations of the compose file, with paths, ports and networks of this run.
configure() {
    local file=$1 number
    shift
    local edits=(-e "s|172\.30\.80\.0/24|127.0.0.1|")
    for number in 1 2 3; do
        edits+=(-e "s|nats-$number:4222|$(at nats-$number)|; s|nats-$number:6222|$(at route-$number)|; s|encke-$number:8080|$(at encke-$number)|")
    done
    sed -E "${edits[@]}" "$@" "deploy/compose/$file"
}

start_nats() {
    configure nats.conf -e "s|^port: .*|listen: $(at "nats-$1")|; s|^    port: .*|    listen: $(at "route-$1")|" \
        -e "s|^http: .*|http: $(at "monitor-$1")|; s|/data|$work/nats-$1|" >"$work/nats-$1.conf"
    NATS_NAME=nats-$1 NATS_PASSWORD=$password "$NATS_SERVER" --config "$work/nats-$1.conf" >"$work/nats-$1.out" 2>"$work/nats-$1.err" &
    pid[nats-$1]=$!
}

start_node() {
    NATS_PASSWORD=$password API_KEY=$key ENCKE_LISTEN=$(at "encke-$1") ENCKE_DATA=$work/encke-$1 ENCKE_LOG_FORMAT=json \
        "$ENCKE_BIN" serve --config "$work/encke.toml" --shards 1 >"$work/encke-$1.out" 2>"$work/encke-$1.err" &
    pid[encke-$1]=$!
}

answers() { curl --silent --fail --max-time 5 "$1/readyz" >"$work/answer"; }
is_healthy() { curl --silent --fail --max-time 5 "http://$(at "monitor-$1")/healthz" >"$work/answer"; }
# is_connected NODE: it is connected to NATS.
is_connected() { curl --silent --max-time 5 "http://$(at "encke-$1")/readyz" | grep -qx ready; }
# metric NODE NAME: its value.
metric() { curl --silent --max-time 5 --header "Authorization: Bearer $key" "http://$(at "encke-$1")/metrics" | awk -v name="$2" '$1 == name { print $2 }'; }
has_session() { [ "$(metric "$1" encke_sessions)" -ge 1 ]; }
# routed NUMBER: HAProxy has so many nodes in use.
routed() { [ "$(curl --silent --max-time 5 "http://$(at stats)/;csv" | awk -F, '$1 == "nodes" && $2 != "BACKEND" && $18 ~ /^UP/' | wc -l)" = "$1" ]; }

# all_got TEXT: every subscriber has this text. Publishes it once more, because a subscriber may have come later.
all_got() {
    local number
    timeout "$event_seconds_max" "$ENCKE_BIN" publish --url "$clients" /deployed "\"$1\"" >>"$work/publish.out" 2>&1 || return 1
    for number in 1 2 3; do grep -q "$1" "$work/subscriber-$number.out" || return 1; done
}

# stays_on_its_node: a client of long-polling with cookies, each request over a new connection, is known each time.
stays_on_its_node() {
    local response client
    response=$(bayeux '{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"]}')
    client=$(sed -n 's/.*"clientId":"\([^"]*\)".*/\1/p' <<<"$response")
    [ -n "$client" ] || { echo "no session: $response" >&2; return 1; }
    for _ in 1 2 3 4 5 6; do
        response=$(bayeux "{\"channel\":\"/meta/connect\",\"connectionType\":\"long-polling\",\"clientId\":\"$client\",\"advice\":{\"timeout\":0}}")
        grep -q '"successful":true' <<<"$response" || { echo "another node was asked: $response" >&2; return 1; }
    done
}
bayeux() { curl --silent --max-time "$event_seconds_max" --cookie "$work/jar" --cookie-jar "$work/jar" --data "[$1]" "$clients/cometd"; }

# The topology of the compose file: three nodes, three NATS servers, HAProxy.
compose() {
    local number clients password=p0123456789abcdef key=0123456789abcdef
    need_nats
    for number in 1 2 3; do start_nats "$number"; done
    configure encke.toml >"$work/encke.toml"
    for number in 1 2 3; do start_node "$number"; done
    # Beside the frontend of the compose file one for its statistics.
    { configure haproxy.cfg -e "s|maxconn .*|maxconn 1000|; s|bind :8080|bind $(at haproxy)|"
      printf 'frontend stats\n    bind %s\n    stats enable\n    stats uri /\n' "$(at stats)"; } >"$work/haproxy.cfg"
    haproxy -db -f "$work/haproxy.cfg" >"$work/haproxy.out" 2>"$work/haproxy.err" &
    pid[haproxy]=$!
    clients=http://$(at haproxy)
    for number in 1 2 3; do
        wait_until "nats-$number is healthy" is_healthy "$number"
        wait_until "encke-$number is connected to NATS" is_connected "$number"
    done
    wait_until 'HAProxy uses all nodes' routed 3
    for number in 1 2 3; do
        "$ENCKE_BIN" subscribe --url "$clients" --header "Cookie: ENCKE_NODE=encke-$number" /deployed >"$work/subscriber-$number.out" 2>"$work/subscriber-$number.err" &
        pid[subscriber-$number]=$!
    done
    wait_until 'all subscribers get a message' all_got first
    for number in 1 2 3; do
        wait_until "encke-$number has a session" has_session "$number"
    done
    passed 'nodes, NATS and HAProxy of the compose file: each node has a client, and all get a message'
    curl --silent --header "Authorization: Bearer $key" "http://$(at encke-1)/metrics" >"$work/metrics"
    check metrics "$work/metrics" deploy/helm/encke/files/alerts.yaml deploy/grafana/encke.json deploy/helm/encke/templates/horizontalpodautoscaler.yaml
    passed 'alerts, dashboard and autoscaler name metrics of a node'
    [ "$(curl --silent --output "$work/answer" --write-out '%{http_code}' "$clients/metrics")" = 403 ]
    stays_on_its_node
    passed 'a client of long-polling stays on its node'
    kill -TERM "${pid[encke-1]}"
    wait "${pid[encke-1]}"
    wait_until 'HAProxy has given up the node that ended' routed 2
    wait_until 'all subscribers get a message without one node' all_got second
    passed 'a node drains and ends, and its clients go on at others'
    kill -KILL "${pid[nats-1]}"
    wait_until 'all subscribers get a message without one NATS server' all_got third
    passed 'a NATS server is killed, and messages go on'
    start_node 1
    wait_until 'HAProxy uses the node that came back' routed 3
    wait_until 'all subscribers get a message after its return' all_got fourth
    passed 'a node comes back'
}

stop() {
    local one
    for one in $(jobs -p); do kill "$one" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint chart image compose)
need_services haproxy prometheus curl util-linux || skip 'HAProxy and promtool are missing, and cannot be installed here'
venv=$(realpath --canonicalize-missing "$target_dir/deploy-venv")
need_venv "$venv" tests/deploy/requirements.txt
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
work=$(mktemp -d /tmp/encke-deploy.XXXXXX)
chmod 755 "$work"
trap stop EXIT
declare -A port pid
names=(image haproxy stats encke-{1,2,3} nats-{1,2,3} route-{1,2,3} monitor-{1,2,3})
read -r -a ports < <(free_ports ${#names[@]})
for at in "${!names[@]}"; do port[${names[at]}]=${ports[at]}; done
(cd "$work" && "$ENCKE_BIN" config show) >"$work/settings"
for part in "${parts[@]}"; do "$part"; done
