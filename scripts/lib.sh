# Helpers of the scripts in this folder; each of them begins with
#   source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# Afterwards the working folder is the top of the repository and any failing command ends the script.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Where cargo puts what it builds; a caller may share or move it.
target_dir=${CARGO_TARGET_DIR:-target}
# The exit code of a suite whose tool is missing.
exit_skipped=77

# note KIND TEXT: a line for the table of scripts/test.sh. KIND is `passed` (TEXT is a number of tests), `flaky`, `failed` or `skipped`
# (TEXT names what).
note() {
    if [ -n "${TEST_NOTES:-}" ]; then echo "$1 $2" >>"$TEST_NOTES"; fi
}

# skip REASON: ends a suite that cannot run here. It counts as skipped, never as passed.
skip() {
    echo "skipped: $1"
    note skipped "$1"
    exit "$exit_skipped"
}

# final_failure: prints the first line of a failure's output (standard input) that makes it final, and fails if there is none. See
# scripts/final-failures.txt. A count of zero, a word that ends a name in JSON, a name with `_` between its words, and the sentence of a report that
# nothing was lost say nothing.
final_failure() {
    local words
    words=$(grep -v '^#' scripts/final-failures.txt | paste -s -d '|')
    sed -E "s/\bnothing lost, doubled, out of order, misdelivered or late;//Ig; s/\b($words)(\"?: ?0([^0-9.]|$)|\",)//Ig; s/\b0 ($words)\b//Ig" | grep -iwE "$words" | sed -n "1s/^\(.\{0,$failure_characters\}\).*/\1/p"
}
# The characters of a failure's message that the table shows.
failure_characters=300

# twice NAME COMMAND…: runs a suite that depends on real time, and once more if it fails. Passing then it is flaky, which is noted; both
# outputs stay in a file. If the first run lists failed tests in the file $TEST_FAILED (scripts/failed-tests.mjs), the second one gets
# their files in $TEST_FILES, and need not run others. A failure that is final ends it.
twice() {
    local name=$1 folder=${TEST_LOGS:-target/test}/flaky
    shift
    mkdir -p "$folder"
    local output=$folder/$name.txt status=0 notes failed first files failure final
    failed=$(realpath "$folder")/$name.failed
    : >"$failed"
    notes=$(cat "${TEST_NOTES:-/dev/null}")
    TEST_FAILED=$failed "$@" 2>&1 | tee "$output" || status=$?
    if [ "$status" -eq 0 ] || [ "$status" -eq "$exit_skipped" ]; then
        rm "$output" "$failed"
        return "$status"
    fi
    # What the first run counted does not count.
    [ -z "${TEST_NOTES:-}" ] || printf '%s' "${notes:+$notes$'\n'}" >"$TEST_NOTES"
    first=$(cut -f 2 "$failed")
    files=$(cut -f 1 "$failed" | sort -u | paste -s -d ' ')
    if final=$(own_output "$failed" "$output" | final_failure); then
        echo "── $name failed, and is not run again: $final ──" | tee -a "$output"
        note failed "$name: $final"
        return 1
    fi
    : >"$failed"
    echo "── $name failed; once more: ${files:-all of it} ──" | tee -a "$output"
    if ! TEST_FAILED=$failed TEST_FILES=$files "$@" 2>&1 | tee -a "$output"; then
        while IFS= read -r failure; do note failed "$name: $failure"; done < <(cut -f 2 "$failed")
        return 1
    fi
    while IFS= read -r failure; do note flaky "$name: $failure"; done <<<"${first:-both outputs are in $output}"
    echo "── $name passed now; the end of its first run: ──"
    sed "/^── $name failed; once more: /,\$d" "$output" | tail -n "$first_run_lines"
}
# own_output FAILED OUTPUT: the messages of the failed tests. A suite that does not list them has its whole output, without the lines
# of tests that passed.
own_output() {
    if [ -s "$1" ]; then cut -f 3 "$1"; else grep -vE '✔|\bok\b|[Pp]assed|PASSED' "$2" || true; fi
}
# The lines of a failed first run that are shown again.
first_run_lines=50

