#!/usr/bin/env python3
"""Tests models whose config.json has other properties than OpenAI's GPT-2, which test/oracle/family.py lists:
training, checkpoints, ranks and generation, against results of transformers.

    python3 test/test_family_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Tests against an installed transformers run it with $PYTHON (default python3).
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import family  # noqa: E402
import greedy  # noqa: E402
from runner import Skip, expect  # noqa: E402
from stored_tensors import read_safetensors, same_state  # noqa: E402
from test_checkpoint_programs import QUIET, with_flags  # noqa: E402
from test_infer_programs import expect_equal_text, generate  # noqa: E402
from test_pipeline_programs import planned_bytes  # noqa: E402
from test_programs import Program, run_program_tests  # noqa: E402
from test_rank_programs import expect_equal_runs, mpirun, require_mpi  # noqa: E402

TRAIN = ["--train", "family.txt", "--val", "family.txt", *QUIET]
RUN = [word for name, value in family.TRAINING.items() for word in ("--" + name.replace("_", "-"), value)]
# Kinds with all properties among them, for tests of what does not depend on each property alone.
MIXED = ("cerebras", "codeparrot", "everything")


def write(program, kind, name=None, **changes):
    (program.folder / "family.txt").write_text(family.TEXT)
    folder = program.folder / (name or kind)
    return greedy.write_model(folder, **{**family.SHAPE, **family.KINDS[kind], "seed": family.FIXTURE_SEED, **changes})


def inference(program):
    binary = program.binary.parent / "infer_gpt2"
    if not binary.exists():
        raise Skip("infer_gpt2 is not built")
    return Program(binary, program.folder)


def fields(folder):
    """The fields of config.json that describe the model."""
    config = json.loads((Path(folder) / "config.json").read_text())
    return {name: config[name] for name in family.FIELDS if name in config}


def train(program, source, log, *flags):
    program.run(*TRAIN, "--init-from", source, "--log", log, *flags)
    return [line["loss"] for line in program.log(log) if "loss" in line]


def expect_close(ours, theirs, tolerance, where):
    expect(len(ours) == len(theirs) > 0, f"{where}: {len(ours)} and {len(theirs)} values")
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    expect(worst <= tolerance, f"{where}: differ by {worst:.1e}: {ours}, {theirs}")


# ---- results of transformers ---------------------------------------------------------------


def expect_results(program, folder, theirs, where):
    """The loss, the losses of training and greedy texts are those of transformers in fp64. The bounds are the rounding
    of fp32 (test/oracle/README.md), and the six decimals of the loss. Some training runs multiply the rounding."""
    loss = float(program.run("--init-from", folder, "--val", "family.txt", "--steps", 0).stdout.split()[1])
    expect_close([loss], [theirs["loss"]], 1e-6, f"{where}: loss")
    tolerance = max(2e-6, 2 * theirs["training_error"])
    expect_close(train(program, folder, f"{where}.jsonl", *RUN), theirs["training"], tolerance, f"{where}: training")
    for prompt, case in zip(family.PROMPTS, theirs["greedy"], strict=True):
        expect(case["margin"] > 1e-3, f"{where}: use another seed")
        ours = generate(inference(program), "-m", folder, "-p", prompt, "-n", family.TOKENS, "--temp", 0, "--ignore-eos")
        expect_equal_text(ours, case, f"{where}: {prompt}")


def test_losses_and_texts_equal_those_recorded_from_transformers(program):
    recorded = json.loads(family.FIXTURE.read_text())
    expect(list(recorded) == list(family.KINDS), "write the fixture again")
    for kind, theirs in recorded.items():
        expect_results(program, write(program, kind), theirs, kind)


def test_other_ways_to_compute_a_step_have_the_same_losses(program):
    recorded = json.loads(family.FIXTURE.read_text())
    half = 2 ** -8  # the bound of test_peers.py
    ways = {"standard": (["--attention", "standard"], 2e-6), "logits": (["--logits-rows", 32], 2e-6),
            "whole": ([], 2e-6), "bf16": (["--dtype", "bf16"], half),
            "fp16": (["--dtype", "fp16", "--loss-scale", 1024], half)}
    for kind in MIXED:
        folder = write(program, kind)
        for name, (flags, tolerance) in ways.items():
            run = with_flags(RUN, batch_size=8, grad_accum=1) if name == "whole" else RUN
            losses = train(program, folder, f"{kind}-{name}.jsonl", *run, *flags)
            expect_close(losses, recorded[kind]["training"], tolerance, f"{kind} {name}")


def test_ignoring_a_property_would_change_the_results(program):
    """The models of most kinds have the weights of one plain model, which another loss tells from them."""
    plain = write(program, "tanh")
    loss = float(program.run("--init-from", plain, "--val", "family.txt", "--steps", 0).stdout.split()[1])
    for kind, theirs in json.loads(family.FIXTURE.read_text()).items():
        expect((abs(theirs["loss"] / loss - 1) > 2e-6) == (kind != "tanh"), f"{kind}: {theirs['loss']}, plain {loss}")


def transformers(program, command):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import torch, transformers, numpy"], capture_output=True).returncode != 0:
        raise Skip("transformers is not installed (PYTHON names the interpreter)")
    done = subprocess.run([python, family.__file__, command, program.folder], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "HF_HUB_OFFLINE": "1"})
    expect(done.returncode == 0, done.stderr[-1500:])
    return json.loads(done.stdout.splitlines()[-1])


def test_models_of_transformers_come_back_unchanged(program):
    """transformers saves a model, a run starts from it, and transformers loads the checkpoint of the run."""
    theirs = transformers(program, "save")
    (program.folder / "family.txt").write_text(family.TEXT)
    for kind, results in theirs.items():
        saved = f"{kind}/saved"
        expect_results(program, saved, results, f"{kind}-live")
        train(program, saved, f"{kind}-on.jsonl", "--steps", 1, "--lr", 0, "--batch-size", 1, "--out", f"{kind}/run")
        (program.folder / kind / "run/step_000001").rename(program.folder / kind / "checkpoint")
        # Sampled texts have likely and unlikely tokens.
        texts = inference(program).run("-m", saved, "-p", "The king", "--samples", 8, "-n", 40, "--temp", 2, "--ignore-eos",
                                       "--jsonl").stdout
        (program.folder / kind / "texts.jsonl").write_text(texts)
    for kind, report in transformers(program, "compare").items():
        expect(report["problems"] == [] and report["fields"] == {} and report["equal_logits"], f"{kind}: {report}")
        expect(report["logprobs"] == 320 and report["logprob_error"] < 1e-6, f"{kind}: {report}")


# ---- checkpoints ---------------------------------------------------------------------------

def test_a_checkpoint_keeps_the_properties_and_the_weights(program):
    for kind in family.KINDS:
        source = write(program, kind)
        train(program, source, f"{kind}.jsonl", "--steps", 1, "--lr", 0, "--batch-size", 1, "--out", f"{kind}-run")
        checkpoint = program.folder / f"{kind}-run/step_000001"
        expect(fields(checkpoint).items() >= fields(source).items(), f"{kind}: {fields(checkpoint)}, not {fields(source)}")
        ours, theirs = (read_safetensors(folder / "model.safetensors") for folder in (checkpoint, source))
        expect(ours == theirs, f"{kind}: other tensors: {sorted(ours.keys() ^ theirs.keys())}")
        parameters = sum(len(data) // 4 for data in theirs.values())
        expect(f"| parameters | {parameters:,} |" in (checkpoint / "README.md").read_text(), f"{kind}: not {parameters:,}")


def test_the_run_and_the_model_card_name_the_properties(program):
    # The values of GPT-2. gelu_pytorch_tanh is another name of gelu_new, and n_inner is null or 4 n_embd.
    gpt2 = {"activation_function": ("gelu_new", "gelu_pytorch_tanh"), "n_inner": (None, 4 * family.SHAPE["channels"]),
            "layer_norm_epsilon": (1e-5,), "scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
            "tie_word_embeddings": (True,)}
    for kind in family.KINDS:
        source = write(program, kind)
        messages = program.run(*TRAIN, "--init-from", source, "--steps", 1, "--batch-size", 1, "--out", f"{kind}-run").stderr
        card = (program.folder / f"{kind}-run/step_000001/README.md").read_text()
        shown = {key for key in family.FIELDS if key in card or key in messages}
        changed = {key: value for key, value in fields(source).items() if value not in gpt2.get(key, (value,))}
        expect(shown == changed.keys(), f"{kind}: names {shown}, not {changed}")
        for key, value in changed.items():
            words = f"{key} {str(value).lower()}"
            expect(words in card and words in messages, f"{kind}: '{words}' is not in {card} or not in {messages}")


def test_a_resumed_run_equals_the_uninterrupted_run(program):
    for kind in MIXED:
        run = [*TRAIN, *with_flags(RUN, steps=6), "--dropout", 0.1, "--init-from", write(program, kind)]
        program.run(*run, "--out", f"{kind}-whole")
        program.run(*run, "--out", f"{kind}-parts", "--stop-after", 3)
        program.run("--out", f"{kind}-parts", "--resume")
        whole, parts = (program.folder / f"{kind}-{name}/step_000006" for name in ("whole", "parts"))
        expect(same_state(whole, parts), f"{kind}: another state")
        expect(fields(parts).items() >= fields(program.folder / kind).items(), f"{kind}: {fields(parts)}")


def test_a_run_from_a_checkpoint_has_its_properties(program):
    for kind in MIXED:
        train(program, write(program, kind), f"{kind}.jsonl", "--steps", 2, "--batch-size", 1, "--out", f"{kind}-run")
        checkpoint = program.folder / f"{kind}-run/step_000002"
        train(program, checkpoint, f"{kind}-next.jsonl", "--steps", 1, "--lr", 0, "--batch-size", 1, "--out", f"{kind}-next")
        expect(read_safetensors(program.folder / f"{kind}-next/step_000001/model.safetensors") ==
               read_safetensors(checkpoint / "model.safetensors"), f"{kind}: other weights")
        expect(fields(program.folder / f"{kind}-next/step_000001") == fields(checkpoint), kind)


def test_a_new_model_has_the_properties_of_a_config_file(program):
    for kind in MIXED:
        folder = write(program, kind)
        shutil.copy(folder / "config.json", program.folder / f"{kind}.json")
        program.run(*TRAIN, *with_flags(RUN, steps=2), "--model", f"{kind}.json", "--out", f"{kind}-run")
        checkpoint = program.folder / f"{kind}-run/step_000002"
        expect(fields(checkpoint).items() >= fields(folder).items(), f"{kind}: {fields(checkpoint)}")
        sizes = {name: len(data) for name, data in read_safetensors(folder / "model.safetensors").items()}
        ours = {name: len(data) for name, data in read_safetensors(checkpoint / "model.safetensors").items()}
        expect(ours == sizes, f"{kind}: other tensors: {sorted(ours.items() ^ sizes.items())}")


def test_a_run_resumes_without_the_config_file_that_it_started_from(program):
    write(program, "everything")
    shutil.copy(program.folder / "everything/config.json", program.folder / "shape.json")
    run = [*TRAIN, *with_flags(RUN, steps=4), "--model", "shape.json"]
    program.run(*run, "--out", "whole")
    program.run(*run, "--out", "parts", "--stop-after", 2)
    (program.folder / "shape.json").unlink()
    program.run("--out", "parts", "--resume")
    expect(same_state(program.folder / "whole/step_000004", program.folder / "parts/step_000004"), "another state")


# ---- ranks ---------------------------------------------------------------------------------


def require_ranks(program):
    if program.binary.parent.name != "host":
        raise Skip("ranks are tested on the host")
    require_mpi(program)


LAYOUTS = {"tp": (2, 4, ["--tp", 2]), "pp": (2, 4, ["--pp", 2]), "zero": (2, 2, ["--zero", 3]),
           "sequence": (2, 4, ["--tp", 2, "--sequence-parallel"]), "both": (4, 4, ["--tp", 2, "--pp", 2, "--sequence-parallel"])}


def test_ranks_compute_the_run_of_one_rank(program):
    require_ranks(program)
    for kind in MIXED:
        folder = write(program, kind)
        run = [*with_flags(TRAIN, eval_every=2), "--eval-batches", 2, "--init-from", folder, "--batch-size", 2, "--steps", 4,
               "--lr", 1e-3, "--eps", 1e-4, "--seed", 5, "--dropout", 0.1]
        program.run(*run, "--grad-accum", 4, "--log", f"{kind}.jsonl")
        for name, (ranks, grad_accum, flags) in LAYOUTS.items():
            if name == "both" and kind != "everything":
                continue
            layout, log = [*flags, "--grad-accum", grad_accum], f"{kind}-{name}.jsonl"
            mpirun(program, ranks, *run, *layout, "--verify-every", 1, "--log", log, "--out", f"{kind}-{name}")
            expect_equal_runs(program, log, f"{kind}.jsonl")
            checkpoint = program.folder / f"{kind}-{name}/step_000004"
            expect(fields(checkpoint).items() >= fields(folder).items(), f"{log}: {fields(checkpoint)}")


def test_ranks_send_the_bytes_of_the_dry_run(program):
    require_ranks(program)
    run = [*TRAIN, "--init-from", write(program, "everything"), "--batch-size", 2, "--steps", 3]
    for name, (ranks, grad_accum, flags) in LAYOUTS.items():
        layout = [*flags, "--grad-accum", grad_accum]
        planned = planned_bytes(program.run(*run, *layout, "--dry-run", "--ranks", ranks).stdout)[0][""]
        mpirun(program, ranks, *run, *layout, "--log", f"{name}.jsonl")
        sent = {line["comm_bytes"] for line in program.log(f"{name}.jsonl")[1:]}
        expect(sent == {planned} and planned > 0, f"{name}: sends {sent} bytes, not {planned}")


# ---- generation ----------------------------------------------------------------------------


def lines_of(program, *arguments):
    """The objects of --jsonl, without their timings."""
    lines = [json.loads(line) for line in program.run(*arguments, "--jsonl").stdout.splitlines()]
    return [{key: value for key, value in line.items() if key != "timings"} for line in lines]


def test_texts_of_a_batch_equal_those_of_single_prompts(program):
    infer = inference(program)
    (program.folder / "prompts.txt").write_text("the king\na\nRomeo and\nx\n")
    modes = [[], ["--dtype", "bf16"], ["--quant", "w8"], ["--quant", "w8a8"], ["--kv-dtype", "int8"]]
    for kind in family.KINDS:
        common = ["-m", write(program, kind), "-n", 10, "--ignore-eos", "--prompts", "prompts.txt", "--seed", 3]
        for mode in modes if kind in MIXED else modes[:1]:
            single = lines_of(infer, *common, *mode, "--batch", 1)
            expect(len(single) == 4 and lines_of(infer, *common, *mode, "--batch", 4, "--chunk", 3) == single, f"{kind} {mode}")


def token_nll(done):
    return float(re.search(r"^perplexity +token_nll +(\S+)", done.stdout, re.MULTILINE)[1])


def test_int8_weights_keep_the_properties_and_nearly_the_loss(program):
    infer = inference(program)
    for kind in family.KINDS:
        folder = write(program, kind)
        floats = token_nll(infer.run("perplexity", "family.txt", "-m", folder))
        for mode in ("w8", "w8a8"):
            out = f"{kind}-{mode}"
            infer.run("quantize", folder, out, "--quant", mode)
            expect(fields(program.folder / out).items() >= fields(folder).items(), f"{out}: {fields(program.folder / out)}")
            error = abs(token_nll(infer.run("perplexity", "family.txt", "-m", out)) - floats)
            expect(0 < error < 0.01 * floats, f"{out}: the loss differs by {error}")
            text = ["-p", "The king", "-n", 20, "--seed", 3, "--ignore-eos"]
            expect(generate(infer, "-m", out, *text) == generate(infer, "-m", folder, "--quant", mode, *text),
                   f"{out}: another text than with --quant {mode}")


def test_quantization_aware_training_has_the_loss_of_the_quantized_model(program):
    for kind in MIXED:
        folder = write(program, kind)
        evaluate = ["--init-from", folder, "--steps", 0, "--eval", "perplexity:family.txt"]
        floats = token_nll(program.run(*evaluate))
        for mode, tolerance in (("w8", 1e-5), ("w8a8", 1e-4)):  # those of test_qat_programs.py
            ours = token_nll(program.run(*evaluate, "--qat", mode))
            theirs = token_nll(inference(program).run("perplexity", "family.txt", "-m", folder, "--quant", mode))
            expect_close([ours], [theirs], tolerance, f"{kind} {mode}")
            expect(abs(ours / floats - 1) > tolerance, f"{kind} {mode}: {floats} in floats: this test detects nothing")


# ---- errors --------------------------------------------------------------------------------


def test_values_that_are_not_supported_are_errors_that_name_them(program):
    for changes, phrases in (({"n_inner": 40}, ["n_inner", "40", "16"]), ({"n_inner": 0}, ["n_inner"]),
                             ({"n_inner": -16}, ["n_inner"]), ({"n_inner": "x"}, ["n_inner"]),
                             ({"activation_function": "silu"}, ["activation_function", "silu", "gelu_new", "relu"]),
                             ({"activation_function": 1}, ["activation_function"]),
                             ({"layer_norm_epsilon": 0}, ["layer_norm_epsilon"]),
                             ({"layer_norm_epsilon": -1e-5}, ["layer_norm_epsilon"]),
                             ({"layer_norm_epsilon": "small"}, ["layer_norm_epsilon"]),
                             ({"scale_attn_weights": 1}, ["scale_attn_weights"]),
                             ({"scale_attn_by_inverse_layer_idx": "yes"}, ["scale_attn_by_inverse_layer_idx"]),
                             ({"tie_word_embeddings": "no"}, ["tie_word_embeddings"])):
        folder = write(program, "tanh", "bad")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        program.fails("--val", "family.txt", "--steps", 0, "--init-from", "bad", phrases=["bad", *phrases])
        inference(program).fails("-m", "bad", "-p", "x", phrases=["bad", *phrases])


def test_weights_that_do_not_fit_the_properties_are_errors_that_name_the_tensor(program):
    for made_with, stated, phrases in (({"n_inner": 96}, {"n_inner": 32}, ["mlp.c_fc.weight", "32"]),
                                       ({}, {"tie_word_embeddings": False}, ["lm_head.weight"])):
        folder = write(program, "tanh", "bad", **made_with)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **stated}))
        program.fails("--val", "family.txt", "--steps", 0, "--init-from", "bad", phrases=["bad", *phrases])
        inference(program).fails("-m", "bad", "-p", "x", phrases=["bad", *phrases])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
