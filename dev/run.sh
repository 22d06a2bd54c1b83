#!/usr/bin/env bash
# Runs the benchmarks built in a folder, one after another. The last line is `N OK, N FAIL`. Exit
# code 1: a FAIL, or a benchmark that ended without a verdict; 2: wrong flags or nothing to run.
#
#   [OPS="activation adamw"] dev/run.sh build/host [flags of the benchmarks]     (default: all of dev/ops)
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1
shift
good=0 bad=0 broken=()

# Prints the numbers of a report's last line, text or JSON.
counts() { tail -n 1 | grep -E 'FAIL|summary' | sed -E 's/[^0-9]+/ /g'; }

# Checks first that the harness detects all planted faults.
planted=$("$out/planted_faults" --verify 2>&1)
code=$?
read -r planted_good planted_bad < <(counts <<<"$planted")
if [ "$code" -ne 1 ] || [ "${planted_good:-}" != 1 ] || [ "${planted_bad:-}" != 7 ]; then
  echo "dev/run.sh: the planted faults were not all detected (exit code $code):" >&2
  echo "$planted" >&2
  exit 1
fi
echo "planted faults: all 7 detected" >&2

for op in ${OPS:-$(basename -s .h dev/ops/*.h)}; do
  name=bench_$op
  # A filter may leave a benchmark nothing to run. Wrong flags are reported by the run below.
  if lines=$("$out/$name" --list "$@" 2>/dev/null) && [ -z "$lines" ]; then continue; fi
  echo >&2
  echo "== $name" >&2
  log=$(mktemp)
  "$out/$name" "$@" | tee "$log"
  code=$?
  read -r more_good more_bad < <(counts <"$log")
  rm -f "$log"
  [ "$code" -eq 2 ] && exit 2
  if [ -z "${more_bad:-}" ]; then
    broken+=("$name (exit code $code)")
    continue
  fi
  good=$((good + more_good)) bad=$((bad + more_bad))
done

echo >&2
if [ $((good + bad + ${#broken[@]})) -eq 0 ]; then
  echo "dev/run.sh: no line matches; --list prints all lines" >&2
  exit 2
fi
for name in "${broken[@]}"; do echo "no verdict from $name" >&2; done
sum="$good OK, $((bad + ${#broken[@]})) FAIL"
if [[ " $* " == *" --json "* ]]; then echo "$sum" >&2; else echo "$sum" || exit 1; fi
[ $((bad + ${#broken[@]})) -eq 0 ]
