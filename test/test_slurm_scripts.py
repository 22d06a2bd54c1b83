#!/usr/bin/env python3
"""Tests scripts/slurm without Slurm: when a job is requeued, and errors. Programs in place of srun, scontrol and sbatch
record how they are called.

    python3 test/test_slurm_scripts.py [PATTERN]

Prints and exits as test_programs.py does. test_slurm_programs.py runs the scripts in a Slurm.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "scripts/slurm"
BATCH = ["one_node.sbatch", "many_nodes.sbatch", "matrix.sbatch"]


class Job:
    """A folder that looks like the top folder of the repository, in which a job runs."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "scripts").symlink_to(ROOT / "scripts")
        for name, text in {"bin/scontrol": 'echo "scontrol $*" >>calls; echo "   JobState=$STATE Reason=None"; exit $REQUEUE',
                           "bin/sbatch": 'echo "sbatch $*" >>calls', "train_gpt2": "",
                           "bin/srun": 'echo "srun $*" >>calls; bash -c "$RUN"'}.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)

    def start(self, script, *words, run="true", code=0, state="RUNNING", requeue="0", **variables):
        """Runs a script of the folder; `run` replaces the ranks. Returns (the calls, its output)."""
        (self.folder / "calls").write_text("")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
        done = subprocess.run([str(word) for word in (f"scripts/slurm/{script}", *words)], cwd=self.folder, capture_output=True,
                              text=True, check=False, timeout=60,
                              env={**clean, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "RUN": run, "STATE": state,
                                   "REQUEUE": requeue, **variables})
        output = done.stdout + done.stderr
        expect(done.returncode == code, f"exit code {done.returncode}, not {code}: {output}")
        return (self.folder / "calls").read_text().splitlines(), output

    def step(self, status, step, before=None, exit_code=0, **more):
        """A job step whose run ends with this status and step. Returns whether the job was requeued."""
        (self.folder / "run").mkdir(exist_ok=True)
        (self.folder / "run/status.json").unlink(missing_ok=True)
        if before is not None:
            (self.folder / "run/status.json").write_text(text_of("stopped", before))
        write = f"cat >run/status.json <<<'{text_of(status, step)}'; " if status else ""
        calls, output = self.start("train_step.sh", "--out", "run", run=f"{write}exit {exit_code}", SLURM_JOB_ID="7", **more)
        requeued = "scontrol requeue 7" in calls
        return requeued, output


def text_of(status, step):
    """As RunStatus writes it."""
    return (f'{{\n  "status": "{status}",\n  "step": {step},\n  "steps": 100,\n  "seconds": 1.5,\n  "exit_code": 0,\n'
            f'  "checkpoint": "run/step_{step}",\n  "reason": "step: \\"status\\": \\"stopped\\","\n}}')


def test_a_stopped_run_that_advanced_is_requeued(job):
    expect(job.step("stopped", 5)[0], "the first start")
    expect(job.step("stopped", 10, before=9)[0], "9 to 10 steps")


def test_other_runs_are_not_requeued(job):
    for status, step, before, exit_code in (("finished", 100, 5, 0), ("failed", 6, 5, 1), ("running", 6, 5, 137),
                                            ("stopped", 6, 5, 1), (None, 0, 5, 2), (None, 0, None, 0)):
        requeued, output = job.step(status, step, before, exit_code, code=exit_code or (1 if status is None and before else 0))
        expect(not requeued, f"{status}, {step}, {before}, {exit_code}: {output}")
    requeued, output = job.step("stopped", 5, before=5, code=1)
    expect(not requeued and "the run was stopped before it did a step" in output, output)
    for state in ("CANCELLED", "COMPLETING", "PREEMPTED", ""):
        expect(not job.step("stopped", 6, before=5, state=state)[0], f"a job that is {state}")


def test_a_requeue_that_fails_is_reported(job):
    output = job.step("stopped", 6, requeue="1")[1]
    expect("job 7 was not requeued" in output, output)


def test_the_ranks_get_the_flags_and_resume(job):
    calls, _ = job.start("train_step.sh", "--out=run", "--prompt", "two words", SLURM_JOB_ID="7")
    expect(calls == ["srun --mpi=pmix --kill-on-bad-exit=1 ./train_gpt2 --out=run --prompt two words --resume"], calls)
    calls, _ = job.start("train_step.sh", "--out", "run", "--resume", SLURM_JOB_ID="7", TRAIN_GPT2="/bin/true")
    expect(calls == ["srun --mpi=pmix --kill-on-bad-exit=1 /bin/true --out run --resume"], calls)


def test_a_signal_to_the_shell_does_not_end_it_before_the_ranks(job):
    (job.folder / "run").mkdir()
    run = f"read -r _ _ _ shell _ </proc/$PPID/stat; kill -TERM $shell; sleep 1; cat >run/status.json <<<'{text_of('stopped', 3)}'"
    calls, output = job.start("train_step.sh", "--out", "run", run=run, SLURM_JOB_ID="7")
    expect("scontrol requeue 7" in calls, output)


def test_errors(job):
    for words, variables, phrase in (([], {"SLURM_JOB_ID": "7"}, "give --out DIR"),
                                     (["--out", "run"], {}, "this is no job of Slurm"),
                                     (["--out", "run"], {"SLURM_JOB_ID": "7", "TRAIN_GPT2": "./none"}, "./none is no program")):
        calls, output = job.start("train_step.sh", *words, code=2, **variables)
        expect(phrase in output and not calls, output)
    for words, phrase in ((["1", "2"], "give batch sizes, numbers of GPUs and a folder"), (["x", "1", "out"], "batch sizes 'x'"),
                          (["1 2", "0", "out"], "numbers of GPUs '0'"), (["1", "1", "--out"], "'--out' is no folder")):
        calls, output = job.start("matrix.sbatch", *words, code=2)
        expect(phrase in output and "scripts/slurm/matrix.sbatch" in output and not calls, output)


def test_the_matrix_submits_an_array_per_number_of_gpus(job):
    calls, _ = job.start("matrix.sbatch", "8 16 32", "1 4", "cells", "--train", "a b.txt")
    expect(calls == [f"sbatch --job-name=matrix-gpus{count} --array=0-2 --ntasks={count} --gpus-per-node={count} "
                     f"scripts/slurm/matrix.sbatch 8 16 32 {count} cells --train a b.txt" for count in (1, 4)], calls)
    calls, _ = job.start("matrix.sbatch", "8 16", "4", "cells", "--lr", "1", SLURM_JOB_ID="9", SLURM_ARRAY_TASK_ID="1")
    expect(calls == ["srun --mpi=pmix --kill-on-bad-exit=1 ./train_gpt2 --lr 1 --batch-size 16 --out cells/batch16-gpus4 --log "
                     "cells/batch16-gpus4/log.jsonl --resume"], calls)


def test_every_batch_script_signals_the_ranks_and_keeps_a_log_per_job(job):
    del job
    for name in BATCH:
        text = (FOLDER / name).read_text()
        expect(re.search(r"^#SBATCH --signal=USR1@\d+$", text, re.M), f"{name}: a signal to the step, without B:")
        for option in ("--requeue", "--open-mode=append", "--output=", "--time="):
            expect(f"\n#SBATCH {option}" in text, f"{name}: {option}")
        expect("exec scripts/slurm/train_step.sh" in text and "mpirun" not in text, name)
        expect(text.splitlines()[-1].startswith("exec "), f"{name}: commands after the step")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Job(folder)], *sys.argv[1:2]))
