#!/usr/bin/env python3
"""Tests the PyTorch programs that ours are compared with (dev/peers). A comparison needs the same
weights, the same batches and the same optimizer.

    PYTHON=python3 python3 test/test_peers.py build/host [PATTERN]

PYTHON names an interpreter with PyTorch and NumPy; without them, the tests are skipped. Prints
`ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "dev/peers"
DATA = Path(os.environ.get("LLMC_DATA", ROOT.parent / "shared/data"))
PYTHON = os.environ.get("PYTHON", "python3")
SIZES = ["--layers", 2, "--heads", 3, "--channels", 48, "--context", 32, "--vocabulary", 300]


def require_modules(modules):
    if subprocess.run([PYTHON, "-c", f"import {modules}"], capture_output=True).returncode != 0:
        raise Skip(f"{modules} cannot be imported (PYTHON names the interpreter)")


def run(command, folder, code=0):
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=600)
    expect(done.returncode == code, f"{command[0]}: exit code {done.returncode}, not {code}: {done.stderr[-800:]}")
    return done


def peer(folder, script, *arguments, code=0):
    return run([PYTHON, PEERS / script, *arguments], folder, code)


def losses(path):
    return [line["loss"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line]


def make_inputs(folder, tokens):
    peer(folder, "make_data.py", "--out", "data", "--tokens", tokens, "--vocabulary", 300)
    peer(folder, "make_weights.py", "--out", "gpt2", *SIZES)


def train_ours(program, folder, log, *arguments):
    run([program, "--init-from", "gpt2", "--train", "data/tokens.bin", "--val", "data/tokens.bin",
         "--tokenizer", "words:data/words.txt", "--eval-every", 0, "--sample-every", 0, "--log", log, *arguments], folder)
    return losses(folder / log)


def train_theirs(folder, log, *arguments):
    peer(folder, "train_pytorch.py", "--init-from", "gpt2", "--train", "data/tokens.bin", "--device", "cpu",
         "--compile", 0, "--log", log, *arguments)
    return losses(folder / log)


# 24 windows and 160 samples: the run covers the window order of several epochs.
RUN = ["--batch-size", 4, "--grad-accum", 2, "--steps", 20, "--lr", 1e-3, "--seed", 7]


def test_losses_equal_those_of_pytorch_in_fp32(program, folder):
    require_modules("torch, numpy")
    make_inputs(folder, 24 * 32 + 5)
    ours, theirs = train_ours(program, folder, "ours.jsonl", *RUN), train_theirs(folder, "theirs.jsonl", *RUN)
    expect(len(ours) == len(theirs) == 20, f"{len(ours)} and {len(theirs)} steps")
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    expect(worst < 2e-5, f"losses differ by {worst:.1e}: {ours}, {theirs}")
    other = train_theirs(folder, "other.jsonl", *RUN[:-1], 8)
    expect(max(abs(a / b - 1) for a, b in zip(ours, other)) > 1e-3, "different batches gave the same losses")


def test_losses_equal_those_of_pytorch_on_real_text(program, folder):
    """200 steps on Tiny Shakespeare with GPT-2's tokens. Rounding differences grow with every step."""
    require_modules("torch, numpy")
    if not os.environ.get("LLMC_LONG"):
        raise Skip("takes minutes; make test-long runs it")
    text, gpt2 = DATA / "text/tinyshakespeare.txt", DATA / "gpt2"
    if not text.exists() or not gpt2.exists():
        raise Skip(f"{DATA} has no text/tinyshakespeare.txt or no gpt2 (LLMC_DATA names another folder)")
    run([program.parent / "tokenize", "--tokenizer", gpt2, text, "-o", "tokens.bin", "--no-end-of-text"], folder)
    peer(folder, "make_weights.py", "--out", "gpt2", "--layers", 4, "--heads", 4, "--channels", 128, "--context", 64)
    # --grad-clip 1e9 never clips: on a CPU, the norm that PyTorch clips by has a relative error of about
    # 5e-4 (dev/peers/train_pytorch.py).
    flags = ["--init-from", "gpt2", "--train", "tokens.bin", "--batch-size", 8, "--steps", 200, "--warmup", 20,
             "--lr", 6e-4, "--seed", 7, "--grad-clip", 1e9]
    run([program, *flags, "--val", "tokens.bin", "--tokenizer", gpt2, "--eval-every", 0, "--sample-every", 0,
         "--log", "ours.jsonl"], folder)
    peer(folder, "train_pytorch.py", *flags, "--device", "cpu", "--compile", 0, "--log", "theirs.jsonl")
    ours, theirs = losses(folder / "ours.jsonl"), losses(folder / "theirs.jsonl")
    expect(len(ours) == len(theirs) == 200, f"{len(ours)} and {len(theirs)} steps")
    differences = [abs(a / b - 1) for a, b in zip(ours, theirs)]
    print(f"largest relative difference: {max(differences[:50]):.1e} in 50 steps, {max(differences):.1e} in 200")
    expect(max(differences[:50]) < 2e-6, f"the first 50 losses differ by {max(differences[:50]):.1e}")
    expect(max(differences) < 1e-3, f"losses differ by {max(differences):.1e}")


