#!/usr/bin/env python3
"""Tests adapters in infer_gpt2, as a user runs them: merged when a model is loaded, and merged into files.

    python3 test/test_adapter_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. The test against PEFT needs peft, torch and transformers in $PYTHON
(default python3).
"""
import array
import json
import os
import random
import re
import struct
import subprocess
import sys

from runner import Skip, expect
from stored_tensors import read_safetensors
from test_infer_programs import SHAPE, generate, model
from test_programs import ROOT, TEXT, run_program_tests

TEXT_FLAGS = ["-p", "The king", "-n", 20, "--seed", 3]
FIXTURES = ROOT / "test/oracle/fixtures/adapters"
RANK = 3
LORA = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 6, "fan_in_fan_out": True,
        "target_modules": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"], "base_model_name_or_path": ""}
IA3 = {"peft_type": "IA3", "task_type": "CAUSAL_LM", "fan_in_fan_out": True, "feedforward_modules": ["mlp.c_proj"],
       "target_modules": ["c_attn", "mlp.c_proj"], "base_model_name_or_path": ""}


def shapes(config):
    """{name: shape} of an adapter of SHAPE in files."""
    C = SHAPE["channels"]
    layers = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
    for block in range(SHAPE["layers"]):
        for layer, (inputs, outputs) in layers.items():
            name = f"base_model.model.transformer.h.{block}.{layer}."
            if config["peft_type"] == "LORA":
                yield name + "lora_A.weight", (RANK, inputs)
                yield name + "lora_B.weight", (outputs, RANK)
            elif layer == "attn.c_attn":
                yield name + "ia3_l", (outputs, 1)
            elif layer == "mlp.c_proj":
                yield name + "ia3_l", (1, inputs)


def adapter(program, name="adapter", config=LORA, **changes):
    """Writes an adapter of SHAPE with random values, in PEFT's format. Returns its directory."""
    numbers, data, header = random.Random(5), bytearray(), {}
    middle = 1.0 if config["peft_type"] == "IA3" else 0.0
    for tensor, shape in shapes(config):
        begin = len(data)
        data += array.array("f", [middle + 0.4 * numbers.random() - 0.2 for _ in range(shape[0] * shape[1])]).tobytes()
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = program.folder / name
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    return folder


def merge(program, base, adapter_folder, out):
    result = program.run("merge", base, adapter_folder, out)
    expect(result.stdout == "", f"stdout has {result.stdout!r}")
    return program.folder / out


# ---- one model, merged at load and in files ------------------------------------------------


def test_a_merged_directory_writes_the_text_of_merging_at_load(program):
    base = model(program)
    plain = generate(program, "-m", base, *TEXT_FLAGS)
    for name, config in (("lora", LORA), ("ia3", IA3)):
        adapter(program, name, config)
        merged = merge(program, base, name, f"merged-{name}")
        for flags in ([], ["--dtype", "bf16"], ["--quant", "w8"], ["--quant", "w8a8"], ["--kv-dtype", "int8"],
                      ["--quant", "w8a8", "--calibrate", "text.txt"]):
            at_load = generate(program, "-m", base, "--adapter", name, *flags, *TEXT_FLAGS)
            expect(generate(program, "-m", merged, *flags, *TEXT_FLAGS) == at_load, f"{name} {flags}: another text")
            expect(at_load["logprobs"] != plain["logprobs"], f"{name} changes nothing, so this test detects nothing")
    texts = [program.run("-m", "model", "--adapter", name, *TEXT_FLAGS, "--quiet").stdout for name in ("lora", "ia3")]
    expect(texts[0] != texts[1], "two adapters write one text")


