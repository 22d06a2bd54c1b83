#!/usr/bin/env python3
"""Tests train_gpt2 from the command line: its output, its files and its errors.

    python3 test/test_programs.py build/host [PATTERN]

Prints `ok NAME`, `FAILED NAME: reason` or `[skipped] NAME: reason` for each test, then
`N passed, N failed, N skipped`; exits with 1 if a test failed.
"""
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests
from stored_tensors import same_state

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("LLMC_DATA", ROOT.parent / "shared" / "data"))
SMALL = ["--layers", "2", "--heads", "2", "--channels", "16", "--context", "16", "--batch-size", "2"]
TEXT = "".join(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(200))


class Program:
    """A program and the folder in which it runs."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, Path(folder)
        (self.folder / "text.txt").write_text(TEXT)

    def run(self, *arguments, environment=None, code=0):
        result = subprocess.run([str(self.binary), *map(str, arguments)], cwd=self.folder,
                                capture_output=True, text=True, timeout=300,
                                env={**os.environ, **(environment or {})})
        expect(result.returncode == code, f"exit code {result.returncode}, not {code}: {result.stderr[-500:]}")
        return result

    def train(self, *arguments, code=0):
        return self.run("--train", "text.txt", *SMALL, *arguments, code=code)

    def fails(self, *arguments, phrases, code=1):
        """The program must exit with `code`, with all of `phrases` on stderr."""
        result = self.run(*arguments, code=code)
        for phrase in phrases:
            expect(phrase in result.stderr, f"'{phrase}' is not in: {result.stderr[-500:]}")

    def log(self, name, settings=False, saves=False, slow=False):
        """The lines of a run log; with `settings`, also those with the settings of each process, with `saves` those of
        checkpoints, which have times, with `slow` those of slow ranks, which a busy machine can have."""
        lines = map(json.loads, (self.folder / name).read_text().splitlines())
        return [line for line in lines if (settings or "run" not in line) and (saves or "saved" not in line) and
                (slow or "slow_rank" not in line)]


# ---- valid use -----------------------------------------------------------------------------


def settings_of(program):
    """The rows of the program's settings table."""
    return json.loads(program.run("--help-json").stdout)


def check_help(program):
    """--help must have every flag of the settings table with its unit, help and default."""
    text = " ".join(program.run("--help").stdout.split())
    for row in settings_of(program):
        expect(row["help"] and (row["unit"] or row["switch"]), f"{row['flag']}: no help or no unit")
        expect(f"{row['flag']} {row['unit']}".strip() in text, f"{row['flag']} is missing")
        default = f" [default: {row['default_text']}]" if row["default_text"] else ""
        expect(row["help"] in text and default in text, f"{row['flag']}: {row['help']}{default} is missing")
    expect("--config FILE.toml" in text, "--config is missing")


def test_help_names_every_flag(program):
    check_help(program)


def test_renamed_flags_work_under_both_names(program):  # test_settings.cpp has all of them
    (program.folder / "old.toml").write_text("clip = 3\n")
    program.train("--config", "old.toml", "--final-lr", 0.5, "--steps", 1, "--out", "run", "--eval-every", 0)
    state = json.loads((program.folder / "run/step_000001/manifest.json").read_text())["state"]
    expect(state["--grad-clip"] == 3 and state["--final-lr-fraction"] == 0.5, state)
    program.fails("--config", "old.toml", "--grad-clip", 2, phrases=["--grad-clip and --clip, its old name"], code=2)


def test_a_run_without_arguments_learns_the_toy_language(program):
    result = program.run("--steps", 2, "--eval-every", 0, "--sample-every", 0)
    expect("toy language" in result.stderr, "stderr does not name the training data")


def test_flags_override_the_defaults_of_the_toy_run(program):
    quiet = ["--steps", 1, "--warmup", 0, "--schedule", "constant", "--eval-every", 0, "--sample-every", 0]
    program.run(*quiet, "--log", "default.jsonl")
    expect(program.log("default.jsonl")[0]["lr"] == 5e-3, "not the default learning rate of the toy run")
    program.run(*quiet, "--log", "flag.jsonl", "--lr", "6e-4")  # the default of runs on other data
    expect(program.log("flag.jsonl")[0]["lr"] == 6e-4, "--lr was ignored")


