#!/usr/bin/env python3
"""Tests what a first user of train_gpt2 does: token files without a tokenizer, evaluation with few flags,
little memory, runs that diverge, an installed vocabulary, whether a run fits a GPU, one config for two programs.

    python3 test/test_first_run_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import greedy  # noqa: E402
from runner import Skip, expect  # noqa: E402
from test_programs import SMALL, TEXT, run_program_tests, write_bin  # noqa: E402

IDS = [(7 * i + i // 50) % 250 for i in range(1500)]


def train_on_tokens(program, *arguments, code=0):
    write_bin(program.folder / "tokens.bin", IDS)
    return program.run("--train", "tokens.bin", *SMALL, "--steps", 2, *arguments, code=code)


def test_token_files_need_no_tokenizer(program):
    result = train_on_tokens(program, "--log", "run.jsonl", "--out", "run")
    expect("vocabulary 50257" in result.stderr and "samples are skipped" in result.stderr, result.stderr)
    config = json.loads((program.folder / "run/step_000002/config.json").read_text())
    expect(config["vocab_size"] == 50257 and config["eos_token_id"] == 50256, config)
    result = train_on_tokens(program, "--vocab-size", 300)
    expect("vocabulary 300" in result.stderr, result.stderr)
    result = train_on_tokens(program, "--vocab-size", 200, code=1)
    expect("tokens.bin" in result.stderr and "200" in result.stderr, result.stderr)


def test_without_a_tokenizer_the_losses_are_the_same(program):
    common = ["--eval-every", 0, "--sample-every", 0, "--log"]
    train_on_tokens(program, "--tokenizer", "bytes", *common, "bytes.jsonl")
    train_on_tokens(program, "--vocab-size", 257, *common, "ids.jsonl")
    losses = [[line["loss"] for line in program.log(name)] for name in ("bytes.jsonl", "ids.jsonl")]
    expect(losses[0] == losses[1] and len(losses[0]) == 2, losses)


def test_vocab_size_is_for_token_files_only(program):
    program.fails("--train", "text.txt", "--vocab-size", 300, phrases=["--vocab-size", "text.txt is a text", "--tokenizer"], code=2)
    program.fails("--vocab-size", 300, phrases=["--vocab-size", "toy language"], code=2)
    program.fails("--train", "text.txt", "--vocab-size", 300, "--tokenizer", "bytes", phrases=["--vocab-size", "--tokenizer"],
                  code=2)
    result = train_on_tokens(program, "--final-samples-out", "samples.txt", code=2)
    expect("--final-samples-out" in result.stderr and "--tokenizer" in result.stderr, result.stderr)
    result = train_on_tokens(program, "--eval", "perplexity:text.txt", code=1)
    expect("text.txt" in result.stderr and "--tokenizer" in result.stderr, result.stderr)


def test_weights_bring_their_tokenizer(program):
    program.train("--steps", 1, "--out", "run", "--eval-every", 0, "--sample-every", 0)
    model = "run/step_000001"
    write_bin(program.folder / "val.bin", IDS)
    result = program.run("--init-from", model, "--val", "val.bin", "--steps", 0)
    expect(result.stdout.startswith("val_loss "), result.stdout)
    (program.folder / "words.txt").write_text(TEXT[:500])
    with_tokenizer = program.run("--init-from", model, "--val", "words.txt", "--steps", 0, "--tokenizer", "bytes")
    without = program.run("--init-from", model, "--val", "words.txt", "--steps", 0)
    expect(with_tokenizer.stdout == without.stdout, without.stdout)
    for file in ("tokenizer.json", "vocab.json", "merges.txt"):  # without them, the vocabulary of the weights
        (program.folder / model / file).unlink(missing_ok=True)
    bare = program.run("--init-from", model, "--val", "val.bin", "--steps", 0)
    expect(bare.stdout == result.stdout, bare.stdout)


def test_the_log_receives_val_loss_without_training(program):
    program.train("--steps", 1, "--out", "run", "--eval-every", 0, "--sample-every", 0)
    result = program.run("--init-from", "run/step_000001", "--val", "text.txt", "--steps", 0, "--log", "eval.jsonl")
    lines = program.log("eval.jsonl")
    expect(len(lines) == 1 and lines[0]["step"] == 0, lines)
    expect(f"val_loss {lines[0]['val_loss']:.6f}\n" == result.stdout, (lines, result.stdout))


def test_an_untrained_model_is_evaluated_in_every_dtype(program):
    losses = [float(program.run("--steps", 0, "--dtype", dtype).stdout.split()[1]) for dtype in ("fp32", "bf16", "fp16")]
    expect(max(losses) - min(losses) < 1e-3 * losses[0], losses)


def test_evaluation_tasks_work_with_the_toy_language(program):
    (program.folder / "toy.txt").write_text("the king rules . " * 20)
    result = program.run("--steps", 2, "--batch-size", 2, "--eval-every", 0, "--sample-every", 0, "--eval",
                         "perplexity:toy.txt")
    expect("token_perplexity" in result.stdout and "word_perplexity" in result.stdout, result.stdout)
    (program.folder / "other.txt").write_text("the zebra .")
    program.fails("--steps", 2, "--eval", "perplexity:other.txt", phrases=["other.txt", "zebra"])


def test_perplexity_of_a_token_file_is_that_of_its_text(program):
    program.train("--steps", 2, "--out", "run", "--eval-every", 0, "--sample-every", 0)
    subprocess.run([str(program.binary.parent / "tokenize"), "--tokenizer", "bytes", "text.txt", "--split-on", "", "-o",
                    "text.bin"], cwd=program.folder, check=True, capture_output=True)
    result = program.run("--init-from", "run/step_000002", "--steps", 0, "--eval", "perplexity:text.txt,perplexity:text.bin")
    values = {}
    for line in result.stdout.splitlines():
        fields = line.split()
        if fields[0] == "perplexity":
            values.setdefault(fields[-1], {})[fields[1]] = fields[2]
    text, tokens = values["text.txt"], values["text.bin"]
    expect(tokens == {key: text[key] for key in ("token_nll", "token_perplexity", "bits_per_byte")}, values)
    program.fails("--init-from", "run/step_000002", "--steps", 0, "--eval", "wikitext:text.bin",
                  phrases=["text.bin is a token file", "perplexity:text.bin"])


def test_resume_uses_the_batch_of_the_checkpoint(program):
    def train(*arguments):
        return program.run("--train", "text.txt", *SMALL[:-2], "--eval-every", 0, "--sample-every", 0, "--out", "run",
                           *arguments).stderr
    train("--batch-size", 3, "--grad-accum", 2, "--steps", 2, "--stop-after", 1)
    resumed = train("--resume", "--steps", 2, "--stop-after", 1)
    expect("(3 sequences x 16 tokens x 2 micro-batches)" in resumed and "was" not in resumed.partition("resume:")[2], resumed)
    changed = train("--resume", "--steps", 4, "--batch-size", 2)
    expect("(2 sequences x 16 tokens x 2 micro-batches)" in changed and "--batch-size was 3, it is 2 now" in changed, changed)


def test_a_batch_that_the_hint_names_fits(program):
    """Under `ulimit -v` the run must name a batch that fits, and that batch must run."""
    if program.binary.parent.name != "host":
        raise Skip("the memory is that of a GPU")
    limit = 3 << 29
    threads = {"LLMC_HOST_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}  # stacks need address space too

    def run(*arguments):
        return subprocess.run([str(program.binary), "--train", "text.txt", "--steps", "1", "--layers", "4", "--heads", "4",
                               "--channels", "256", "--context", "512", "--eval-every", "0", "--sample-every", "0", *arguments],
                              cwd=program.folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **threads},
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    result = run("--batch-size", "4096")
    match = re.search(r"use --batch-size (\d+), which fits", result.stderr)
    expect(result.returncode == 1 and match, result.stderr[-600:])
    result = run("--batch-size", match[1])
    expect(result.returncode == 0, f"--batch-size {match[1]}: {result.stderr[-600:]}")


def test_a_diverged_loss_is_printed_without_a_sign(program):
    result = program.train("--steps", 6, "--lr", "1e30", "--warmup", 0, "--grad-clip", 0, "--eval-every", 2,
                           "--sample-every", 0, "--on-nan", "skip")
    expect("loss nan" in result.stderr and "-nan" not in result.stderr, result.stderr[-800:])


def test_a_device_is_no_training_text(program):
    program.fails("--train", "/dev/zero", *SMALL, "--steps", 1, phrases=["/dev/zero is a device"])


def call(program, name, *arguments, code=0, **environment):
    binary = program.binary.parent / name
    if not binary.exists():
        raise Skip(f"this build has no {name}")
    variables = {key: value for key, value in os.environ.items() if key not in ("LLMC_DATA", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME")}
    done = subprocess.run([binary, *map(str, arguments)], cwd=program.folder, capture_output=True, text=True, timeout=300,
                          env={**variables, "HOME": str(program.folder / "home"), **environment})
    expect(done.returncode == code, f"{name} {arguments}: {done.returncode}: {done.stderr[-500:]}")
    return done


def test_tokenizer_gpt2_is_an_installed_vocabulary(program):
    greedy.write_model(program.folder / "model", layers=2, heads=3, channels=24, context=40)
    programs = {"tokenize": ["text.txt", "-o", "a.bin", "--force"], "train_gpt2": ["--train", "text.txt", *SMALL, "--steps", 1],
                "infer_gpt2": ["-m", "model", "-p", "x", "-n", 2]}
    for name, arguments in programs.items():
        error = call(program, name, "--tokenizer", "gpt2", *arguments, code=1).stderr
        expect('there is no tokenizer "gpt2"' in error and "hint: scripts/get_gpt2.sh downloads it" in error, error)
    # 256 bytes and <|endoftext|>, as the model has, in place of GPT-2's tokens.
    program.train("--steps", 1, "--out", "run", "--eval-every", 0, "--sample-every", 0)
    vocabulary = [program.folder / "run/step_000001" / name for name in ("vocab.json", "merges.txt")]
    cache = "home/.cache/huggingface/hub/models--openai-community--gpt2/snapshots/607a"
    for folder in (cache, "env/gpt2", "models/gpt2-124M", "data/gpt2", "gpt2"):
        (program.folder / folder).mkdir(parents=True)
        for file in vocabulary:
            (program.folder / folder / file.name).write_bytes(file.read_bytes())
        environment = {"LLMC_DATA": str(program.folder / "env")} if folder.startswith("env") else {}
        for name, arguments in programs.items():
            error = call(program, name, "--tokenizer", "gpt2", *arguments, **environment).stderr
            notice = [line for line in error.splitlines() if line.startswith("tokenizer gpt2: the vocabulary in ")]
            expect(len(notice) == (folder != "gpt2") and all(line.endswith(folder) for line in notice), f"{folder}: {error}")


def test_gpu_memory_tells_whether_a_run_fits(program):
    run = ["--train", "text.txt", "--model", "d12", "--context", 1024, "--seq-len", 1024, "--dtype", "bf16", "--dry-run"]
    fits = program.run(*run, "--gpu-memory", 24)
    batch = int(re.search(r"\nfits: the run needs [0-9.]+ MiB with --batch-size (\d+); a GPU of 24 GiB has 22528.0 MiB for it, "
                          "and 2048.0 MiB stay free\n$", fits.stdout)[1])
    for more in ([], ["--ranks", 4, "--pp", 2, "--grad-accum", 4, "--tp", 2], ["--ranks", 2, "--zero", 3]):
        done = program.run(*run, *more, "--batch-size", 16 * batch, "--gpu-memory", 24, code=1)
        expect("train_gpt2: the run does not fit: " in done.stderr and "MiB with --batch-size" in done.stderr, done.stderr)
        smaller = int(re.search(r"--batch-size (\d+), which fits", done.stderr)[1])
        flags = [*more, "--zero", 3] if "use --zero 3 and --batch-size" in done.stderr else more
        program.run(*run, *flags, "--batch-size", smaller, "--gpu-memory", 24)
        program.run(*run, *flags, "--batch-size", smaller + 1, "--gpu-memory", 24, code=1)
    error = program.run(*run, "--ranks", 8, "--zero", 0, "--batch-size", 1, "--gpu-memory", 3.5, code=1).stderr
    expect("hint: use --zero" in error, error)
    expect("not even one short sequence" in program.run(*run, "--gpu-memory", 0.5, code=1).stderr, "0.5 GiB")
    program.fails(*run[:-1], "--gpu-memory", 24, phrases=["--gpu-memory needs --dry-run"], code=2)


def test_infer_reads_a_config_of_the_trainer(program):
    (program.folder / "run.toml").write_text('train = "text.txt"\nlr = 1e-3\nsteps = 1\nout = "run"\nseq-len = 16\n'
                                             'dtype = "bf16"\n')
    program.run("--config", "run.toml", *SMALL, "--eval-every", 0, "--sample-every", 0)
    done = call(program, "infer_gpt2", "--config", "run.toml", "-p", "x", "-n", 2)
    notice = "--config run.toml is for train_gpt2: its out, run, is --model; ignored: train, lr, steps, seq-len\n"
    expect(done.stderr.count(notice) == 1 and ", bf16\n" in done.stderr, done.stderr)
    done = call(program, "infer_gpt2", "--config", "run.toml", "-m", "run/step_000001", "-p", "x", "-n", 2)
    expect("for train_gpt2: ignored: train, lr, steps, out, seq-len\n" in done.stderr, done.stderr)
    done = call(program, "infer_gpt2", "--config", "run.toml", "-p", "x", "-n", 2, "--quiet")
    expect("run.toml" not in done.stderr, done.stderr)
    (program.folder / "mine.toml").write_text('model = "run"\ntokens = 2\nseed = 3\n')
    expect("mine.toml" not in call(program, "infer_gpt2", "--config", "mine.toml", "-p", "x").stderr, "a config of infer_gpt2")
    (program.folder / "size.toml").write_text('model = "d12"\n')
    error = call(program, "infer_gpt2", "--config", "size.toml", "-p", "x", code=2).stderr
    expect("--model is required" in error and "d12" not in error, error)
    (program.folder / "wrong.toml").write_text('lr = 1\ntoknes = 2\nmodel = "d12"\n')
    error = call(program, "infer_gpt2", "--config", "wrong.toml", "-m", "run", "-p", "x", code=2).stderr
    expect("--config wrong.toml: there is no flag --toknes; did you mean --tokens?" in error, error)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
