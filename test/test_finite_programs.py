#!/usr/bin/env python3
"""Tests values that are not finite, and steps whose size stays, in train_gpt2 and infer_gpt2: weights and moments
in files, runs whose loss becomes NaN, on one rank and on several, and runs that resume with other ranks.

    python3 test/test_finite_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import re
import shutil
import signal
import struct
import subprocess
import sys

from manifest_seal import reseal, xxh64
from runner import expect
from test_checkpoint_programs import QUIET, TINY, finish, start, wait_for, with_flags
from test_exchange_programs import write_llmc_model
from test_programs import run_program_tests
from test_rank_programs import expect_equal_runs, mpirun

SIZES = with_flags(TINY, layers=2, heads=2, channels=16, batch_size=2)
NAN, INFINITY = struct.pack("<f", float("nan")), struct.pack("<f", float("inf"))
# After one step of this rate, the weights are finite and the loss is not.
DIVERGE = ["--lr", 1e38, "--grad-clip", 0]


def replace_element(path, tensor, index, value):
    """Replaces one number of a safetensors file by the bytes `value`."""
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    begin = 8 + length + json.loads(data[8:8 + length])[tensor]["data_offsets"][0] + len(value) * index
    data[begin:begin + len(value)] = value
    path.write_bytes(bytes(data))


def reseal_file(checkpoint, name):
    """Updates the manifest after a change of a file."""
    old = next(file["xxh64"] for file in manifest(checkpoint)["files"] if file["name"] == name)
    reseal(checkpoint / "manifest.json", {old: f"{xxh64((checkpoint / name).read_bytes()):016x}"})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def manifest(checkpoint):
    return json.loads((checkpoint / "manifest.json").read_text())


# ---- weights and moments in files ----------------------------------------------------------


def infer(program, *arguments):
    return subprocess.run([str(word) for word in [program.binary.parent / "infer_gpt2", *arguments]],
                          cwd=program.folder, capture_output=True, text=True, timeout=300, check=False)


def test_every_command_refuses_weights_that_are_not_finite(program):
    program.run(*SIZES, *QUIET, "--steps", 1, "--out", "run")
    shutil.copytree(program.folder / "run/step_000001", program.folder / "hf")
    (program.folder / "hf/manifest.json").unlink()
    expect(infer(program, "quantize", "hf", "int8", "--quant", "w8").returncode == 0, "the model cannot be quantized")
    write_llmc_model(program.folder / "good.bin", program.folder / "hf", 3)
    replace_element(program.folder / "hf/model.safetensors", "transformer.h.1.mlp.c_fc.weight", 64 + 5, NAN)
    replace_element(program.folder / "int8/model.safetensors", "transformer.h.1.ln_2.bias", 15, INFINITY)
    write_llmc_model(program.folder / "bad.bin", program.folder / "hf", 3)
    errors = {"hf": "hf/model.safetensors: tensor transformer.h.1.mlp.c_fc.weight: element [1, 5] is nan, not finite",
              "bad.bin": "bad.bin: tensor h.1.mlp.c_fc.weight: element [5, 1] is nan, not finite",
              "int8": "int8/model.safetensors: tensor transformer.h.1.ln_2.bias: element [15] is inf, not finite"}
    for model in ("hf", "bad.bin"):
        for command in (["--train", "text.txt", "--steps", 5, "--out", "new"],
                        ["--val", "text.txt", "--steps", 0], ["--eval", "perplexity:text.txt", "--steps", 0]):
            result = program.run("--init-from", model, *command, *QUIET, code=1)
            expect(result.stderr.count("not finite") == 1 and errors[model] in result.stderr, result.stderr)
            expect("hint: use a checkpoint from before the training diverged" in result.stderr, result.stderr)
    expect(not (program.folder / "new").exists(), "a run was saved")
    (program.folder / "words.jsonl").write_text('{"text": "the dog"}\n')
    for model, error in errors.items():
        tokenizer = ["--tokenizer", "bytes"] if model == "bad.bin" else []
        for command in (["-m", model, "-p", "fox", "-n", 2], ["perplexity", "text.txt", "-m", model],
                        ["score", "lambada:words.jsonl", "-m", model], ["bench", "-m", model],
                        ["quantize", model, "out", "--quant", "w8"], ["-m", model, "-p", "fox", "--quant", "w8"]):
            if model == "int8" and ("quantize" in command or "--quant" in command):
                continue  # these need a float model
            result = infer(program, *command, *([] if command[0] in ("quantize", "bench") else tokenizer))
            expect(result.returncode == 1 and error in result.stderr, f"{command}: {result.stderr[-600:]}")
    expect(not (program.folder / "out").exists(), "a model was written")


def test_weights_that_fp16_cannot_hold_are_an_error(program):
    program.run(*SIZES, *QUIET, "--steps", 1, "--out", "run")
    model = program.folder / "run/step_000001"
    replace_element(model / "model.safetensors", "transformer.h.1.mlp.c_fc.weight", 64 + 5, struct.pack("<f", 70000))
    problem = "tensor h.1.mlp.c_fc.weight: element [1, 5] is 70000, too large for fp16"
    program.fails("--init-from", "run/step_000001", "--val", "text.txt", "--steps", 0, "--dtype", "fp16", phrases=[problem])
    result = infer(program, "-m", "run/step_000001", "-p", "fox", "-n", 1, "--dtype", "fp16")
    expect(result.returncode == 1 and problem in result.stderr, result.stderr)
    expect(infer(program, "-m", "run/step_000001", "-p", "fox", "-n", 1, "--dtype", "bf16").returncode == 0, "in bf16")


def test_resume_refuses_moments_that_are_not_finite(program):
    program.run(*SIZES, *QUIET, "--steps", 3, "--stop-after", 1, "--out", "run")
    checkpoint = program.folder / "run/step_000001"
    for tensor, value, problem in (("first_moment", NAN, "is nan, not finite"), ("second_moment", INFINITY, "is inf, not finite"),
                                   ("second_moment", struct.pack("<f", -1), "is -1, negative")):
        files = {name: (checkpoint / name).read_bytes() for name in ("optimizer.safetensors", "manifest.json")}
        replace_element(checkpoint / "optimizer.safetensors", f"{tensor}.ln_f.bias", 15, value)
        reseal_file(checkpoint, "optimizer.safetensors")
        program.fails("--out", "run", "--resume", phrases=[
            f"run/step_000001/optimizer.safetensors: tensor {tensor}.ln_f.bias: element [15] {problem}"])
        for name, data in files.items():
            (checkpoint / name).write_bytes(data)
    program.run("--out", "run", "--resume", "--stop-after", 1)


# ---- losses that are not finite ------------------------------------------------------------


def check_diverging_run(run, folder):
    """run(*flags, code=0) trains in `folder`/run. The newest checkpoint from before the NaN is protected, also in
    resumed runs."""
    keep = ["--checkpoint-every", 1, "--keep-checkpoints", 2]
    run(*SIZES, *QUIET, "--out", "run", "--steps", 30, "--stop-after", 4, *keep)
    expect({"step_000003", "step_000004"} <= set(names(folder)) and "step_000002" not in names(folder), names(folder))
    # The loss of step 5 is finite, its update is too large.
    messages = run("--out", "run", "--resume", "--stop-after", 4, "--on-nan", "skip", "--max-skipped", 50, *DIVERGE)
    kept = "the loss is not finite: run/step_000004, the newest checkpoint from before, is kept"
    expect(messages.count(kept) == 1, messages)
    expect([name for name in names(folder) if "step" in name] == ["step_000004", "step_000005", "step_000008"], names(folder))
    state = manifest(folder / "step_000008")["state"]
    expect(state["protected_checkpoint"] == "step_000004" and state["loss_not_finite"] is True, state)
    expect("protected_checkpoint" not in manifest(folder / "step_000005")["state"], "step 5 was saved before")
    # A resumed run knows it, although no checkpoint before counts.
    messages = run("--out", "run", "--resume", "--stop-after", 2, "--keep-checkpoints", 1)
    expect("resume: a loss was not finite; run/step_000004, the newest checkpoint from before, is kept" in messages, messages)
    expect(kept not in messages, "reported twice")
    expect([name for name in names(folder) if "step" in name] == ["step_000004", "step_000005", "step_000010"], names(folder))
    # Without the checkpoints after it, the run continues from there as if nothing had happened.
    for name in ("step_000005", "step_000010"):
        shutil.rmtree(folder / name)
    messages = run("--out", "run", "--resume", "--stop-after", 3, "--lr", 6e-4)
    expect("resume: from run/step_000004" in messages and "not finite" not in messages, messages)
    expect([name for name in names(folder) if "step" in name] == ["step_000006", "step_000007"], names(folder))
    expect("protected_checkpoint" not in manifest(folder / "step_000007")["state"], "a former run's loss")


def test_a_loss_that_becomes_nan_removes_no_good_checkpoint(program):
    check_diverging_run(lambda *flags: program.run(*flags).stderr, program.folder / "run")


def test_a_signal_saves_although_the_loss_is_nan(program):
    run = ["--out", "run", "--checkpoint-every", 1, "--keep-checkpoints", 2]
    program.run(*SIZES, *QUIET, *run, "--steps", 10 ** 9, "--stop-after", 3)
    process = start(program, [*run, "--resume", "--on-nan", "skip", "--max-skipped", 5000, *DIVERGE])
    wait_for(process, "is kept")
    process.send_signal(signal.SIGTERM)
    messages = finish(process)
    saved = re.search(r"interrupted by SIGTERM after step \d+: saved run/(step_\d+)", messages)
    expect(saved, messages[-600:])
    expect([name for name in names(program.folder / "run") if "step" in name] == ["step_000003", "step_000004", saved[1]],
           names(program.folder / "run"))


def test_a_loss_that_becomes_nan_on_tensor_ranks_removes_no_good_checkpoint(program):
    check_diverging_run(lambda *flags: mpirun(program, 2, *flags, *(["--tp", 2] if "--train" in flags else []))[1],
                        program.folder / "run")


def test_a_loss_that_becomes_nan_on_pipeline_ranks_removes_no_good_checkpoint(program):
    check_diverging_run(lambda *flags: mpirun(program, 2, *flags, *(["--pp", 2] if "--train" in flags else []))[1],
                        program.folder / "run")


def test_checkpoints_with_a_finite_loss_count_again(program):
    run = ["--checkpoint-every", 1, "--keep-checkpoints", 2]
    program.run(*SIZES, *QUIET, "--out", "run", "--steps", 30, "--stop-after", 3, *run)
    # The loss of step 3 was not finite for once.
    reseal(program.folder / "run/step_000003/manifest.json", {
        '"--batch-size": 2,': '"--batch-size": 2, "loss_not_finite": true, "protected_checkpoint": "step_000002",'})
    messages = program.run("--out", "run", "--resume", "--stop-after", 2).stderr
    expect("resume: a loss was not finite; run/step_000002" in messages, messages)
    steps = [name for name in names(program.folder / "run") if "step" in name]
    expect(steps == ["step_000002", "step_000004", "step_000005"], steps)
    state = manifest(program.folder / "run/step_000005")["state"]
    expect(state["protected_checkpoint"] == "step_000002" and "loss_not_finite" not in state, state)


def check_refused_save(run, folder, more=()):
    """An update of this size makes weights infinite at once, or larger than the dtype can hold."""
    run(*SIZES, *QUIET, "--out", "run", "--steps", 30, "--stop-after", 2, "--checkpoint-every", 1, *more)
    rate, problem = (1e6, "too large for fp16") if "fp16" in more else (1e39, "not finite")
    messages = run("--out", "run", "--resume", "--lr", rate, "--warmup", 0, "--grad-clip", 0, "--on-nan", "skip", code=1)
    error = re.search(r"train_gpt2: .*step 3 is not saved: tensor \S+: element \[[\d, ]+\] is \S+, (.*)\n  hint: (.*)\n", messages)
    expect(error and error[1] == problem, messages)
    expect(error[2].startswith("run/step_000002 is kept; to continue from it, remove later checkpoints"), messages)
    expect([name for name in names(folder) if "step" in name] == ["step_000001", "step_000002"], names(folder))


def test_a_state_that_is_not_finite_is_not_saved(program):
    for dtype in ("fp32", "fp16"):
        check_refused_save(lambda *flags, code=0: program.run(*flags, code=code).stderr, program.folder / "run",
                           ["--dtype", dtype, "--loss-scale", 1] if dtype == "fp16" else [])
        shutil.rmtree(program.folder / "run")
    program.fails(*SIZES, *QUIET, "--out", "first", "--steps", 3, "--checkpoint-every", 1, "--lr", 1e39, "--warmup", 0,
                  phrases=["step 1 is not saved: tensor ", "hint: no checkpoint is kept; start again with a lower --lr"])


def test_ranks_end_when_a_state_is_not_saved(program):
    for more in (["--tp", 2], ["--pp", 2]):
        check_refused_save(lambda *flags, code=0: mpirun(program, 2, *flags, code=code)[1], program.folder / "run", more)
        shutil.rmtree(program.folder / "run")


# ---- tokens per step -----------------------------------------------------------------------


def new_steps(program, log, done):
    """The tokens of each step after `done` steps."""
    tokens = [line["tokens"] for line in program.log(log) if "loss" in line]
    return [after - before for before, after in zip(tokens[done - 1:], tokens[done:])]


def test_tokens_per_step_stay_with_other_ranks(program):
    run = ["--out", "run", "--resume", "--stop-after", 2]
    step = 2 * 8 * 12  # sequences x tokens x micro-batches
    program.run(*SIZES, *QUIET, "--steps", 20, "--eps", 1e-4, "--total-batch-tokens", step, "--log", "whole.jsonl", "--stop-after", 6)
    program.run(*SIZES, *QUIET, "--steps", 20, "--eps", 1e-4, "--total-batch-tokens", step, "--log", "run.jsonl", *run)
    for ranks, old, new in ((2, 12, 6), (4, 6, 3)):
        messages = mpirun(program, ranks, *run)[1]
        expect(f"resume: --grad-accum was {old}, it is {new} now\n" in messages and "resume: steps had" not in messages, messages)
    expect(new_steps(program, "run.jsonl", 1) == [step] * 5, "other steps")
    expect_equal_runs(program, "run.jsonl", "whole.jsonl")
    # Eight ranks cannot divide twelve micro-batches.
    messages = mpirun(program, 8, *run, code=2)[1]
    expect(messages.count("train_gpt2: ") == 1, messages)
    expect(f"the run has --total-batch-tokens {step}, which is not a multiple of --batch-size x --seq-len x ranks = "
           "2 x 8 x 8 = 128\n" in messages and "use one of 1, 2, 3, 4, 6, 12 ranks, or use one of 1, 3 as --batch-size" in messages,
           messages)
    messages = mpirun(program, 8, *run, "--batch-size", 1)[1]
    expect("resume: --grad-accum was" not in messages and "resume: --batch-size was 2, it is 1 now\n" in messages, messages)
    messages = mpirun(program, 2, *run, "--grad-accum", 2)[1]
    expect(f"resume: steps had {step} tokens and now have 32, on 2 instead of 8 data-parallel ranks; --total-batch-tokens "
           f"{step} keeps them\n" in messages, messages)
    program.run(*run)  # --grad-accum has replaced the tokens per step
    expect(new_steps(program, "run.jsonl", 6) == [step] * 2 + [32] * 2 + [16] * 2, new_steps(program, "run.jsonl", 6))


def test_tokens_per_step_that_change_are_reported(program):
    run = ["--out", "run", "--resume", "--stop-after", 1]
    program.run(*SIZES, *QUIET, "--steps", 20, "--grad-accum", 4, "--log", "run.jsonl", *run)
    for ranks, more, old, new, keeps in ((2, [], 64, 128, 64), (4, ["--tp", 2], None, None, None), (3, ["--tp", 1], 128, 192, None),
                                         (4, [], 192, 256, 192), (2, ["--grad-accum", 8], None, None, None)):
        messages = mpirun(program, ranks, *run, *more)[1]
        note = f"resume: steps had {old} tokens and now have {new}, on {ranks} instead of "
        expect(not old or re.search(re.escape(note) + r"\d data-parallel ranks" +
                                    (f"; --total-batch-tokens {keeps} keeps them" if keeps else "") + "\n", messages), messages)
        expect(note in messages if old else "resume: steps had" not in messages, messages)
        expect("resume: --ranks was" in messages or ranks == 4, messages)
    notes = [line["resumed"] for line in program.log("run.jsonl") if "resumed" in line]
    expect("steps had 64 tokens and now have 128, on 2 instead of 1 data-parallel ranks; --total-batch-tokens 64 keeps them" in notes,
           notes)
    # A total that is typed again names all numbers that are possible, next to another total.
    messages = mpirun(program, 3, *run, "--total-batch-tokens", 256, code=2)[1]
    expect("--total-batch-tokens 256 is not a multiple of --batch-size x --seq-len x ranks = 2 x 8 x 3 = 48\n" in messages and
           "hint: use a multiple, such as 240, or use one of 1, 2, 4, 8, 16 ranks\n" in messages, messages)
    # A checkpoint of an older program, which recorded no ranks, has no old number to report.
    path = max((program.folder / "run").glob("step_*")) / "manifest.json"
    reseal(path, {'"--ranks": 2,': ""})
    messages = program.run(*run).stderr
    expect("resume: from run/step_000006" in messages and "steps had" not in messages, messages)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
