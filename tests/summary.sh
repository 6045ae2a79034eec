#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Adds up the results of one or more build folders after `make check`:
#   tests/summary.sh BUILDDIR...
# Prints each failure, each skip with its reason, and last "N passed, N failed, N skipped".
# Exits 1 when something failed or nothing ran.
set -eu

[ $# -gt 0 ] || { echo "usage: tests/summary.sh BUILDDIR..." >&2; exit 2; }
tmp=$(mktemp) && trap 'rm -f "$tmp"' EXIT

for build in "$@"; do
    find "$build" -name '*.trs' | LC_ALL=C sort | while IFS= read -r trs; do
        test=${trs#"$build"/} && test=${test%.trs}
        # the results are counted by the .trs file; what each was is told by the log
        awk -v test="$test" '
            BEGIN { log_file = ARGV[1]; sub(/\.trs$/, ".log", log_file) }
            /^:test-result: / { count[$2]++; total++ }
            END {
                if (total == 0) print "ERROR: " test " - left no result"
                while ((getline line < log_file) > 0) {
                    result = line; sub(/:.*/, "", result)
                    if (count[result] > 0 && index(line, result ": " test) == 1) {
                        count[result]--; print line
                    }
                }
                for (result in count)
                    while (count[result]-- > 0) print result ": " test
            }' "$trs"
    done
done > "$tmp"

sed -n -e 's/ [0-9]* # SKIP/ -/' -e 's/^SKIP: /skipped: /p' "$tmp"
sed -nE 's/^(FAIL|ERROR|XPASS): /failed: /p' "$tmp"
passed=$(grep -cE '^(PASS|XFAIL): ' "$tmp" || true)
failed=$(grep -cE '^(FAIL|ERROR|XPASS): ' "$tmp" || true)
skipped=$(grep -c '^SKIP: ' "$tmp" || true)
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
