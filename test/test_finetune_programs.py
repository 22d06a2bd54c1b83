#!/usr/bin/env python3
"""Tests fine-tuning from the command line: frozen parameters in files, resumed runs, ranks and plans, and errors.

    python3 test/test_finetune_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import re
import subprocess
import sys

from runner import expect
from stored_tensors import read_safetensors, same_state
from test_programs import run_program_tests
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


LORA = ["--lora", 4, "--lora-targets", "all", "--lora-dropout", 0.1]
def same_adapter(program, run, other, step=4):
    return same_state(*(program.folder / name / f"step_{step:06}" for name in (run, other)))


def losses(program, log):
    return [(line["loss"], line["grad_norm"]) for line in program.log(log) if "loss" in line]


def test_a_checkpoint_of_an_adapter_has_the_files_of_peft_and_its_moments(program):
    base = base_model(program)
    out = program.run(*DATA, "--init-from", "base", "--steps", 4, *LORA, "--rslora", "--dtype", "bf16", "--out", "lora")
    expect("training 8192 of 68320 parameters (12%), in 32 of 84 tensors" in out.stderr, out.stderr)
    expect("try: ./infer_gpt2 --adapter lora" in out.stderr, out.stderr)
    saved = program.folder / "lora/step_000004"
    settings = json.loads((saved / "adapter_config.json").read_text())
    expected = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "lora_dropout": 0.1,
                "use_rslora": True, "bias": "none", "fan_in_fan_out": True, "inference_mode": True,
                "target_modules": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"],
                "base_model_name_or_path": str(base)}
    expect({key: settings[key] for key in expected} == expected, settings)
    expect(not (saved / "model.safetensors").exists(), "the model is saved, too")
    names = {f"h.{block}.{layer}.lora_{matrix}.weight" for block in range(4) for matrix in "AB"
             for layer in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
    stored = read_safetensors(saved / "adapter_model.safetensors")
    expect(stored.keys() == {"base_model.model.transformer." + name for name in names}, stored.keys())
    moments = read_safetensors(saved / "optimizer.safetensors")
    expect(moments.keys() == {f"{moment}_moment.{name}" for moment in ("first", "second") for name in names}, "moments")


def test_an_adapter_is_resumed_to_the_bit_and_evaluated_with_its_base(program):
    base_model(program)
    arguments = [*DATA, "--init-from", "base", "--dtype", "bf16", "--stochastic-rounding", "--steps", 4]
    for kind, flags in {"lora": LORA, "ia3": ["--ia3"], "kv": ["--ia3", "--ia3-targets", "kv"]}.items():
        program.run(*arguments, *flags, "--out", kind)
        program.run(*arguments, *flags, "--out", f"{kind}-2", "--stop-after", 2)
        program.run("--resume", "--out", f"{kind}-2", *DATA)
        expect(same_adapter(program, f"{kind}-2", kind), f"{kind}: another adapter or other moments")
        evaluation = ["--steps", 0, "--val", "text.txt", "--peak-tflops", 1]
        tuned = program.run("--adapter", kind, *evaluation, *(flags[1:] if kind == "kv" else [])).stdout
        plain = program.run("--init-from", "base", *evaluation).stdout
        expect(float(tuned.split()[1]) < float(plain.split()[1]), f"{kind}: {tuned} after {plain}")
    # Another run begins with the adapter.
    program.run(*DATA, "--adapter", "lora", "--steps", 1, "--lr", 0, "--out", "more")
    expect(read_safetensors(program.folder / "more/step_000001/adapter_model.safetensors") ==
           read_safetensors(program.folder / "lora/step_000004/adapter_model.safetensors"), "--adapter changes values")


def test_lora_with_full_recompute_and_zero_3_has_the_bits_of_plain_lora(program):
    require_mpi(program)
    base_model(program)
    arguments = ["--train", "text.txt", *QUIET, "--init-from", "base", "--dtype", "bf16", "--steps", 4, *LORA]
    program.run(*arguments, "--batch-size", 2, "--grad-accum", 4, "--out", "one", "--log", "one.jsonl")
    for ranks in (2, 4, 8):
        run = [*arguments, "--batch-size", 1, "--grad-accum", 8 // ranks, "--zero", 3]
        mpirun(program, ranks, *run, "--out", f"plain-{ranks}", "--log", f"plain-{ranks}.jsonl")
        mpirun(program, ranks, *run, "--recompute", "full", "--out", f"full-{ranks}", "--log", f"full-{ranks}.jsonl")
        expect(losses(program, f"full-{ranks}.jsonl") == losses(program, f"plain-{ranks}.jsonl"), f"{ranks}: losses")
        expect(same_adapter(program, f"full-{ranks}", f"plain-{ranks}"), f"{ranks}: another adapter")
        for (loss, norm), (one, one_norm) in zip(losses(program, f"full-{ranks}.jsonl"), losses(program, "one.jsonl"),
                                                 strict=True):
            expect(abs(loss / one - 1) < 1e-4 and abs(norm / one_norm - 1) < 2e-2, f"{ranks}: {loss}, not {one}")
    run = [*arguments, "--batch-size", 1, "--grad-accum", 4, "--zero", 3, "--recompute", "full"]
    mpirun(program, 2, *run, "--offload", "optimizer", "--out", "offload")
    expect(same_adapter(program, "offload", "plain-2"), "offloaded: another adapter")
    mpirun(program, 2, *run, "--out", "parts", "--stop-after", 2)
    mpirun(program, 2, "--resume", "--out", "parts")
    expect(same_adapter(program, "parts", "plain-2"), "resumed: another adapter")
    # Another number of ranks loads what was saved: a rate of 0 changes nothing.
    mpirun(program, 4, "--resume", "--out", "parts", "--steps", 5, "--lr", 0, "--grad-accum", 2)
    expect(read_safetensors(program.folder / "parts/step_000005/adapter_model.safetensors") ==
           read_safetensors(program.folder / "plain-2/step_000004/adapter_model.safetensors"), "4 ranks: other values")


def test_an_int8_model_under_an_adapter_begins_with_the_loss_of_generation_at_int8(program):
    base_model(program)
    evaluation = ["--init-from", "base", "--steps", 0, "--eval", "perplexity:text.txt", "--peak-tflops", 1, "--lora", 4]

    def loss_of(output):
        return float(re.search(r"token_nll +([0-9.]+)", output)[1])  # six digits
    floats, codes = (loss_of(program.run(*evaluation, *flags).stdout) for flags in ([], ["--base-quant", "w8"]))
    infer = program.binary.parent / "infer_gpt2"
    done = subprocess.run([infer, "perplexity", "text.txt", "-m", "base", "--quant", "w8"], cwd=program.folder,
                          capture_output=True, text=True, check=True)
    expected = loss_of(done.stdout)
    expect(floats != codes and abs(codes / expected - 1) < 5e-6, f"{codes}, not {expected}; {floats} in floats")
    arguments = [*DATA, "--init-from", "base", "--dtype", "bf16", "--steps", 4, *LORA, "--base-quant", "w8"]
    program.run(*arguments, "--out", "w8")
    program.run(*arguments, "--out", "w8-2", "--stop-after", 2)
    program.run("--resume", "--out", "w8-2", *DATA)
    expect(same_adapter(program, "w8-2", "w8"), "another adapter or other moments")
    for flags, message in ((["--base-quant", "w8"], "--base-quant w8 is for the model under an adapter"),
                           (["--lora", 4, "--base-quant", "w8", "--zero", 3], "--base-quant w8 works on data-parallel")):
        program.fails(*DATA, "--init-from", "base", "--steps", 1, *flags, phrases=[message], code=2)


def test_wrong_adapters_are_refused(program):
    base_model(program)
    program.run(*DATA, *SIZES, "--steps", 1, "--seed", 7, "--out", "other")
    program.run(*DATA, "--init-from", "base", "--steps", 1, *LORA, "--out", "lora")
    program.run(*DATA, "--layers", 2, *SIZES[2:], "--steps", 1, "--out", "shallow")
    for flags, code, message in (
            (["--lora", 0], 2, "--lora"),
            (["--lora", 4, "--lora-targets", "c_attn,lm_head"], 2, "'lm_head' is no linear layer; allowed: c_attn"),
            (["--lora", 4, "--ia3"], 2, "--lora and --ia3 exclude each other"),
            (["--lora", 4, "--freeze", "wte.*"], 2, "--lora freezes the model"),
            (["--lora", 4, "--qat", "w8"], 2, "--qat does not train adapters"),
            (["--adapter", "base"], 1, "holds a model, not an adapter"),
            (["--adapter", "lora", "--lora", 4], 2, "--adapter brings its own adapter"),
            (["--adapter", "lora", "--init-from", "other"], 1, "belongs to another model than"),
            (["--adapter", "lora", "--init-from", "shallow"], 1, "h.2.attn.c_attn")):
        model = [] if "--init-from" in flags or "--adapter" in flags else ["--init-from", "base"]
        program.fails(*DATA, *model, "--steps", 1, *flags, phrases=[message], code=code)
    program.fails(*DATA, *SIZES, "--steps", 1, "--lora", 4, phrases=["--lora adapts a model that exists"], code=2)
    for flags, code, message in ((["--lora", 8], 2, "the flags ask for another adapter"),
                                 (["--init-from", "other"], 1, "belongs to another model than")):
        program.fails("--resume", "--out", "lora", "--steps", 2, *DATA, *flags, phrases=[message], code=code)


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
