#!/usr/bin/env bash
# test_needed.sh - the shared library loads with the C library's own parts and nothing else.
# usage: test_needed.sh READELF LIBRARY
set -euo pipefail
readelf=$1
library=$2

needed=$("$readelf" -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
echo "$needed"
[[ -n $needed ]] || { echo "no DT_NEEDED entry in $library: not a dynamic library?"; exit 1; }
# ld-linux is the loader itself: thread-local variables of a shared library refer to it.
if grep -Ev '^(libc|libm|libpthread|libdl|ld-linux[^.]*)\.so\.[0-9]+$' <<<"$needed"; then
    echo "the library above is none of libc, libm, libpthread and libdl"
    exit 1
fi
