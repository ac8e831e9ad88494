#!/usr/bin/env bash
# test_embed.sh - what embed writes compiles and holds the files byte for byte; bad input fails.
# usage: test_embed.sh CC EMBED RUNTIME_FOLDER
set -euo pipefail
cc=$1
embed=$2
runtime=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir files other copies

printf 'int one;\n' >files/one.h
printf '/* \303\251 \377 "\\ */ no newline at the end' >files/bytes.cu
: >files/empty.cuh
printf '/* the same name */\n' >other/one.h
printf 'a\0b' >files/zero.cu

"$embed" round_trip.c files/one.h files/bytes.cu files/empty.cuh
cat >copy.c <<'C'
#include "sources.h"
#include <stdio.h>
int main(void) {
    for (size_t i = 0; i < lgh__source_count; i++) {
        char path[256];
        snprintf(path, sizeof path, "copies/%s", lgh__sources[i].name);
        FILE *file = fopen(path, "wb");
        fwrite(lgh__sources[i].text, 1, lgh__sources[i].length, file);
        fclose(file);
        if (lgh__sources[i].text[lgh__sources[i].length] != 0)
            return 1;
    }
    return lgh__source_count == 3 ? 0 : 1;
}
C
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$runtime" round_trip.c copy.c -o copy
./copy
for name in one.h bytes.cu empty.cuh; do
    cmp "files/$name" "copies/$name"
done

# Fails, says what is wrong, and leaves no output that a build would take for up to date.
expect_failure() {
    local said=$1
    shift
    echo stale >output.c
    if "$embed" "$@" 2>message; then
        echo "embed $* succeeded"
        exit 1
    fi
    grep -q -- "$said" message || {
        echo "embed $* does not say \"$said\" but:"
        cat message
        exit 1
    }
}
expect_failure missing.cu output.c files/one.h files/missing.cu
[[ ! -e output.c ]]
expect_failure 'zero byte' output.c files/zero.cu
[[ ! -e output.c ]]
expect_failure 'cannot read' output.c files
expect_failure 'same name' output.c files/one.h other/one.h
expect_failure 'no-such-folder' no-such-folder/output.c files/one.h
expect_failure usage output.c
expect_failure usage
