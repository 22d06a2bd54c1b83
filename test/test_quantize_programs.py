#!/usr/bin/env python3
"""Tests `infer_gpt2 quantize` and the models that it writes, as a user runs them.

    python3 test/test_quantize_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. The test of compressed-tensors needs that package and torch in
$PYTHON (default python3).
"""
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
from runner import Skip, expect  # noqa: E402
from test_checkpoint_programs import build_fault_library  # noqa: E402
from test_infer_programs import generate, model  # noqa: E402
from test_programs import SMALL, TEXT, Program, run_program_tests  # noqa: E402

TEXT_FLAGS = ["-p", "The king", "-n", 20, "--seed", 3]


def quantize(program, source, out, *flags):
    result = program.run("quantize", source, out, *flags)
    expect(result.stdout == "", f"stdout has {result.stdout!r}")
    return program.folder / out


def test_a_quantized_model_writes_the_text_of_quantizing_at_load(program):
    folder = model(program)
    for mode in (["--quant", "w8"], ["--quant", "w8a8"], ["--quant", "w8a8", "--zero-points", "off"]):
        for dtype in ("fp32", "bf16", "fp16"):
            out = "-".join([*mode[1::2], dtype])
            quantize(program, folder, out, *mode, "--dtype", dtype)
            at_load = generate(program, "-m", folder, *mode, "--dtype", dtype, *TEXT_FLAGS)
            expect(generate(program, "-m", out, "--dtype", dtype, *TEXT_FLAGS) == at_load, f"{out}: another text")
    as_w8 = generate(program, "-m", "w8a8-fp32", "--quant", "w8", *TEXT_FLAGS)
    expect(as_w8 == generate(program, "-m", "w8-fp32", *TEXT_FLAGS), "w8a8 files with --quant w8: another text")
    overridden = generate(program, "-m", "w8a8-off-fp32", "--zero-points", "auto", *TEXT_FLAGS)
    expect(overridden == generate(program, "-m", "w8a8-fp32", *TEXT_FLAGS), "--zero-points does not override the files")
    none = generate(program, "-m", folder, *TEXT_FLAGS)
    expect(none["logprobs"] != as_w8["logprobs"], "INT8 weights change nothing, so this test detects nothing")


def test_a_calibrated_model_writes_the_text_of_calibrating_at_load(program):
    folder = model(program, layers=2, heads=2, channels=64)
    (program.folder / "calibration.txt").write_text(TEXT)
    for mode in ("w8a8", "w8a8-static"):
        flags = ["--quant", mode, "--calibrate", "calibration.txt"]
        done = program.run("quantize", folder, mode, *flags)
        expect(done.stderr.count("smoothing: h.") == 2, f"the choices are not printed: {done.stderr}")
        at_load = generate(program, "-m", folder, *flags, *TEXT_FLAGS)
        expect(generate(program, "-m", mode, *TEXT_FLAGS) == at_load, f"{mode}: another text")
        plain = generate(program, "-m", folder, *flags, "--smoothing", "off", *TEXT_FLAGS)
        expect(plain["logprobs"] != at_load["logprobs"], "smoothing changes nothing, so this test detects nothing")
        config = json.loads((program.folder / mode / "config.json").read_text())["quantization_config"]
        inputs = config["config_groups"]["group_0"]["input_activations"]
        expect(inputs["dynamic"] == (mode == "w8a8") and inputs["strategy"] == ("token" if mode == "w8a8" else "tensor"),
               str(inputs))
        expect(len(config["llmc"]["calibration_xxh3_128"]) == 32, str(config))
    program.fails("-m", "w8a8-static", "--quant", "w8a8", "-p", "x", phrases=["w8a8-static and w8"], code=2)
    program.fails("-m", "w8a8", "--quant", "w8a8-static", "-p", "x", phrases=["w8a8 and w8"], code=2)
    program.fails("-m", "w8a8", "--quant", "w8a8", "--calibrate", "calibration.txt", "-p", "x",
                  phrases=["needs a float model"], code=2)
    program.fails("-m", folder, "--quant", "w8a8-static", "-p", "x", phrases=["has no scales of activations"], code=2)
    generate(program, "-m", "w8a8-static", "--quant", "w8", *TEXT_FLAGS)


