#!/usr/bin/env python3
"""Tests infer_gpt2 with many prompts, stop strings, sliding contexts, its commands and signals.

    python3 test/test_infer_batch_programs.py build/host [PATTERN]

LLMC_LONG=1 makes the long file of prompts 1,000 lines.
Prints and exits as test_programs.py does.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
from runner import expect  # noqa: E402
from test_infer_programs import generate, model, stream  # noqa: E402
from test_programs import run_program_tests  # noqa: E402


def lines_of(program, *arguments, code=0):
    """The objects that --jsonl prints, without their timings."""
    done = subprocess.run([str(program.binary), *map(str, arguments), "--jsonl"], cwd=program.folder,
                          capture_output=True, timeout=300)
    expect(done.returncode == code, f"exit code {done.returncode}: {done.stderr[-500:]}")
    objects = [json.loads(line) for line in done.stdout.decode().splitlines()]
    for item in objects:
        item.pop("timings", None)
    return objects


def test_a_file_of_prompts_gives_each_prompt_its_own_result(program):
    folder = model(program)
    texts = [f"{word} {i}"[:30] for i, word in enumerate("a king the Romeo { and x".split() * 5)]
    (program.folder / "prompts.txt").write_text("\n".join(texts) + "\n")
    common = ["-m", folder, "-n", 12, "--ignore-eos", "--top-p", 0.9, "--repeat-penalty", 1.2, "--seed", 3]
    alone = [generate(program, *common, "-p", text) for text in texts[:8]]
    for batch in (1, 3, 16):
        objects = lines_of(program, *common, "--prompts", "prompts.txt", "--batch", batch, "--samples", 2)
        expect(len(objects) == 2 * len(texts), f"{len(objects)} lines")
        expect([(o["id"], o["sample"]) for o in objects] ==
               [(str(i + 1), s) for i in range(len(texts)) for s in (0, 1)], "the order of prompts and samples")
        expect(list(objects[0]) == ["id", "prompt", "sample", "prompt_tokens", "tokens", "text", "ids", "logprobs",
                                    "finish_reason", "seed"], list(objects[0]))
        for one, result in zip(alone, objects[::2]):
            for key in ("prompt", "tokens", "text", "ids", "logprobs", "finish_reason", "seed"):
                expect(result[key] == one[key], f"batch {batch}, {one['prompt']!r}: {key}")


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    field = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(field[1]) if field else None  # a process that has ended has none


def test_a_long_file_of_prompts_takes_steady_memory_and_equals_each_prompt_alone(program):
    folder = model(program, layers=2, heads=2, channels=64, context=512)
    count, numbers = 1000 if os.environ.get("LLMC_LONG") else 80, random.Random(8)
    texts = ["".join(numbers.choices("the king,.", k=numbers.randint(1, 500))).strip() or "k" for _ in range(count)]
    texts[count // 3], texts[count // 2] = "", "x" * 600  # one is empty, and one exceeds the context
    (program.folder / "many.txt").write_text("\n".join(texts) + "\n")
    common = ["-m", folder, "-n", 10, "--ignore-eos", "--prompts", "many.txt"]
    alone = lines_of(program, *common, "--batch", 1, code=1)
    expect(len(alone) == count, f"{len(alone)} lines")
    expect([i for i, o in enumerate(alone) if "error" in o] == [count // 3, count // 2], "the lines with an error")

    batch, memory = [], []
    with subprocess.Popen([str(program.binary), *map(str, common), "--batch", "16", "--jsonl", "--quiet"], bufsize=0,
                          cwd=program.folder, stdout=subprocess.PIPE) as running:
        for line in running.stdout:
            batch.append(json.loads(line))
            batch[-1].pop("timings", None)
            if (now := resident_bytes(running.pid)) is not None:
                memory.append(now)
    expect(running.returncode == 1, f"exit code {running.returncode}")
    for one, other in zip(alone, batch, strict=True):
        expect(one == other, f"prompt {one['id']} differs in a batch of 16")
    if count < 1000:
        return  # too short for a statement about memory
    expect(len(memory) > count // 2, f"the memory was read only {len(memory)} times")
    quarter = memory[len(memory) // 4]
    expect(memory[-1] <= quarter + (4 << 20), f"{quarter} bytes after a quarter of the lines, {memory[-1]} at the end")


def expect_isa_limits_to_work(program):
    """oneDNN follows ONEDNN_MAX_CPU_ISA, as far as this CPU has the instruction sets."""
    def library(isa):
        environment = {**os.environ, **({"ONEDNN_MAX_CPU_ISA": isa} if isa else {})}
        text = subprocess.run([str(program.binary), "--version"], env=environment, capture_output=True, text=True).stdout
        return re.search("oneDNN [0-9.]+(?: \\((.*?)\\))?", text)

    own = library(None)
    if own is None or own[1] is None:
        return  # another library or processor, which the variable does not concern
    expect(library("AVX2")[1] == "AVX2", f"ONEDNN_MAX_CPU_ISA=AVX2 has no effect: {library('AVX2')[0]}")
    if own[1] != "AVX2":
        expect(library("AVX512_CORE")[1] == "AVX-512", f"AVX512_CORE has no effect: {library('AVX512_CORE')[0]}")


def test_threads_and_instruction_sets_of_libraries_change_no_bit(program):
    expect_isa_limits_to_work(program)
    folder = model(program)
    (program.folder / "prompts.txt").write_text("\n".join("the king is here"[:n] for n in range(1, 15)) + "\n")
    for dtype in ("fp32", "bf16", "fp16"):
        outputs = set()
        for threads, isa, batch in (("1", None, 4), ("2", None, 16), ("2", "AVX2", 3), ("2", "AVX512_CORE", 1)):
            environment = {**os.environ, "LLMC_HOST_THREADS": threads} | ({"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
            done = subprocess.run([str(program.binary), "-m", str(folder), "--prompts", "prompts.txt", "--jsonl", "-n", "9",
                                   "--ignore-eos", "--dtype", dtype, "--batch", str(batch)], cwd=program.folder,
                                  env=environment, capture_output=True, text=True, timeout=300)
            expect(done.returncode == 0, done.stderr[-500:])
            objects = [json.loads(line) for line in done.stdout.splitlines()]
            outputs.add(json.dumps([(o["ids"], o["logprobs"]) for o in objects]))
        expect(len(outputs) == 1, f"{dtype}: {len(outputs)} different results")


def token_nll(program, *arguments):
    """The loss per token of text.txt."""
    done = subprocess.run([program.binary, "perplexity", "text.txt", *map(str, arguments)], cwd=program.folder,
                          capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, done.stderr[-500:])
    return float(re.search(r"^perplexity +token_nll +(\S+)", done.stdout, re.MULTILINE)[1])


def test_int8_texts_are_the_same_in_every_batch_and_close_to_floats(program):
    folder = model(program, layers=2, heads=2, channels=64)
    (program.folder / "int8.txt").write_text("".join(f"the king {i}\n" for i in range(9)))
    (program.folder / "text.txt").write_text("the king and the queen of hearts, " * 12)
    (program.folder / "words.jsonl").write_text('{"text": "the king is dead"}\n{"text": "long live the king"}\n')
    floats = token_nll(program, "-m", folder)
    for mode in (["--quant", "w8"], ["--quant", "w8a8"], ["--quant", "w8a8", "--zero-points", "off"],
                 ["--quant", "w8a8", "--dtype", "bf16"]):
        common = ["-m", folder, "-n", 10, "--ignore-eos", "--prompts", "int8.txt", *mode]
        alone = lines_of(program, *common, "--batch", 1)
        expect(lines_of(program, *common, "--batch", 4, "--chunk", 3) == alone, f"{mode}: another batch")
        error = abs(token_nll(program, "-m", folder, *mode) - floats)
        expect(0 < error < 0.01 * floats, f"{mode}: the loss differs by {error}")
        done = subprocess.run([program.binary, "score", "lambada:words.jsonl", "-m", str(folder), *mode],
                              cwd=program.folder, capture_output=True, text=True, timeout=300)
        expect(done.returncode == 0 and "accuracy" in done.stdout, f"{mode}: {done.stderr[-500:]}")


def test_json_lines_set_their_own_options_and_report_their_errors(program):
    folder = model(program)
    rows = ['{"prompt": "a", "id": "first", "tokens": 3, "seed": 9}', '{"prompt": 5}', "not json",
            '{"prompt": "a", "colour": 1}', json.dumps({"prompt": "x" * 60}), '{"prompt": "last"}']
    (program.folder / "prompts.jsonl").write_text("\n".join(rows))
    objects = lines_of(program, "-m", folder, "-n", 7, "--ignore-eos", "--prompts", "prompts.jsonl", code=1)
    expect(len(objects) == len(rows), f"{len(objects)} lines")
    expect(objects[0]["id"] == "first" and objects[0]["tokens"] == 3 and objects[0]["seed"] == 9, objects[0])
    for row, words in ((1, "prompts.jsonl:2"), (2, "prompts.jsonl:3"), (3, "colour"), (4, "60 tokens")):
        expect(list(objects[row]) == ["id", "prompt", "error"] and words in objects[row]["error"], objects[row])
    expect(objects[5]["tokens"] == 7, objects[5])
    (program.folder / "prompts.txt").write_text("a\n\n{\n")
    objects = lines_of(program, "-m", folder, "-n", 3, "--ignore-eos", "--prompts", "prompts.txt", code=1)
    expect([o.get("tokens") for o in objects] == [3, None, 3] and "empty" in objects[1]["error"], objects)


def test_an_int8_cache_gives_the_same_texts_in_every_batch(program):
    folder = model(program)
    (program.folder / "four.txt").write_text("the king\na\nRomeo and\nx\n" * 2)
    common = ["-m", folder, "-n", 10, "--ignore-eos", "--prompts", "four.txt", "--seed", 3]
    for dtype in ("fp32", "bf16"):
        int8 = [*common, "--dtype", dtype, "--kv-dtype", "int8"]
        texts = lines_of(program, *int8, "--batch", 1)
        expect(lines_of(program, *int8, "--batch", 4, "--chunk", 3) == texts, f"{dtype}: batch 4")
        floats = lines_of(program, *common, "--dtype", dtype)
        expect([t["prompt"] for t in floats] == [t["prompt"] for t in texts], "prompts")
        expect([t["logprobs"] for t in floats] != [t["logprobs"] for t in texts], f"{dtype}: no effect")
    done = subprocess.run([str(program.binary), "bench", "-m", str(folder), "--batches", "1", "--positions", "3",
                           "--prompt-tokens", "4", "--gen-tokens", "4", "--repetitions", "1", "--kv-dtype", "int8"],
                          cwd=program.folder, capture_output=True, timeout=300)
    expect(done.returncode == 0, done.stderr[-500:])
    expect(json.loads(done.stdout.decode().splitlines()[-1])["kv_dtype"] == "int8", "kv_dtype of bench")


def test_a_stop_string_ends_the_text_before_it(program):
    folder = model(program, context=120)
    common = ["-m", folder, "-p", "a", "-n", 100, "--ignore-eos", "--seed", 4]
    whole = generate(program, *common)["text"]
    stop = whole[40:42]
    result = generate(program, *common, "--stop", stop, "--stop", "never, ever")
    expect(result["finish_reason"] == "stop" and result["text"] == whole[:whole.index(stop)], result["text"])
    pieces, _ = stream(program, *common, "--stop", stop)
    expect(b"".join(pieces).decode() == result["text"], "the streamed text differs")


def test_a_random_seed_is_printed_and_repeats_the_text(program):
    common = ["-m", model(program), "-p", "a", "-n", 20, "--ignore-eos", "--seed"]
    first = generate(program, *common, -1)
    expect(first["seed"] != generate(program, *common, -1)["seed"], "two drawn seeds are equal")
    expect(first == generate(program, *common, first["seed"]), "the printed seed gives another text")


def test_a_sliding_text_exceeds_the_context(program):
    result = generate(program, "-m", model(program), "-p", "a", "-n", 150, "--ignore-eos", "--slide")
    expect(result["tokens"] == 150 and result["finish_reason"] == "length", result)


def test_a_long_prompt_slides_like_one_of_its_last_tokens(program):
    folder = model(program, context=32)
    text = "the king and Romeo " * 5
    common = ["-m", folder, "-n", 40, "--ignore-eos", "--slide", "--seed", 3]
    cut = generate(program, *common, "-p", text[-31:])
    (program.folder / "p.txt").write_text(text)
    for flags, name in ((["-p", text], "--prompt"), (["-f", "p.txt"], "--file p.txt")):
        result = generate(program, *common, *flags)
        expect(result["prompt_tokens"] == 31 and result["ids"] == cut["ids"], result)
        done = program.run(*common, *flags)
        notice = f"{name} has {len(text)} tokens, of which --slide drops the {len(text) - 31} oldest: the context is 32"
        expect(done.stderr.count(notice) == 1, done.stderr)
    (program.folder / "prompts.txt").write_text(f"a\n{text}\n{text}x\n")
    objects = lines_of(program, *common, "--prompts", "prompts.txt")
    expect([o["prompt_tokens"] for o in objects] == [1, 31, 31] and objects[1]["ids"] == cut["ids"], objects)
    done = program.run(*common, "--prompts", "prompts.txt")
    expect("prompts.txt:2 has 95 tokens" in done.stderr and "; 2 prompts are cut so" in done.stderr, done.stderr)
    program.fails("-m", folder, "-p", text, phrases=["95 tokens, the model's context is 32", "--slide"], code=2)


def test_a_reader_that_ends_ends_the_program_silently(program):
    folder = model(program)
    (program.folder / "prompts.txt").write_text("a\n" * 200)
    with subprocess.Popen([str(program.binary), "-m", str(folder), "--prompts", "prompts.txt", "--jsonl", "--quiet"],
                          cwd=program.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.stdout.close()
        messages = running.stderr.read().decode()
    expect(running.returncode == -signal.SIGPIPE and messages == "", (running.returncode, messages))


def test_perplexity_and_score_equal_the_evaluation_of_training(program):
    folder = model(program)
    (program.folder / "text.txt").write_text("To be, or not to be, that is the question. " * 8)
    (program.folder / "lambada.jsonl").write_text('{"text": "the king is dead"}\n{"text": "long live the king"}\n')
    (program.folder / "hellaswag.jsonl").write_text(
        '{"ctx": "The king", "endings": ["is dead", "runs", "sleeps", "eats"], "label": 1}\n')
    trainer = program.binary.parent / "train_gpt2"

    def table(binary, *arguments):
        done = subprocess.run([binary, *map(str, arguments)], cwd=program.folder, capture_output=True, text=True,
                              timeout=300)
        expect(done.returncode == 0, done.stderr[-500:])
        rows = [line.split() for line in done.stdout.splitlines() if line and line[0] != "#"]
        return {(row[0], row[1]): float(row[2]) for row in rows[1:]}

    theirs = table(trainer, "--init-from", folder, "--eval",
                   "perplexity:text.txt,lambada:lambada.jsonl,hellaswag:hellaswag.jsonl", "--seq-len", 40,
                   "--batch-size", 1, "--eval-stride", 20, "--steps", 0)
    ours = table(program.binary, "perplexity", "text.txt", "-m", folder, "--base", folder)
    for metric in ("token_nll", "token_perplexity", "bits_per_byte"):
        a, b = ours["perplexity", metric], theirs["perplexity", metric]
        expect(abs(a - b) <= 1e-6 * abs(b) + 1e-12, f"{metric}: {a} and {b}")
    for metric in ("token_nll_difference", "kl_divergence", "kl_divergence_max"):
        expect(ours["comparison", metric] == 0, f"{metric} of a model against itself: {ours['comparison', metric]}")
    expect(ours["comparison", "top1_agreement"] == 1, "a model disagrees with itself")
    scores = table(program.binary, "score", "lambada:lambada.jsonl", "hellaswag:hellaswag.jsonl", "-m", folder)
    for key, value in scores.items():
        expect(value == theirs[key], f"{key}: {value} and {theirs[key]}")
    table(program.binary, "perplexity", "text.txt", "-m", folder, "--save-log", "base.log")
    logged = table(program.binary, "perplexity", "text.txt", "-m", folder, "--base-log", "base.log")
    expect({key: value for key, value in logged.items() if key[0] == "perplexity"} ==
           {key: value for key, value in ours.items() if key[0] == "perplexity"}, "the base changes the perplexity")
    expect(logged["comparison", "token_nll_difference"] == 0, "a model differs from its own log")


def test_errors_of_commands_name_the_command(program):
    folder = model(program)
    result = program.run("perplexity", "none*.bin", "-m", folder, code=1)
    expect("perplexity: no file matches none*.bin" in result.stderr and "--eval" not in result.stderr, result.stderr)


def test_bench_prints_a_table_and_ends_with_one_object(program):
    common = ["bench", "-m", str(model(program)), "--quiet", "--repetitions", "2", "--prompt-tokens", "9,40,41",
              "--gen-tokens", "5", "--batches", "1,3", "--positions", "1,20,1000"]
    for form, lines in (("md", 11), ("csv", 10), ("json", 0)):
        done = program.run(*common, "--format", form)
        expect(done.returncode == 0, done.stderr[-500:])
        *table, last = done.stdout.splitlines()
        expect(len(table) == lines + (form != "json"), f"{form}: {len(table)} lines")
        results = json.loads(last)["results"]
        # Prompts and positions beyond the context of 40 are left out.
        expect([(r["test"], r["batch"]) for r in results] ==
               [(test, batch) for batch in (1, 3) for test in ("prompt", "prompt", "generate", "step", "step")], results)
        expect(all(len(r["samples_us"]) == 2 and r["us_per_token"] > 0 for r in results), results)
        # A GPU has energy if the driver's library is installed.
        expect(all(program.binary.parent.name != "host" or r["joules_per_token"] is None for r in results), results)
    done = program.run("bench", "-m", "model", "--repetitions", "1", "--batches", "1", "--prompt-tokens", "0",
                       "--gen-tokens", "0")
    tests = {r["test"] for r in json.loads(done.stdout.splitlines()[-1])["results"]}
    expect(tests == {"step"}, tests)


def test_interactive_prompts_continue_the_text(program):
    done = subprocess.run([str(program.binary), "-m", str(model(program)), "-i", "-n", "5", "--ignore-eos", "--temp", "0"],
                          cwd=program.folder, input=b"one\ntwo\n" + b"x" * 60 + b"\n", capture_output=True, timeout=300)
    expect(done.returncode == 0 and done.stdout.count(b"\n") >= 3, (done.stdout, done.stderr[-300:]))
    first = generate(program, "-m", "model", "-p", "one", "-n", 5, "--ignore-eos", "--temp", 0)["text"]
    expect(done.stdout.decode().startswith(first + "\n"), done.stdout)
    done = subprocess.run([str(program.binary), "-m", "model", "-i", "-p", "o", "-n", "5", "--ignore-eos", "--temp", "0"],
                          cwd=program.folder, input=b"ne\n", capture_output=True, timeout=300)
    expect(done.stdout.decode() == first + "\n", "--prompt is not the beginning of the text")


def test_huge_numbers_are_no_overflow(program):
    common = ["-m", model(program), "-p", "a", "--ignore-eos"]
    result = generate(program, *common, "-n", 2**63 - 1)
    expect(result["finish_reason"] == "context" and result["tokens"] == 39, result)
    program.fails(*common, "--samples", 10**12, phrases=["--samples", "1000000"], code=2)


def test_ctrl_c_ends_with_the_text_so_far(program):
    with subprocess.Popen([str(program.binary), "-m", str(model(program)), "-p", "a", "-n", "100000000", "--slide",
                           "--ignore-eos"], cwd=program.folder, bufsize=0, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as running:
        text = os.read(running.stdout.fileno(), 1)
        for _ in range(2):  # as `timeout` does, which signals the process and its group
            running.send_signal(signal.SIGINT)
            time.sleep(0.01)
        text += running.stdout.read()
        messages = running.stderr.read().decode()
    expect(running.returncode == 0 and "cancelled" in messages, messages[-300:])
    text.decode()  # whole characters


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "infer_gpt2"))
