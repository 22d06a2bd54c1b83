#!/usr/bin/env python3
"""Tests models that train_gpt2 exchanges with other programs: llm.c's model files, which a run can start
from, and its own checkpoints, which transformers reads, with their model card.

    python3 test/test_exchange_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import os
import struct
import subprocess
import sys

from runner import Skip, expect
from stored_tensors import read_safetensors
from test_checkpoint_programs import QUIET, TINY, finish, start, with_flags
from test_programs import DATA, run_program_tests


# ---- models of other programs --------------------------------------------------------------


def write_llmc_model(path, checkpoint, version):
    """Writes the checkpoint's weights as a model file of llm.c: version 3 is fp32, version 5 is bf16
    (truncated, not rounded)."""
    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {name.removeprefix("transformer."): data
               for name, data in read_safetensors(checkpoint / "model.safetensors").items()}
    V, C, L = config["vocab_size"], config["n_embd"], config["n_layer"]
    Vp = -(-V // 128) * 128
    tensors["wte.weight"] += bytes(4 * (Vp - V) * C)
    parts = [tensors["wte.weight"], tensors["wpe.weight"]]
    for kind in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for parameter in ("weight", "bias"):
            for layer in range(L):
                data = tensors[f"h.{layer}.{kind}.{parameter}"]
                if parameter == "weight" and "c_" in kind:  # (in, out) -> (out, in)
                    inputs = 4 * C if kind == "mlp.c_proj" else C
                    width = len(data) // inputs
                    data = b"".join(data[row * width + offset:row * width + offset + 4]
                                    for offset in range(0, width, 4) for row in range(inputs))
                parts.append(data)
    data = b"".join([*parts, tensors["ln_f.weight"], tensors["ln_f.bias"]])
    if version == 5:
        data = b"".join(data[offset + 2:offset + 4] for offset in range(0, len(data), 4))
    header = [20240326, version, config["n_positions"], V, L, config["n_head"], C, Vp] + [0] * 248
    path.write_bytes(struct.pack("<256i", *header) + data)


def test_a_run_starts_from_a_model_file_of_llmc(program):
    sizes = with_flags(TINY, layers=2, heads=2, channels=16)
    finish(start(program, [*sizes, *QUIET, "--steps", 2, "--out", "run"]))
    checkpoint = program.folder / "run/step_000002"

    def val_loss(source, *flags):
        return program.run("--init-from", source, "--val", "text.txt", "--steps", 0, *flags).stdout

    write_llmc_model(program.folder / "model.bin", checkpoint, 3)
    expect(val_loss("model.bin") == val_loss(checkpoint), "another loss")
    write_llmc_model(program.folder / "half.bin", checkpoint, 5)
    loss, half = (float(val_loss(name).split()[1]) for name in ("model.bin", "half.bin"))
    expect(loss != half and abs(half / loss - 1) < 2 ** -7, f"{loss} in fp32, {half} in bf16")

    # A run can start from the file. At learning rate 0 it saves the same weights.
    arguments = ["--train", "text.txt", *QUIET, "--batch-size", 1, "--steps", 1, "--lr", 0]
    finish(start(program, [*arguments, "--init-from", "model.bin", "--out", "on"]))
    expect((program.folder / "on/step_000001/model.safetensors").read_bytes() ==
           (checkpoint / "model.safetensors").read_bytes(), "other weights")
    expect("| started from | `model.bin` |" in (program.folder / "on/step_000001/README.md").read_text(),
           "the model card does not name the file")
    inference = program.binary.parent / "infer_gpt2"
    if inference.exists():
        texts = [subprocess.run([inference, "-m", model, "-p", "The", "-n", "8", "--seed", "3"], cwd=program.folder,
                                capture_output=True, timeout=300) for model in ("model.bin", checkpoint.resolve())]
        expect(texts[0].returncode == 0 and texts[0].stdout == texts[1].stdout != b"", texts)

    whole = (program.folder / "model.bin").read_bytes()
    for damage, phrase in ((whole[:-1], "its header requires"), (b"\0" * 2000, "not a model file of llm.c"),
                           (whole[:4] + struct.pack("<i", 4) + whole[8:], "version 4"), (b"", "too short")):
        (program.folder / "bad.bin").write_bytes(damage)
        program.fails("--init-from", "bad.bin", "--val", "text.txt", "--steps", 0, phrases=["bad.bin", phrase])
    program.fails("--init-from", "none.bin", "--val", "text.txt", "--steps", 0, phrases=["cannot open none.bin"])
    program.fails("--init-from", "model.bin", "--layers", 3, "--val", "text.txt", "--steps", 0,
                  phrases=["--layers 3 does not agree with 2 in model.bin"], code=2)


# ---- our checkpoints in transformers -------------------------------------------------------


def transformers(program, script, *arguments):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        raise Skip("transformers is not installed (PYTHON names the interpreter)")
    done = subprocess.run([python, "-c", script, *map(str, arguments)], cwd=program.folder, capture_output=True,
                          text=True, timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    expect(done.returncode == 0, done.stderr[-1500:])
    return done.stdout.splitlines()


def test_transformers_generates_the_same_tokens_from_a_checkpoint(program):
    finish(start(program, [*TINY, *QUIET, "--steps", 3, "--out", "run"]))
    lines = transformers(program, """
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
path = "run/step_000003"
config, model = AutoConfig.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
generation = GenerationConfig.from_pretrained(path)
print(type(model).__name__, config.model_type, *config.architectures)
print(sum(p.numel() for p in model.parameters()), generation.eos_token_id, generation.max_new_tokens)
print(*model.generate(torch.tensor([[51, 71]]), max_new_tokens=6, min_new_tokens=6)[0].tolist())
""")
    expect(lines[0] == "GPT2LMHeadModel gpt2 GPT2LMHeadModel" and lines[1] == "3008 256 4", lines[:2])
    inference = program.binary.parent / "infer_gpt2"
    if not inference.exists():
        raise Skip("infer_gpt2 is not built")
    done = subprocess.run([inference, "-m", "run/step_000003", "-p", "Th", "-n", "6", "--temp", "0", "--json",
                           "--ignore-eos"], cwd=program.folder, capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, done.stderr)
    ours = json.loads(done.stdout)["ids"]
    theirs = [int(word) for word in lines[2].split()][2:]
    expect(theirs[:len(ours)] == ours, f"ours {ours}, transformers' {theirs}")


def test_auto_tokenizer_and_pipeline_load_a_checkpoint(program):
    arguments = [*TINY, *QUIET, "--steps", 1, "--out", "run"]
    if (DATA / "gpt2/encoder.json").exists():
        arguments += ["--tokenizer", DATA / "gpt2"]
    finish(start(program, arguments))
    checkpoint = program.folder / "run/step_000001"
    if not any((checkpoint / name).exists() for name in ("tokenizer.json", "vocab.json")):
        raise Skip("this tokenizer writes no files for transformers")
    lines = transformers(program, """
