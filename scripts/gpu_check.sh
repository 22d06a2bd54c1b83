#!/usr/bin/env bash
# Checks the engine on a machine with a GPU, in phases of at most eight minutes, without a network.
# scripts/GPU_CHECK.md is its manual.
#
#   scripts/gpu_check.sh [--dry] PHASE OUTDIR
#
#   profile   toy runs, then the time of each operation in a step of GPT-2 124M, next to predictions
#   correct   build, all tests on the GPU, compute-sanitizer on short training runs
#   train     GPT-2 124M next to PyTorch: 200 losses from the same weights and batches, then speed
#   ranks     several ranks next to one: one GPU that 2, 4 and 8 ranks share, or one GPU per rank
#   memory    --recompute and --offload: the same bits, and their cost with GPT-2 1558M and 8.3 billion parameters
#   plan      step times that --plan predicts from a machine file measured here, next to those of 124M to 1558M
#   finetune  frozen parts, LoRA and IA3: the bits that must agree, and time and memory next to all weights
#   bench     every kernel against the roofs measured here, then PyTorch's
#   infer     generation with GPT-2 124M and 1558M next to PyTorch: prompts, and tokens at four contexts
#   int8      INT8 generation with the same models next to floats and PyTorch: which gain, and which marks
#   study     the experiments of scripts/study that one GPU can measure, and their page; call it again to continue
#   --dry     the same steps, tiny and on the CPU, to try the script itself without a GPU; the default
#             of OUTDIR is build/gpu_check/dry/PHASE
#
# OUTDIR gets at most eight files, each complete up to the last step: report.txt (read this one),
# steps.jsonl, and the logs and figures that the phase names. The first step that fails ends the
# phase: exit code 1, and the last line names the step.
#
# From the environment: DEPS (folder made by scripts/setup.sh --gpu --prefix DIR), PYTHON (default
# python3; phase train needs PyTorch and NumPy in it, phases infer and int8 NumPy), DATA (GPT-2 tokens, llm.c's .bin; default:
# synthetic tokens), COMMIT (default: from git), JOBS (default: number of cores), BUILT (1: the programs are
# in build/cuda already, compiled elsewhere for this GPU, and make is not called), PHASE_SECONDS (default 480),
# BATCHES (micro-batches that phase train tries, default 16,32,64), TEXTS and SENTENCES (folders for phase study: its
# --data and --sentences), TEST_JOBS (test suites at a time, default: number
# of cores).
set -euo pipefail
cd "$(dirname "$0")/.."

usage_error() {
  echo "gpu_check.sh: $1" >&2
  sed -n '/^#   [a-z-]/s/^#   /  /p' "$0" >&2
  exit 2
}
dry=0 words=()
for word in "$@"; do
  if [ "$word" = --dry ]; then dry=1; else words+=("$word"); fi
done
phase=${words[0]:-} out=${words[1]:-}
[ ${#words[@]} -ge 1 ] && [ ${#words[@]} -le 2 ] || usage_error "give a phase and a folder for the results"
case $phase in
  profile | correct | train | ranks | memory | plan | finetune | bench | infer | int8 | study) ;;
  *) usage_error "phase '$phase' is unknown; allowed: profile, correct, train, ranks, memory, plan, finetune, bench, infer, int8, study" ;;
esac
if [ -z "$out" ]; then
  [ $dry -eq 1 ] || usage_error "give a folder for the results of phase $phase"
  out=build/gpu_check/dry/$phase  # no results, so the last dry run's may go
  rm -rf "$out"
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "$(ls -A "$out")" ] || usage_error "$out is not empty; give a new folder, so that no results are overwritten"

