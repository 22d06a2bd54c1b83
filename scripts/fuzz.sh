#!/usr/bin/env bash
# Runs the targets of test/fuzz under libFuzzer; `make fuzz` builds them and calls this.
#
#   scripts/fuzz.sh --check CLANG      report which package is missing, if any (exit code 2)
#   scripts/fuzz.sh FOLDER             RUNS inputs for each target of FOLDER/fuzzer, or only for TARGET
#
# Prints one line per target: inputs run, edges of the program reached, inputs per second, OK or
# FAIL. Inputs that reach something new are kept in FOLDER/found/TARGET, and the next run uses them.
# An input that fails is kept in FOLDER/failed, next to the log of its run. Exit code 1 if any
# failed.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1-}" = --check ]; then
  clang=${2:?}
  if ! command -v "$clang" >/dev/null 2>&1; then
    echo "'$clang' is missing, and only clang has libFuzzer: run scripts/setup.sh --fuzz to install the" \
         "package clang, or set FUZZ_CXX= to clang's name." >&2
    exit 2
  fi
  trial=$(mktemp)
  trap 'rm -f "$trial"' EXIT
  if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
       "$clang" -x c++ - -fsanitize=fuzzer,address,undefined -o "$trial" 2>/dev/null; then
    echo "$clang cannot link with -fsanitize=fuzzer: its run-time library is missing. Run scripts/setup.sh" \
         "--fuzz to install the package libclang-rt-$("$clang" -dumpversion | cut -d. -f1)-dev on Debian." >&2
    exit 2
  fi
  exit 0
fi

folder=$(realpath "${1:?}")
runs=${RUNS:-1000000}
mapfile -t all < <("$folder/fuzzer")
targets=("${all[@]}")
[ -z "${TARGET-}" ] || read -ra targets <<<"$TARGET"
# A small quarantine and short stacks also find crashes, in half the time.
export ASAN_OPTIONS=quarantine_size_mb=1:malloc_context_size=4:detect_stack_use_after_return=0:max_malloc_fill_size=0

bad=0
mkdir -p "$folder/failed"
printf '%-20s %10s %7s %9s\n' target inputs edges inputs/s
for target in "${targets[@]}"; do
  if [[ " ${all[*]} " != *" $target "* ]]; then
    echo "fuzz.sh: unknown target '$target'; allowed: ${all[*]}" >&2
    exit 2
  fi
  ln -sf fuzzer "$folder/$target"
  mkdir -p "$folder/found/$target"
  words=test/fuzz/dictionaries/$target.dict
  [ -f "$words" ] || words=test/fuzz/dictionaries/json.dict
  log=$folder/failed/$target.log
  code=0
  "$folder/$target" -runs="$runs" -dict="$words" -max_len=512 -timeout=60 -rss_limit_mb=512 \
    -entropic=0 -print_final_stats=1 -close_fd_mask=1 -artifact_prefix="$folder/failed/$target-" \
    "$folder/found/$target" "test/fuzz/corpus/$target" >"$log" 2>&1 || code=$?
  stat() { grep -a "^stat::$1:" "$log" | awk '{print $2}' || true; }
  edges=$(grep -ao ' cov: [0-9]*' "$log" | tail -1 | awk '{print $2}' || true)
  verdict=OK
  [ $code -eq 0 ] || verdict="FAIL (exit code $code; $log)"
  printf '%-20s %10s %7s %9s  %s\n' "$target" "$(stat number_of_executed_units)" "$edges" \
    "$(stat average_exec_per_sec | sed 's/^0$/-/')" "$verdict"
  if [ $code -eq 0 ]; then rm -f "$log"; else bad=$((bad + 1)); fi
done
echo "$((${#targets[@]} - bad)) of ${#targets[@]} targets OK, $bad FAIL"
[ $bad -eq 0 ]