from transformers import AutoTokenizer, pipeline
path = "run/step_000001"
tokenizer = AutoTokenizer.from_pretrained(path)
print(tokenizer.decode(tokenizer("the king's horse")["input_ids"]))
print(repr(pipeline("text-generation", model=path)("king")[0]["generated_text"]))  # shorter than the context, in bytes too
""")
    expect(lines[0] == "the king's horse", lines)
    expect(eval(lines[1]).startswith("king"), lines)


def test_transformers_generates_without_warnings(program):
    finish(start(program, [*with_flags(TINY, context=32), *QUIET, "--steps", 1, "--out", "run"]))
    lines = transformers(program, """
import logging, sys, warnings
import torch, transformers
messages = []
warnings.showwarning = lambda text, *_: messages.append(str(text))
warnings.simplefilter("always")
class Recorder(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())
transformers.logging.set_verbosity_warning()
transformers.logging.add_handler(Recorder())
path = "run/latest"
model = transformers.AutoModelForCausalLM.from_pretrained(path)
tokenizer = transformers.AutoTokenizer.from_pretrained(path)
model.generate(**tokenizer("king", return_tensors="pt"))
model.generate(torch.tensor([[51, 71]]), attention_mask=torch.ones(1, 2), max_new_tokens=3, do_sample=True)
generate = transformers.pipeline("text-generation", model=path)
generate("king")
generate("king", max_new_tokens=3)
print(len(messages), messages)
""")
    expect(lines == ["0 []"], lines)


def test_the_model_card_has_the_figures_of_the_run(program):
    finish(start(program, [*TINY, "--eval-every", 2, "--eval-batches", 1, "--sample-every", 0, "--steps", 2, "--out",
                           "run", "--log", "run.jsonl"]))
    card = (program.folder / "run/step_000002/README.md").read_text()
    front = card.split("---\n")[1]
    expect("library_name: transformers\n" in front and "pipeline_tag: text-generation\n" in front, front)
    lines = program.log("run.jsonl")
    loss = [line["loss"] for line in lines if "loss" in line][-1]
    val_loss = [line["val_loss"] for line in lines if "val_loss" in line][-1]
    parameters = sum(len(data) // 4
                     for data in read_safetensors(program.folder / "run/step_000002/model.safetensors").values())
    for part in (f"| parameters | {parameters:,} |", "| optimizer steps | 2 |", "| tokens trained on | 16,",
                 "| training text | `text.txt` |", f"| {loss:.4f} nats", f"| {val_loss:.4f} nats", "| layers | 1 |",
                 "| started from | random weights |"):
        expect(part in card, f"'{part}' is not in:\n{card}")
    expect(str(program.folder) not in card, "the model card names a local folder")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