def test_log_has_the_specified_keys(program):
    program.train("--steps", 4, "--log", "run.jsonl", "--eval-every", 2)
    lines = program.log("run.jsonl")
    steps = [line for line in lines if "loss" in line]
    for key in "step loss grad_norm lr tokens tok_per_s mfu mfu_full step_ms".split():
        expect(all(key in line for line in steps), f"{key} is missing")
    # FLOP per token: 6N + 6LTC (mfu), 6N + 12LTC (mfu_full). N: wte, 2 blocks, final LayerNorm; T = C = 16.
    N, LTC = 257 * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16, 2 * 16 * 16
    for line in steps:
        expect(abs(line["mfu_full"] / line["mfu"] * (N + LTC) / (N + 2 * LTC) - 1) < 1e-9, f"MFU with full attention is wrong: {line}")
    expect([line["step"] for line in steps] == [1, 2, 3, 4], "steps are not 1 to 4")
    expect([line["tokens"] for line in steps] == [32, 64, 96, 128], "tokens do not add up")
    expect(all("step" in line for line in lines if "val_loss" in line), "val_loss without a step")
    expect(any("val_loss" in line for line in lines), "no val_loss")


def test_a_resumed_run_equals_the_uninterrupted_run(program):
    half = ["--dropout", 0.2, "--stochastic-rounding"]
    # The initial loss scale overflows, so it changes during the run.
    for dtype, flags in (("fp32", ["--dropout", 0.2]), ("bf16", half),
                         ("fp16", half + ["--loss-scale", 2 ** 24, "--loss-scale-window", 2])):
        common = ["--steps", 6, "--dtype", dtype, "--eval-every", 0, "--sample-every", 0, *flags]
        program.train(*common, "--out", f"a-{dtype}", "--log", f"a-{dtype}.jsonl")
        for _ in range(6):  # interrupted five times
            program.train(*common, "--out", f"b-{dtype}", "--log", f"b-{dtype}.jsonl", "--resume",
                          "--stop-after", 1)
        logs = [[[line.get(key) for key in ("step", "loss", "grad_norm", "loss_scale")]
                 for line in program.log(f"{run}-{dtype}.jsonl")] for run in "ab"]
        expect(logs[0] == logs[1], f"logs differ: {logs}")
        expect(same_state(program.folder / f"a-{dtype}/step_000006", program.folder / f"b-{dtype}/step_000006"),
               "weights or moments differ")


def test_fp16_and_bf16_reach_the_loss_of_fp32(program):
    losses = {}
    # Without warm-up, at the full learning rate from step 1, rounding alone makes the toy runs diverge.
    common = ["--steps", 30, "--warmup", 10, "--eval-every", 0, "--sample-every", 0]
    for dtype in ("fp32", "bf16", "fp16"):
        program.run(*common, "--dtype", dtype, "--log", f"{dtype}.jsonl")
        lines = program.log(f"{dtype}.jsonl")
        losses[dtype] = lines[-1]["loss"]
        scales = [line.get("loss_scale") for line in lines]
        expect(all(scale is None for scale in scales) or (dtype == "fp16" and scales[0] == 65536), f"{dtype}: {scales}")
    # 2^-8 is the largest relative rounding error of bf16: the losses differ through rounded weights.
    expect(abs(losses["bf16"] / losses["fp32"] - 1) < 2 ** -8, losses)
    expect(abs(losses["fp16"] / losses["bf16"] - 1) < 2 ** -8, losses)


