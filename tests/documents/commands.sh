# The commands of the blocks in shell, in a sandbox: documents.test.mjs puts this before each block. The block has a network, processes and a
# folder that nothing else uses, so it binds port 8080 and writes where it likes.
#
#   REPOSITORY, ENCKE            the top of the repository, the program
#
# A command that no test can run as it is written gets another end here:
#   encke serve, encke demo      in the foreground it ends after its start; without one in the block, a server is started before it
#   encke subscribe              in the foreground it ends with the block
#   encke bench, make, cargo     their options and targets are checked; other tests run them
#   docker, helm, systemctl      the files that they name are checked; scripts/deploy.sh runs them
#   useradd, install             without another user
set -euo pipefail
ip link set lo up
waiting=()
serving=

fail() { echo "$*" >&2; exit 1; }

# True if something listens on port 8080.
listens() { (: <>/dev/tcp/127.0.0.1/8080) 2>/dev/null; }
listening() {
    local until=$((SECONDS + 60))
    until listens; do
        { [ -z "$serving" ] || kill -0 "$serving" 2>/dev/null; } && [ "$SECONDS" -lt "$until" ] || fail "nothing listens on port 8080: $(cat serve.log 2>/dev/null)"
        sleep 0.05
    done
}

# begin_server ARGUMENT…: a server with the configuration of the page.
begin_server() {
    if listens; then return; fi
    "$ENCKE" "$@" >serve.log 2>&1 &
    serving=$!
    listening
}

encke() {
    case $1 in
    serve | demo)
        local arguments=() argument
        # `--open` opens a browser.
        for argument in "$@"; do [ "$argument" = --open ] || arguments+=("$argument"); done
        if [ "$BASHPID" != "$$" ]; then exec "$ENCKE" "${arguments[@]}" >>serve.log 2>&1; fi
        end_server
        begin_server "${arguments[@]}"
        end_server
        ;;
    bench | flood-target) "$ENCKE" "$@" --help >/dev/null ;;
    config | token | completion | context | --*) "$ENCKE" "$@" ;;
    *)
        # A command for a host that is not there: its options are checked.
        if [[ "$*" == *example.com* || "$*" == *127.0.0.1:8080*--insecure* || "$*" == *10.0.0.* ]]; then
            "$ENCKE" "$@" --help >/dev/null
            return
        fi
        listening
        if [ "$1" = subscribe ] && [ "$BASHPID" = "$$" ] && [[ "$*" != *--count* ]]; then
            "$ENCKE" "$@" --count 1 &
            waiting+=($!)
        elif [ "$BASHPID" != "$$" ]; then
            "$ENCKE" "$@"
        else
            timeout 60 "$ENCKE" "$@"
        fi
        ;;
    esac
}

end_server() {
    if [ -z "$serving" ]; then return; fi
    kill -INT "$serving"
    wait "$serving" || fail "encke serve ended with $?: $(cat serve.log)"
    serving=
}

# A request that is held, or whose response does not end, may stay open. A decision of a backend that is not there takes seconds.
curl() {
    local status=0 seconds=30
    if [[ "$*" == *-N* || "$*" == *hold* || "$*" == *meta/connect* ]]; then seconds=3; fi
    listening
    command curl --silent --show-error --fail-with-body --max-time "$seconds" "$@" || status=$?
    if [ "$status" = 28 ] && [ "$seconds" = 3 ]; then return 0; fi
    return "$status"
}

make() { command make --directory "$REPOSITORY" --dry-run "$@" >/dev/null; }
cargo() {
    local before=
    for word in "$@"; do
        case $before in
        -p) [ -d "$REPOSITORY/crates/$word" ] || [ -d "$REPOSITORY/$word" ] || fail "there is no package $word" ;;
        --example) compgen -G "$REPOSITORY/crates/*/examples/$word*" >/dev/null || fail "there is no example $word" ;;
        esac
        before=$word
    done
}
npm() { [ -e "$REPOSITORY/clients/js/package.json" ]; }
brotli() { ls "$@" >/dev/null; }
gzip() { ls "${@/#--keep/-d}" >/dev/null; }
docker() { named_files "$@"; }
helm() { named_files "$@"; }
systemctl() { for word in "$@"; do [[ $word != encke.* ]] || [ -e "$REPOSITORY/deploy/systemd/$word" ] || fail "there is no unit $word"; done; }
named_files() { for word in "$@"; do [[ $word != deploy/* ]] || [ -e "$word" ] || fail "there is no $word"; done; }
sudo() { "$@"; }
# The machine of the tests has no user of the server, and gets none.
useradd() { [ "${*: -1}" = encke ]; }
install() {
    local arguments=()
    while [ $# -gt 0 ]; do
        case $1 in
        -g | -o) shift ;;
        *) arguments+=("$1") ;;
        esac
        shift
    done
    command install "${arguments[@]}"
}

# The end of a block.
finish() {
    local pid
    for pid in "${waiting[@]}"; do
        # Who subscribes to what nobody publishes in the block waits on.
        timeout 2 tail --pid="$pid" -f /dev/null || kill "$pid"
    done
    end_server
}