# need_debian PACKAGE…: installs the Debian packages that are missing, and touches nothing when all are there. Fails where it cannot.
need_debian() {
    local package missing=()
    for package in "$@"; do
        dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "please install: ${missing[*]} (only root on Debian can do it from here)" >&2
        return 1
    fi
    echo "installing ${missing[*]}" >&2
    # One at a time: suites run beside each other.
    (
        flock 9
        if [ -z "${debian_lists_are_new:-}" ]; then apt-get update -qq; fi
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    ) 9>"${TMPDIR:-/tmp}/encke-apt.lock" || return 1
    export debian_lists_are_new=yes
}

# need_services PACKAGE…: as need_debian, for packages whose services would start at once, on the ports of real ones.
need_services() {
    local policy=/usr/sbin/policy-rc.d made= status=0
    if [ "$(id -u)" = 0 ] && [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=yes
    fi
    need_debian "$@" || status=1
    [ -z "$made" ] || rm "$policy"
    return "$status"
}

# need_rust: the Rust toolchain of rust-toolchain.toml and the C compiler that the allocator of the program is built with.
need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust (https://rustup.rs); rust-toolchain.toml names the version" >&2
        return 1
    fi
    # The toolchain may be there under another name, such as `stable`, on a machine that may not download one.
    if ! cargo --version >/dev/null 2>&1; then
        local wanted name
        wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
        for name in $(rustup toolchain list 2>/dev/null | sed 's/ .*//'); do
            [[ $(RUSTUP_TOOLCHAIN=$name rustc --version 2>/dev/null) == "rustc $wanted "* ]] && export RUSTUP_TOOLCHAIN=$name
        done
        cargo --version >/dev/null
    fi
    command -v cc >/dev/null || need_debian gcc libc6-dev
}

# need_built PROFILE CARGO_OPTION…: builds programs with cargo, unless scripts/test.sh has built all of them before (PREBUILT).
need_built() {
    local profile=$1
    shift
    need_rust
    if [ -n "${PREBUILT:-}" ]; then return 0; fi
    cargo build --quiet --locked --profile "$profile" "$@"
}

# need_encke: builds the program once, optimised, and sets `encke` to its path.
need_encke() {
    encke=$target_dir/release/encke
    if [ -n "${PREBUILT:-}" ]; then
        until [ -e "$TEST_LOGS/release.built" ]; do
            [ ! -e "$TEST_LOGS/release.failed" ] || return 1
            sleep 1
        done
        return 0
    fi
    echo "building encke; the first time takes some minutes" >&2
    need_built release -p encke-cli
}

# The time that an event may take on a busy machine.
event_seconds_max=90

# wait_until WHAT COMMAND…: waits until a command succeeds. If it never does, shows the ends of the outputs in the folder $work.
wait_until() {
    local what=$1 until=$((SECONDS + event_seconds_max))
    shift
    until "$@"; do
        if [ "$SECONDS" -ge "$until" ]; then
            echo "gave up waiting: $what" >&2
            tail -n 20 "$work"/*.{log,out,err} >&2 2>/dev/null || true
            return 1
        fi
        sleep 0.05
    done
}

# start_server NAME TEXT COMMAND…: starts a server whose outputs are $work/NAME.out and $work/NAME.err. Sets `server_pid`, and `url` to
# what it prints after TEXT.
start_server() {
    local output=$work/$1.out text=$2
    # A run before this one may have left its address there.
    : >"$output"
    "${@:3}" >"$output" 2>"$work/$1.err" &
    server_pid=$!
    wait_until "$1 listens" has_started "$output" "$text"
    url=$(sed -n "s/^$text//p" "$output")
    [ -n "$url" ] || { echo "$1 did not start:" >&2; cat "$work/$1.err" >&2; return 1; }
}

# True if it listens, or has ended.
has_started() { grep -q "^$2" "$1" || ! kill -0 "$server_pid" 2>/dev/null; }

# free_ports [COUNT]: prints two ports, or so many, of the loopback interface that are free now. The system gives them to no outgoing connection, as it may
# give a port that was bound for a moment.
free_ports() {
    local port free=()
    for port in $(shuf -i 20000-30000 -n 100); do
        if ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then free+=("$port"); fi
    done
    echo "${free[@]:0:${1:-2}}"
}

# make_certificate PATH [NAME]: PATH.pem and PATH.key, a certificate that signs itself, for this machine as 127.0.0.1 and NAME.
make_certificate() {
    local name=${2:-localhost}
    command -v openssl >/dev/null || need_debian openssl
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$name" -keyout "$1.key" -out "$1.pem" \
        -addext basicConstraints=critical,CA:FALSE -addext "subjectAltName=DNS:$name,IP:127.0.0.1" 2>"$1.log" || { cat "$1.log" >&2; return 1; }
}

# need_npm FOLDER…: npm, and the packages of these folders as their lock files say.
need_npm() {
    command -v npm >/dev/null || skip "npm is missing: install Node 20.14 or newer"
    local folder
    for folder in "$@"; do
        # Nothing to do where the packages of this very lock file are there.
        cmp --silent "$folder/package-lock.json" "$folder/node_modules/.encke-lock.json" && continue
        npm --prefix "$folder" ci --no-audit --no-fund --loglevel=error
        cp "$folder/package-lock.json" "$folder/node_modules/.encke-lock.json"
    done
}

# need_venv FOLDER REQUIREMENTS: Python, and a virtual environment with the packages of this list, made once for each version of the list.
need_venv() {
    command -v python3 >/dev/null || skip 'python3 is missing: install Python 3.10 or newer'
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip 'python3 is older than 3.10'
    cmp --silent "$2" "$1/installed.txt" && return
    echo "installing the packages of $2" >&2
    rm -rf "$1"
    { python3 -m venv "$1" && "$1/bin/pip" install --quiet --requirement "$2"; } >&2 || skip "the packages of $2 cannot be installed"
    cp "$2" "$1/installed.txt"
}

# need_chromium: a browser; CHROMIUM names another one than Debian's.
need_chromium() {
    [ -n "${CHROMIUM:-}" ] && [ -x "$CHROMIUM" ] && return
    need_debian chromium fonts-liberation || skip "there is no browser: install Chromium, or set CHROMIUM"
}

# need_go_tool NAME VERSION PACKAGE: a program from its Go module, built once for each version. Sets `go_tool` to its path.
need_go_tool() {
    local folder built
    command -v go >/dev/null || skip 'go is missing: install Go 1.25 or newer'
    folder=$(realpath --canonicalize-missing "$target_dir/go")
    go_tool=$folder/$1-$2
    [ ! -x "$go_tool" ] || return 0
    echo "building $1 $2" >&2
    # Several suites may want one at the same time, and a package may have another name than its program.
    built=$(mktemp -d)
    GOBIN=$built go install -ldflags='-s -w' "$3@$2"
    mkdir -p "$folder"
    mv "$built"/* "$go_tool"
    rmdir "$built"
}

# need_nats: a NATS server. Sets NATS_SERVER to its path, unless it names one already.
need_nats() {
    if [ -z "${NATS_SERVER:-}" ]; then
        need_go_tool nats-server v2.15.2 github.com/nats-io/nats-server/v2
        NATS_SERVER=$go_tool
    fi
}

# need_java: a JDK and Maven.
need_java() {
    command -v javac >/dev/null || need_debian openjdk-17-jdk-headless || skip "javac is missing: install a JDK, 17 or newer"
    command -v mvn >/dev/null || need_debian maven || skip "mvn is missing: install Maven"
}