def test_losses_are_close_to_those_of_pytorch_in_bf16(program, folder):
    require_modules("torch, numpy")
    make_inputs(folder, 24 * 32 + 5)
    ours = train_ours(program, folder, "ours.jsonl", *RUN, "--dtype", "bf16")
    for recipe in ("masters", "autocast"):
        theirs = train_theirs(folder, f"{recipe}.jsonl", *RUN, "--dtype", "bf16", "--recipe", recipe)
        # bf16 has 8 significant bits. A loss is a mean over 256 tokens of values with errors of a few 2^-9.
        worst = max(abs(a / b - 1) for a, b in zip(ours, theirs))
        expect(worst < 2 ** -8, f"{recipe}: losses differ by {worst:.1e}")


def test_timing_responds_to_requests(program, folder):
    require_modules("torch, numpy")
    make_inputs(folder, 24 * 32 + 5)
    requests = [{"batch_size": B, "steps": 2, "warmup": 1, "recipe": recipe}
                for B, recipe in ((2, "masters"), (4, "autocast"))]
    done = subprocess.run([PYTHON, PEERS / "train_pytorch.py", "--init-from", "gpt2", "--train", "data/tokens.bin",
                           "--device", "cpu", "--compile", "0", "--dtype", "bf16", "--serve"], cwd=folder, text=True,
                          input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True, timeout=300)
    expect(done.returncode == 0, done.stderr[-800:])
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    expect([(a["batch_size"], a["recipe"]) for a in answers] == [(2, "masters"), (4, "autocast")], f"{answers}")
    for a in answers:
        expect(abs(a["tok_per_s"] * a["step_ms"] / (1000 * a["batch_size"] * 32) - 1) < 1e-9, f"{a}")


def host_step(*arguments, folder, code=0):
    """Runs host_step.py, which needs no PyTorch itself."""
    return run([sys.executable, PEERS / "host_step.py", *arguments], folder, code)


def test_steps_on_the_cpu_are_timed_in_turns(program, folder):
    require_modules("torch, numpy")
    done = host_step("--dry", "--rounds", 2, "--train-gpt2", program, "--before", program, "--json", "times.json",
                     folder=folder)
    record = json.loads((folder / "times.json").read_text())
    keys = {"machine", "model", "batch_size", "seq_len", "rounds", "steps", "warmup", "sides", "time_ratios",
            "time_ratios_before", "unavailable", "notes"}
    expect(set(record) == keys and not record["unavailable"], f"{record}")
    sides = {side["name"]: side for side in record["sides"]}
    expect(list(sides) == ["ours fp32", "ours bf16", "before fp32", "before bf16", "PyTorch fp32 eager",
                           "PyTorch bf16 autocast eager", "PyTorch bf16 masters eager"], f"{list(sides)}")
    for name, side in sides.items():
        ms = side["ms"]
        expect(0 < ms["min"] <= ms["median"] <= ms["max"] and len(ms["rounds"]) == 2 and side["peak_mib"] > 0, f"{side}")
        # The initial weights have the same distribution, but other values; another vocabulary differs more.
        expect(abs(side["loss"] / sides["ours fp32"]["loss"] - 1) < 0.03, f"the loss of {name} is {side['loss']}")
        expect(name in done.stdout, done.stdout)
    for dtype, (key, own) in itertools.product(("fp32", "bf16"), (("time_ratios", "ours"), ("time_ratios_before", "before"))):
        ratio = record[key][dtype]
        theirs = sides[ratio["pytorch"]]
        expect(theirs["dtype"] == dtype and ratio["median"] > 0, f"{ratio}")
        quotients = [a / b for a, b in zip(sides[f"{own} {dtype}"]["ms"]["rounds"], theirs["ms"]["rounds"])]
        expect(ratio["rounds"] == quotients, f"{ratio['rounds']}, not {quotients}")