def test_every_source_of_a_model_can_be_quantized(program):
    trainer = Program(program.binary.parent / "train_gpt2", program.folder)
    (program.folder / "text.txt").write_text(TEXT)
    trainer.train("--steps", 2, "--out", "run", "--eval-every", 0)
    checkpoint = program.folder / "run/step_000002"
    for source, out in (("run", "of_run"), (checkpoint, "of_checkpoint")):
        quantize(program, source, out, "--quant", "w8")
    files = sorted(path.name for path in (program.folder / "of_run").iterdir())
    expected = {"config.json", "model.safetensors", "README.md", "generation_config.json"} | \
        {path.name for path in checkpoint.iterdir() if "token" in path.name or path.name in ("vocab.json", "merges.txt")}
    expect(set(files) == expected, f"{files}, not {sorted(expected)}")
    for name in files:
        same = (program.folder / "of_run" / name).read_bytes() == (program.folder / "of_checkpoint" / name).read_bytes()
        expect(same == (name != "README.md"), f"{name} of the two sources")  # the card has the name of the directory
    expect(generate(program, "-m", "of_run", *TEXT_FLAGS) == generate(program, "-m", "run", "--quant", "w8", *TEXT_FLAGS),
           "another text")
    card = (program.folder / "of_run/README.md").read_text()
    for phrase in ("# of_run", "quantize IN OUT --quant w8 --dtype fp32", "step_000002"):
        expect(phrase in card, f"'{phrase}' is not in the card")


def test_flags_that_do_not_fit_the_command_are_usage_errors(program):
    folder = model(program)
    for arguments, phrase in (
            ((folder, "out"), "needs --quant w8, w8a8"), ((folder, "out", "--quant", "none"), "needs --quant w8, w8a8"),
            ((folder, "out", "--quant", "w8a8-static"), "needs a calibration text"),
            ((folder, "--quant", "w8"), "IN and OUT"), ((folder, "out", "x", "--quant", "w8"), "IN and OUT"),
            ((folder, "out", "--quant", "w8", "-m", folder), "--model has no effect"),
            ((folder, "out", "--quant", "w8", "-p", "x"), "--prompt has no effect"),
            ((folder, "out", "--quant", "w8", "--kv-dtype", "bf16"), "--kv-dtype has no effect"),
            ((folder, "out", "--quant", "w8", "--zero-points", "off"), "--zero-points is for INT8 activations")):
        program.fails("quantize", *arguments, phrases=[phrase], code=2)
    program.fails("-p", "x", phrases=["--model is required"], code=2)
    program.fails("bench", phrases=["--model is required"], code=2)
    expect(not (program.folder / "out").exists(), "a usage error created the directory")


def test_modes_that_the_files_do_not_have_are_refused(program):
    folder = model(program)
    quantize(program, folder, "w8", "--quant", "w8")
    quantize(program, folder, "w8a8", "--quant", "w8a8")
    program.fails("-m", "w8", "--quant", "w8a8", "-p", "x", phrases=["--quant w8a8", "INT8 weights for w8\n"], code=2)
    program.fails("-m", "w8a8", "--quant", "none", "-p", "x", phrases=["--quant none", "INT8 weights for w8a8 and w8"], code=2)
    program.fails("-m", "w8", "--zero-points", "off", "-p", "x", phrases=["--zero-points", "--quant w8a8"], code=2)
    program.fails("-m", folder, "--zero-points", "off", "-p", "x", phrases=["--zero-points", "--quant w8a8"], code=2)
    refused = "holds INT8 weights of `infer_gpt2 quantize`"
    program.fails("quantize", "w8", "again", "--quant", "w8", phrases=["quantize w8 " + refused, "give the float model"])
    (program.folder / "text.txt").write_text("The king is here and reads. " * 9)
    program.fails("perplexity", "text.txt", "-m", folder, "--base", "w8", phrases=["--base w8 " + refused])
    trainer = Program(program.binary.parent / "train_gpt2", program.folder)
    trainer.fails("--train", "text.txt", "--init-from", "w8a8", "--steps", 1, phrases=["--init-from w8a8 " + refused])


def test_an_existing_directory_is_not_overwritten(program):
    folder = model(program)
    out = quantize(program, folder, "out", "--quant", "w8")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    program.fails("quantize", folder, "out", "--quant", "w8a8", phrases=["out exists", "overwrites nothing"])
    expect({path.name: path.read_bytes() for path in out.iterdir()} == before, "the files changed")
    (program.folder / "empty").mkdir()
    quantize(program, folder, "empty/", "--quant", "w8")
    quantize(program, folder, "new/folders/out", "--quant", "w8")
    (program.folder / "file").write_text("x")
    program.fails("quantize", folder, "file", "--quant", "w8", phrases=["file exists"])
    program.fails("quantize", folder, "file/out", "--quant", "w8", phrases=["file"])


def test_bench_names_the_mode_of_the_files(program):
    quantize(program, model(program), "w8a8", "--quant", "w8a8")
    result = program.run("bench", "-m", "w8a8", "--batches", 1, "--prompt-tokens", 4, "--gen-tokens", 0, "--positions", 0,
                         "--repetitions", 1)
    expect(json.loads(result.stdout.splitlines()[-1])["quant"] == "w8a8", "bench ran in another mode")


