#!/usr/bin/env python3
"""Tests train_gpt2 on several ranks, which are processes that scripts/run.sh starts.

    python3 test/test_rank_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

from manifest_seal import reseal
from runner import Skip, expect
from stored_tensors import same_state
from test_checkpoint_programs import QUIET, TINY, build_fault_library, wait_for, with_flags
from test_programs import ROOT, run_program_tests

RUN = ROOT / "scripts/run.sh"
# A tiny eps would turn differences of rounding into steps of +-lr.
TRAIN = [*with_flags(TINY, layers=3, heads=2, channels=16, batch_size=2), *QUIET, "--eps", 1e-4, "--seed", 5]
LAUNCHER_PREFIXES = ("OMPI_", "PMI", "SLURM_")
KEPT = "OMPI_MCA_odls_base_sigkill_timeout"  # run_tests.sh sets it
SECONDS_TO_END = 100  # a run that takes longer does not end; a busy machine takes some


def environment():
    return {key: value for key, value in os.environ.items() if key == KEPT or not key.startswith(LAUNCHER_PREFIXES)}


def launch(program, ranks, *arguments, **more):
    """Starts ranks of the program, in a process group of their own."""
    words = [RUN, "-np", ranks, program.binary, *arguments]
    return subprocess.Popen([str(word) for word in words], cwd=program.folder, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                            env={**environment(), **more})


def mpirun(program, ranks, *arguments, code=0, **more):
    """Runs ranks of the program. Returns stdout and stderr."""
    require_mpi(program)
    process = launch(program, ranks, *arguments, **more)
    try:
        out, messages = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    expect(process.returncode == code, f"exit code {process.returncode}, not {code}: {messages[-1500:]}")
    return out, messages


def require_mpi(program):
    if subprocess.run([RUN, "--dry-run", "-np", "1", "true"], capture_output=True, check=False).returncode == 2:
        raise Skip("mpirun is missing")
    libraries = subprocess.run(["ldd", program.binary], capture_output=True, text=True, check=False).stdout
    if "libmpi" not in libraries:
        raise Skip("the program was built without MPI")


def steps(program, log):
    return [line for line in program.log(log) if "loss" in line]


def close(a, b, tolerance):
    return abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-30)


def expect_equal_runs(program, log, whole, tolerance=2e-6):
    """The two logs have the same tokens, and losses and norms within the tolerance."""
    ours, theirs = ([line for line in program.log(name) if "resumed" not in line] for name in (log, whole))
    pairs = list(zip(ours, theirs, strict=True))
    for ours, theirs in pairs:
        for key in ("step", "tokens", "token_hash", "task"):
            expect(ours.get(key) == theirs.get(key), f"{log}: {key}: {ours}, not {theirs}")
        for key in ("loss", "val_loss", "grad_norm", "token_nll", "accuracy"):
            if key in theirs:
                expect(close(ours[key], theirs[key], tolerance), f"{log}: {key} {ours[key]}, not {theirs[key]}")
    expect(len(pairs) > 3, pairs)


def make_tasks(program):
    (program.folder / "text2.txt").write_text("the lazy dog " * 12)
    with open(program.folder / "words.jsonl", "w", encoding="utf-8") as file:
        for i in range(5):
            file.write(json.dumps({"text": "fox " * (i % 3 + 1) + "dog"}) + "\n")
    return ["--eval", "perplexity:text2.txt,lambada:words.jsonl", "--eval-every", 2, "--eval-batches", 5]


def test_ranks_compute_the_run_of_one_rank(program):
    tasks = make_tasks(program)
    run = [*with_flags(TRAIN, eval_every=2), *tasks[:2], "--eval-batches", 5, "--steps", 4, "--dropout", 0.1,
           "--grad-clip", 0.5]
    one = program.run(*run, "--grad-accum", 12, "--log", "one.jsonl").stdout
    layouts = [(2, 0, 0), (2, 3, 0), (3, 1, 0), (4, 2, 2), (4, 3, 2)]
    for ranks, zero, group in layouts:
        log = f"{ranks}-{zero}.jsonl"
        out, messages = mpirun(program, ranks, *run, "--grad-accum", 12 // ranks, "--zero", zero, "--shard-group", group,
                               "--verify-every", 2, "--log", log)
        expect_equal_runs(program, log, "one.jsonl")
        expect(re.sub(r"[0-9.]+", "#", out) == re.sub(r"[0-9.]+", "#", one), f"{ranks} ranks: {out}")
        for text in ("model:", "run:", "done:", "MFU:"):
            expect(messages.count(f"\n{text}") + messages.startswith(text) == 1, f"'{text}' is not there once: {messages}")


def bytes_of(plan, line):
    return int(re.findall(rf"  {line}: (\d+) bytes", plan)[-1])


def test_a_step_s_parts_add_up_and_its_bytes_are_those_of_the_dry_run(program):
    tensor = ["--tp", 2]
    for ranks, zero, dtype, more in ((2, 1, "bf16", []), (3, 2, "fp32", []), (8, 3, "fp32", []), (2, 0, "fp32", tensor),
                                     (4, 3, "bf16", [*tensor, "--sequence-parallel"])):
        run = [*TRAIN, "--steps", 3, "--grad-accum", 2, "--zero", zero, "--dtype", dtype, *more]
        log = f"{ranks}{more}.jsonl"
        messages = mpirun(program, ranks, *run, "--log", log)[1]
        plan = program.run(*run, "--dry-run", "--ranks", ranks).stdout
        decisions = bytes_of(plan, "decisions and times")
        activations = bytes_of(plan, "activations, to tensor ranks") + \
            bytes_of(plan, "gradients and norm, to tensor ranks") if more else 0
        for line in steps(program, log)[1:]:
            parts = [line[f"{part}_ms"] for part in ("fwd", "bwd", "comm", "optimizer", "data", "other")]
            expect(close(sum(parts), line["step_ms"], 1e-9) and min(parts) >= 0, line)
            waits = [line["comm_ms_tp"], line["comm_ms_dp"]]
            expect(close(sum(waits), line["comm_ms"], 1e-9) and min(waits) >= 0, line)
            expect((line["comm_ms_tp"] > 0) == bool(more), line)
            expect(line["ranks"] == ranks and line["comm_bytes"] == bytes_of(plan, "in all"), (line, plan))
            expect(line["comm_bytes_tp"] == activations, (line, plan))
            expect(line["comm_bytes_tp"] + line["comm_bytes_dp"] + decisions == line["comm_bytes"], (line, plan))
            expect(line["host_mem_mb"] >= line["host_mem_mb_max"] > 0, line)
            each = [float(number) for number in line["host_mem_mb_ranks"].split()]
            expect(len(each) == ranks and max(each) == line["host_mem_mb_max"], line)
        in_all = re.search(r"in all: \d+ bytes \(([0-9.]+ MiB)\)", plan)[1]
        settings = json.loads((program.folder / log).read_text().splitlines()[0])
        expect(settings["planned_mem_mb_ranks"].split()[0] + " MiB" == in_all, (settings, plan))
        expect(f"{ranks} ranks on this device, each with " in messages and f"in all {in_all}\n" in messages,
               (messages, plan))
    program.run(*TRAIN, "--steps", 2, "--log", "one.jsonl")
    for line in steps(program, "one.jsonl"):
        expect([line[f"comm_{part}"] for part in ("bytes", "bytes_tp", "bytes_dp", "ms", "ms_tp", "ms_dp")] == [0] * 6, line)


def test_a_checkpoint_resumes_with_other_ranks_and_stages(program):
    run = [*TRAIN, "--dropout", 0.1, "--out", "run", "--log", "run.jsonl"]
    program.run(*TRAIN, "--dropout", 0.1, "--steps", 8, "--grad-accum", 12, "--log", "whole.jsonl")
    mpirun(program, 4, *run, "--steps", 8, "--stop-after", 2, "--grad-accum", 3, "--zero", 3)
    messages = mpirun(program, 3, "--out", "run", "--resume", "--stop-after", 2, "--grad-accum", 4, "--zero", 2)[1]
    for note in ("--zero was 3, it is 2 now", "--ranks was 4, it is 3 now", "--grad-accum was 3, it is 4 now"):
        expect(f"resume: {note}\n" in messages, messages)
    program.run("--out", "run", "--resume", "--stop-after", 2, "--grad-accum", 12)
    mpirun(program, 2, "--out", "run", "--resume", "--grad-accum", 6, "--zero", 1)
    expect_equal_runs(program, "run.jsonl", "whole.jsonl")
    evaluate = ["--init-from", "run", "--val", "text.txt", "--steps", 0]
    ours, theirs = mpirun(program, 3, *evaluate, "--zero", 3)[0], program.run(*evaluate).stdout
    expect(close(float(ours.split()[1]), float(theirs.split()[1]), 1e-6), (ours, theirs))


def test_an_interrupted_run_of_ranks_continues_bit_by_bit(program):
    run = [*TRAIN, "--steps", 4, "--dropout", 0.1, "--dtype", "bf16", "--stochastic-rounding", "--zero", 3]
    mpirun(program, 3, *run, "--out", "whole", "--log", "whole.jsonl")
    mpirun(program, 3, *run, "--out", "parts", "--log", "parts.jsonl", "--stop-after", 2)
    mpirun(program, 3, "--out", "parts", "--resume")
    expect(same_state(program.folder / "whole/step_000004", program.folder / "parts/step_000004"), "another state")
    expect([line["loss"] for line in steps(program, "whole.jsonl")] ==
           [line["loss"] for line in steps(program, "parts.jsonl")], "other losses")


# Options that keep a run busy with one thing, by the begin of its answer to a signal then.
BUSY = {
    "finishing step": ["--grad-accum", 6],
    "stopping the validation": ["--val", "val.txt", "--eval-every", 1, "--eval-batches", 0],
    "stopping the samples": ["--context", 32, "--sample-every", 1, "--sample-length", 24],
}


def expect_interrupted(program, process, log, text):
    """The run ends with code 0 after it saved its last step. Returns its messages."""
    try:
        messages = text + process.communicate(timeout=SECONDS_TO_END)[1]
    finally:
        process.kill()  # a run that did not end
    expect(process.returncode == 0, f"exit code {process.returncode}: {messages[-800:]}")
    saved = re.search(r"interrupted by SIG\w+ after step (\d+): saved \w+/step_(\d+)", messages)
    expect(saved and int(saved[1]) == int(saved[2]), messages[-800:])
    expect(steps(program, log)[-1]["step"] == int(saved[1]), "the log has another last step")
    return messages


def test_signals_to_all_ranks_end_the_run_with_everything_saved(program):
    require_mpi(program)
    (program.folder / "val.txt").write_text("the quick brown fox\n" * 500)
    for number, (answer, flags) in enumerate(BUSY.items()):
        run = with_flags(TRAIN, **{flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2])})
        for attempt in range(20):  # a signal can miss what the run is busy with
            name = f"run{number}{attempt}"
            process = launch(program, 3, *run, "--steps", 10 ** 9, "--zero", 3, "--out", name, "--log", name + ".jsonl")
            text = wait_for(process, "step 1/")
            time.sleep(0.5)
            process.send_signal(signal.SIGINT if number == 0 else signal.SIGTERM)
            messages = expect_interrupted(program, process, name + ".jsonl", text)
            if answer in messages:
                break
        else:
            raise AssertionError(f"no run was interrupted with '{answer}'")


def test_a_signal_while_ranks_save_ends_the_run_after_the_save(program):
    require_mpi(program)
    library = build_fault_library(program)
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then export LD_PRELOAD={library}; fi; exec "$@"'
    process = subprocess.Popen([str(word) for word in [
        RUN, "-np", 3, "bash", "-c", script, "x", program.binary, *TRAIN, "--steps", 10 ** 9, "--checkpoint-every", 3,
        "--zero", 3, "--out", "run", "--log", "run.jsonl", "--save", "sync"]],
        cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**environment(), "FAULT_IN": "step_", "FAULT_DO": "term", "FAULT_AT": "5"})
    messages = process.communicate(timeout=SECONDS_TO_END)[1]
    expect(process.returncode == 0 and "finishing the save of step 3" in messages, messages[-800:])
    expect("interrupted by SIGTERM after step 3: saved run/step_000003" in messages, messages[-800:])


def test_one_rank_that_gets_a_signal_ends_the_run_too(program):
    require_mpi(program)
    script = 'exec 9<&0; if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then echo $$ > pid; fi; exec "$@"'
    process = subprocess.Popen([str(word) for word in [
        RUN, "-np", 3, "bash", "-c", script, "x", program.binary, *TRAIN, "--steps", 10 ** 9, "--out", "run"]],
        cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    text = wait_for(process, "step 1/")
    os.kill(int((program.folder / "pid").read_text()), signal.SIGTERM)
    messages = text + process.communicate(timeout=SECONDS_TO_END)[1]
    expect(process.returncode == 0 and "interrupted by SIGTERM after step" in messages, messages[-800:])


def test_an_error_on_one_rank_ends_all_and_is_printed_once(program):
    require_mpi(program)
    # Rank 1 runs in another folder, which has no text.
    script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then mkdir other; cd other; fi; exec "$@"'
    result = subprocess.run([str(word) for word in [
        RUN, "-np", 3, "bash", "-c", script, "x", program.binary, *TRAIN, "--steps", 10 ** 9]],
        cwd=program.folder, text=True, capture_output=True, timeout=SECONDS_TO_END, check=False, env=environment())
    expect(result.returncode == 1, result)
    expect(result.stderr.count("train_gpt2: rank 1: ") == 1 and "text.txt" in result.stderr, result)
    # All ranks meet this error.
    messages = mpirun(program, 3, *TRAIN, "--steps", 2, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, code=1)[1]
    expect(messages.count("updates in a row were skipped") == 1 and "train_gpt2: 1 updates" in messages, messages)


def test_a_killed_rank_ends_the_run(program):
    require_mpi(program)
    script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo $$ > pid; fi; exec "$@"'
    process = subprocess.Popen([str(word) for word in [
        RUN, "-np", 2, "bash", "-c", script, "x", program.binary, *TRAIN, "--steps", 10 ** 9]],
        cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    wait_for(process, "step 1/")
    os.kill(int((program.folder / "pid").read_text()), signal.SIGKILL)
    process.communicate(timeout=SECONDS_TO_END)
    expect(process.returncode != 0, "exit code 0")


def test_a_log_that_cannot_be_written_ends_all_ranks_after_a_save(program):
    if not os.path.exists("/dev/full"):
        raise Skip("there is no /dev/full")
    messages = mpirun(program, 2, *TRAIN, "--steps", 50, "--out", "run", "--log", "/dev/full", code=1)[1]
    expect(messages.count("No space left on device") == 1, messages)


def test_wrong_flags_are_reported_once(program):
    for arguments, text in ((["--stepz", 3], "--stepz"), (["--zero", 4], "--zero"),
                            (["--ranks", 4], "--ranks is for --dry-run, --plan and --print-mesh")):
        messages = mpirun(program, 3, *TRAIN, *arguments, code=2)[1]
        expect(messages.count("train_gpt2: ") == 1 and text in messages, messages)
    messages = mpirun(program, 4, *TRAIN, "--shard-group", 3, code=2)[1]
    expect(messages.count("--shard-group 3 does not divide the 4 ranks") == 1 and "use one of 1, 2, 4" in messages, messages)
    for ranks, arguments, text, hint in (
            (4, ["--tp", 4], "--tp 4 does not divide the 2 heads", "use one of 1, 2"),
            (3, ["--tp", 2], "--tp 2 does not divide the 3 ranks", "use 1"),
            (4, ["--tp", 2, "--shard-group", 4], "--shard-group 4 does not divide the 2 data-parallel ranks: 4 ranks / --tp 2",
             "use one of 1, 2"),
            (2, ["--sequence-parallel"], "--sequence-parallel has no effect without --tp", "give --tp N, at least 2")):
        messages = mpirun(program, ranks, *TRAIN, *arguments, code=2)[1]
        expect(messages.count("train_gpt2: ") == messages.count(text) == 1 and hint in messages, messages)
        planned = program.run(*TRAIN, *arguments, "--dry-run", "--ranks", ranks, code=2).stderr
        expect(planned.count(text) == 1 and hint in planned, planned)
    messages = mpirun(program, 2, *TRAIN, "--comm", "nccl", code=1)[1]
    expect(messages.count("--comm nccl: this build has no NCCL") == 1, messages)


MESH_4_2 = """\
rank 0: replica 0 of 2, shard 0 of 2; shard group 0 1; replica group 0 2
rank 1: replica 0 of 2, shard 1 of 2; shard group 0 1; replica group 1 3
rank 2: replica 1 of 2, shard 0 of 2; shard group 2 3; replica group 0 2
rank 3: replica 1 of 2, shard 1 of 2; shard group 2 3; replica group 1 3
"""
MESH_8_2_2 = """\
rank 0: replica 0 of 2, shard 0 of 2, tensor rank 0 of 2; shard group 0 2; replica group 0 4; tensor group 0 1
rank 1: replica 0 of 2, shard 0 of 2, tensor rank 1 of 2; shard group 1 3; replica group 1 5; tensor group 0 1
rank 2: replica 0 of 2, shard 1 of 2, tensor rank 0 of 2; shard group 0 2; replica group 2 6; tensor group 2 3
rank 3: replica 0 of 2, shard 1 of 2, tensor rank 1 of 2; shard group 1 3; replica group 3 7; tensor group 2 3
rank 4: replica 1 of 2, shard 0 of 2, tensor rank 0 of 2; shard group 4 6; replica group 0 4; tensor group 4 5
rank 5: replica 1 of 2, shard 0 of 2, tensor rank 1 of 2; shard group 5 7; replica group 1 5; tensor group 4 5
rank 6: replica 1 of 2, shard 1 of 2, tensor rank 0 of 2; shard group 4 6; replica group 2 6; tensor group 6 7
rank 7: replica 1 of 2, shard 1 of 2, tensor rank 1 of 2; shard group 5 7; replica group 3 7; tensor group 6 7
"""
MESH_3 = """\
rank 0: replica 0 of 1, shard 0 of 3; shard group 0 1 2; replica group 0
rank 1: replica 0 of 1, shard 1 of 3; shard group 0 1 2; replica group 1
rank 2: replica 0 of 1, shard 2 of 3; shard group 0 1 2; replica group 2
"""


def test_the_mesh_is_printed_without_a_run(program):
    expect(program.run("--print-mesh", "--ranks", 4, "--shard-group", 2).stdout == MESH_4_2, "4 ranks planned")
    expect(mpirun(program, 4, "--print-mesh", "--shard-group", 2)[0] == MESH_4_2, "4 ranks started")
    expect(mpirun(program, 3, "--print-mesh")[0] == MESH_3, "3 ranks started")
    tensor = ["--tp", 2, "--shard-group", 2]
    expect(program.run("--print-mesh", "--ranks", 8, *tensor).stdout == MESH_8_2_2, "8 ranks planned")
    expect(mpirun(program, 8, "--print-mesh", *tensor)[0] == MESH_8_2_2, "8 ranks started")


def test_links_are_checked_before_a_run_and_change_nothing(program):
    run = [*TRAIN, "--steps", 2, "--tp", 2]
    mpirun(program, 4, *run, "--log", "whole.jsonl")
    messages = mpirun(program, 4, *run, "--check-links", "--log", "run.jsonl")[1]
    for line in (*(rf"rank {rank} +[0-9.]+ [GT]FLOP/s +\S+, .+" for rank in range(4)),
                 *(rf"ranks {i}-{j} +[0-9.]+ us +[0-9.e+-]+ GB/s" for i in range(4) for j in range(i + 1, 4)),
                 r"all 4 ranks +[0-9.]+ us +[0-9.e+-]+ GB/s"):
        expect(len(re.findall(rf"^  {line}$", messages, re.MULTILINE)) == 1, f"{line}: {messages}")
    expect(re.search(r"^(slow: rank|no device and no pair is more than 20% slower)", messages, re.MULTILINE), messages)
    expect(messages.index("check of links") < messages.index("step 1/2"), messages)
    record = next(line for line in program.log("run.jsonl") if "check_links" in line)
    expect(record["step"] == 0 and record["check_pairs"] == "0-1 0-2 0-3 1-2 1-3 2-3", record)
    expect(len(record["check_tflops_ranks"].split()) == 4 and min(map(float, record["check_pair_gb_per_s"].split())) > 0, record)
    losses = [[line["loss"] for line in steps(program, log)] for log in ("run.jsonl", "whole.jsonl")]
    expect(losses[0] == losses[1], losses)
    messages = program.run(*TRAIN, "--steps", 1, "--check-links").stderr
    expect(re.search(r"^  rank 0 +[0-9.]+ [GT]FLOP/s", messages, re.MULTILINE) and "all-reduce" not in messages, messages)
    plan = program.run(*TRAIN, "--dry-run", "--check-links")
    expect(plan.stdout == program.run(*TRAIN, "--dry-run").stdout and "check of links" not in plan.stderr, plan)


def test_a_resumed_mesh_has_groups_that_divide_its_ranks(program):
    program.run(*TRAIN, "--steps", 2, "--stop-after", 1, "--out", "run")
    path = program.folder / "run/step_000001/manifest.json"
    reseal(path, {'"--ranks": 1,': '"--ranks": 8,', '"--tp": 1,': '"--tp": 2,', '"--shard-group": 0,': '"--shard-group": 2,'})
    mesh = ["--out", "run", "--resume", "--print-mesh", "--ranks"]
    expect(program.run(*mesh, 8).stdout == MESH_8_2_2, "8 ranks have the groups of the checkpoint")
    expect(program.run(*mesh, 3).stdout == MESH_3, "3 ranks cannot have them")
    expect(program.run(*mesh, 4, "--tp", 1).stdout == MESH_4_2, "a typed --tp wins")


def test_a_dry_run_of_many_ranks_reads_no_text(program):
    big = ["--layers", 36, "--heads", 32, "--channels", 4096, "--context", 1024, "--vocab-size", 50257, "--dtype", "bf16"]
    plan = program.run(*big, "--dry-run", "--ranks", 64, "--zero", 3).stdout
    expect("model: 7459729408 parameters, bf16\n" in plan and "ranks 0 to 63, each:\n" in plan, plan)
    expect("dry-run" not in program.run("--train", "missing.txt", "--dry-run").stdout, "a dry run reads its text")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