def test_steps_of_adapters_are_timed_with_and_without_peft(program, folder):
    require_modules("torch, numpy")
    done = run([sys.executable, PEERS / "adapter_step.py", "--train-gpt2", program, "--model", "tiny", "--batch-size", 2,
                "--seq-len", 16, "--rounds", 2, "--steps", 2, "--warmup", 1], folder, 0)
    has_peft = subprocess.run([PYTHON, "-c", "import peft, transformers"], capture_output=True, check=False).returncode == 0
    expect("result: time ratio LoRA / all weights: median" in done.stdout, done.stdout)
    expect(("result: time ratio LoRA / PEFT: median" if has_peft else "not available: PEFT: ") in done.stdout, done.stdout)


def test_steps_on_the_cpu_are_timed_without_pytorch(program, folder):
    (folder / "python").write_text("#!/bin/sh\nexit 1\n")
    (folder / "python").chmod(0o755)
    environment = {**os.environ, "PYTHON": str(folder / "python")}
    done = subprocess.run([sys.executable, PEERS / "host_step.py", "--dry", "--train-gpt2", program], cwd=folder,
                          env=environment, capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, done.stderr[-800:])
    expect("ours bf16" in done.stdout and "result:" not in done.stdout, done.stdout)
    expect("cannot import PyTorch" in done.stdout and "pip install torch numpy" in done.stdout, done.stdout)


def test_timing_on_the_cpu_reports_wrong_flags(program, folder):
    for flags, reason in ((["--dtypes", "fp32,fp8"], "--dtypes fp32,fp8; allowed: fp32, bf16"),
                          (["--rounds", 0], "--rounds 0; allowed: 1 or more"),
                          (["--seq-len", 1025], "--seq-len 1025; allowed: 1 to 1024"),
                          (["--model", "d13"], "--model"), (["--train", "none.bin"], "--train none.bin: no such file"),
                          (["--train-gpt2", "none"], "--train-gpt2 none: no such file"),
                          (["--before", "old"], "--before old: no such file"), (["--dri"], "--dri")):
        done = host_step("--train-gpt2", program, *flags, folder=folder, code=2)
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        expect(len(errors) == 1 and reason in errors[0] and done.stdout == "", f"{flags}: {done.stderr}")
    done = host_step("--train-gpt2", "/bin/false", "--dry", folder=folder, code=1)
    expect(done.stderr.strip() == "host_step.py: ours fp32: exit code 1", done.stderr)


FAKE_INFER = """#!/usr/bin/env python3
import json, os, sys
open("calls", "a").write(json.dumps([sys.argv[1:], os.environ["LLMC_HOST_THREADS"]]) + "\\n")
prompt = sys.argv[sys.argv.index("-p") + 1]
bf16 = "bf16" in sys.argv
print(json.dumps({"prompt_tokens": len(prompt.split()), "tokens": 64, "timings":
      {"prompt_ms": 10.0 if bf16 else 20.0, "generate_ms": 100.0, "tokens_per_second": 640.0 if bf16 else 320.0}}))
"""


def fake_infer(folder, text=FAKE_INFER):
    (folder / "infer").write_text(text)
    (folder / "infer").chmod(0o755)
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/config.json").write_text(json.dumps({"n_positions": 256}))