def test_a_write_that_fails_or_is_killed_leaves_no_model(program):
    folder, library = model(program), build_fault_library(program)
    listing = sorted(path.name for path in program.folder.iterdir())
    command = [program.binary, "quantize", folder, "out", "--quant", "w8"]

    def expect_no_model(words, code, phrase, num_left, **more):
        result = subprocess.run([str(word) for word in words], cwd=program.folder, capture_output=True, text=True, timeout=300,
                                env={**os.environ, **more})
        expect(result.returncode == code, f"exit code {result.returncode}: {result.stderr}")
        expect(phrase in result.stderr, result.stderr)
        expect(not (program.folder / "out").exists(), "the directory exists under its name")
        left = sorted({path.name for path in program.folder.iterdir()} - set(listing))
        expect(len(left) == num_left, f"left: {left}")

    for setup in ("trap '' XFSZ; ", ""):
        limited = ["bash", "-c", setup + 'ulimit -f 8; exec "$@"', "bash", *command]
        expect_no_model(limited, 1, "raise the file size limit", 0)
    expect_no_model(command, -signal.SIGKILL, "", 1, LD_PRELOAD=str(library), FAULT_IN="out", FAULT_DO="kill", FAULT_AT="8")
    quantize(program, folder, "out", "--quant", "w8")
    left = sorted({path.name for path in program.folder.iterdir()} - set(listing))
    expect(left == ["out"], f"the next command leaves {left}")


COMPRESSED_TENSORS = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.lifecycle.forward import dequantize
original, quantized = map(Path, sys.argv[1:])
config = QuantizationConfig.model_validate(json.loads((quantized / "config.json").read_text())["quantization_config"])
assert config.format == "int-quantized" and set(config.config_groups) == {"group_0", "group_1"}, config
linear, embedding = config.config_groups["group_0"], config.config_groups["group_1"]
assert linear.targets == ["Conv1D"] and embedding.targets == ["Embedding"] and embedding.input_activations is None
inputs = linear.input_activations
assert inputs.dynamic and inputs.strategy == "token" and not inputs.symmetric and inputs.num_bits == 8, inputs
tensors, floats = load_file(quantized / "model.safetensors"), load_file(original / "model.safetensors")
count = 0
for name, weight in floats.items():
    scale = tensors.pop(name + "_scale", None)
    stored = tensors.pop(name)
    if scale is None:
        assert torch.equal(stored, weight), name
        continue
    scheme = embedding if name.endswith("wte.weight") else linear
    assert stored.dtype == scheme.weights.pytorch_dtype(), stored.dtype
    restored = dequantize(x_q=stored, scale=scale, args=scheme.weights)
    assert restored.shape == weight.shape and ((restored - weight).abs() <= 0.5001 * scale).all(), name
    count += 1
assert not tensors, list(tensors)
print(count)
"""


def test_compressed_tensors_reads_the_config_and_restores_the_weights(program):
    python = os.environ.get("PYTHON", "python3")
    modules = "import torch, safetensors, compressed_tensors"
    if subprocess.run([python, "-c", modules], capture_output=True).returncode != 0:
        raise Skip("compressed-tensors is not installed (PYTHON names the interpreter)")
    folder = model(program)
    quantize(program, folder, "w8a8", "--quant", "w8a8")
    done = subprocess.run([python, "-c", COMPRESSED_TENSORS, folder, program.folder / "w8a8"], capture_output=True,
                          text=True, timeout=300)
    expect(done.returncode == 0, done.stderr[-800:])
    expect(done.stdout.split() == ["9"], f"{done.stdout} matrices, not 9")


def test_damaged_files_are_errors_of_the_program(program):
    folder = quantize(program, model(program), "w8a8", "--quant", "w8a8")
    weights = (folder / "model.safetensors").read_bytes()
    config = (folder / "config.json").read_text()
    (folder / "model.safetensors").write_bytes(weights[:-1])
    program.fails("-m", "w8a8", "-p", "x", phrases=["w8a8/model.safetensors", "truncated"])
    (folder / "model.safetensors").write_bytes(weights[:-1] + b"\x80")
    program.fails("-m", "w8a8", "-p", "x", phrases=["w8a8/model.safetensors: tensor transformer.", "is -128"])
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(config.replace('"num_bits": 8', '"num_bits": 4'))
    program.fails("-m", "w8a8", "-p", "x", phrases=["w8a8/config.json: quantization_config", "num_bits is 4"])
    shutil.copy(program.folder / "model/config.json", folder / "config.json")
    program.fails("-m", "w8a8", "-p", "x", phrases=["has dtype I8", "no quantization_config"])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "infer_gpt2"))