def test_dropout_applies_only_to_training(program):
    common = ["--steps", 3, "--eval-every", 0, "--sample-every", 0, "--seed", 5]
    program.train(*common, "--log", "none.jsonl")
    program.train(*common, "--dropout", 0, "--log", "zero.jsonl")
    program.train(*common, "--dropout", 0.3, "--attention-dropout", 0.1, "--out", "run", "--log", "some.jsonl")
    none, zero, some = ([line["loss"] for line in program.log(f"{name}.jsonl")] for name in ("none", "zero", "some"))
    expect(none == zero, "--dropout 0 changes the losses")
    expect(none[0] != some[0], "--dropout 0.3 does nothing")
    config = json.loads((program.folder / "run/step_000003/config.json").read_text())
    expect([config[key] for key in ("embd_pdrop", "attn_pdrop", "resid_pdrop")] == [0.3, 0.1, 0.3], config)
    evaluate = ["--init-from", "run/step_000003", "--val", "text.txt", "--steps", 0, "--batch-size", 2]
    plain, with_dropout = program.run(*evaluate), program.run(*evaluate, "--dropout", 0.5)
    expect(plain.stdout == with_dropout.stdout, "--dropout changes the evaluation")


def test_micro_batches_do_not_change_the_losses(program):
    common = ["--train", "text.txt", "--layers", 1, "--heads", 2, "--channels", 16, "--context", 16,
              "--steps", 3, "--eval-every", 0, "--sample-every", 0]
    program.run(*common, "--batch-size", 4, "--log", "one.jsonl")
    program.run(*common, "--batch-size", 1, "--total-batch-tokens", 64, "--log", "four.jsonl")
    for a, b in zip(program.log("one.jsonl"), program.log("four.jsonl")):
        expect(abs(a["loss"] / b["loss"] - 1) < 3e-6, f"step {a['step']}: {a['loss']} and {b['loss']}")


def test_logits_rows_changes_the_memory_but_not_the_losses(program):
    losses, planned = {}, {}
    for rows in (1, 7, 4096, 0):  # a micro-batch has 32 rows; 257 tokens are padded to 384 columns
        result = program.train("--steps", 3, "--logits-rows", rows, "--log", f"{rows}.jsonl", "--eval-every", 0, "--sample-every", 0)
        losses[rows] = [round(line["loss"], 5) for line in program.log(f"{rows}.jsonl")]
        planned[rows] = float(re.search(r"^memory: .*logits ([0-9.]+) MiB", result.stderr, re.MULTILINE)[1])
    expect(losses[1] == losses[7] == losses[4096] == losses[0], f"losses differ: {losses}")
    # Printed in tenths of a MiB, with 256 bytes for the losses: too coarse for this small model.
    expect(planned[4096] == planned[0] >= planned[7] >= planned[1], f"MiB of logits: {planned}")
    wide = ["--layers", 1, "--heads", 1, "--channels", 8, "--context", 1024, "--batch-size", 8, "--steps", 1,
            "--eval-every", 0, "--sample-every", 0]
    for rows, mib in ((1, 0.0), (2048, 3.0), (4096, 6.0), (8192, 12.0), (0, 12.0)):  # 384 columns of 4 bytes
        result = program.run("--train", "text.txt", *wide, "--logits-rows", rows)
        logits_mib = float(re.search(r"^memory: .*logits ([0-9.]+) MiB", result.stderr, re.MULTILINE)[1])
        expect(abs(logits_mib - mib) <= 0.1, f"--logits-rows {rows}: {logits_mib} MiB of logits, not {mib}")


def test_config_file_is_read_and_flags_override_it(program):
    (program.folder / "run.toml").write_text('train = "text.txt"\nlayers = 1\nheads = 2\nchannels = 16\n'
                                             "context = 16\nbatch-size = 2\nsteps = 5\nlr = 1e-3\n")
    program.run("--config", "run.toml", "--steps", 2, "--log", "run.jsonl", "--eval-every", 0)
    expect(len(program.log("run.jsonl")) == 2, "--steps did not override the file")
    (program.folder / "bad.toml").write_text("layrs = 1\n")
    program.fails("--config", "bad.toml", phrases=["layrs"], code=2)