def infer_peers(*arguments, folder, python="/bin/false", path="/nonexistent"):
    environment = {**os.environ, "PYTHON": python, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run([sys.executable, PEERS / "infer_peers.py", "model", "--infer-gpt2", "./infer",
                           *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_generation_is_timed_without_peers(program, folder):
    fake_infer(folder)
    done = infer_peers("--repetitions", 3, "--threads", 1, "--json", "times.json", folder=folder)
    expect(done.returncode == 0, done.stderr[-800:])
    calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    expect(len(calls) == 12 and all(threads == "1" for _, threads in calls), f"{calls}")
    expect([len(call[call.index("-p") + 1].split()) for call, _ in calls[:2]] == [16, 255], f"{calls[:2]}")
    expect([call[call.index("-n") + 1] for call, _ in calls[:2]] == ["64", "1"], f"{calls[:2]}")
    record = json.loads((folder / "times.json").read_text())
    sides = {side["name"]: side for side in record["sides"]}
    expect(list(sides) == ["ours fp32", "ours bf16"] and set(record["skipped"]) == {"CTranslate2", "transformers", "llama.cpp"},
           f"{record}")
    expect(sides["ours bf16"]["decode"]["repetitions"] == [640.0] * 3, f"{record}")
    expect(abs(sides["ours fp32"]["prefill"]["median"] / (255 / 0.02) - 1) < 1e-9, f"{record}")
    for phrase in ("ours bf16", "320.0 (320.0 to 320.0)", "skipped llama.cpp", "skipped transformers", "pip install"):
        expect(phrase in done.stdout, done.stdout)
    expect("published decode speed 100.0, ratio 3.20" in infer_peers("--llama-cpp", 100, folder=folder).stdout, "llama.cpp")
    printed = json.loads(infer_peers("--json", "-", "--repetitions", 1, "--dtypes", "fp32", folder=folder).stdout)
    expect(len(printed["sides"]) == 1, f"{printed}")


FAKE_BENCH = """#!/usr/bin/env python3
import json, sys
value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
us = {"none": 400.0, "w8": 200.0, "w8a8": 100.0}[value("--quant")]
results = [{"test": test, "batch": batch, "samples_us": [us / batch, us / batch, 9e9]}
           for test, batch in (("generate", 1), ("generate", 8), ("prompt", 1))]
print("| a table |", json.dumps({"results": results}), sep="\\n")
"""


def infer_int8_peers(*arguments, folder):
    return subprocess.run([sys.executable, PEERS / "infer_int8_peers.py", "model", "--infer-gpt2", "./infer", *arguments],
                          cwd=folder, env={**os.environ, "PYTHON": "/bin/false"}, capture_output=True, text=True, timeout=300)


def test_int8_generation_is_timed_without_peers(program, folder):
    fake_infer(folder, FAKE_BENCH)
    done = infer_int8_peers("--repetitions", "2", "--json", "times.json", folder=folder)
    expect(done.returncode == 0, done.stderr[-800:])
    record = json.loads((folder / "times.json").read_text())
    turn = {"batch 1": 1e4, "batch 8": 8e4, "prefill": 1e4}  # medians
    expect(record["turns"]["ours w8a8"] == [turn] * 2 and len(record["skipped"]) == 3, f"{record}")
    expect(record["turns"]["ours w8"][0]["prefill"] == 5e3, f"{record}")
    expect(record["turns"]["ours w8a8 bf16"] == [turn] * 2, f"{record}")
    for phrase in ("10000.0 (10000.0 to 10000.0)   1.00", "2500.0 (2500.0 to 2500.0)   4.00", "skipped CTranslate2 int8: "):
        expect(phrase in done.stdout, done.stdout)
    fake_infer(folder, "#!/bin/sh\necho broken >&2\nexit 3\n")
    done = infer_int8_peers(folder=folder)
    expect(done.returncode == 1 and done.stderr.strip() == "infer_int8_peers.py: ours fp32: broken", done.stderr)
    done = infer_int8_peers("--sides", "PyTorch dynamic INT8", "--json", "peer.json", folder=folder)
    record = json.loads((folder / "peer.json").read_text())
    expect(done.returncode == 0 and not record["turns"] and list(record["skipped"]) == ["PyTorch dynamic INT8"], f"{record}")
    done = infer_int8_peers("--sides", "ours w4", folder=folder)
    expect(done.returncode == 2 and "'ours w4' is no side; allowed: ours fp32" in done.stderr, done.stderr)
    done = infer_int8_peers("--threads", "0", folder=folder)
    expect(done.returncode == 2 and "--threads 0; allowed: 1 or more" in done.stderr, done.stderr)


def test_transformers_has_the_perplexity_of_infer_gpt2(program, folder):
    require_modules("torch, transformers")
    make_inputs(folder, 128 * 4 + 1)
    peer(folder, "make_weights.py", "--out", "gpt2", *["128" if size == 32 else size for size in SIZES])  # for 80 tokens
    done = peer(folder, "infer_int8_peers.py", "gpt2", "--sides", "transformers fp32,PyTorch dynamic INT8", "--repetitions", 1,
                "--tokens", "data/tokens.bin", "--windows", 4, "--json", "peer.json")
    record = json.loads((folder / "peer.json").read_text())
    expect(not record["skipped"], done.stderr[-800:])
    ours = run([program.parent / "infer_gpt2", "perplexity", "data/tokens.bin", "-m", "gpt2", "--tokenizer", "words:data/words.txt",
                "--seq-len", 128, "--stride", 128, "--limit", 4], folder).stdout
    value = float(next(line.split()[2] for line in ours.splitlines() if line.split()[1:2] == ["token_perplexity"]))
    theirs = record["turns"]["transformers fp32"][0]["perplexity"]
    expect(abs(theirs / value - 1) < 2e-5, f"{theirs} and {value}")
    int8 = record["turns"]["PyTorch dynamic INT8"][0]
    expect(abs(int8["perplexity"] / value - 1) < 0.05 and 0 < int8["MiB"] < record["turns"]["transformers fp32"][0]["MiB"], f"{int8}")


FAKE_LLAMA_BENCH = """#!/usr/bin/env python3
import json, sys
value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
prompt = {"model_type": "gpt2 0.1B F16", "n_prompt": int(value("-p")), "n_gen": 0, "avg_ts": 1000.0}
print(json.dumps([prompt, {**prompt, "n_prompt": 0, "n_gen": int(value("-n")), "avg_ts": 200.0}]))
"""


def test_generation_is_timed_against_llama_bench(program, folder):
    fake_infer(folder)
    (folder / "llama-bench").write_text(FAKE_LLAMA_BENCH)
    (folder / "llama-bench").chmod(0o755)
    for flags, reason in (((), "--gguf names no model"), (("--gguf", "model.gguf", "--dtypes", "fp32"), "no counterpart")):
        done = infer_peers("--repetitions", 1, *flags, folder=folder, path=folder)
        expect(done.returncode == 0 and "skipped llama.cpp: " in done.stdout and reason in done.stdout, done.stdout)
    done = infer_peers("--repetitions", 2, "--json", "-", "--gguf", "model.gguf", folder=folder, path=folder)
    side = json.loads(done.stdout)["sides"][-1]
    expect(side["name"] == "llama.cpp bf16" and side["decode"]["repetitions"] == [200.0] * 2, side)
    expect(side["decode_ratio"]["median"] == 640.0 / 200 and side["prefill"]["median"] == 1000, side)


def test_generation_is_timed_against_installed_peers(program, folder):
    require_modules("torch, transformers, ctranslate2, numpy")
    peer(folder, "make_weights.py", "--out", "model", *SIZES[:-4], "--context", 128, "--vocabulary", 300)
    characters = [chr(i) for i in range(33, 127)]
    vocabulary = {token: i for i, token in enumerate([*characters, "\u0120", *(f"t{i}" for i in range(204)), "<|endoftext|>"])}
    (folder / "model/encoder.json").write_text(json.dumps(vocabulary))  # OpenAI's names, which transformers does not read
    (folder / "model/vocab.bpe").write_text("#version: 0.2\n")
    config = folder / "model/config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "bos_token_id": 299, "eos_token_id": 299}))
    (folder / "infer").write_text(FAKE_INFER)
    (folder / "infer").chmod(0o755)
    done = infer_peers("--repetitions", 2, "--json", "times.json", folder=folder, python=PYTHON)
    expect(done.returncode == 0, done.stderr[-800:])
    record = json.loads((folder / "times.json").read_text())
    names = [side["name"] for side in record["sides"]]
    for name in ("CTranslate2 fp32", "transformers fp32", "transformers bf16"):
        expect(name in names, f"{name} is skipped: {record['skipped']}")
    for side in record["sides"][2:]:
        for key in ("decode", "prefill"):
            ours = 640.0 if side["dtype"] == "bf16" else 320.0
            theirs, ratios = side[key]["repetitions"], side[f"{key}_ratio"]["repetitions"]
            expect(len(theirs) == 2 and min(theirs) > 0, f"{side}")
            expect(key != "decode" or all(abs(ratio * speed / ours - 1) < 1e-9 for ratio, speed in zip(ratios, theirs)),
                   f"{side}")


def test_steps_of_generation_in_pytorch_have_the_loss_of_the_model(program, folder):
    require_modules("torch, numpy")
    peer(folder, "make_weights.py", "--out", "model", *SIZES[:-4], "--context", 24, "--vocabulary", 300)
    requests = [{"model": "model", "batch": 2}, {"model": "none"}, {"model": "model", "dtype": "bf16"}]
    done = subprocess.run([PYTHON, PEERS / "infer_pytorch.py", "--serve", "--device", "cpu", "--backend", "eager", "--dtype",
                           "fp32", "--prompts", "8,500", "--positions", "1,9,500", "--repetitions", "2"], cwd=folder,
                          input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    expect(len(answers) == 3 and "error" in answers[1], done.stdout + done.stderr[-800:])
    for answer, dtype in zip(answers[::2], ("fp32", "bf16")):
        expect(answer.get("errors") == {} and answer["dtype"] == dtype, answer)  # the losses agree
        results = [(r["side"], r["test"], r.get("position", r.get("tokens"))) for r in answer["results"]]
        expect(results == [("eager", "prompt", 8), ("eager", "step", 1), ("eager", "step", 9), ("compiled", "step", 1),
                           ("compiled", "step", 9)], results)
        expect(all(len(r["samples_us"]) == 2 and r["us_per_token"] > 0 for r in answer["results"]), answer)


def test_timing_of_generation_reports_wrong_flags_and_a_failing_program(program, folder):
    fake_infer(folder)
    for flags, reason in ((["--dtypes", "fp8"], "--dtypes fp8; allowed: fp32, bf16"),
                          (["--repetitions", 0], "--repetitions 0; allowed: 1 or more"),
                          (["--infer-gpt2", "none"], "--infer-gpt2 none: no such file"),
                          (["--llama-cpp", -1], "--llama-cpp")):
        done = infer_peers(*flags, folder=folder)
        expect(done.returncode == 2 and reason in done.stderr and done.stdout == "", f"{flags}: {done.stderr}")
    (folder / "model/config.json").write_text(json.dumps({"n_positions": 64}))
    expect("context of 64 tokens; allowed: 81 or more" in infer_peers(folder=folder).stderr, "a short context")
    for text, reason in (("#!/bin/sh\necho broken >&2\nexit 3\n", "ours fp32: broken"),
                         ("#!/bin/sh\necho text\n", "ours fp32: the output is no JSON object with \"timings\"")):
        fake_infer(folder, text)
        done = infer_peers(folder=folder)
        expect(done.returncode == 1 and done.stderr.strip().endswith(reason), done.stderr)


def test_equal_seeds_give_equal_files_and_errors_name_the_file(program, folder):
    require_modules("torch, numpy")
    make_inputs(folder, 1000)
    files = [folder / name for name in ("data/tokens.bin", "data/words.txt", "gpt2/model.safetensors", "gpt2/config.json")]
    before = [file.read_bytes() for file in files]
    make_inputs(folder, 1000)
    expect(before == [file.read_bytes() for file in files], "equal seeds gave different files")
    files[0].write_bytes(before[0][:-2])
    done = peer(folder, "train_pytorch.py", "--init-from", "gpt2", "--train", "data/tokens.bin", "--log", "x",
                "--device", "cpu", code=1)
    expect("tokens.bin" in done.stderr and "999" in done.stderr, done.stderr[-300:])
    config = json.loads(files[3].read_text())
    files[3].write_text(json.dumps({**config, "activation_function": "relu"}))
    done = peer(folder, "train_pytorch.py", "--init-from", "gpt2", "--train", "data/tokens.bin", "--log", "y",
                "--device", "cpu", code=1)
    expect("gpt2/config.json: activation_function = relu" in done.stderr, done.stderr[-300:])


if __name__ == "__main__":
    program = (ROOT / sys.argv[1] / "train_gpt2").resolve()
    sys.exit(run_tests(globals(), lambda folder: [program, folder], *sys.argv[2:3]))
