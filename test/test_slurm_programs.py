#!/usr/bin/env python3
"""Tests the scripts of scripts/slurm with the job manager itself, on one machine and with ranks on its processors: a job
of several ranks, jobs that are stopped, requeued and continued, and the matrix.

    LLMC_LONG=1 python3 test/test_slurm_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped without LLMC_LONG, and if Slurm's packages cannot be downloaded.
test_slurm_scripts.py tests the decision to requeue without Slurm.
"""
import json
import os
import sys

from runner import Skip, expect
from slurm_rig import Slurm
from test_checkpoint_programs import QUIET
from test_programs import ROOT, run_program_tests, same_state
from test_rank_programs import mpirun, require_mpi

RUN = ["--train", "text.txt", "--layers", 2, "--heads", 2, "--channels", 16, "--context", 8, *QUIET]
ONE_BATCH = [*RUN, "--batch-size", 1]
CPUS = "--gpus-per-node=0"  # the machine has none


def slurm_of(program):
    """A new Slurm, and the folder of the program prepared as the top folder of the repository."""
    if os.environ.get("LLMC_LONG", "0") in ("", "0"):
        raise Skip("only with LLMC_LONG=1: make test-long")
    require_mpi(program)
    (program.folder / "scripts").symlink_to(ROOT / "scripts")
    (program.folder / "train_gpt2").symlink_to(program.binary)
    return Slurm(program.folder)


def status(program, out):
    path = program.folder / out / "status.json"
    return json.loads(path.read_text()) if path.exists() else {"status": "missing", "step": 0}


def losses(program, name):
    path = program.folder / name
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def output(program, name):
    return (program.folder / name).read_text()


def wait_for_steps(program, slurm, name, count):
    slurm.wait(f"{name} has {count} steps", lambda: len(losses(program, name)) >= count)


def test_a_job_of_four_ranks(program):
    with slurm_of(program) as slurm:
        job = slurm.submit(program.folder, "--ntasks-per-node=4", CPUS, "scripts/slurm/one_node.sbatch", *ONE_BATCH, "--steps", 4,
                           "--out", "run", "--log", "run.jsonl")
        expect(slurm.wait_for_end(job) == ("COMPLETED", 0), output(program, f"one_node-{job}.log"))
        text = output(program, f"one_node-{job}.log")
        expect("mesh: 4 data ranks" in text and ": ranks 0-3, " in text, text)
        expect("exit code 0, status finished, step 4" in text and "mpirun" not in text, text)
        many = slurm.submit(program.folder, "--nodes=1", "--ntasks-per-node=2", CPUS, "scripts/slurm/many_nodes.sbatch", *ONE_BATCH,
                            "--steps", 2, "--out", "many")
        expect(slurm.wait_for_end(many) == ("COMPLETED", 0), output(program, f"many_nodes-{many}.log"))
    mpirun(program, 4, *ONE_BATCH, "--steps", 4, "--out", "whole", "--log", "whole.jsonl")
    expect(losses(program, "run.jsonl") == losses(program, "whole.jsonl"), "other losses than under mpirun")
    expect(status(program, "run")["status"] == status(program, "many")["status"] == "finished", "the status")


def test_a_job_that_is_signalled_and_then_preempted_continues_to_the_same_losses(program):
    steps = 3000
    with slurm_of(program) as slurm:
        job = slurm.submit(program.folder, "--ntasks-per-node=2", CPUS, "scripts/slurm/one_node.sbatch", *ONE_BATCH, "--steps",
                           steps, "--out", "run", "--log", "run.jsonl")
        wait_for_steps(program, slurm, "run.jsonl", 100)
        slurm.run(program.folder, "scancel", "--signal=USR1", job)
        slurm.wait("the job is requeued", lambda: slurm.job(job)[1] == 1)
        first = status(program, "run")
        expect(first["status"] == "stopped" and first["reason"] == "SIGUSR1" and 100 <= first["step"] < steps, first)
        wait_for_steps(program, slurm, "run.jsonl", first["step"] + 100)
        urgent = slurm.submit(program.folder, "--partition=urgent", "--ntasks=8", "--wrap", "sleep 1")
        expect(slurm.wait_for_end(urgent)[0] == "COMPLETED", "the urgent job")
        slurm.wait("the job is requeued again", lambda: slurm.job(job)[1] == 2)
        expect(slurm.wait_for_end(job) == ("COMPLETED", 2), output(program, f"one_node-{job}.log"))
    text = output(program, f"one_node-{job}.log")
    expect("interrupted by SIGUSR1 after step" in text and "interrupted by SIGTERM after step" in text, text)
    expect(status(program, "run")["status"] == "finished", status(program, "run"))
    mpirun(program, 2, *ONE_BATCH, "--steps", steps, "--out", "whole", "--log", "whole.jsonl")
    expect(losses(program, "run.jsonl") == losses(program, "whole.jsonl"), "other losses than without stops")
    expect(same_state(*(program.folder / run / f"step_{steps:06}" for run in ("run", "whole"))), "another model")