PHASE_SECONDS=${PHASE_SECONDS:-480}
[[ $PHASE_SECONDS =~ ^[1-9][0-9]*$ ]] || usage_error "PHASE_SECONDS is '$PHASE_SECONDS'; allowed: a number of seconds"
export PYTHON=${PYTHON:-python3}
# Compiled kernels of PyTorch, inputs and everything else that is not a result.
work=build/gpu_check/$phase
make=(make --no-print-directory "-j${JOBS:-$(nproc)}")
[ -z "${DEPS:-}" ] || make+=("DEPS=$DEPS")
if [ $dry -eq 1 ]; then
  # With little optimisation, in a separate folder: compiling takes longer than these runs.
  device=host torch_device=cpu build=build/dry
  make+=(CUDA=0 HOST=build/dry 'OPTIMIZE=-O1 $(HOST_ARCH)')
else
  device=cuda torch_device=cuda build=build/cuda
  make+=(HOST_BUILD=0 DEVICE=cuda)
fi
run_tests=("${make[@]}" test)
if [ $dry -eq 0 ] && [ "${BUILT:-0}" = 1 ]; then
  # In place of make: the programs that it would build must exist.
  make=(bash -c 'for target; do [[ $target != build/* ]] || ls -l "$target" || exit 1; done' make)
  run_tests=(scripts/run_tests.sh "$build")
fi

# ---- the record of a phase --------------------------------------------------------------------
report() { printf '%s\n' "$*" | tee -a "$out/report.txt"; }

stop_at() { # step, reason
  # A phase that stops early still reports its measurements.
  if declare -F "conclude_$phase" >/dev/null; then "conclude_$phase"; fi
  report "FAILED at step $1: $2"
  exit 1
}

# step NAME SECONDS LOG COMMAND...: runs the command for at most SECONDS, and not beyond the time of
# the phase. Its output is added to LOG; lines that begin with `result: ` go into the report.
step() {
  local name=$1 limit=$2 log=$3 code=0 begin size
  shift 3
  limit=$(seconds_left "$limit")
  [ "$limit" -gt 0 ] || stop_at "$name" "the phase's time limit of $PHASE_SECONDS s is reached"
  printf '\n==== %s: %s\n' "$name" "$*" >>"$out/$log"
  size=$(stat -c %s "$out/$log")
  begin=$EPOCHREALTIME
  timeout --kill-after=10 "$limit" "$@" >>"$out/$log" 2>&1 </dev/null || code=$?
  record "$name" "$limit" "$log" "$begin" "$code" "$size"
}

# A step in two parts, which runs in the background while the steps between start and finish run. Only
# one at a time; its LOG must not be shared with another step.
start() {
  background=("$1" "$(seconds_left "$2")" "$3" "$EPOCHREALTIME")
  shift 3
  printf '==== %s, in the background: %s\n' "${background[0]}" "$*" >>"$out/${background[2]}"
  timeout --kill-after=10 "${background[1]}" "$@" >>"$out/${background[2]}" 2>&1 </dev/null &
  background_pid=$!
  trap 'kill "$background_pid" 2>/dev/null || true' EXIT
}
finish() {
  local code=0
  wait "$background_pid" || code=$?
  trap - EXIT
  record "${background[@]}" "$code" 0
}

seconds_left() { # at most this many; 0 or less: the phase is over
  local left=$((PHASE_SECONDS - SECONDS))
  echo $(($1 < left ? $1 : left))
}

# Reports a step that ended: NAME LIMIT LOG BEGIN CODE SIZE; SIZE is the log's length at the step's
# begin.
record() {
  local name=$1 limit=$2 log=$3 code=$5 size=$6 seconds
  seconds=$(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $4}")
  printf '{"phase":"%s","step":"%s","seconds":%s,"limit":%d,"exit":%d,"log":"%s","dry":%s}\n' \
    "$phase" "$name" "$seconds" "$limit" "$code" "$log" "$([ $dry -eq 1 ] && echo true || echo false)" >>"$out/steps.jsonl"
  report "$([ $code -eq 0 ] && echo "ok    " || echo FAILED) $name: $seconds s (log: $log)"
  tail -c "+$((size + 1))" "$out/$log" | sed -n 's/^result: /         /p' | tee -a "$out/report.txt"
  [ $code -ne 0 ] || return 0
  tail -c "+$((size + 1))" "$out/$log" | tail -n 25 | sed 's/^/    | /'
  # `timeout` also answers 137 if it had to kill the step.
  if [ "$code" -eq 124 ] || { [ "$code" -eq 137 ] && [ "${seconds%.*}" -ge "$limit" ]; }; then
    stop_at "$name" "stopped after $limit s"
  elif [ "$code" -eq 137 ]; then
    stop_at "$name" "killed, perhaps because memory was short"
  else
    stop_at "$name" "exit code $code"
  fi
}

