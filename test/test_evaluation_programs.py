#!/usr/bin/env python3
"""Tests train_gpt2 --eval from the command line: against transformers on small files in the published
formats, during training and without it, and its errors.

    python3 test/test_evaluation_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import greedy  # noqa: E402
from runner import Skip, expect  # noqa: E402
from test_programs import DATA, run_program_tests  # noqa: E402

SHAPE = {"layers": 2, "heads": 3, "channels": 24, "context": 40}
WORDS = "the king of small boats sleeps where no river bends and seven old doors ring na\u00efve bells".split()


def sentence(numbers, min_words, max_words):
    return " ".join(numbers.choice(WORDS) for _ in range(numbers.randint(min_words, max_words)))


def endings(numbers):
    """Four distinct endings: equal ones would have equal scores."""
    texts = {}
    while len(texts) < 4:
        texts[sentence(numbers, 1, 4)] = None
    return list(texts)


def write_lines(path, objects):
    path.write_text("".join(json.dumps(line) + "\n" for line in objects))


def write_files(folder, seed=1):
    """Writes a text, and files in the formats of LAMBADA, HellaSwag and RACE, some longer than the context."""
    numbers = random.Random(seed)
    (folder / "wiki.txt").write_text("".join(sentence(numbers, 3, 12) + " .\n" for _ in range(8)), encoding="utf-8")
    write_lines(folder / "lambada.jsonl", [{"text": sentence(numbers, 2, 14)} for _ in range(24)])
    write_lines(folder / "hellaswag.jsonl", [
        {"ind": i, "activity_label": "Sailing", "ctx_a": "", "ctx_b": "", "ctx": sentence(numbers, 1, 9),
         "split": "val", "split_type": "indomain", "label": numbers.randrange(4), "source_id": f"x~{i}",
         "endings": endings(numbers)} for i in range(12)])
    gaps = ["", " _ .", " _ far", "?"]
    write_lines(folder / "race.jsonl", [
        {"id": f"high{i}.txt", "article": sentence(numbers, 2, 9) + ".",
         "questions": [sentence(numbers, 1, 4) + gaps[(i + k) % 4] for k in range(2)],
         "options": [endings(numbers) for _ in range(2)], "answers": [numbers.choice("ABCD") for _ in range(2)]}
        for i in range(6)])


def evaluate(program, model, *tasks, arguments=()):
    """Runs the tasks. Returns the lines of the log, in the order of the tasks."""
    log = program.folder / "eval.jsonl"
    log.unlink(missing_ok=True)
    program.run("--steps", 0, "--init-from", model, "--eval", ",".join(tasks), "--log", log, *arguments)
    return program.log(log)


def reference(model, T, stride, tokenizer, *tasks, folder):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import torch, transformers, tokenizers"], capture_output=True).returncode != 0:
        raise Skip("transformers is not installed (PYTHON names the interpreter)")
    script = Path(greedy.__file__).with_name("eval_scores.py")
    done = subprocess.run([python, script, model, str(T), str(stride), tokenizer, *tasks], cwd=folder,
                          capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, done.stderr[-800:])
    return json.loads(done.stdout)


def compare(ours, theirs, tolerance=3e-6):
    """`tolerance`: relative, for sums of logarithms: the rounding of fp32 (test/oracle/README.md)."""
    for our_scores, their_scores in zip(ours, theirs):
        expect(their_scores.pop("lead") > 1e-3,
               f"{our_scores['eval']}: scores differ by less than the rounding of fp32; use another seed")
        for name, value in their_scores.items():
            if name.endswith("perplexity"):
                our_scores[name], value = math.log(our_scores[name]), math.log(value)
            close = math.isclose(our_scores[name], value, rel_tol=0 if name == "examples" else tolerance)
            expect(close, f"{our_scores['eval']} {name}: {our_scores[name]} not {value}")


# ---- valid use -----------------------------------------------------------------------------


def test_scores_equal_those_of_transformers(program):
    write_files(program.folder)
    tasks = ["perplexity:wiki.txt", "lambada:lambada.jsonl", "hellaswag:hellaswag.jsonl", "race:race.jsonl"]
    right = 0
    for seed, T, stride in ((1, 40, 20), (2, 33, 33), (3, 40, 7)):
        model = greedy.write_model(program.folder / f"model{seed}", **SHAPE, seed=seed)
        ours = evaluate(program, model, *tasks, arguments=["--seq-len", T, "--eval-stride", stride])
        theirs = reference(model, T, stride, "bytes", *tasks, folder=program.folder)
        compare(ours, theirs)
        right += ours[2]["accuracy"]
    expect(right > 0, "no ending was right")


def test_predicted_words_equal_those_of_transformers(program):
    """The model is trained on its text, so it predicts some of the last words."""
    program.run("--train", "text.txt", *"--layers 1 --heads 2 --channels 32 --context 64 --batch-size 4 --steps 120 "
                "--lr 1e-2 --warmup 2 --eval-every 0 --sample-every 0 --out run".split())
    words = "the quick brown fox jumps over the lazy dog.".split()
    write_lines(program.folder / "words.jsonl", [
        {"text": f"line {i}: " + " ".join(words[:2 + i % 8]) + (" zebra" if i % 3 == 0 else "")} for i in range(24)])
    ours = evaluate(program, "run/step_000120", "lambada:words.jsonl")
    expect(0 < ours[0]["accuracy"] < 1, str(ours))
    compare(ours, reference("run/step_000120", 64, 32, "bytes", "lambada:words.jsonl", folder=program.folder))


def test_scores_with_gpt2_tokens_equal_those_of_transformers(program):
    vocabulary = DATA / "gpt2"
    if not (vocabulary / "encoder.json").exists():
        raise Skip("GPT-2's vocabulary is missing")
    write_files(program.folder, seed=4)
    model = greedy.write_model(program.folder / "model", layers=1, heads=1, channels=8, context=16, vocabulary=50257)
    tasks = ["perplexity:wiki.txt", "lambada:lambada.jsonl", "hellaswag:hellaswag.jsonl", "race:race.jsonl"]
    ours = evaluate(program, model, *tasks, arguments=["--tokenizer", vocabulary])
    compare(ours, reference(model, 16, 8, str(vocabulary), *tasks, folder=program.folder))


def test_wikitext_is_scored_as_plain_text(program):
    (program.folder / "wiki.tokens").write_text(
        " \n = Robert <unk> = \n \n He 's a co @-@ star ( of 1 @,@ 000 ) , \" no \" . \n")
    (program.folder / "plain.txt").write_text("\n= Robert <unk> =\n\nHe's a co-star (of 1,000), \"no\".\n")
    model = greedy.write_model(program.folder / "model", **SHAPE)
    cut, plain = evaluate(program, model, "wikitext:wiki.tokens", "perplexity:plain.txt")
    expect(cut["token_nll"] == plain["token_nll"] and cut["examples"] == plain["examples"], f"{cut} {plain}")
    nll = cut["token_nll"] * cut["examples"]
    for name, count in (("word_perplexity", 21), ("word_and_line_end_perplexity", 25)):
        expect(math.isclose(cut[name], math.exp(nll / count), rel_tol=1e-12), f"{name}: {cut}")
    size = (program.folder / "wiki.tokens").stat().st_size
    expect(math.isclose(cut["bits_per_byte"], nll / math.log(2) / size, rel_tol=1e-12), str(cut))


def test_one_table_has_the_metrics_of_all_tasks(program):
    write_files(program.folder)
    model = greedy.write_model(program.folder / "model", **SHAPE)
    done = program.run("--steps", 0, "--init-from", model, "--val", "text.txt", "--eval-limit", 5,
                       "--eval", "perplexity:wiki.txt,lambada:lambada.jsonl", "--eval", "hellaswag:hellaswag.jsonl")
    lines = done.stdout.splitlines()
    expect(lines[0].startswith("val_loss "), lines[0])
    protocols = [line for line in lines if line.startswith("# ")]
    expect([line.split()[1] for line in protocols] == ["perplexity", "lambada", "hellaswag"], done.stdout)
    expect("stride 20, only the first 5 of " in protocols[0] and "after one <|endoftext|>" in protocols[0], protocols[0])
    expect("contexts cut on the left" in protocols[1], protocols[1])
    table = [line.split() for line in lines[1 + len(protocols):]]
    expect(table[0] == ["task", "metric", "value", "std_err", "examples", "file"], table[0])
    rows = {(row[0], row[1]): row for row in table[1:]}
    expect([f"{task} {metric}" for task, metric in rows] == [
        "perplexity token_nll", "perplexity token_perplexity", "perplexity word_perplexity",
        "perplexity bits_per_byte", "lambada accuracy", "lambada perplexity", "hellaswag accuracy",
        "hellaswag acc_norm", "hellaswag acc_norm_tokens"], str(list(rows)))
    expect(rows["lambada", "accuracy"][4:] == ["5", "lambada.jsonl"], "--eval-limit 5")
    accuracy = float(rows["hellaswag", "acc_norm"][2])
    error = math.sqrt(accuracy * (1 - accuracy) / 4)
    expect(math.isclose(float(rows["hellaswag", "acc_norm"][3]), error, rel_tol=1e-5), "standard error")
    expect(rows["lambada", "perplexity"][3] == "-", "a standard error of a perplexity")


def test_perplexity_is_val_loss_if_the_windows_are_the_same(program):
    (program.folder / "words").write_text("a\nb\nc\n")
    numbers = random.Random(3)
    (program.folder / "text").write_text(" ".join(numbers.choice("abc") for _ in range(8 * 11 + 1)))
    model = greedy.write_model(program.folder / "model", **SHAPE, vocabulary=3)
    done = program.run("--steps", 0, "--init-from", model, "--tokenizer", "words:words", "--val", "text",
                       "--eval", "perplexity:text", "--seq-len", 8, "--eval-stride", 8)
    lines = done.stdout.splitlines()
    mean = next(line.split()[2] for line in lines if line.split()[1] == "token_nll")
    expect(math.isclose(float(lines[0].split()[1]), float(mean), rel_tol=2e-6), done.stdout)
    expect("its first token not scored" in lines[1], lines[1])


def test_scores_do_not_depend_on_the_batch_size(program):
    write_files(program.folder)
    model = greedy.write_model(program.folder / "model", **SHAPE)
    tasks = ["perplexity:wiki.txt", "lambada:lambada.jsonl", "hellaswag:hellaswag.jsonl", "race:race.jsonl"]
    runs = [evaluate(program, model, *tasks, arguments=["--batch-size", B]) for B in (1, 1, 3, 20)]
    expect(runs[0] == runs[1], "two equal runs differ")
    for run in runs[2:]:
        for one, other in zip(runs[0], run):
            expect(all(math.isclose(value, other[name], rel_tol=3e-5) for name, value in one.items()
                       if not isinstance(value, str)), f"{one} and {other}")


def test_bf16_scores_are_close_to_fp32(program):
    write_files(program.folder)
    model = greedy.write_model(program.folder / "model", **SHAPE)
    losses = [evaluate(program, model, "perplexity:wiki.txt", arguments=["--dtype", dtype])[0]["token_nll"]
              for dtype in ("fp32", "bf16")]
    expect(losses[0] != losses[1] and abs(losses[1] / losses[0] - 1) < 2e-2, str(losses))


def test_tasks_run_during_training_without_changing_it(program):
    write_files(program.folder)
    common = ["--steps", 5, "--eval-every", 0, "--sample-every", 0]
    tasks = ["--eval", "lambada:lambada.jsonl,perplexity:wiki.txt", "--eval-limit", 6]
    program.train(*common, "--out", "plain", "--log", "plain.jsonl")
    done = program.train(*common, *tasks, "--eval-task-every", 2, "--out", "run", "--log", "run.jsonl")
    lines = program.log("run.jsonl")
    evaluations = [(line["step"], line["eval"]) for line in lines if "eval" in line]
    expect(evaluations == [(step, task) for step in (2, 4, 5) for task in ("lambada", "perplexity")], str(evaluations))
    losses = [[line["loss"] for line in log if "loss" in line] for log in (lines, program.log("plain.jsonl"))]
    expect(losses[0] == losses[1], "evaluating changes the training")
    expect(done.stdout.count("\ntask ") == 1 and "accuracy" in done.stdout, done.stdout)
    last = [line for line in lines if "eval" in line][-2:]
    alone = evaluate(program, "run/step_000005", "lambada:lambada.jsonl", "perplexity:wiki.txt",
                     arguments=["--eval-limit", 6, "--batch-size", 2])
    for one, other in zip(last, alone):
        expect({**one, "step": 0} == other, f"{one} and {other}")
    program.train(*common, *tasks, "--log", "end.jsonl")
    expect([line["step"] for line in program.log("end.jsonl") if "eval" in line] == [5, 5], "not only at the end")


# ---- errors --------------------------------------------------------------------------------


def test_errors_name_the_flag(program):
    write_files(program.folder)
    for spec in ("lambada", "squad:x", "lambada:", "lambada:lambada.jsonl,oops"):
        program.fails("--steps", 0, "--eval", spec, phrases=["--eval", "TASK:FILE", "hellaswag"], code=2)
    program.fails("--steps", 0, "--eval-limit", 3, phrases=["--eval-limit", "--eval"], code=2)
    for flag, value in (("--eval-limit", "-1"), ("--eval-stride", "0"), ("--eval-task-every", "x")):
        program.fails("--eval", "lambada:lambada.jsonl", flag, value, phrases=[flag, value], code=2)
    model = greedy.write_model(program.folder / "model", **SHAPE)
    program.fails("--eval", "lambada:lambada.jsonl", "--init-from", model, phrases=["--eval without --train", "--steps 0"], code=2)
    evaluate_only = ["--steps", 0, "--init-from", model, "--eval"]
    program.fails(*evaluate_only, "perplexity:wiki.txt", "--eval-stride", 41, phrases=["--eval-stride 41", "40"], code=2)
    (program.folder / "used.jsonl").write_text("{}\n")
    program.fails(*evaluate_only, "perplexity:wiki.txt", "--log", "used.jsonl", phrases=["--log used.jsonl"])


def test_errors_name_the_bad_file_before_training(program):
    (program.folder / "good.jsonl").write_text('{"text": "the king"}\n')
    good = {"ctx": "c", "endings": ["a", "b"], "label": 0}
    cases = {"lambada": [("", " contains no examples"), ('{"text": "one"}', ":1: \"text\" has no word before"),
                         ('{"text": "a b"}\n{"txt": 1}', ":2 has no \"text\""), ("text", ":1 is not valid JSON")],
             "hellaswag": [(json.dumps({**good, "label": 2}), ":1: \"label\" is 2, not one of 0 to 1"),
                           (json.dumps({**good, "endings": []}), ":1: \"endings\" is not a list"),
                           ('{"label": 0}', ":1 has no \"ctx\"")],
             "perplexity": [("", " is empty")], "wikitext": [("", " is empty")]}
    for task, files in cases.items():
        program.fails("--train", "text.txt", "--eval", f"{task}:nowhere", phrases=["nowhere"])
        for text, phrase in files:
            (program.folder / "bad").write_text(text)
            done = program.train("--steps", 1, "--eval", f"lambada:good.jsonl,{task}:bad", code=1)
            expect("bad" + phrase in done.stderr and "step 1/" not in done.stderr, done.stderr[-500:])
    program.fails("--train", "text.txt", "--eval", "perplexity:tokens.bin", phrases=["tokens.bin"])


def test_an_ending_that_exceeds_the_context_is_scored_and_counted(program):
    (program.folder / "long.jsonl").write_text(
        json.dumps({"ctx": "c", "endings": ["a", "b" * 17], "label": 0}) + "\n")
    done = program.train("--steps", 1, "--eval", "hellaswag:long.jsonl")
    expect("1 of them without context: their longer continuations are scored by their last 16 tokens" in done.stdout,
           done.stdout)


def test_a_full_disk_is_an_error(program):
    if not Path("/dev/full").exists():
        raise Skip("this machine has no /dev/full")
    model = greedy.write_model(program.folder / "model", **SHAPE)
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(program.binary), "--steps", "0", "--init-from", str(model), "--eval",
                               "perplexity:text.txt"], stdout=full, stderr=subprocess.PIPE, text=True,
                              cwd=program.folder, timeout=300)
    expect(done.returncode == 1 and "stdout" in done.stderr, done.stderr)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