def test_measurements_of_a_merged_directory_are_those_of_merging_at_load(program):
    base, folder = model(program), adapter(program)
    merged = merge(program, base, folder, "merged")
    (program.folder / "text.txt").write_text("The king is here and reads. " * 9)
    (program.folder / "words.jsonl").write_text('{"text": "a b c"}\n{"text": "the king reads"}\n')
    for command in (["perplexity", "text.txt"], ["score", "lambada:words.jsonl"], ["perplexity", "text.txt", "--quant", "w8a8"],
                    ["perplexity", "text.txt", "--base", base]):
        at_load = program.run(*command, "-m", base, "--adapter", folder).stdout
        expect(program.run(*command, "-m", merged).stdout == at_load, f"{command}: another result")
        plain = program.run(*command, "-m", base).stdout
        expect(plain != at_load or command[0] == "score", f"{command}: the adapter changes nothing")
    bench = ["bench", "-m", base, "--batches", 1, "--prompt-tokens", 4, "--gen-tokens", 0, "--positions", 0, "--repetitions", 1]
    keys = [json.loads(program.run(*bench, *more).stdout.splitlines()[-1]) for more in ([], ["--adapter", "adapter"])]
    expect("adapter" not in keys[0] and keys[1]["adapter"] == "adapter", keys)