not_run() { # step, reason
  printf '{"phase":"%s","step":"%s","not_run":"%s"}\n' "$phase" "$1" "$2" >>"$out/steps.jsonl"
  report "not run $1: $2"
}

query_gpus() { nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null || true; }
query_gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1 || true; }

describe_machine() {
  local commit gpu
  commit=${COMMIT:-unknown}
  # A copied tree can have no git, or a .git without its repository.
  if [ -z "${COMMIT:-}" ] && [ -e .git ] && git rev-parse HEAD >/dev/null 2>&1; then
    commit=$(git rev-parse HEAD)
    [ -z "$(git status --porcelain)" ] || commit="$commit, with changes"
  fi
  [ $dry -eq 0 ] || report "DRY RUN: no figures of a GPU"
  report "phase:   $phase"
  report "date:    $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  report "commit:  $commit"
  gpu=$(query_gpu name,memory.total,clocks.max.sm,power.limit,driver_version)
  report "GPU:     ${gpu:-none} (name, memory, maximum clock, power limit, driver)"
  report "CUDA:    $( { ${NVCC:-nvcc} --version || /usr/local/cuda/bin/nvcc --version; } 2>/dev/null | sed -nE 's/.*, V([0-9.]+)$/\1/p' | head -1)"
  report "Python:  $("$PYTHON" -c 'import sys; print(sys.version.split()[0])' 2>/dev/null || echo none), PyTorch $(torch_version)"
  [ $dry -eq 1 ] || [ "${BUILT:-0}" != 1 ] || report "build:   on another machine (BUILT=1)"
  report "machine: $(nproc) cores, $(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -1), Linux $(uname -r)"
}

torch_version() {
  "$PYTHON" -c 'import numpy, torch; print(torch.__version__)' 2>/dev/null || echo none
}

# ---- phase: profile ---------------------------------------------------------------------------
compare=("$PYTHON" scripts/gpu_check/compare.py --predictions dev/predictions.json)
compare_files=(--out "$out/comparison.txt" "$out/measurements.jsonl" "$out/bench.jsonl")