def test_steps_0_evaluates_all_of_val(program):
    program.train("--steps", 2, "--out", "run", "--eval-every", 0)
    (program.folder / "val.txt").write_text(TEXT[:400])
    result = program.run("--init-from", "run/step_000002", "--val", "val.txt", "--steps", 0)
    name, value = result.stdout.split()
    expect(name == "val_loss" and 0 < float(value) < 10, result.stdout)
    other_batch = program.run("--init-from", "run/step_000002", "--val", "val.txt", "--steps", 0, "--batch-size", 3)
    expect(abs(float(other_batch.stdout.split()[1]) / float(value) - 1) < 1e-5, "the batch size changes val_loss")


def test_transformers_loads_a_checkpoint_and_computes_the_same_loss(program):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        raise Skip("transformers is not installed (PYTHON names the interpreter)")
    program.train("--steps", 2, "--out", "run", "--eval-every", 0)
    (program.folder / "val.txt").write_text(TEXT[:17 * 16 + 1])
    ours = float(program.run("--init-from", "run/step_000002", "--val", "val.txt", "--steps", 0).stdout.split()[1])
    script = ("import sys, torch\nfrom transformers import GPT2LMHeadModel\n"
              "order = [*range(33, 127), *range(161, 173), *range(174, 256)]\n"
              "order += [b for b in range(256) if b not in order]\n"
              "ids = [order.index(b) for b in open('val.txt', 'rb').read()]\n"
              "x = torch.tensor(ids[:-1]).view(17, 16); y = torch.tensor(ids[1:]).view(17, 16)\n"
              "model = GPT2LMHeadModel.from_pretrained('run/step_000002').eval()\n"
              "logits = model(x).logits\n"
              "print(torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), y.flatten()).item())\n")
    result = subprocess.run([python, "-c", script], cwd=program.folder, capture_output=True, text=True, timeout=300)
    expect(result.returncode == 0, result.stderr[-800:])
    theirs = float(result.stdout.split()[-1])
    expect(abs(ours / theirs - 1) < 2e-6, f"ours {ours}, transformers' {theirs}")


def test_standard_attention_matches_flash_attention(program):
    common = ["--steps", 3, "--eval-every", 0, "--sample-every", 0]
    program.train(*common, "--log", "flash.jsonl")
    program.train(*common, "--attention", "standard", "--log", "standard.jsonl")
    for a, b in zip(program.log("flash.jsonl"), program.log("standard.jsonl")):
        expect(abs(a["loss"] / b["loss"] - 1) < 3e-6, f"{a['loss']} and {b['loss']}")


def test_a_run_reads_real_text_with_the_gpt2_tokenizer(program):
    text, vocabulary = DATA / "text" / "tinyshakespeare.txt", DATA / "gpt2"
    if not text.exists() or not (vocabulary / "encoder.json").exists():
        raise Skip(f"no Tiny Shakespeare or GPT-2 vocabulary in {DATA}")
    result = program.run("--train", text, "--no-cache", "--tokenizer", vocabulary, "--layers", 1, "--heads", 1, "--channels", 16,
                         "--context", 32, "--batch-size", 1, "--steps", 1, "--eval-batches", 1, "--sample-every", 0)
    expect("vocabulary 50257" in result.stderr, result.stderr)


# ---- errors --------------------------------------------------------------------------------


def test_wrong_flags_are_named(program):
    program.fails("--trian", "x", phrases=["--trian"], code=2)
    program.fails("--steps", "many", phrases=["--steps", "many"], code=2)
    program.fails("--lr", "-1", phrases=["--lr"], code=2)
    program.fails("--dtype", "fp64", phrases=["--dtype", "fp64", "fp32", "bf16", "fp16"], code=2)
    program.fails("--schedule", "sine", phrases=["--schedule", "cosine", "linear", "constant", "wsd"], code=2)
    program.fails("--dropout", "1", phrases=["--dropout"], code=2)
    program.fails("--loss-scale", "2", "--steps", 1, phrases=["--loss-scale", "fp32", "fp16"], code=2)
    program.fails("--stochastic-rounding", "--steps", 1, phrases=["--stochastic-rounding", "fp32", "bf16"], code=2)
    program.fails("--decay-fraction", "0.5", "--steps", 9, phrases=["--decay-fraction", "cosine", "wsd"], code=2)
    program.fails("--schedule", "wsd", "--steps", 9, "--warmup", 9, phrases=["--warmup", "--decay-fraction"], code=2)
    program.fails("--layers", "0", phrases=["--layers"], code=2)
    program.fails("--resume", phrases=["--out"], code=2)
    program.fails("--grad-accum", "2", "--total-batch-tokens", "64", phrases=["--total-batch-tokens"], code=2)


