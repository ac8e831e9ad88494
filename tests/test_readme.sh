#!/usr/bin/env bash
# test_readme.sh - what README.md quotes and names is what the tree holds and the example prints.
# usage: test_readme.sh SOURCE_FOLDER FIRST_STEPS
set -euo pipefail
cd "$1"
first_steps=$2

# The C block is the example that the build compiles.
diff <(sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d') examples/first_steps.c ||
    { echo "README.md's C block is not examples/first_steps.c"; exit 1; }
diff <(sed -n 's/^    \(token .*\)/\1/p' README.md) <("$first_steps") ||
    { echo "README.md's output is not what first_steps prints"; exit 1; }

# Every variable of the environment table is one that some file reads.
variables=$(grep -o '^| `LGH_[A-Z_]*`' README.md | grep -o 'LGH_[A-Z_]*')
for variable in $variables; do
    grep -qrw -- "$variable" runtime tools tests/harness.c ||
        { echo "README.md documents $variable, which nothing reads"; exit 1; }
done

# Links, the folder map's among them, lead somewhere.
grep -oE '\]\([^)#]+\)' README.md | sed 's/^](//; s/)$//' | grep -v '^https\?:' |
    while read -r path; do
        [[ -e $path ]] || { echo "README.md links to $path, which does not exist"; exit 1; }
    done