# The order is by importance: if the toy runs fail, nothing else matters; the profile of a step is
# more important than all benchmarks.
phase_profile() {
  local check=("$PYTHON" scripts/gpu_check/profile_steps.py) benches=(attention layernorm activation bias_gradient classifier adamw)
  local V=50257 tokens=1000000 steps=12 profiled=5 toy_steps=50 shrink=1 rows=4096 sizes=(--model d12) flags=(--shapes gpt2 --filter bf16)
  local data=$work/data name dtype B filter
  if [ $dry -eq 1 ]; then
    V=300 tokens=20000 steps=6 profiled=2 toy_steps=10 shrink=16 rows=7 sizes=(--layers 2 --heads 2 --channels 32 --context 32)
    flags=(--shapes small --verify)
  fi
  local names=("${benches[@]/#/$build/bench_}")
  step prepare 30 build.log "${make[@]}" "$build/commands"
  start bench-build 400 bench-build.log nice "${make[@]}" "$build/planted_faults" "$build/bench_matmul" "${names[@]}"
  step build 400 build.log "${make[@]}" "$build/train_gpt2"
  for dtype in fp32 bf16; do
    step "toy-$dtype" 60 output.log "${check[@]}" toy --program "$build/train_gpt2" --device $device --dtype $dtype \
      --steps $toy_steps --work "$work"
  done

  step data 60 output.log "$PYTHON" dev/peers/make_data.py --out "$data" --tokens $tokens --vocabulary $V
  local run=("${check[@]}" run --program "$build/train_gpt2" --device $device --out "$out/measurements.jsonl")
  training() { # label, micro-batch, rows of logits, then flags of profile_steps.py
    step "run-$1" 60 output.log "${run[@]}" --label "$1" "${@:4}" -- "${sizes[@]}" --train "$data/tokens.bin" \
      --tokenizer "words:$data/words.txt" --dtype bf16 --batch-size $(($2 / shrink)) --grad-accum 1 --logits-rows "$3" --steps $steps
  }
  training B64 64 $rows --profile $profiled
  for B in 64 32 16; do
    training B$B-speed $B $rows
    training B$B-all-rows-speed $B 0 --like B$B-speed
  done
  training B64-all-rows 64 0 --profile $profiled --like B64
  for B in 32 16; do training B$B $B $rows --profile $profiled; done

  finish
  local bench=("${check[@]}" bench --out "$out/bench.jsonl" --)
  # A check that cannot fail proves nothing.
  step planted-faults 60 output.log "${check[@]}" bench --planted --out "$work/planted.jsonl" -- "$build/planted_faults" --json --verify
  for name in "${benches[@]}"; do
    filter=()
    # Other lengths, and the (T, T) matrix, are for phase bench.
    [ "$name" != attention ] || [ $dry -eq 1 ] || filter=(--filter "/flash B" --filter "T 1024")
    step "bench_$name" 60 output.log "${bench[@]}" "$build/bench_$name" --json "${flags[@]}" "${filter[@]}"
  done
  step bench_matmul 180 output.log "${bench[@]}" "$build/bench_matmul" --json "${flags[@]}"  # takes longest

  if [ $dry -eq 0 ]; then
    step compare 30 output.log "${compare[@]}" "${compare_files[@]}"
    return
  fi
  for name in "$build/bench_matmul" "${names[@]}"; do "$name" --list --shapes gpt2 --filter bf16; done >"$work/names.txt"
  step compare 30 output.log "${compare[@]}" --dry --names "$work/names.txt" "$out/measurements.jsonl"
}

# Compares the measurements of a phase that stops early with the predictions.
conclude_profile() {
  [ $dry -eq 0 ] && [ -s "$out/measurements.jsonl" ] && [ ! -s "$out/comparison.txt" ] || return 0
  "${compare[@]}" "${compare_files[@]}" 2>&1 | sed -n 's/^result: /         /p' | tee -a "$out/report.txt" || true
}

# ---- phase: correct ---------------------------------------------------------------------------
phase_correct() {
  local one_file=() verdict
  # One test file shows that the step works; `make test` runs all of them on a CPU.
  [ $dry -eq 0 ] || one_file=(FILE=test/test_activation.cu)
  step build 300 build.log "${make[@]}" "${one_file[@]}" test-programs "$build/train_gpt2"
  # Most of the time of a test is spent on its definition, on the CPU.
  step tests 400 tests.log env TEST_TIMEOUT=200 TEST_JOBS="${TEST_JOBS:-$(nproc)}" "${run_tests[@]}" "${one_file[@]}"
  verdict=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out/tests.log" | tail -1 || true)
  report "         $verdict"
  case $verdict in "" | "0 passed"*) stop_at tests "no test ran" ;; esac
  step sanitizer 300 sanitizer.log "$PYTHON" scripts/gpu_check/sanitize.py --program "$build/train_gpt2" \
    --device "$device" --seconds $((PHASE_SECONDS - SECONDS - 15))
}