def test_quantize_with_an_adapter_writes_the_tensors_of_the_quantized_merged_model(program):
    base, folder = model(program), adapter(program)
    merged = merge(program, base, folder, "merged")
    (program.folder / "calibration.txt").write_text(TEXT)
    for name, mode in (("w8", ["--quant", "w8"]), ("bf16", ["--quant", "w8a8", "--dtype", "bf16"]),
                       ("static", ["--quant", "w8a8-static", "--calibrate", "calibration.txt"])):
        done = program.run("quantize", base, name, *mode, "--adapter", folder)
        expect("merged into" in done.stderr, done.stderr)
        program.run("quantize", merged, f"{name}-of-merged", *mode)
        a, b = (program.folder / out for out in (name, f"{name}-of-merged"))
        expect((a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes(), f"{name}: other tensors")
        configs = [json.loads((out / "config.json").read_text())["quantization_config"] for out in (a, b)]
        expect(configs[0] == configs[1], f"{name}: another config")
        card = (a / "README.md").read_text()
        expect("with the merged adapter `" in card and "--adapter ADAPTER" in card, card)
        expect("adapter" not in (b / "README.md").read_text(), "the card of the merged model names an adapter")
    program.run("quantize", base, "plain", "--quant", "w8")
    tensors = [(program.folder / out / "model.safetensors").read_bytes() for out in ("plain", "w8")]
    expect(tensors[0] != tensors[1], "the adapter changes nothing, so this test detects nothing")


def test_a_merged_directory_has_the_files_of_the_base_in_fp32(program):
    base = model(program, dtype="bfloat16", n_ctx=SHAPE["context"])
    (base / "generation_config.json").write_text('{"eos_token_id": 7}')
    (base / "vocab.json").write_text(json.dumps({chr(33 + i): i for i in range(94)}))
    (base / "notes.txt").write_text("not copied")
    merged = merge(program, base, adapter(program), "new/folders/merged/")
    files = sorted(path.name for path in merged.iterdir())
    expect(files == ["README.md", "config.json", "generation_config.json", "model.safetensors", "vocab.json"], files)
    before, after = (json.loads((path / "config.json").read_text()) for path in (base, merged))
    expect(after == {**before, "dtype": "float32"}, after)
    for name in ("generation_config.json", "vocab.json"):
        expect((merged / name).read_bytes() == (base / name).read_bytes(), name)
    tensors, originals = read_safetensors(merged / "model.safetensors"), read_safetensors(base / "model.safetensors")
    expect(tensors.keys() == originals.keys(), "other tensors")
    changed = {name for name in tensors if tensors[name] != originals[name]}
    expect(changed == {name for name in originals if re.search(r"(attn|mlp)\.c_\w+\.weight", name)}, sorted(changed))
    card = (merged / "README.md").read_text()
    for phrase in ("# merged", "merge BASE ADAPTER OUT", "| base model | `", "| adapter | `", "| rank | 3 |", "| scale of the product | 2 |"):
        expect(phrase in card, f"'{phrase}' is not in the card")


# ---- which model, which adapter ------------------------------------------------------------


def test_the_base_is_the_directory_that_the_adapter_names(program):
    base, folder = model(program), adapter(program, base_model_name_or_path="model")
    done = program.run("--adapter", folder, *TEXT_FLAGS)
    expect("--model: model, the base model that " in done.stderr, done.stderr)
    expect(done.stdout == program.run("-m", base, "--adapter", folder, *TEXT_FLAGS).stdout, "another text")
    program.run("bench", "--adapter", folder, "--batches", 1, "--prompt-tokens", 4, "--gen-tokens", 0, "--positions", 0,
                "--repetitions", 1)
    program.run("perplexity", "text.txt", "--adapter", folder, "--limit", 2)
    adapter(program, "of-hub", base_model_name_or_path="people/gpt2")
    program.fails("--adapter", "of-hub", phrases=["--model is required: of-hub names the base model people/gpt2",
                                                  "with --model"])
    adapter(program, "nameless")
    program.fails("--adapter", "nameless", phrases=["--model is required: nameless names no base model", "with --model"])


def test_another_base_model_is_an_error_that_names_both_directories(program):
    base, folder = model(program), adapter(program)
    other = model(program, "other", seed=1)
    own = {"path": "model", "hash": "0" * 32}
    (folder / "llmc_base.json").write_text(json.dumps(own))
    failed = program.run("-m", base, "--adapter", folder, *TEXT_FLAGS, code=1).stderr
    own["hash"] = re.search(r"and ([0-9a-f]{32})", failed)[1]
    (folder / "llmc_base.json").write_text(json.dumps(own))
    generate(program, "--adapter", folder, *TEXT_FLAGS)  # llmc_base.json also has the path
    text = ["perplexity", "text.txt", "--limit", 1]
    for command in (["-m", "other", *TEXT_FLAGS], [*text, "-m", "other"], [*text, "-m", "other", "--quant", "w8"],
                    ["quantize", "other", "out", "--quant", "w8"]):
        program.fails(*command, "--adapter", "adapter",
                      phrases=["the adapter adapter was trained with another base model than other:", own["hash"],
                               "hint: give the base model of the adapter, model\n"])
    program.fails("merge", other, folder, "out", phrases=[f"{folder} was trained with another base model than {other}:"])
    expect(sorted(path.name for path in program.folder.iterdir()) == ["adapter", "model", "other", "text.txt"], "files are left")


def test_models_and_adapters_that_do_not_fit_are_one_error(program):
    base, folder = model(program), adapter(program)
    model(program, "wide", channels=48)
    model(program, "shallow", layers=1)
    program.run("quantize", base, "int8", "--quant", "w8")
    (program.folder / "empty").mkdir()
    merge(program, base, folder, "merged")
    for arguments, phrases in (
            (["-m", "wide", "--adapter", "adapter"],
             ["adapter for the base wide: adapter/adapter_model.safetensors: tensor base_model.model.transformer.h.0.", "(3, 24)"]),
            (["-m", "shallow", "--adapter", "adapter"], ["adapter for the base shallow: ", "h.1.", "N from 0 to 0"]),
            (["-m", "int8", "--adapter", "adapter"], ["--model int8 holds INT8 weights", "give the float model"]),
            (["merge", "int8", "adapter", "out"], ["merge int8 holds INT8 weights", "give the float model"]),
            (["-m", "adapter"], ["--model adapter holds an adapter, not a model", "give it with --adapter, and its base model with --model"]),
            (["merge", "adapter", "model", "out"], ["merge adapter holds an adapter", "merge BASE ADAPTER OUT"]),
            (["quantize", "adapter", "out", "--quant", "w8"], ["quantize adapter holds an adapter", "give a model"]),
            (["-m", "model", "--adapter", "model"], ["--adapter model holds a model, not an adapter", "PEFT"]),
            (["merge", "model", "model", "out"], ["merge model holds a model, not an adapter", "PEFT"]),
            (["-m", "model", "--adapter", "empty"], ["--adapter empty contains no adapter_config.json and no valid checkpoint"]),
            (["-m", "model", "--adapter", "adaptor"], ["--adapter adaptor does not exist; did you mean adapter?"]),
            (["-m", "model", "--adapter", "text.txt"], ["--adapter text.txt is not a directory"]),
            (["merge", "model", "adapter", "merged"], ["merge: merged exists", "merge overwrites nothing"]),
            (["-m", FIXTURES / "base", "--adapter", FIXTURES / "classifier"], ["is a classifier with 3 labels, not a language model", "infer_gpt2 classify FILE"])):
        before = sorted(path.name for path in program.folder.iterdir())
        program.fails(*arguments, phrases=phrases)
        stderr = program.run(*arguments, code=1).stderr
        expect(stderr.count("infer_gpt2: ") == 1 and stderr.count("hint: ") == 1, stderr)
        expect(sorted(path.name for path in program.folder.iterdir()) == before, f"{arguments} left files")


def test_flags_that_do_not_fit_the_command_are_usage_errors(program):
    base, folder = model(program), adapter(program)
    for arguments, phrase in (
            (("merge", base, folder), "BASE, ADAPTER and OUT, not 2"),
            (("merge", base, folder, "out", "--adapter", folder), "--adapter has no effect with the command merge"),
            (("merge", base, folder, "out", "--dtype", "bf16"), "--dtype has no effect with the command merge"),
            (("merge", base, folder, "out", "--quant", "w8"), "--quant has no effect with the command merge"),
            (("merge", base, folder, "out", "-m", base), "--model has no effect with the command merge"),
            (("-m", base, "--lora", folder), "did you mean --adapter?"), (("-m", base, "--peft", folder), "did you mean --adapter?"),
            (("-m", base, "--lora-scaled", folder), "the scale of an adapter is that of its files"),
            (("-p", "x"), "--model is required")):
        program.fails(*arguments, phrases=[phrase], code=2)
    expect(not (program.folder / "out").exists(), "a usage error created the directory")


# ---- PEFT ----------------------------------------------------------------------------------

PEFT = """
import sys
import peft, torch, transformers
base, adapter, merged = sys.argv[1:]
tokens = torch.arange(32).reshape(2, 16)
original = transformers.GPT2LMHeadModel.from_pretrained(base).eval()
expected = peft.PeftModel.from_pretrained(original, adapter).merge_and_unload().eval()
ours = transformers.GPT2LMHeadModel.from_pretrained(merged).eval()
with torch.no_grad():
    a, b = (model(tokens).logits.double() for model in (ours, expected))
print(((a - b).norm() / b.norm()).item())
weights = dict(ours.named_parameters())
print(max(((weights[name] - p).abs().max() / p.abs().max()).item() for name, p in expected.named_parameters()))
"""


def test_a_merged_model_is_that_of_peft(program):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import peft, torch, transformers"], capture_output=True).returncode != 0:
        raise Skip("peft, torch or transformers is not installed (PYTHON names the interpreter)")
    base = model(program)
    cases = [(base, adapter(program, "lora")), (base, adapter(program, "ia3", IA3))]
    cases += [(FIXTURES / "base", FIXTURES / name) for name in ("lora_all", "lora_rslora", "ia3", "patterns", "expression")]
    for index, (model_folder, folder) in enumerate(cases):
        merged = merge(program, model_folder, folder, f"merged-{index}")
        done = subprocess.run([python, "-c", PEFT, model_folder, folder, merged], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "HF_HUB_OFFLINE": "1"})
        expect(done.returncode == 0, done.stderr[-800:])
        logits, weights = map(float, done.stdout.split())
        expect(logits <= 2e-6 and weights <= 2e-7, f"{folder.name}: errors {logits} of logits, {weights} of weights")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "infer_gpt2"))
