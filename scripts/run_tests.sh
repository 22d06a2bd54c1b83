#!/usr/bin/env bash
# Runs the tests built in a folder (build/host, build/cuda, build/host-asan, ...): each suite of the
# doctest binary in a process of its own, so that a crash costs only one suite, then the end-to-end
# tests of the programs. Ends with the line `N passed, N failed, N skipped`; exits 1 if a test
# fails.
#
#   scripts/run_tests.sh build/host [SUITE [CASE]]    (* is a wildcard)
#
# From the environment: SANITIZE (what the build checks), PTX (a folder: the build runs the kernels' PTX in
# it, suites of kernels with seeds 1 to 3, or 1 to 20 if LLMC_LONG is set, or only LLMC_PTX_SEED; all other suites
# are skipped), FILE (not empty: the binary has only these test files), NO_BINARY (not empty: run only suites in
# Python), LLMC_TINY, LLMC_LONG, LLMC_DATA,
# TEST_TIMEOUT (seconds per suite), TEST_LABEL (printed before the last line), TEST_JOBS (suites that
# run at the same time; default: one per core, and one more of those in Python, which often wait for
# programs; only one on a GPU, and under the race checker one per 7 GiB of memory), TEST_MEMORY (GiB
# for them; default: what is available). Reports are printed in a fixed order, each as soon as its
# suite and all suites before it have ended.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1 suite_filter=${2:-} case_filter=${3:-}
tests=$out/tests
logs=$out/test-logs
passed=0 failed=0 skipped=0
limit=${TEST_TIMEOUT:-900}
rm -rf "$logs"
mkdir -p "$logs"

if [ -n "${SANITIZE:-}" ]; then
  export LLMC_TINY=${LLMC_TINY:-1}
  export ASAN_OPTIONS="detect_leaks=1:${ASAN_OPTIONS:-}"
  export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
  export TSAN_OPTIONS="history_size=2:${TSAN_OPTIONS:-}"
fi

# Ranks that wait for a failed one need not be given the time of a user's run.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-1}

# Each seed decides differently where the manual of PTX leaves something open.
seeds=()
if [ -n "${PTX:-}" ]; then
  export LLMC_TINY=${LLMC_TINY:-1} LLMC_PTX=$PWD/$PTX
  if [ -n "${LLMC_PTX_SEED:-}" ]; then
    seeds=("$LLMC_PTX_SEED")
  elif [ "${LLMC_LONG:-0}" != 0 ]; then
    mapfile -t seeds < <(seq 20)
  else
    seeds=(1 2 3)
  fi
fi

finish() {
  echo "$passed $failed $skipped" >"$out/test-summary"
  echo "${TEST_LABEL:+$TEST_LABEL: }$passed passed, $failed failed, $skipped skipped" || failed=1
  [ "$failed" -eq 0 ]
  exit
}

# Older ThreadSanitizers cannot start if the kernel randomises addresses widely; they can without
# randomisation.
runner=()
if [[ ${SANITIZE:-} == *thread* ]] && ! "$tests" --count >/dev/null 2>&1 &&
   setarch -R true 2>/dev/null; then
  runner=(setarch -R)
fi

# count_cases: the number in doctest's answer to --count. field NAME LOG: a number in its "test
# cases: 5 | 4 passed | ...".
count_cases() {
  "${runner[@]}" "$tests" --no-colors=true --count "$@" 2>&1 | sed -nE 's/^\[doctest\] unskipped test cases.*: ([0-9]+)$/\1/p'
}
field() { sed -nE "s/^\[doctest\] test cases:.* ([0-9]+) $1.*/\1/p" "$2" | tail -1; }

filters=()
[ -z "$case_filter" ] || filters=(--test-case="$case_filter")
[ -z "${NO_BINARY:-}" ] && total=$(count_cases "${filters[@]}") || total=0
if [ -z "$total" ]; then
  echo "FAILED: $tests does not start:"
  "${runner[@]}" "$tests" --count 2>&1 | head -20
  failed=1
  finish
fi

if [ "$(basename "$out")" = cuda ] && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "[skipped] all: this machine has no GPU (nvidia-smi lists none); the tests were compiled, not run"
  skipped=$total
  finish
fi