# ---- phase: train -----------------------------------------------------------------------------
phase_train() {
  local V=50257 tokens=4000000 steps=200 last=50 B=16 sizes=() speed=(--batches "${BATCHES:-16,32,64}") data=$work/data/tokens.bin
  if [ $dry -eq 1 ]; then
    V=300 tokens=20000 steps=20 last=5 B=2
    sizes=(--layers 2 --heads 2 --channels 32 --context 32)
    speed=(--batches "2,4" --rounds 3 --steps 3 --warmup 1)
  fi
  step build 300 build.log "${make[@]}" "$build/train_gpt2"
  if [ "$(torch_version)" = none ]; then
    [ $dry -eq 1 ] || stop_at inputs "$PYTHON cannot import PyTorch and NumPy"
    not_run "inputs, curves, speed" "$PYTHON cannot import PyTorch and NumPy"
    return
  fi
  step data 60 output.log "$PYTHON" dev/peers/make_data.py --out "$work/data" --tokens $tokens --vocabulary $V
  [ -z "${DATA:-}" ] || data=$DATA
  step weights 60 output.log "$PYTHON" dev/peers/make_weights.py --out "$work/gpt2" --vocabulary $V "${sizes[@]}"

  local run=(--init-from "$work/gpt2" --train "$data" --dtype bf16 --batch-size "$B" --grad-accum 1 --steps "$steps")
  step curve-ours 120 output.log "$build/train_gpt2" "${run[@]}" --device $device --val "$data" \
    --tokenizer "words:$work/data/words.txt" --eval-every 0 --sample-every 0 --log "$work/ours.jsonl"
  # Not compiled: the losses do not need it, and the minute is better spent on timing.
  step curve-pytorch 180 output.log "$PYTHON" dev/peers/train_pytorch.py "${run[@]}" --device $torch_device \
    --compile 0 --log "$work/pytorch.jsonl"
  step losses 30 output.log "$PYTHON" scripts/gpu_check/losses.py "$work/ours.jsonl" "$work/pytorch.jsonl" \
    --steps $steps --last $last --limit 0.02 --out "$out/losses.jsonl"
  step speed 300 output.log "$PYTHON" scripts/gpu_check/speed.py --program "$build/train_gpt2" --device $device \
    --torch-device $torch_device --init-from "$work/gpt2" --train "$data" --words "$work/data/words.txt" \
    --seconds $((PHASE_SECONDS - SECONDS - 20 < 290 ? PHASE_SECONDS - SECONDS - 20 : 290)) \
    --out "$out/speed.json" "${speed[@]}"
}

# ---- phase: ranks -----------------------------------------------------------------------------
phase_ranks() {
  local gpus=0
  [ $dry -eq 1 ] || gpus=$(query_gpus | wc -l)
  step build 300 build.log "${make[@]}" "$build/train_gpt2"
  step ranks 400 output.log "$PYTHON" scripts/gpu_check/ranks.py --program "$build/train_gpt2" --device $device \
    --gpus "$gpus" --work "$work/ranks"
}

# ---- phase: memory ----------------------------------------------------------------------------
phase_memory() {
  local dry_flag=()
  [ $dry -eq 0 ] || dry_flag=(--dry)
  step build 300 build.log "${make[@]}" "$build/train_gpt2"
  step memory 450 output.log "$PYTHON" scripts/gpu_check/memory.py --program "$build/train_gpt2" --device $device \
    --work "$work/memory" --seconds $((PHASE_SECONDS - SECONDS - 20)) "${dry_flag[@]}"
}

# ---- phase: plan ------------------------------------------------------------------------------
phase_plan() {
  local V=50257 tokens=1000000 which=(--gpu --seconds $((PHASE_SECONDS - 150)))
  [ $dry -eq 0 ] || V=300 tokens=20000 which=(--ranks 1 --first 2 --repeats 1)
  step build 300 build.log "${make[@]}" "$build/train_gpt2"
  step data 60 output.log "$PYTHON" dev/peers/make_data.py --out "$work/data" --tokens $tokens --vocabulary $V
  step plan 450 output.log "$PYTHON" dev/plan_accuracy.py "$work/data/tokens.bin" --program "$build/train_gpt2" \
    "${which[@]}" --tokenizer "words:$work/data/words.txt" --device $device
}

