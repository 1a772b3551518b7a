# Helpers of the scripts in this folder; each of them begins with
#   source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# Afterwards the working folder is the top of the repository and any failing command ends the script.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Where cargo puts what it builds; a caller may share or move it.
target_dir=${CARGO_TARGET_DIR:-target}

# need_debian PACKAGE…: installs the Debian packages that are missing, and touches nothing when all are there.
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
    if [ -z "${debian_lists_are_new:-}" ]; then
        apt-get update -qq
        export debian_lists_are_new=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# need_rust: a Rust toolchain and the C compiler that the allocator of the program is built with.
need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust 1.95 or newer" >&2
        return 1
    fi
    command -v cc >/dev/null || need_debian gcc libc6-dev
}

# need_encke: builds the program once, optimised, and sets `encke` to its path.
need_encke() {
    need_rust
    echo "building encke; the first time takes some minutes" >&2
    cargo build --quiet --release --locked -p encke-cli
    encke=$target_dir/release/encke
}