suites=()
[ -n "${NO_BINARY:-}" ] || mapfile -t suites < <("${runner[@]}" "$tests" --no-colors=true --list-test-suites 2>/dev/null | sed '/^\[doctest\]/d; /^===/d; /^$/d')

# Each job writes its output to $logs/NAME.report, then its counts to $logs/NAME.counts.
# seeded_job SEED ARGUMENTS...: suite_job with a seed. Races are the same in most seeds, so only the first one of a
# short run checks them.
seeded_job() {
  [ "$1" = "${seeds[0]}" ] || [ "${LLMC_LONG:-0}" != 0 ] || export LLMC_PTX_RACES=${LLMC_PTX_RACES:-0}
  export LLMC_PTX_SEED=$1
  shift
  suite_job "$@"
}
# suite_job SUITE EXPECTED LOG: runs a suite of the doctest binary. Memory that a case frees stays
# with the process, whose cases would otherwise spend up to a quarter of their time getting it again.
suite_job() {
  local suite=$1 expected=$2 log=$3.log start=$EPOCHREALTIME code seconds good bad skips reason not_run
  local label="$1${LLMC_PTX_SEED:+, seed $LLMC_PTX_SEED}"
  MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 \
    timeout --kill-after=10 "$limit" "${runner[@]}" "$tests" --no-colors=true --no-version=true --test-suite="$suite" \
    "${filters[@]}" >"$log" 2>&1
  code=$?
  seconds=$(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $start}")
  good=$(field passed "$log") bad=$(field failed "$log") skips=$(grep -c '^\[skipped\] ' "$log")
  good=$((${good:-0} - skips)) bad=${bad:-0}
  # After a crash, a sanitizer's report or a timeout, the log can have no result, or only passes.
  [ $code -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
  if [ "$bad" -gt 0 ]; then
    # `timeout` also answers 137 if it had to kill the suite.
    if [ $code -eq 124 ] || { [ $code -eq 137 ] && [ "${seconds%.*}" -ge "$limit" ]; }; then
      reason=" (stopped after $limit s)"
    elif [ $code -eq 137 ]; then
      reason=" (killed, perhaps because memory was short: fewer TEST_JOBS need less)"
    else
      reason=" (exit code $code)"
    fi
    not_run=$((expected - good - bad - skips))
    echo "FAILED $label: $bad of $expected$reason$([ "$not_run" -le 0 ] || echo ", $not_run not run")"
    sed 's/^/    /' "$log"
  else
    echo "ok     $label: $good passed$([ "$skips" -eq 0 ] || echo ", $skips skipped"), $seconds s"
    grep '^\[skipped\] ' "$log"
  fi >"$3.report"
  echo "$good $bad $skips" >"$3.counts"
}

# script_job SUITE LOG FILE ARGUMENTS...: runs a suite in Python, which prints a line per test and a
# summary.
script_job() {
  local suite=$1 log=$2.log report=$2.report counts=$2.counts start=$EPOCHREALTIME code seconds good='' bad='' skips=''
  shift 2
  timeout --kill-after=10 $((3 * limit)) python3 "$@" >"$log" 2>&1
  code=$?
  seconds=$(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $start}")
  sed -E "s/^([0-9]+ passed), 0 failed, ([0-9]+ skipped)$/ok     $suite: \1, \2, $seconds s/; s/^([0-9]+ passed, [0-9]+ failed.*)$/FAILED $suite: \1/" "$log" >"$report"
  read -r good bad skips < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log" | tail -1)
  # It is no error if a script has no test of the requested name.
  if [ -z "$case_filter" ] || [ "${good:-x}${bad:-x}${skips:-x}" != 000 ]; then
    [ "$code" -eq 0 ] && [ -n "${good:-}" ] || [ "${bad:-0}" -gt 0 ] || {
      bad=1
      echo "FAILED $suite: exit code $code" >>"$report"
    }
  fi
  echo "${good:-0} ${bad:-0} ${skips:-0}" >"$counts"
}

# Job control gives each job a process group with the default reaction to SIGINT, which tests of
# interruptions rely on: without it bash starts background jobs that ignore the signal.
set -m
stop_jobs() {
  local job
  for job in $(jobs -pr); do
    # The children are `timeout`, which stops the test and its process group.
    kill $(cat "/proc/$job/task/$job/children" 2>/dev/null) "$job" 2>/dev/null
  done
  exit 130
}
trap stop_jobs INT TERM

default_jobs() {
  local jobs
  jobs=$(nproc)
  [ "$(basename "$out")" != cuda ] || jobs=1
  # A suite under the race checker takes up to 7 GiB, most of it for threads of CUDA blocks.
  [[ ${SANITIZE:-} != *thread* ]] ||
    jobs=$(awk -v jobs="$jobs" -v gib="${TEST_MEMORY:-$(available_gib)}" \
      'BEGIN { fit = int(gib / 7); print fit < 1 ? 1 : fit < jobs ? fit : jobs }')
  echo "$jobs"
}
# The memory that programs can still get. A container may have less than the machine; its files in
# memory make room.
available_gib() {
  local limit used
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null)
  used=$(sed -n 's/^anon //p' /sys/fs/cgroup/memory.stat 2>/dev/null)
  awk -v limit="$limit" -v used="$used" '$1 == "MemAvailable:" {
    bytes = 1024 * $2
    if (limit ~ /^[0-9]+$/ && limit - used < bytes) bytes = limit - used
    print bytes / 2 ^ 30 }' /proc/meminfo
}