def test_impossible_sizes_are_named(program):
    program.fails("--train", "text.txt", "--heads", 5, "--channels", 64, phrases=["--channels 64", "--heads 5"], code=2)
    program.fails("--train", "text.txt", "--model", "gpt9", phrases=["--model", "gpt9", "d12"], code=2)
    program.fails("--train", "text.txt", *SMALL, "--seq-len", 17, phrases=["--seq-len 17", "16"], code=2)
    program.fails("--train", "text.txt", *SMALL, "--total-batch-tokens", 50, phrases=["--total-batch-tokens 50", "32"], code=2)
    program.fails("--train", "text.txt", "--model", "d48", "--batch-size", 4096, "--steps", 1,
                  phrases=["device memory", "free"])
    large = 2 ** 40  # products of such sizes exceed 2^63
    program.fails("--train", "text.txt", "--batch-size", large, phrases=[f"--batch-size {large}", "at most"], code=2)
    program.fails("--train", "text.txt", *SMALL, "--grad-accum", large, phrases=[f"--grad-accum {large}", "at most"], code=2)
    program.fails("--train", "text.txt", "--layers", large, phrases=[f"--layers {large}", "at most 1000"], code=2)
    program.fails("--train", "text.txt", "--context", large, phrases=[f"--context {large}", "at most"], code=2)
    program.fails("--train", "text.txt", "--layers", 1000, "--heads", 64, "--channels", 8192, "--context", 16,
                  "--batch-size", 65535, phrases=["device memory"])
    (program.folder / "long.txt").write_text(TEXT * 50)
    program.fails("--train", "long.txt", "--layers", 1000, "--heads", 64, "--channels", 8192, "--context", 24000,
                  "--batch-size", 65535, phrases=["device memory", "PiB"])


def test_malformed_and_out_of_range_numbers_are_named(program):
    for flag, value in (("--lr", "nan"), ("--lr", "inf"), ("--grad-clip", "nan"), ("--final-lr-fraction", "nan"), ("--beta1", "1"),
                        ("--eps", "-1e-8"), ("--seed", "-1"), ("--seed", "2.5"), ("--steps", "1x"),
                        ("--batch-size", "99999999999999999999"), ("--batch-size", "0"), ("--warmup", "-1")):
        program.fails("--steps", 1, flag, value, phrases=[flag, f"'{value}'"], code=2)


def test_missing_and_empty_files_are_named(program):
    (program.folder / "empty.txt").write_text("")
    (program.folder / "short.txt").write_text("abc")
    program.fails("--train", "nowhere.txt", *SMALL, phrases=["nowhere.txt"])
    program.fails("--train", "empty.txt", *SMALL, phrases=["empty.txt"])
    program.fails("--train", "short.txt", *SMALL, phrases=["short.txt", "3 tokens"])
    program.fails("--train", "text.txt", "--tokenizer", "nodir", phrases=["nodir"])
    program.fails("--init-from", "nodir", "--train", "text.txt", phrases=["nodir"])
    (program.folder / "runs/step_000001").mkdir(parents=True)
    program.fails("--init-from", "runs", "--train", "text.txt", phrases=["--init-from runs contains no config.json and no valid"])
    program.fails("--config", "nofile.toml", phrases=["nofile.toml"], code=2)
    program.fails("--val", "text.txt", phrases=["--train"], code=2)


def write_bin(path, tokens, magic=20240520, version=1, count=None):
    header = [magic, version, len(tokens) if count is None else count] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}H", *tokens))


