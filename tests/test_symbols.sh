#!/usr/bin/env bash
# test_symbols.sh - the shared library exports the functions of the public header and nothing else.
# usage: test_symbols.sh NM LIBRARY HEADER
set -euo pipefail
nm=$1
library=$2
header=$3

# A declaration starts a line with LGH_API; the function is the first name before a parenthesis.
declared=$(awk '/^LGH_API / { open = 1 }
                open && match($0, /lgh_[a-z0-9_]+\(/) {
                    print substr($0, RSTART, RLENGTH - 1)
                    open = 0
                }' "$header" | sort)
exported=$("$nm" -D --defined-only "$library" | awk '{ print $3 }' | sort)

[[ -n $declared ]] || { echo "no LGH_API function found in $header"; exit 1; }
echo "$(wc -l <<<"$declared") functions declared, $(wc -l <<<"$exported") symbols exported"
diff <(echo "$declared") <(echo "$exported") ||
    { echo "< in the header alone, > in the library alone"; exit 1; }