# Waits until fewer than TEST_JOBS jobs run, then starts one in the background. `names` keeps the order.
names=()
jobs_at_once=${TEST_JOBS:-$(default_jobs)}
running() { jobs -pr | wc -l; }
submit() { # NAME FUNCTION ARGUMENTS...
  names+=("$1")
  shift
  while [ "$(running)" -ge "$jobs_at_once" ]; do
    sleep 0.05
    print_reports
  done
  "$@" </dev/null &
}

# Prints the reports of all jobs that have ended, up to the first one that has not.
num_printed=0
print_reports() {
  local counts good bad skips
  while [ "$num_printed" -lt "${#names[@]}" ]; do
    counts=$logs/${names[$num_printed]}.counts
    [ -f "$counts" ] && read -r good bad skips <"$counts" && [ -n "$skips" ] || return 0
    cat "$logs/${names[$num_printed]}.report"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skips))
    num_printed=$((num_printed + 1))
  done
}

num_cases=0
for suite in "${suites[@]}"; do
  expected=$(count_cases --test-suite="$suite" "${filters[@]}")
  num_cases=$((num_cases + expected))
  # shellcheck disable=SC2053  # the filter is a pattern
  [ -z "$suite_filter" ] || [[ $suite == $suite_filter ]] || continue
  [ "$expected" -gt 0 ] || continue
  name=${suite//[^A-Za-z0-9_-]/_}
  if [ ${#seeds[@]} -eq 0 ] || [[ $suite == ptx_* ]]; then
    submit "$name" suite_job "$suite" "$expected" "$logs/$name"
  else
    for seed in "${seeds[@]}"; do
      submit "$name.$seed" seeded_job "$seed" "$suite" "$expected" "$logs/$name.$seed"
    done
  fi
done
if [ "$num_cases" -ne "$total" ]; then
  echo "FAILED: $((total - num_cases)) test cases are in no TEST_SUITE, or in one whose name matches the pattern of another"
  failed=$((failed + 1))
fi

# script SUITE FILE ARGUMENTS...: submits a suite in Python.
script() {
  local suite=$1 file=$2
  shift 2
  # shellcheck disable=SC2053
  [ -f "$file" ] && { [ -z "$suite_filter" ] || [[ $suite == $suite_filter ]]; } || return 0
  submit "$suite.py" script_job "$suite" "$logs/$suite.py" "$file" "$@"
}
[ -n "${TEST_JOBS:-}" ] || [ "$(basename "$out")" = cuda ] || jobs_at_once=$((jobs_at_once + 1))

# Tests in Python: of planted faults, of the scripts, and of the programs as a user runs them.
# Sanitized builds run only the doctest binary, and those of PTX also suites of their own.
if [ -z "${SANITIZE:-}${PTX:-}" ] && [ -z "${FILE:-}" ]; then
  if [ "$(basename "$out")" = host ]; then
    script faults test/test_faults.py ${case_filter:+"$case_filter"}
    script resources test/test_resources.py ${case_filter:+"$case_filter"}
    script check_headers test/test_check_headers.py ${case_filter:+"$case_filter"}
    script structure test/test_structure.py ${case_filter:+"$case_filter"}
    script check_words test/test_check_words.py ${case_filter:+"$case_filter"}
    script run_tests test/test_run_tests.py ${case_filter:+"$case_filter"}
    script pages test/test_pages.py ${case_filter:+"$case_filter"}
    script gpu_check test/test_gpu_check.py ${case_filter:+"$case_filter"}
    script gpu_check_generation test/test_gpu_check_generation.py ${case_filter:+"$case_filter"}
    script download test/test_download.py ${case_filter:+"$case_filter"}
    script slurm_scripts test/test_slurm_scripts.py ${case_filter:+"$case_filter"}
    script slurm_programs test/test_slurm_programs.py "$out" ${case_filter:+"$case_filter"}
    script containers test/test_containers.py ${case_filter:+"$case_filter"}
    script study test/test_study.py ${case_filter:+"$case_filter"}
    script study_experiments test/test_study_experiments.py ${case_filter:+"$case_filter"}
    script study_tuning test/test_study_tuning.py ${case_filter:+"$case_filter"}
    script study_report test/test_study_report.py ${case_filter:+"$case_filter"}
    script sentiment_script test/test_sentiment_script.py ${case_filter:+"$case_filter"}
    script study_runs test/test_study_runs.py "$out" ${case_filter:+"$case_filter"}
    script sentiment_runs test/test_sentiment_runs.py "$out" ${case_filter:+"$case_filter"}
    script mpi_ranks test/test_mpi_ranks.py "$out" ${case_filter:+"$case_filter"}
    script tcp_programs test/test_tcp_programs.py "$out" ${case_filter:+"$case_filter"}
    script rank_programs test/test_rank_programs.py "$out" ${case_filter:+"$case_filter"}
    script lost_programs test/test_lost_programs.py "$out" ${case_filter:+"$case_filter"}
    script save_programs test/test_save_programs.py "$out" ${case_filter:+"$case_filter"}
    script tensor_programs test/test_tensor_programs.py "$out" ${case_filter:+"$case_filter"}
    script pipeline_programs test/test_pipeline_programs.py "$out" ${case_filter:+"$case_filter"}
    script guard_programs test/test_guard_programs.py "$out" ${case_filter:+"$case_filter"}
    script finite_programs test/test_finite_programs.py "$out" ${case_filter:+"$case_filter"}
    script watch_programs test/test_watch_programs.py "$out" ${case_filter:+"$case_filter"}
    script agreement_programs test/test_agreement_programs.py "$out" ${case_filter:+"$case_filter"}
    script nccl_ranks test/test_nccl_ranks.py "$out" ${case_filter:+"$case_filter"}
    script run_script test/test_run_script.py ${case_filter:+"$case_filter"}
    script restarts test/test_restarts.py ${case_filter:+"$case_filter"}
    script restart_programs test/test_restart_programs.py "$out" ${case_filter:+"$case_filter"}
    script prepare test/test_prepare.py "$out" ${case_filter:+"$case_filter"}
    script tokenize_program test/test_tokenize_program.py "$out" ${case_filter:+"$case_filter"}
    script tokenize_pipes test/test_tokenize_pipes.py "$out" ${case_filter:+"$case_filter"}
    script cpu_programs test/test_cpu_programs.py "$out" ${case_filter:+"$case_filter"}
    script host_roof_programs test/test_host_roof_programs.py "$out" ${case_filter:+"$case_filter"}
    script tokenize_resume test/test_tokenize_resume.py "$out" ${case_filter:+"$case_filter"}
  fi
  script programs test/test_programs.py "$out" ${case_filter:+"$case_filter"}
  script first_run_programs test/test_first_run_programs.py "$out" ${case_filter:+"$case_filter"}
  script checkpoint_programs test/test_checkpoint_programs.py "$out" ${case_filter:+"$case_filter"}
  script exchange_programs test/test_exchange_programs.py "$out" ${case_filter:+"$case_filter"}
  script plan_programs test/test_plan_programs.py "$out" ${case_filter:+"$case_filter"}
  script mesh_programs test/test_mesh_programs.py "$out" ${case_filter:+"$case_filter"}
  script family_programs test/test_family_programs.py "$out" ${case_filter:+"$case_filter"}
  script resume_programs test/test_resume_programs.py "$out" ${case_filter:+"$case_filter"}
  script qat_programs test/test_qat_programs.py "$out" ${case_filter:+"$case_filter"}
  script memory_programs test/test_memory_programs.py "$out" ${case_filter:+"$case_filter"}
  script stop_programs test/test_stop_programs.py "$out" ${case_filter:+"$case_filter"}
  script status_programs test/test_status_programs.py "$out" ${case_filter:+"$case_filter"}
  script offload_programs test/test_offload_programs.py "$out" ${case_filter:+"$case_filter"}
  script finetune_programs test/test_finetune_programs.py "$out" ${case_filter:+"$case_filter"}
  script adapter_programs test/test_adapter_programs.py "$out" ${case_filter:+"$case_filter"}
  script task_programs test/test_task_programs.py "$out" ${case_filter:+"$case_filter"}
  script task_run_programs test/test_task_run_programs.py "$out" ${case_filter:+"$case_filter"}
  script chat_programs test/test_chat_programs.py "$out" ${case_filter:+"$case_filter"}
  script signal_programs test/test_signal_programs.py "$out" ${case_filter:+"$case_filter"}
  script rank_signal_programs test/test_rank_signal_programs.py "$out" ${case_filter:+"$case_filter"}
  script output_programs test/test_output_programs.py "$out" ${case_filter:+"$case_filter"}
  script suggestions_programs test/test_suggestions_programs.py "$out" ${case_filter:+"$case_filter"}
  script terminal_programs test/test_terminal_programs.py "$out" ${case_filter:+"$case_filter"}
  script infer_batch_programs test/test_infer_batch_programs.py "$out" ${case_filter:+"$case_filter"}
  script quantize_programs test/test_quantize_programs.py "$out" ${case_filter:+"$case_filter"}
  script infer_programs test/test_infer_programs.py "$out" ${case_filter:+"$case_filter"}
  script run_view test/test_run_view.py "$out" ${case_filter:+"$case_filter"}
  script run_history test/test_run_history.py "$out" ${case_filter:+"$case_filter"}
  script run_export test/test_run_export.py "$out" ${case_filter:+"$case_filter"}
  script data_programs test/test_data_programs.py "$out" ${case_filter:+"$case_filter"}
  script evaluation_programs test/test_evaluation_programs.py "$out" ${case_filter:+"$case_filter"}
  script peers test/test_peers.py "$out" ${case_filter:+"$case_filter"}
  script distributed_peers test/test_distributed_peers.py "$out" ${case_filter:+"$case_filter"}
fi

if [ -n "${PTX:-}" ] && [ -z "${FILE:-}" ]; then
  script ptx_coverage test/test_ptx_coverage.py "$out" ${case_filter:+"$case_filter"}
  script ptx_fault_programs test/test_ptx_fault_programs.py "$out" ${case_filter:+"$case_filter"}
  script ptx_programs test/test_ptx_programs.py "$out" ${case_filter:+"$case_filter"}
fi

while [ "$(running)" -gt 0 ]; do
  sleep 0.05
  print_reports
done
print_reports
while [ "$num_printed" -lt "${#names[@]}" ]; do
  echo "FAILED ${names[$num_printed]}: ended without a report"
  failed=$((failed + 1)) num_printed=$((num_printed + 1))
  print_reports
done

if [ -n "${PTX:-}" ] && [ -z "${FILE:-}$suite_filter$case_filter" ]; then
  # Names are SUITE, SUITE.SEED or SUITE.py.
  host_suites=$(comm -13 <(printf '%s\n' "${names[@]%.*}" | sort -u) \
    <(scripts/suite_files.sh --list | cut -f 1 | sort -u) | wc -l)
  echo "[skipped] $host_suites suites that only the host executor runs: make test"
  skipped=$((skipped + host_suites))
fi

if [ $((passed + failed + skipped)) -eq 0 ]; then
  echo "FAILED: no test matches suite '${suite_filter:-*}' and case '${case_filter:-*}'"
  failed=1
fi
finish