def test_invalid_token_files_are_named(program):
    good = [i % 250 for i in range(400)]
    write_bin(program.folder / "good.bin", good)
    program.run("--train", "good.bin", "--tokenizer", "bytes", *SMALL, "--steps", 1, "--eval-every", 0)
    write_bin(program.folder / "large.bin", good + [300])
    program.fails("--train", "large.bin", "--tokenizer", "bytes", *SMALL, phrases=["large.bin", "300", "257"])
    write_bin(program.folder / "magic.bin", good, magic=7)
    program.fails("--train", "magic.bin", *SMALL, phrases=["magic.bin"])
    write_bin(program.folder / "short.bin", good, count=500)
    program.fails("--train", "short.bin", *SMALL, phrases=["short.bin"])


def test_damaged_weights_are_named(program):
    program.train("--steps", 1, "--out", "run", "--eval-every", 0)
    weights = program.folder / "run/step_000001/model.safetensors"
    saved_bytes = weights.read_bytes()

    def load(phrases):
        program.fails("--init-from", "run/step_000001", "--val", "text.txt", "--steps", 0, phrases=phrases)

    weights.write_bytes(saved_bytes[:len(saved_bytes) - 100])
    load(["model.safetensors"])
    weights.write_bytes(saved_bytes.replace(b'"shape":[16,48]', b'"shape":[48,16]'))
    load(["model.safetensors", "c_attn.weight"])
    weights.write_bytes(saved_bytes)
    config = program.folder / "run/step_000001/config.json"
    config.write_text(config.read_text().replace("gpt2", "llama"))
    load(["config.json", "llama"])


def test_a_truncated_checkpoint_is_named_and_an_older_one_loaded(program):
    common = ["--steps", 4, "--eval-every", 0, "--sample-every", 0, "--out", "run", "--checkpoint-every", 2]
    program.train(*common)
    newest = program.folder / "run/step_000004/optimizer.safetensors"
    newest.write_bytes(newest.read_bytes()[:-8])
    result = program.train("--steps", 4, "--eval-every", 0, "--out", "run2", "--resume")
    expect("a new run starts at step 0" in result.stderr, result.stderr)
    result = program.train(*common, "--resume", "--stop-after", 1)
    expect("step_000004" in result.stderr and "resume: from run/step_000002" in result.stderr, result.stderr)


def test_outputs_of_another_run_are_not_overwritten(program):
    program.train("--steps", 1, "--out", "run", "--log", "run.jsonl", "--eval-every", 0)
    before = {path: path.read_bytes() for path in program.folder.rglob("*") if path.is_file()}
    program.fails("--train", "text.txt", *SMALL, "--steps", 1, "--out", "run", phrases=["--out run", "--resume"])
    program.fails("--train", "text.txt", *SMALL, "--steps", 1, "--log", "run.jsonl", phrases=["--log run.jsonl"])
    after = {path: path.read_bytes() for path in program.folder.rglob("*") if path.is_file()}
    expect(before == after, "files changed")


def test_a_diverging_run_stops(program):
    result = program.train("--steps", 60, "--lr", "1e30", "--warmup", 0, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 3,
                           "--eval-every", 0, "--sample-every", 0, "--log", "run.jsonl", code=1)
    expect("3 updates in a row were skipped" in result.stderr, result.stderr[-500:])
    expect(program.log("run.jsonl")[-1]["step"] < 60, "the run did not stop")


def test_a_run_on_several_ranks_is_refused_with_the_rank(program):
    environment = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    result = program.run("--steps", 1, environment=environment, code=1)
    expect("rank 1 of 2" in result.stderr, result.stderr)


def test_the_other_device_is_refused(program):
    if program.binary.parent.name != "host":
        raise Skip("the test is for the host build")
    program.fails("--device", "cuda", "--steps", 1, phrases=["--device cuda"])


def run_program_tests(tests, program):
    """Runs the tests of a module's globals(), each with `program` in a new folder. The command line has
    the folder of the build and an optional pattern.
    """
    binary = (ROOT / sys.argv[1] / program).resolve()
    return run_tests(tests, lambda folder: [Program(binary, folder)], *sys.argv[2:3])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