# ---- phase: finetune --------------------------------------------------------------------------
phase_finetune() {
  local dry_flag=()
  [ $dry -eq 0 ] || dry_flag=(--dry)
  step build 300 build.log "${make[@]}" "$build/train_gpt2"
  if ! "$PYTHON" -c 'import numpy' 2>/dev/null; then
    [ $dry -eq 1 ] || stop_at finetune "$PYTHON cannot import NumPy"
    not_run finetune "$PYTHON cannot import NumPy"
    return
  fi
  step finetune 400 output.log "$PYTHON" scripts/gpu_check/finetune.py --program "$build/train_gpt2" --device $device \
    --work "$work/finetune" --seconds $((PHASE_SECONDS - SECONDS - 20)) "${dry_flag[@]}"
}

# ---- phase: study -----------------------------------------------------------------------------
# The runs stay in the work folder, so another call continues them, with more of them in its time.
phase_study() {
  local study=(env PROGRAMS="$build" scripts/study) runs=$work/runs flags=(--device $device) name minutes
  local experiments=(flash precision batch stack quantize finetune demo)
  [ $dry -eq 0 ] || flags+=(--repeats 1 --peers no)
  [ -z "${TEXTS:-}" ] || flags+=(--data "$TEXTS")
  [ -z "${SENTENCES:-}" ] || flags+=(--sentences "$SENTENCES")
  step build 300 build.log "${make[@]}" "$build/train_gpt2" "$build/infer_gpt2" "$build/tokenize"
  # The smallest sizes of the experiments may take longer than their shares.
  minutes=$(awk "BEGIN {print $dry ? 0.5 : ($PHASE_SECONDS - $SECONDS) * 0.75 / 60}")
  step study $((PHASE_SECONDS - 20)) output.log "${study[@]}" "${experiments[@]}" --budget "$minutes" "${flags[@]}" --out "$runs"
  sed -n 's/^\([a-z-]*: \).*; \([0-9.]* of [0-9.]* minutes\)$/         \1\2/p' "$out/output.log" | tee -a "$out/report.txt"
  step report 30 output.log "${study[@]}" report --out "$runs"
  cp "$runs/report.html" "$out/"
  # Enough to write every table again elsewhere.
  tar -C "$runs" --exclude=weights --exclude=inputs -czf "$out/study.tar.gz" .
}

