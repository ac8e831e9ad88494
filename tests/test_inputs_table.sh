#!/usr/bin/env bash
# test_inputs_table.sh - tests/README.md's table has the rows 1 to 39, and every case that it names
# is one that a test program lists.
# usage: test_inputs_table.sh TESTS_FOLDER
set -euo pipefail
cd "$1"

rows=$(sed -n 's/^| \([0-9]*\) | .*/\1/p' README.md)
diff <(echo "$rows") <(seq 1 39) || { echo "< the numbers of the table, > 1 to 39"; exit 1; }

names=$(grep '^| [0-9]' README.md | grep -o '`[^`]*`' | tr -d '`')
[[ $(wc -l <<<"$names") -gt 39 ]] || { echo "the table names hardly any case"; exit 1; }
for name in $names; do
    program=${name%%.*}
    grep -Eq "(cmocka_unit_test|CASE)\(${name#*.}\)" "$program.c" ||
        { echo "README.md names $name, which $program.c does not list"; exit 1; }
    grep -Eq "lgh_test\($program[ )]" CMakeLists.txt ||
        { echo "CMakeLists.txt does not build $program"; exit 1; }
done

# A row says which cases stand for it, or in words why there is none.
while IFS='|' read -r _ number _ cases _; do
    [[ -n ${cases// /} ]] || { echo "row $number of README.md's table is empty"; exit 1; }
done < <(grep '^| [0-9]' README.md)
