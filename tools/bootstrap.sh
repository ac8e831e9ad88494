#!/usr/bin/env bash
# bootstrap.sh - installs what the build needs and this machine lacks; silent where nothing is.
#
# usage: tools/bootstrap.sh
#
# Needed: a C compiler, CMake 3.25 or newer, Ninja, and the headers of cmocka, cJSON and xxHash.
# Installs with apt (Debian, Ubuntu) or dnf (Fedora, RHEL), through sudo where not root. CUDA's
# headers are optional and not installed: without them the CPU device alone is built.
set -euo pipefail

if [[ ${1:-} == --help ]]; then
    sed -n '2,/^set /p' "$0" | sed '$d; s/^# \?//'
    exit 0
fi

say() {
    echo "bootstrap: $*" >&2
}

have_compiler() {
    command -v cc >/dev/null
}

have_cmake() {
    command -v cmake >/dev/null &&
        printf '3.25.1\n%s\n' "$(cmake --version | sed -n 's/^cmake version //p')" | sort -C -V
}

have_header() {
    echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1
}

# Prints the kinds of things that are missing, one a line.
missing() {
    have_compiler || echo compiler
    have_cmake || echo cmake
    command -v ninja >/dev/null || echo ninja
    have_header cmocka.h || echo cmocka
    have_header cjson/cJSON.h || echo cjson
    have_header xxhash.h || echo xxhash
}

apt_name() {
    case $1 in
        compiler) echo gcc libc6-dev ;;
        cmake) echo cmake ;;
        ninja) echo ninja-build ;;
        cmocka) echo libcmocka-dev ;;
        cjson) echo libcjson-dev ;;
        xxhash) echo libxxhash-dev ;;
    esac
}

dnf_name() {
    case $1 in
        compiler) echo gcc ;;
        cmake) echo cmake ;;
        ninja) echo ninja-build ;;
        cmocka) echo libcmocka-devel ;;
        cjson) echo cjson-devel ;;
        xxhash) echo xxhash-devel ;;
    esac
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "needs root for: $*"
        exit 1
    fi
}

# Runs quietly, and shows what was said if it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

install_with_apt() {
    local install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y
        --no-install-recommends "$@")
    # The package lists of a fresh machine are empty or old, and then the first try fails.
    "${install[@]}" >/dev/null 2>&1 </dev/null && return
    quietly as_root apt-get update
    quietly "${install[@]}" </dev/null
}

install_with_dnf() {
    quietly as_root dnf install -y --setopt=install_weak_deps=False "$@"
}

mapfile -t wanted < <(missing)
[[ ${#wanted[@]} -gt 0 ]] || exit 0

if command -v apt-get >/dev/null; then
    manager=apt
elif command -v dnf >/dev/null; then
    manager=dnf
else
    say "neither apt-get nor dnf is here; please install by hand: ${wanted[*]}"
    say "(a C compiler, CMake >= 3.25, Ninja, and cmocka, cJSON and xxHash with their headers)"
    exit 1
fi

packages=()
for thing in "${wanted[@]}"; do
    read -ra names < <("${manager}_name" "$thing")
    packages+=("${names[@]}")
done
say "installing ${packages[*]}"
"install_with_$manager" "${packages[@]}" || {
    say "the installation failed; see above"
    exit 1
}

mapfile -t wanted < <(missing)
[[ ${#wanted[@]} -gt 0 ]] || exit 0
if [[ " ${wanted[*]} " == *" cmake "* ]]; then
    say "CMake 3.25 or newer is needed and this system's package is older;" \
        "'pip install cmake' gives a new one"
else
    say "still missing after the installation: ${wanted[*]}"
fi
exit 1