# ---- phase: bench -----------------------------------------------------------------------------
# Attention runs last: its oracle takes longest.
phase_bench() {
  local source filter names=() flags=(--shapes gpt2) peers=(--json "$out/pytorch.jsonl")
  if [ $dry -eq 1 ]; then flags=(--verify) peers=(--dry); fi
  for source in dev/ops/*.h; do names+=("bench_$(basename "$source" .h)"); done
  step build 240 build.log "${make[@]}" "${names[@]/#/$build/}" "$build/planted_faults"
  # The checks must find the planted faults before their OK means anything.
  step planted-faults 60 bench.log bash -c '"$0" --verify; [ $? -eq 1 ]' "$build/planted_faults"
  for source in "${names[@]}"; do
    filter=()
    [ "$source" != bench_matmul ] || filter=(--filter /used)  # the other plans are for phase profile
    [ "$source" = bench_attention ] || step "$source" 120 bench.log "$build/$source" "${flags[@]}" "${filter[@]}"
  done
  if [ "$(torch_version)" = none ]; then
    not_run pytorch "$PYTHON cannot import PyTorch and NumPy"
  else
    step pytorch 150 pytorch.log "$PYTHON" dev/peers/bench_pytorch.py "${peers[@]}"
  fi
  step bench_attention 300 bench.log "$build/bench_attention" "${flags[@]}"
}

# ---- phases: infer, int8 ----------------------------------------------------------------------
infer_speed=("$PYTHON" scripts/gpu_check/infer_speed.py --out "$out/speed.json" --table "$out/speed.txt")

phase_infer() {
  generation 16,512 bf16,fp32 fp32,bf16
}

# Prompts of 1024 tokens fill the context.
phase_int8() {
  local modes=bf16+w8a8,bf16,bf16+w8,bf16+w8a8+kv8,fp32
  generation 16,512,1024 $modes fp32+w8,fp32+w8a8,fp32+w8a8+kv8,bf16+w8,bf16+w8a8,bf16+w8a8+kv8 invariant_gemm_int8
}

# generation PROMPTS VARIANTS TEXT_VARIANTS [BENCHMARK]: checks the texts of infer_gpt2 in TEXT_VARIANTS, times
# prompts and tokens in VARIANTS next to PyTorch, and runs a benchmark. The weights are written while the programs
# are compiled. infer_speed.py measures the most important figures first and stops before the phase ends, or 45 s
# earlier for the benchmark.
generation() {
  local prompts=$1 variants=$2 texts=$3 bench=() flags=(--shapes gpt2 --filter _w8a8 --filter bf16) limit
  local small=() large=(--layers 48 --heads 25 --channels 1600) pytorch=(--pytorch dev/peers/infer_pytorch.py) sizes=()
  local models="124M=$work/124M,1558M=$work/1558M" weights=("$PYTHON" dev/peers/make_weights.py --out "$work")
  [ $# -lt 4 ] || bench=("$build/bench_$4")
  if [ $dry -eq 1 ]; then
    small=(--layers 2 --heads 2 --channels 32 --context 32 --vocabulary 257)
    large=("${small[@]}") models=${models//M=/M-dry=} prompts=4,16,32 flags=(--verify)
    sizes=(--batches "1,2" --positions "1,12,31" --repetitions 2 --backend eager)
  fi
  if ! "$PYTHON" -c 'import numpy' 2>/dev/null; then
    [ $dry -eq 1 ] || stop_at weights "$PYTHON cannot import NumPy"
    step build 300 build.log "${make[@]}" "$build/infer_gpt2" "${bench[@]}"
    not_run "weights, text, speed" "$PYTHON cannot import NumPy"
    return
  fi
  start weights 150 weights.log bash -c '"${@:3}/124M" $1 && "${@:3}/1558M" $2' - "${small[*]}" "${large[*]}" "${weights[@]}"
  step build 300 build.log "${make[@]}" "$build/infer_gpt2" "${bench[@]}"
  finish
  step text 60 output.log "$PYTHON" scripts/gpu_check/infer_text.py --program "$build/infer_gpt2" --device $device \
    --work "$work" --variants "$texts"
  if [ "$(torch_version)" = none ]; then
    not_run pytorch "$PYTHON cannot import PyTorch and NumPy"
    pytorch=()
  fi
  limit=$((PHASE_SECONDS - SECONDS - 15 - 45 * ${#bench[@]}))
  step speed 460 output.log "${infer_speed[@]}" --program "$build/infer_gpt2" --models "$models" --device $device \
    --torch-device $torch_device --seconds $limit --prompts "$prompts" --variants "$variants" "${pytorch[@]}" "${sizes[@]}"
  rm -rf "$work"/{124M,1558M}  # 7 GB
  if [ ${#bench[@]} -gt 0 ]; then step products 60 bench.log "${bench[@]}" "${flags[@]}"; fi
}

# Reports the runs of a phase that stops early.
conclude_infer() {
  [ -s "$out/speed.json" ] && ! grep -q 'us/token (sd)' "$out/report.txt" || return 0
  "${infer_speed[@]}" --summary 2>&1 | sed -n 's/^result: /         /p' | tee -a "$out/report.txt" || true
}
conclude_int8() { conclude_infer; }

# ---- run --------------------------------------------------------------------------------------
# A new phase is a function phase_NAME of steps, and its name in the two lists at the top.
describe_machine
if [ $dry -eq 0 ] && [ -z "$(query_gpu name)" ]; then
  stop_at machine "nvidia-smi lists no GPU; use --dry to test the script without one"
fi
rm -rf "$work"
mkdir -p "$work"
export TORCHINDUCTOR_CACHE_DIR=$PWD/$work/inductor
"phase_$phase"
report "passed: phase $phase in $SECONDS s$([ $dry -eq 0 ] || echo ' (DRY RUN: no figures of a GPU)')"
