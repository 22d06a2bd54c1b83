#!/usr/bin/env python3
"""Tests fine-tuning from the command line: frozen parameters in files, resumed runs, ranks and plans, and errors.

    python3 test/test_finetune_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import re
import sys

from runner import expect
from test_programs import read_safetensors, run_program_tests, same_state
from test_rank_programs import mpirun, require_mpi

QUIET = ["--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]
DATA = ["--train", "text.txt", "--batch-size", 2, "--grad-accum", 2, "--dropout", 0.1, *QUIET]
SIZES = ["--layers", 4, "--heads", 2, "--channels", 32, "--context", 32]
UPPER = ["--freeze", "wte.*,wpe.*,h.[0-1].*"]


def base_model(program):
    """A trained model whose weights half precision would round."""
    if not (program.folder / "base").exists():
        program.run(*DATA, *SIZES, "--steps", 2, "--out", "base")
    return program.folder / "base/step_000002"


def is_frozen(name):
    return re.match(r"transformer\.(wte|wpe|h\.[01])\.", name) is not None


def test_frozen_tensors_are_exported_with_the_bits_of_the_base_in_every_dtype(program):
    base = read_safetensors(base_model(program) / "model.safetensors")
    for dtype in ("fp32", "bf16", "fp16"):
        out = program.run(*DATA, "--init-from", "base", "--steps", 2, *UPPER, "--dtype", dtype, "--out", dtype)
        expect("training 25472 of 60128 parameters (42.4%), in 26 of 52 tensors" in out.stderr, out.stderr)
        tuned = read_safetensors(program.folder / dtype / "step_000002/model.safetensors")
        expect(tuned.keys() == base.keys(), "other tensors")
        for name, values in tuned.items():
            expect((values == base[name]) == is_frozen(name), f"{dtype}: {name}")
        moments = read_safetensors(program.folder / dtype / "step_000002/optimizer.safetensors")
        learning = {name.removeprefix("transformer.") for name in base if not is_frozen(name)}
        expect(moments.keys() == {f"{moment}_moment.{name}" for moment in ("first", "second") for name in learning},
               "moments of other tensors")


def test_a_resumed_run_is_the_whole_run_even_if_its_checkpoint_is_removed(program):
    base = read_safetensors(base_model(program) / "model.safetensors")
    arguments = [*DATA, "--init-from", "base", "--steps", 4, *UPPER, "--dtype", "bf16"]
    program.run(*arguments, "--out", "whole")
    program.run(*arguments, "--out", "parts", "--stop-after", 2)
    program.run("--resume", "--out", "parts", "--steps", 4, "--keep-checkpoints", 1, *DATA)
    expect([path.name for path in (program.folder / "parts").glob("step_*")] == ["step_000004"], "not removed")
    expect(same_state(program.folder / "parts/step_000004", program.folder / "whole/step_000004"), "another state")
    for name, values in read_safetensors(program.folder / "parts/step_000004/model.safetensors").items():
        expect(values == base[name] or not is_frozen(name), name)
    for flags, message in ((["--freeze", "wte.*"], "did not train wpe.weight, which learns now"),
                           (["--freeze", "wte.*,wpe.*,h.[0-2].*"], "trained h.2.ln_1.weight, which is frozen now"),
                           (["--train-only", "ln_f.*"], "--train-only and --freeze exclude each other")):
        failed = program.run("--resume", "--out", "parts", "--steps", 5, *DATA, *flags, code=2)
        expect(message in failed.stderr, failed.stderr)


def test_a_pipeline_has_no_backward_passes_below_what_learns(program):
    require_mpi(program)
    base_model(program)
    arguments = [*DATA, "--init-from", "base", "--steps", 2, *UPPER]
    program.run(*arguments, "--out", "one")
    plan = program.run(*arguments, "--pp", 2, "--ranks", 2, "--dump-schedule", "plan.csv", "--dry-run").stdout
    expect((program.folder / "plan.csv").read_text().splitlines()[0].count("B") == 0, "rank 0 has backward passes")
    expect("backward buffers: 0 bytes" in plan.split("rank 1")[0], plan)
    mpirun(program, 2, *arguments, "--pp", 2, "--out", "ranks")
    one, ranks = (read_safetensors(program.folder / run / "step_000002/model.safetensors") for run in ("one", "ranks"))
    for name, values in ranks.items():
        expect(values == one[name] or not is_frozen(name), name)


def test_patterns_that_choose_nothing_are_refused(program):
    for flags, message in (
            (["--freeze", "h.4.*"], "--freeze: 'h.4.*' matches no parameter"),
            (["--train-only", "c_attn"], "--train-only: 'c_attn' matches no parameter"),
            (["--freeze", "*"], "--freeze: the patterns match all parameters, so there is nothing to train"),
            (["--freeze", "wte.*", "--train-only", "wpe.*"], "--train-only and --freeze exclude each other")):
        failed = program.run(*DATA, *SIZES, "--steps", 1, *flags, code=2)
        expect(message in failed.stderr and "hint:" in failed.stderr, failed.stderr)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
