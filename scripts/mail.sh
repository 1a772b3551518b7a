#!/usr/bin/env bash
# The mail notifier against a real server: Debian's dovecot, on free loopback ports and in a folder under /tmp, without root's rights. A
# subscribed client and a held request both learn of a new mail, over IMAP with IDLE and over POP3. `ENCKE_BIN` names another program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Nothing but IDLE reports a mail over IMAP within `event_seconds_max`: the next look is 28 minutes away.
password=secret

# as_user COMMAND…: with the rights of an ordinary user.
as_user() {
    if [ "$(id -u)" = 0 ]; then runuser -u "$user" -- "$@"; else "$@"; fi
}

# wait_for FILE TEXT: until the text is in the file.
wait_for() { wait_until "“$2” in $1" grep -qsF -- "$2" "$1"; }

# metric NAME TEST NUMBER: waits until a metric of the server is so, for example `-eq 1`.
metric() { wait_until "$*" metric_is "$@"; }

metric_is() {
    local metrics value
    metrics=$(curl --silent --fail "$url/metrics") || return 1
    value=$(awk -v name="$1" '$1 == name || index($1, name ",") == 1 { sum += $2 } END { print sum + 0 }' <<<"$metrics")
    [ "$value" "$2" "$3" ]
}

start_dovecot() {
    cat >"$work/dovecot.conf" <<CONFIG
protocols = imap pop3
listen = 127.0.0.1
base_dir = $work/run
state_dir = $work/state
log_path = $work/dovecot.log
default_internal_user = $user
default_internal_group = $(id -gn "$user")
default_login_user = $user
mail_location = maildir:$work/mail/%u
ssl = no
disable_plaintext_auth = no
auth_mechanisms = plain login
# By default the answer to a wrong password takes two seconds.
auth_failure_delay = 0
passdb {
  driver = static
  args = password=$password
}
userdb {
  driver = static
  args = uid=$(id -u "$user") gid=$(id -g "$user") home=$work/mail/%u
}
service anvil {
  chroot =
  # Dovecot delays all logins from an address that has sent a wrong password, by two seconds and more. One source does, on purpose.
  unix_listener anvil-auth-penalty {
    mode = 0
  }
}
service imap-login {
  chroot =
  inet_listener imap {
    port = $imap_port
  }
  inet_listener imaps {
    port = 0
  }
}
service pop3-login {
  chroot =
  inet_listener pop3 {
    port = $pop3_port
  }
  inet_listener pop3s {
    port = 0
  }
}
CONFIG
    chown -R "$user" "$work"
    as_user dovecot -F -c "$work/dovecot.conf" >"$work/dovecot.out" 2>&1 &
    wait_for "$work/dovecot.log" 'starting up'
}

start_encke() {
    cat >"$work/encke.toml" <<CONFIG
port = 0
data = "$work/data"
[[source]]
kind = "mail"
name = "imap"
host = "127.0.0.1"
port = $imap_port
tls = "none"
user = "ann"
password = "$password"
[[source]]
kind = "mail"
name = "pop3"
protocol = "pop3"
host = "127.0.0.1"
port = $pop3_port
tls = "none"
user = "bob"
password_file = "$work/password"
poll_ms = 200
[[source]]
kind = "mail"
name = "wrong"
host = "127.0.0.1"
port = $imap_port
tls = "none"
user = "eve"
password = "guessed"
restart_pause_ms = 100
restart_pause_max_ms = 100
CONFIG
    echo "$password" >"$work/password"
    "$ENCKE_BIN" serve --config "$work/encke.toml" >"$work/encke.out" 2>"$work/encke.log" &
    wait_for "$work/encke.out" 'listening on'
    url=$(sed -n 's/^encke listening on //p' "$work/encke.out")
}

# deliver USER SUBJECT [FILE]: a new mail, with a file as its body.
deliver() {
    {
        printf 'From: =?UTF-8?Q?J=C3=B6rg?= <joerg@example.org>\r\nSubject: %s\r\n' "$2"
        printf 'Date: Sun, 22 Nov 2026 15:04:05 +0100\r\nMessage-ID: <%s@example.org>\r\n\r\n' "$RANDOM"
        [ $# -lt 3 ] || base64 "$3"
    } >"$work/new"
    as_user /usr/lib/dovecot/dovecot-lda -c "$work/dovecot.conf" -d "$1" <"$work/new"
}

# notices SOURCE USER: a client and a held request get a new mail of this user.
notices() {
    local source=$1 recipient=$2 held subscriber
    # It knows the mailbox, whose mails so far are not new. No subscription of another test is left.
    wait_until "$source knows its mailbox" test -e "$work/data/sources/$source.json"
    metric "encke_subscriptions" -eq 0
    metric "encke_in_process_subscriptions" -eq 0
    "$ENCKE_BIN" subscribe --url "$url" --count 2 "/mail/$source" >"$work/$source.out" 2>"$work/$source.log" &
    subscriber=$!
    curl --silent --max-time "$event_seconds_max" "$url/hold/mail/$source?timeout=$event_seconds_max" >"$work/$source.held" &
    held=$!
    metric "encke_subscriptions" -eq 1
    metric "encke_in_process_subscriptions" -eq 1
    local began=${EPOCHREALTIME/./}
    deliver "$recipient" "=?UTF-8?B?R3LDvMOfZQ==?= $source"
    wait_for "$work/$source.out" "\"subject\":\"Grüße $source\""
    echo "$source: the client has it after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    wait "$held"
    grep -qF "\"subject\":\"Grüße $source\"" "$work/$source.held" || { echo "the held request has: $(cat "$work/$source.held")" >&2; return 1; }
    # A large mail costs its header only, and so the next message comes.
    deliver "$recipient" "large $source" "$work/large"
    wait "$subscriber"
    grep -qF "\"subject\":\"large $source\"" "$work/$source.out"
    grep -qF '"sender":"joerg@example.org","sender_name":"Jörg"' "$work/$source.out"
    note passed 1
}

stop() {
    local pid
    # A job that runs with the rights of another user is a shell around the program.
    for pid in $(jobs -p) $(cat "$work/run/master.pid" 2>/dev/null); do kill "$pid" 2>/dev/null || true; done
    wait
    for _ in $(seq 200); do
        pgrep -f "$work/dovecot.conf" >/dev/null || break
        sleep 0.05
    done
    rm -rf "$work"
}

need_services dovecot-imapd dovecot-pop3d curl || skip 'dovecot is missing, and cannot be installed here'
if [ -z "${ENCKE_BIN:-}" ]; then
    need_encke
    ENCKE_BIN=$(realpath "$encke")
fi
user=$(id -un)
[ "$(id -u)" != 0 ] || user=nobody
# The path of a socket is short.
work=$(mktemp -d /tmp/encke-mail.XXXXXX)
trap stop EXIT
head -c 20000000 /dev/urandom >"$work/large"
read -r imap_port pop3_port < <(free_ports)
start_dovecot
start_encke
notices imap ann
notices pop3 bob
# A wrong password is tried again and again, and logged once.
metric 'encke_source_restarts_total{source="wrong"' -ge 3
wait_for "$work/encke.log" 'refuses the user "eve"'
errors=$(grep -c 'refuses the user "eve"' "$work/encke.log")
[ "$errors" = 1 ] || { echo "$errors lines in the log about the wrong password" >&2; exit 1; }
! grep -qF -e "$password" -e guessed "$work/encke.log" || { echo 'the log has a password' >&2; exit 1; }
note passed 1