def test_the_end_of_the_time_is_signalled_to_the_ranks(program):
    with slurm_of(program) as slurm:
        job = slurm.submit(program.folder, "--ntasks-per-node=2", CPUS, "--time=2", "--signal=USR1@60",
                           "scripts/slurm/one_node.sbatch", *ONE_BATCH, "--steps", 10 ** 8, "--out", "run")
        slurm.wait("the job is requeued", lambda: slurm.job(job)[1] == 1, 200)
        value = status(program, "run")
        expect(value["status"] in ("stopped", "running") and value["step"] > 0, value)
        expect("interrupted by SIGUSR1 after step" in output(program, f"one_node-{job}.log"), "another signal")


def test_jobs_that_are_not_requeued(program):
    with slurm_of(program) as slurm:
        def run(*flags, end):
            job = slurm.submit(program.folder, "--ntasks-per-node=2", CPUS, "scripts/slurm/one_node.sbatch", *ONE_BATCH, *flags)
            expect(slurm.wait_for_end(job) == (end, 0), output(program, f"one_node-{job}.log"))
            return output(program, f"one_node-{job}.log")

        text = run("--out", "bad", "--steps", 9, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, end="FAILED")
        expect("exit code 1, status failed" in text, text)
        # The status is that of an earlier start, which was stopped.
        program.run(*ONE_BATCH, "--steps", 5, "--stop-after", 2, "--out", "stale")
        text = run("--out", "stale", "--layers", 3, end="FAILED")
        expect("exit code 2, status stopped, step 2" in text, text)
        job = slurm.submit(program.folder, "--ntasks-per-node=2", CPUS, "scripts/slurm/one_node.sbatch", *ONE_BATCH, "--steps",
                           10 ** 8, "--out", "run", "--log", "run.jsonl")
        wait_for_steps(program, slurm, "run.jsonl", 100)
        slurm.run(program.folder, "scancel", job)
        slurm.wait("the run has saved", lambda: status(program, "run")["status"] == "stopped")
        expect(slurm.wait_for_end(job) == ("CANCELLED", 0), "a cancelled job was requeued")


def test_codes_of_srun(program):
    with slurm_of(program) as slurm:
        def srun(code, *flags):
            slurm.run(program.folder, "srun", "--mpi=pmix", "--ntasks=2", "./train_gpt2", *ONE_BATCH, *flags, code=code)

        srun(0, "--steps", 1)
        srun(0, "--steps", 10 ** 8, "--stop-after-minutes", 1e-6)
        srun(1, "--steps", 9, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1)
        srun(2, "--steps", 1, "--lr", -1)


def test_the_matrix(program):
    with slurm_of(program) as slurm:
        slurm.run(program.folder, "scripts/slurm/matrix.sbatch", "1 2", "1 2", "cells", *RUN, "--steps", 2, CPUS="1")
        slurm.wait("all jobs end", lambda: not slurm.run(program.folder, "squeue", "-h"))
    for batch in (1, 2):
        for ranks in (1, 2):
            cell = f"cells/batch{batch}-gpus{ranks}"
            expect(status(program, cell)["status"] == "finished", f"{cell}: {status(program, cell)}")
            line = [line for line in program.log(f"{cell}/log.jsonl") if "loss" in line][-1]
            expect(line["step"] == 2 and line["tokens"] == 2 * 8 * batch * ranks, f"{cell}: {line}")
    expect(len(list(program.folder.glob("matrix-gpus*-*_*.log"))) == 4, "not a log per job")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
