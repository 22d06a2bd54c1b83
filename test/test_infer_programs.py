#!/usr/bin/env python3
"""Tests infer_gpt2 from the command line: its output, equal text from equal seeds, greedy tokens against
transformers, and its errors.

    python3 test/test_infer_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import codecs
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import greedy  # noqa: E402
from runner import Skip, expect  # noqa: E402
from test_programs import DATA, check_help, run_program_tests  # noqa: E402

SHAPE = {"layers": 2, "heads": 3, "channels": 24, "context": 40}


def model(program, name="model", **changes):
    return greedy.write_model(program.folder / name, **{**SHAPE, **changes})


def generate(program, *arguments, stdin=None):
    """The object that --json prints, without its timings."""
    done = subprocess.run([str(program.binary), *map(str, arguments), "--json"], cwd=program.folder,
                          input=stdin, capture_output=True, timeout=300)
    expect(done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-500:]}")
    lines = done.stdout.decode().splitlines()
    expect(len(lines) == 1, f"{len(lines)} lines on stdout")
    result = json.loads(lines[0])
    timings = result.pop("timings")
    expect(list(timings) == ["prompt_ms", "generate_ms", "tokens_per_second"], timings)
    return result


def stream(program, *arguments):
    """Returns (pieces of standard output as they were read, standard error)."""
    with subprocess.Popen([str(program.binary), *map(str, arguments)], cwd=program.folder, bufsize=0,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        pieces = list(iter(lambda: os.read(running.stdout.fileno(), 1 << 16), b""))
        messages = running.stderr.read().decode()
    expect(running.returncode == 0, f"exit code {running.returncode}: {messages[-500:]}")
    return pieces, messages


# ---- valid use -----------------------------------------------------------------------------


def test_help_names_every_flag_with_its_default(program):
    check_help(program)
    text = " ".join(program.run("--help").stdout.split())
    for flag in ("-m,--model", "-p,--prompt", "-n,--tokens", "--temp,--temperature"):
        expect(flag in text, f"{flag} is missing")


def test_json_has_the_generated_text_and_ids(program):
    result = generate(program, "-m", model(program), "-p", "The king", "-n", 20, "--seed", 5)
    expect(list(result) == ["prompt_tokens", "tokens", "text", "finish_reason", "seed", "ids", "id", "prompt", "sample",
                             "logprobs"], list(result))
    expect(result["prompt_tokens"] == 8 and result["tokens"] == 20 and len(result["ids"]) == 20, result)
    expect(result["finish_reason"] == "length" and result["seed"] == 5, result)
    expect(result["text"] == greedy.decode(result["ids"]).decode(errors="replace"), "the text is not that of the ids")


def test_streamed_text_equals_the_json_text(program):
    folder = model(program, context=200)
    for seed in range(3):  # random bytes: most of them are not UTF-8
        common = ["-m", folder, "-p", "x", "-n", 150, "--temp", 3, "--ignore-eos", "--seed", seed]
        pieces, messages = stream(program, *common)
        expect(b"".join(pieces).decode() == generate(program, *common)["text"], f"seed {seed} differs")
        for word in ("prompt: 1 tokens", "generated: 150 tokens", "tok/s", "weights", "key-value cache"):
            expect(word in messages, f"'{word}' is not in {messages}")


def test_characters_are_never_split(program):
    """The model writes characters of two to four bytes, one byte per token."""
    text = "\u00e9\u20ac\U0001f600"
    (program.folder / "text.txt").write_text(text * 300, encoding="utf-8")
    trainer = program.binary.parent / "train_gpt2"
    subprocess.run([trainer, *"--train text.txt --layers 1 --heads 2 --channels 32 --context 64 --batch-size 4 "
                    "--steps 60 --lr 1e-2 --warmup 2 --eval-every 0 --sample-every 0 --out run".split()],
                   cwd=program.folder, check=True, capture_output=True, timeout=300)
    common = ["-m", "run/step_000060", "-p", text, "--temp", 0, "-n"]
    for count in range(9, 19):
        pieces, _ = stream(program, *common, count)
        for piece in pieces:
            piece.decode()  # strict: throws if a character is split
        whole = greedy.decode(generate(program, *common, count)["ids"])
        expect((text * 2).encode().startswith(whole), "the model has not learned its text")
        expect(b"".join(pieces).decode() == whole.decode(errors="replace"), f"after {count} tokens")
        if count < 18:
            incremental = codecs.getincrementaldecoder("utf-8")()
            held_back = incremental.decode(whole) + "\ufffd" * (incremental.getstate()[0] != b"")
            expect(b"".join(pieces).decode() == held_back, f"the end after {count} tokens")


def expect_equal_text(ours, theirs, where):
    """The ids are equal, and their log-probabilities within 1e-4."""
    expect(ours["ids"] == theirs["ids"], f"{where}: {ours['ids']} not {theirs['ids']}")
    expect(len(ours["logprobs"]) == len(theirs["logprobs"]), f"{where}: {len(ours['logprobs'])} log-probabilities")
    worst = max(abs(a - b) for a, b in zip(ours["logprobs"], theirs["logprobs"]))
    expect(worst < 1e-4, f"{where}: a log-probability differs by {worst:.2g}")


def test_greedy_tokens_equal_those_recorded_from_transformers(program):
    folder = greedy.write_model(program.folder / "model", **greedy.FIXTURE_SHAPE, seed=greedy.FIXTURE_SEED)
    cases = json.loads(greedy.FIXTURE.read_text())
    expect(len(cases) == 5, "not five prompts")
    for case in cases:
        expect(case["margin"] > 1e-3 and len(case["ids"]) == 64, "write the fixture again")
        result = generate(program, "-m", folder, "-p", case["prompt"], "-n", 64, "--temp", 0, "--ignore-eos")
        expect_equal_text(result, case, repr(case["prompt"]))


def test_greedy_tokens_equal_those_of_transformers(program):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        raise Skip("transformers is not installed (PYTHON names the interpreter)")
    num_compared = 0
    for seed, (layers, heads, head_size) in enumerate(((3, 5, 8), (2, 3, 24), (1, 2, 80), (2, 1, 128)), 10):
        folder = model(program, f"model{seed}", layers=layers, heads=heads, channels=heads * head_size, context=90,
                       seed=seed)
        prompts = [f"{text} {seed}" for text in greedy.PROMPTS]
        done = subprocess.run([python, greedy.__file__, folder, "64"], capture_output=True, text=True, timeout=300,
                              input=json.dumps([greedy.encode(prompt) for prompt in prompts]))
        expect(done.returncode == 0, done.stderr[-800:])
        for prompt, theirs in zip(prompts, json.loads(done.stdout)):
            if theirs["margin"] <= 1e-3:
                continue  # the margin is within the rounding of fp32
            ours = generate(program, "-m", folder, "-p", prompt, "-n", 64, "--temp", 0, "--ignore-eos")
            expect_equal_text(ours, theirs, f"seed {seed}, {prompt!r}")
            num_compared += 1
    expect(num_compared >= 15, f"only {num_compared} of 20 texts had a large enough margin")


def test_equal_seeds_give_equal_text(program):
    common = ["-m", model(program), "-p", "a", "--ignore-eos", "-n"]
    ids = {seed: generate(program, *common, 30, "--seed", seed)["ids"] for seed in (1, 2)}
    expect(ids[1] == generate(program, *common, 30, "--seed", 1)["ids"], "the same seed gave another text")
    expect(ids[1] != ids[2], "two seeds gave one text")
    expect(ids[1][:10] == generate(program, *common, 10, "--seed", 1)["ids"], "--tokens changes the text")
    default = generate(program, *common, 30)
    expect(default["seed"] == 1337 and default == generate(program, *common, 30, "--seed", 1337), "not 1337")


def test_top_k_1_and_temperature_0_are_greedy(program):
    common = ["-m", model(program), "-p", "a", "-n", 30, "--ignore-eos"]
    expected = generate(program, *common, "--temp", 0)["ids"]
    expect(generate(program, *common, "--top-k", 1, "--seed", 3)["ids"] == expected, "top-k 1")
    expect(generate(program, *common, "--temperature", "1e-6", "--seed", 4)["ids"] == expected, "temperature 1e-6")
    expect(generate(program, *common, "--temp", 3, "--seed", 4)["ids"] != expected, "temperature 3")


def test_half_precision_generation_repeats(program):
    common = ["-m", model(program), "-p", "a", "-n", 20, "--temp", 0, "--ignore-eos", "--dtype"]
    for dtype in ("bf16", "fp16"):
        result = generate(program, *common, dtype)
        expect(result["tokens"] == 20 and result == generate(program, *common, dtype), result)


def test_prompts_are_read_from_flags_files_and_standard_input(program):
    folder = model(program)
    expected = generate(program, "-m", folder, "-p", "two\nlines\n", "-n", 5)
    expect(expected == generate(program, "-m", folder, "-p", "-", "-n", 5, stdin=b"two\nlines\n"), "stdin differs")
    (program.folder / "run.toml").write_text('model = "model"\nprompt = "one line"\ntokens = 9\n')
    expect(generate(program, "--config", "run.toml", "--tokens", 5) ==
           generate(program, "-m", folder, "-p", "one line", "-n", 5), "--config differs")
    start = generate(program, "--model", folder, "-n", 5)
    expect(start["prompt_tokens"] == 1, "an empty prompt is <|endoftext|> alone")
    expect(start == generate(program, "-m", folder, "-p", "", "-n", 5), "no prompt and an empty one differ")
    expect(start == generate(program, "-m", folder, "-p", "-", "-n", 5, stdin=b""), "empty stdin differs")
    (program.folder / "prompt.txt").write_text("two\nlines\n")
    expect(expected == generate(program, "-m", folder, "-f", "prompt.txt", "-n", 5), "--file differs")
    broken = generate(program, "-m", folder, "-p", "-", "-n", 5, stdin=b"\xff\xe2\x82")
    expect(broken["prompt_tokens"] == 3, "not one token per byte")


def test_generation_ends_at_the_context(program):
    common = ["-m", model(program), "-p", "12345678", "--ignore-eos", "-n"]
    full = generate(program, *common, 1000)
    expect(full["finish_reason"] == "context" and full["tokens"] == 32, full)
    expect(generate(program, *common, 32)["finish_reason"] == "length", "the finish reason is not the requested length")
    one = generate(program, "-m", "model", "-p", "x" * 39, "-n", 5)
    expect(one["tokens"] == 1 and one["finish_reason"] == "context", one)
    program.fails("-m", "model", "-p", "x" * 40, phrases=["--prompt has 40 tokens", "context is 40", "at most 39"], code=2)


def test_generation_ends_at_end_of_text(program):
    common = ["-m", model(program), "-p", "a", "--temp", 0, "-n", 30]
    plain = generate(program, *common, "--ignore-eos")["ids"]
    end = next(i for i in range(3, 30) if plain[i] not in plain[:i])
    model(program, eos_token_id=plain[end])
    result = generate(program, *common)
    expect(result["finish_reason"] == "stop" and result["ids"] == plain[:end], result)
    expect(result["tokens"] == end, "the end itself is not counted")
    ignored = generate(program, *common, "--ignore-eos")
    expect(ignored["finish_reason"] == "length" and ignored["ids"] == plain, ignored)


def test_each_end_token_of_both_configs_ends_the_text(program):
    folder = model(program)
    common = ["-m", folder, "-p", "a", "--temp", 0, "-n", 5, "--logit-bias", "64=1000"]
    expect(generate(program, *common)["ids"] == [64] * 5, "the bias makes 64 certain")
    for ends in ({"eos_token_id": [256, 64]}, {"eos_token_id": 64}):
        (folder / "generation_config.json").write_text(json.dumps(ends))
        result = generate(program, *common)
        expect(result["finish_reason"] == "stop" and result["ids"] == [], result)
    (folder / "generation_config.json").write_text('{"eos_token_id": 9}')
    model(program, eos_token_id=[256, 64])
    expect(generate(program, *common)["finish_reason"] == "stop", "the end tokens of config.json count too")
    expect(generate(program, *common, "--ignore-eos")["tokens"] == 5, "--ignore-eos is for all of them")


def test_ids_without_a_token_are_never_drawn(program):
    folder = model(program, "padded", vocabulary=320)
    common = ["-m", folder, "--tokenizer", "bytes", "-p", "a", "-n", 20, "--ignore-eos"]
    for flags in (["--temp", 0], ["--temp", 100], ["--temp", 100, "--quant", "w8a8", "--kv-dtype", "int8"]):
        ids = generate(program, *common, *flags)["ids"]
        expect(len(ids) == 20 and max(ids) < 257, ids)
    done = program.run(*common)
    expect("padded has 63 embedding rows without a token of the tokenizer bytes" in done.stderr, done.stderr)
    program.fails(*common, "--logit-bias", "257=1", phrases=["--logit-bias names token 257", "0 to 256"], code=2)
    model(program, "padded", vocabulary=320, eos_token_id=[300, 256])
    done = program.run("-m", folder, "--tokenizer", "bytes", "-n", 2)  # an empty prompt starts with an end token
    expect("eos_token_id 300 is ignored: the tokenizer has 257 tokens" in done.stderr, done.stderr)
    for vocabulary in (256, 514):
        folder = model(program, "other", vocabulary=vocabulary)
        program.fails("-m", folder, "--tokenizer", "bytes", phrases=[f"{vocabulary} tokens", "bytes has 257"])


def test_weights_of_other_programs_are_used_or_named(program):
    folder = model(program)
    text = generate(program, "-m", folder, "-p", "a", "-n", 4)["ids"]
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    header = int.from_bytes(content[:8], "little")
    renamed = content[8:8 + header].replace(b'"transformer.', b'"module._orig_mod.')
    weights.write_bytes(len(renamed).to_bytes(8, "little") + renamed + content[8 + header:])
    expect(generate(program, "-m", folder, "-p", "a", "-n", 4)["ids"] == text, "prefixes are removed")
    weights.rename(folder / "pytorch_model.bin")
    (folder / "tokenizer.json").write_text("{")
    program.fails("-m", folder, "-p", "a", phrases=["only in PyTorch's format, pytorch_model.bin", "python3 -c"])
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (folder / "tokenizer.json").unlink()
    program.fails("-m", folder, "-p", "a", phrases=["model.safetensors is a Git LFS pointer", "git lfs pull"])


def test_tokenizers_are_loaded_from_flags_and_models(program):
    (program.folder / "words").write_text("the\nking\nis\n.\n")
    folder = model(program, "small", vocabulary=4)
    result = generate(program, "-m", folder, "--tokenizer", "words:words", "-p", "the king", "-n", 4, "--ignore-eos")
    words = "the king is .".split()
    expect(result["text"] == "".join(" " + words[i] for i in result["ids"]), result)
    program.fails("-m", folder, phrases=["small", "vocabulary of 4", "--tokenizer"])
    program.fails("-m", folder, "--tokenizer", "bytes", phrases=["small", "4 tokens", "bytes has 257"])
    vocabulary = DATA / "gpt2"
    if not (vocabulary / "encoder.json").exists():
        raise Skip("GPT-2's vocabulary is missing (words and bytes were tested)")
    folder = model(program, "large", vocabulary=50257, layers=1, heads=1, channels=8)
    named = generate(program, "-m", folder, "--tokenizer", vocabulary, "-p", "The quick brown fox", "-n", 8)
    expect(named["prompt_tokens"] == 4, named)
    for name in ("encoder.json", "vocab.bpe"):
        shutil.copy(vocabulary / name, folder)
    expect(generate(program, "-m", folder, "-p", "The quick brown fox", "-n", 8) == named, "files in --model")
    (folder / "vocab.bpe").unlink()
    program.fails("-m", folder, phrases=["encoder.json but no vocab.bpe"])


# ---- errors --------------------------------------------------------------------------------


def test_errors_name_the_flag(program):
    folder = model(program)
    for flag, value in (("--tokens", "0"), ("-n", "-3"), ("-n", "1.5"), ("--temp", "-1"), ("--temp", "nan"),
                        ("--temp", "hot"), ("--top-k", "-1"), ("--seed", "-2"), ("--seed", "2.5")):
        name = "--tokens" if flag == "-n" else flag
        program.fails("-m", folder, flag, value, phrases=[name, value], code=2)
    program.fails("-m", folder, "--dtype", "fp64", phrases=["--dtype", "fp64", "fp32", "bf16", "fp16"], code=2)
    program.fails("-m", folder, "--tempo", 1, phrases=["--tempo"], code=2)
    program.fails("-p", "text", phrases=["--model"], code=2)
    (program.folder / "bad.toml").write_text("promt = 1\n")
    program.fails("-m", folder, "--config", "bad.toml", phrases=["promt"], code=2)


def test_errors_name_the_missing_or_damaged_model(program):
    program.fails("-m", "nowhere", phrases=["nowhere", "does not exist"])
    (program.folder / "run/step_000002").mkdir(parents=True)
    program.fails("-m", "run", phrases=["run", "config.json", "run/step_000002"])
    folder = model(program)
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    program.fails("-m", folder, phrases=["model.safetensors", "model"])
    weights.write_bytes(content[:-50])
    program.fails("-m", folder, phrases=["model.safetensors"])
    weights.write_bytes(content.replace(b"ln_f.bias", b"ln_g.bias"))
    program.fails("-m", folder, phrases=["ln_f.bias", "ln_g.bias"])
    weights.write_bytes(content[:-4] + b"\x00\x00\xc0\x7f")  # a NaN
    for form in ([], ["--json"], ["--no-stream"], ["--jsonl", "--samples", 3]):
        result = program.run("-m", folder, "-p", "a", *form, code=1)
        expect(result.stderr.count("not finite") == 1, result.stderr)
        objects = [json.loads(line) for line in result.stdout.splitlines()] if "--json" in str(form) else []
        expect(all(list(item) == ["id", "prompt", "error"] and "not finite" in item["error"] for item in objects), objects)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("gpt2", "llama"))
    program.fails("-m", folder, phrases=["config.json", "llama"])


def test_a_full_disk_is_an_error(program):
    if not Path("/dev/full").exists():
        raise Skip("this machine has no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(program.binary), "-m", str(model(program)), "-n", "3", "--json"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=300)
    expect(done.returncode == 1 and "stdout" in done.stderr, done.stderr)


def test_the_host_build_rejects_device_cuda(program):
    if program.binary.parent.name != "host":
        raise Skip("tests only the host build")
    program.fails("-m", model(program), "--device", "cuda", phrases=["--device cuda"])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "infer_gpt2"))
