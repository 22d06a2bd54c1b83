#!/usr/bin/env bash
# Prints what a suite needs, whose name may have wildcards (*): the test files that have it, and the word
# "programs" if it is a suite in Python, which tests programs and scripts. --list prints all of them after their names.
#   scripts/suite_files.sh SUITE | --list
set -euo pipefail
cd "$(dirname "$0")/.."
pattern=$1
list() {
  sed -nE 's/^ *TEST_SUITE(_BEGIN)?\("([^"]+)"\).*/\2/p;T;F' test/test_*.cu test/test_*.cpp 2>/dev/null | paste - -
  # test_ops.cu has a suite for each op.
  for op in dev/ops/*.h; do printf '%s\ttest/test_ops.cu\n' "$(basename "$op" .h)"; done
  # In Python, but it also runs the binary of tests.
  printf 'ptx_coverage\ttest/test_ops.cu\n'
  sed -nE 's/^ *script ([a-z0-9_]+) .*/\1\tprograms/p' scripts/run_tests.sh
}
if [ "$pattern" = --list ]; then
  list
  exit
fi
list | while IFS=$'\t' read -r suite file; do
  # shellcheck disable=SC2053  # the name is a pattern
  if [[ $suite == $pattern ]]; then echo "$file"; fi
done | sort -u
