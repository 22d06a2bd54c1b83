#!/usr/bin/env bash
# Runs train_gpt2 as a step of a Slurm job, and requeues the job if the run was stopped before its end. The batch
# scripts of this folder call it; FLAG... are those of train_gpt2, with --out. --resume is added, so that each start of
# the job continues the run; the first one starts it.
#
#   scripts/slurm/train_step.sh FLAG...
#
# From the environment: TRAIN_GPT2, the program (default: ./train_gpt2).
#
# The job is requeued if and only if the step ended with exit code 0, OUT/status.json has "stopped", its step is larger
# than before, and Slurm has the job as running: scancel ends a job, and Slurm itself requeues one that it preempts. So
# neither an error, nor a status that an earlier start has left, nor a run that does not advance requeues a job forever.
# Exit codes: that of srun; 1 if the run was stopped without an advance; 2 for wrong flags.
set -uo pipefail

usage_error() {
  echo "train_step.sh: $1" >&2
  exit 2
}

out='' resume=(--resume)
flags=("$@")
for ((i = 0; i < ${#flags[@]}; ++i)); do
  case ${flags[i]} in
    --out) out=${flags[i + 1]-} ;;
    --out=*) out=${flags[i]#*=} ;;
    --resume) resume=() ;;
  esac
done
[ -n "$out" ] || usage_error "give --out DIR: the job continues from its checkpoints"
[ -n "${SLURM_JOB_ID-}" ] || usage_error "this is no job of Slurm; submit a script of this folder with sbatch"
program=${TRAIN_GPT2:-./train_gpt2}
[ -x "$program" ] || usage_error "$program is no program: submit the job from the folder of train_gpt2, or set TRAIN_GPT2"

# status_value KEY: the value in OUT/status.json; empty if the file or the value is missing.
status_value() { sed -nE "s/^ *\"$1\": \"?([^\",]*)\"?,?$/\1/p" "$out/status.json" 2>/dev/null; }

before=$(status_value step)
# A signal to the whole job also reaches this shell, which must outlive the step.
trap : HUP INT TERM USR1 USR2
echo "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)): step ${before:-0}, $(date -u +%FT%TZ)"
srun --mpi=pmix --kill-on-bad-exit=1 "$program" "${flags[@]}" "${resume[@]}"
code=$?
status=$(status_value status) step=$(status_value step)
echo "job $SLURM_JOB_ID: exit code $code, status ${status:-missing}, step ${step:-0}"
[ "$code" -eq 0 ] && [ "$status" = stopped ] || exit "$code"
if [ "${step:-0}" -le "${before:-0}" ]; then
  echo "train_step.sh: the run was stopped before it did a step, so the job is not requeued" >&2
  exit 1
fi
state=$(scontrol show job "$SLURM_JOB_ID" | sed -nE 's/^ *JobState=([A-Z_]+).*/\1/p')
if [ "$state" != RUNNING ]; then
  echo "job $SLURM_JOB_ID is ${state:-unknown}: not requeued here"
  exit 0
fi
scontrol requeue "$SLURM_JOB_ID" || echo "train_step.sh: job $SLURM_JOB_ID was not requeued" >&2
