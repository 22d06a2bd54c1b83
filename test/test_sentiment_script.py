#!/usr/bin/env python3
"""Tests the parts of scripts/finetune_sentiment.sh: its split, naive Bayes, statistics, plan, logs, table and figure. The
whole script is in test_sentiment_runs.py.

    PYTHON=python3 python3 test/test_sentiment_script.py [PATTERN]

PYTHON names an interpreter with scikit-learn; without it, naive Bayes is compared only with an example by hand.
"""
import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from made_up_sentences import write_sentences
from runner import Skip, expect, expect_error, run_tests

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
DATA = Path(os.environ.get("LLMC_DATA", ROOT.parent / "shared/data")) / "sentence_polarity"
PYTHON = os.environ.get("PYTHON", "python3")

sys.path.insert(0, str(SCRIPTS))
from finetune_sentiment import checks, data, methods, metrics, picture, planning, results, runs  # noqa: E402
from finetune_sentiment.naive_bayes import NaiveBayes  # noqa: E402
from run_view.gnuplot import GnuplotError, find_gnuplot  # noqa: E402


def near(a, b, tolerance=1e-12):
    return abs(a - b) <= tolerance


# ---- the data --------------------------------------------------------------------------------

# split_hash() of llmc/io/data/hashed_split.h; the first two are in test_labelled_texts.cpp.
HASHES = {
    "": 0xEAC3133E59C886D5, "a text": 0xD3F9249D8CB02D88, "one line of twenty-four.": 0x3C6DDCA364502C79,
    "0123456789abcdefghijklmnopqrstuv": 0xE574EC7975889D65,
    "it is a film of thirty-nine characters .": 0x87A3DBD6AEA311E4,
    "the film is a long , long way from perfect , but its actors never let a scene of it become dull , café included":
        0xE01B6893D67A9607}


def test_the_split_is_that_of_the_library(folder):
    for text, value in HASHES.items():
        expect(data.split_hash(text) == value, f"{text!r}: {data.split_hash(text):#x}, not {value:#x}")
    parts = {data.part_of(text) for text in HASHES}
    expect(data.part_of("0123456789abcdefghijklmnopqrstuv") == "validation" and parts == {"train", "validation", "test"}, parts)
    # The place of a hash h among 100 is 100 h / 2^64, rounded down.
    for fractions, part in (((92, 8, 0), "train"), ((91, 9, 0), "validation"), ((91, 0, 9), "test")):  # its place is 91
        expect(data.part_of("", fractions) == part, f"{fractions}: {data.part_of('', fractions)}")


def test_the_parts_of_the_sentences_are_those_of_the_library(folder):
    if not (DATA / "positive.txt").exists():
        raise Skip(f"{DATA} is missing")
    parts = data.read_parts(DATA)
    # Counted with split_hash() and split_part() of the library.
    expected = {"train": [4232, 4229], "validation": [548, 582], "test": [551, 520]}
    expect({name: part.support() for name, part in parts.items()} == expected,
           {name: part.support() for name, part in parts.items()})


def test_bad_files_are_clear_errors(folder):
    expect_error(data.DataError, "negative.txt is missing", lambda: data.read_parts(folder))
    write_sentences(folder)
    (folder / "positive.txt").write_text("a line\n \nanother\n")
    expect_error(data.DataError, "positive.txt:2 is empty", lambda: data.read_parts(folder))
    (folder / "positive.txt").write_bytes(b"caf\xe9\n")
    expect_error(data.DataError, "is not UTF-8", lambda: data.read_parts(folder))
    (folder / "positive.txt").write_text("only one\n")
    expect_error(data.DataError, "each class needs at least one", lambda: data.read_parts(folder))
    (folder / "positive.txt").write_bytes("a\u0085b\r\nc\n".encode())  # only line feeds separate lines
    expect(data.read_lines(folder / "positive.txt") == ["a\u0085b", "c"], data.read_lines(folder / "positive.txt"))


# ---- naive Bayes -----------------------------------------------------------------------------


def test_naive_bayes_agrees_with_an_example_by_hand(folder):
    model = NaiveBayes(["a b a", "b c", "c"], [0, 0, 1], 2)
    # Features: a, b, c, (a b), (b a), (b c): V = 6. Class 0: a 2, b 2, c 1, ab, ba, bc 1 each: 8. Class 1: c 1.
    expect(len(model.vocabulary) == 6, model.vocabulary)
    scores = model.scores("a c unseen b a")  # (c unseen), (unseen b) and (a c) are in no training text; (b a) is
    expected = [math.log(2 / 3) + 2 * math.log(3 / 14) + math.log(2 / 14) + math.log(3 / 14) + math.log(2 / 14),
                math.log(1 / 3) + 2 * math.log(1 / 7) + math.log(2 / 7) + math.log(1 / 7) + math.log(1 / 7)]
    expect(all(map(near, scores, expected)), f"{scores}, not {expected}")
    expect(model.predict("a b") == 0 and model.predict("c c c c") == 1, "predictions")
    expect(NaiveBayes(["x", "y"], [0, 1], 2).predict("z") == 0, "the first of equally likely classes")


SKLEARN = """
import json, sys
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
train, labels, test = json.load(sys.stdin)
counts = CountVectorizer(ngram_range=(1, 2), tokenizer=str.split, token_pattern=None, lowercase=False)
model = MultinomialNB(alpha=1).fit(counts.fit_transform(train), labels)
json.dump(model.predict_joint_log_proba(counts.transform(test)).tolist(), sys.stdout)
"""


def test_naive_bayes_equals_scikit_learn(folder):
    if subprocess.run([PYTHON, "-c", "import sklearn"], capture_output=True).returncode != 0:
        raise Skip("sklearn cannot be imported (PYTHON names the interpreter)")
    parts = data.read_parts(DATA if DATA.exists() else write_sentences(folder))
    train, test = parts["train"], parts["test"]
    done = subprocess.run([PYTHON, "-c", SKLEARN], input=json.dumps([train.texts, train.labels, test.texts]), text=True,
                          capture_output=True)
    expect(done.returncode == 0, done.stderr[-500:])
    model = NaiveBayes(train.texts, train.labels, 2)
    for text, expected in zip(test.texts, json.loads(done.stdout), strict=True):
        expect(all(near(a, b, 1e-9 * abs(b)) for a, b in zip(model.scores(text), expected)), f"{text}: {expected}")


# ---- statistics ------------------------------------------------------------------------------


def test_metrics_are_those_of_the_definitions(folder):
    values = metrics.classification([[3, 1], [2, 4]])
    expect(values["accuracy"] == 0.7 and values["examples"] == 10, values)
    expect(near(values["macro"]["precision"], (3 / 5 + 4 / 5) / 2) and near(values["macro"]["recall"], (3 / 4 + 4 / 6) / 2)
           and near(values["macro"]["f1"], (6 / 9 + 8 / 11) / 2), values)
    expect(metrics.classification([[2, 0], [3, 0]])["macro"]["precision"] == 0.2, "a class without predictions has 0")
    expect(metrics.confusion_matrix([0, 0, 1], [1, 0, 1], 2) == [[1, 1], [0, 1]], "rows are labels")


def test_differences_are_paired_over_seeds(folder):
    differences, mean, error = metrics.paired_difference({1: 0.70, 2: 0.75, 3: 0.71}, {3: 0.61, 1: 0.62, 2: 0.66, 4: 0.9})
    expect([round(d, 9) for d in differences.values()] == [0.08, 0.09, 0.10], differences)
    expect(near(mean, 0.09) and near(error, 0.01 / math.sqrt(3)), f"{mean}, {error}")
    expect(checks.check_gain({1: 0.70, 2: 0.75, 3: 0.71}, {1: 0.62, 2: 0.66, 3: 0.61}).state == "ok", "a clear gain")
    # 0.02 and 0.10: the mean 0.06 is less than twice its standard error 0.04.
    expect(checks.check_gain({1: 0.62, 2: 0.70}, {1: 0.60, 2: 0.60}).state == "MISSED", "a gain within the noise")
    expect(checks.check_gain({1: 0.6, 2: 0.6}, {1: 0.7, 2: 0.7}).state == "MISSED", "a loss")
    expect(checks.check_gain({1: 0.6}, {1: 0.5}).state == "not run", "one seed")


# ---- the plan --------------------------------------------------------------------------------

METHODS = methods.all_methods(5)
COSTS = {"scratch": planning.Cost(0.1, 4), "all": planning.Cost(0.11, 4), "head": planning.Cost(0.04, 4),
         "lora": planning.Cost(0.08, 4)}


def test_the_plan_fits_into_the_budget(folder):
    grids = set()
    for seconds in (400, 700, 2400, 6000, 20000):
        plan = planning.make_plan(COSTS, METHODS, seconds, 3, 264)
        grids.add(plan.grid)
        total = sum((plan.grid + 2) * (COSTS[name].fixed() + COSTS[name].step * plan.steps[name]) for name in COSTS)
        expect(near(plan.seconds(), total, 1e-6) and total <= planning.SHARE * seconds, f"{seconds}: {plan}")
        expect(plan.steps["scratch"] == plan.steps["all"], f"unequal training: {plan}")
        expect(all(plan.epochs(name) <= METHODS[name].max_epochs for name in COSTS), f"above the maximum: {plan}")
        capped = all(plan.epochs(name) > METHODS[name].max_epochs - 0.01 for name in COSTS)
        expect(capped or total > 0.8 * planning.SHARE * seconds, f"{seconds}: the budget is not used: {plan}")
    expect(grids == {1, 2, 3}, f"grids {grids}")
    expect(capped, "the largest budget allows all epochs")
    expect(planning.make_plan(COSTS, METHODS, 20000, 3, 264, limit=2).epochs("head") == 2, "the limit of epochs")
    expect(planning.make_plan(COSTS, METHODS, 20000, 3, 264, max_grid=2).grid == 2, "the limit of learning rates")


def test_a_budget_that_is_too_small_is_an_error_with_the_time_it_takes(folder):
    minutes = 3 * len(COSTS) * (COSTS["all"].fixed() + 66 * COSTS["all"].step) / planning.SHARE / 60
    expect_error(planning.PlanError, f"take {minutes:.1f};", lambda: planning.make_plan(COSTS, METHODS, 100, 3, 264))
    expect_error(planning.PlanError, "--budget", lambda: planning.make_plan(COSTS, METHODS, 59.5 * minutes, 3, 264))
    planning.make_plan(COSTS, METHODS, 60.5 * minutes, 3, 264)


def test_the_eta_follows_the_finished_runs(folder):
    plan = planning.Plan(1, 2, {"all": 10, "head": 10}, 10, {"all": 30.0, "head": 10.0})
    progress = planning.Progress(plan, 100, spent=5)
    expect(progress.eta() == 80, progress.eta())
    progress.add("all", 45)  # half as long again as planned
    expect(progress.eta() == 1.5 * 50, progress.eta())
    expect("1/4 runs, ETA 1.2 min" in progress.text() and "exceeds the budget" in progress.text(), progress.text())
    expect("exceeds" not in planning.Progress(plan, 100).text(), "in time")


# ---- logs ------------------------------------------------------------------------------------

CLASSIFICATION = {"examples": 10, "accuracy": 0.7, "standard_error": 0.145,
                  "macro": {"precision": 0.7, "recall": 0.71, "f1": 0.69},
                  "classes": [{"label": "negative", "support": 4}, {"label": "positive", "support": 6}],
                  "confusion_matrix": [[3, 1], [2, 4]]}


def log_lines():
    steps = [{"step": s, "loss": 0.7, "step_ms": 500.0 if s < 3 else 10.0 * s, "host_mem_mb": 80.0 + s} for s in range(1, 6)]
    return [{"step": 0, "run": "started", "planned_mem_mb_ranks": "13.5,13.5"}, *steps,
            {"step": 5, "val_loss": 0.6, "val_accuracy": 0.66, "val_macro_f1": 0.65},
            {"step": 5, "test_loss": 0.61, "test_accuracy": 0.7, "test_macro_f1": 0.69, "test_classification": CLASSIFICATION}]


def test_the_log_is_read(folder):
    path = folder / "log.jsonl"
    stored = [{key: json.dumps(value) if isinstance(value, dict) else value for key, value in line.items()} for line in log_lines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in stored) + '{"step": 6, "lo')
    lines = runs.read_log(path)
    expect(runs.mean_step_ms(lines, path) == 40 and runs.memory_of(lines, path) == (13.5, 85.0), "times and memory")
    test = runs.test_record(lines, path)
    expect(test["loss"] == 0.61 and test["confusion_matrix"] == [[3, 1], [2, 4]] and test["macro"]["f1"] == 0.69, test)
    expect(runs.validation_record(lines, 5, path)["macro_f1"] == 0.65, "validation")
    counts = runs.parameter_counts("model: 2 layers, context 64: 117696 parameters, fp32\n", path)
    expect(counts == (117696, 117696), counts)
    text = "model: 2 layers: 9 parameters, fp32\ntraining 25472 of 60128 parameters (42.4%), in 26 of 52 tensors\n"
    expect(runs.parameter_counts(text, path) == (25472, 60128), "frozen parameters")


def test_an_incomplete_log_is_one_clear_error(folder):
    cases = [("test_classification", None, runs.test_record, "has no \"test_classification\""),
             ("macro", {"precision": 0.5}, runs.test_record, "\"macro.recall\" is null, not a finite number"),
             ("accuracy", "0.7", runs.test_record, "\"accuracy\" is \"0.7\""),
             ("confusion_matrix", [[1, 2]], runs.test_record, "not 2 x 2 counts"),
             ("classes", [{"label": "positive"}, {"label": "negative"}], runs.test_record, "the classes are"),
             ("step_ms", None, runs.mean_step_ms, "has no line with \"step_ms\""),
             ("planned_mem_mb_ranks", None, runs.memory_of, "no \"planned_mem_mb_ranks\""),
             ("val_macro_f1", None, lambda lines, source: runs.validation_record(lines, 5, source), "of step 5")]
    for key, value, read, message in cases:
        lines = json.loads(json.dumps(log_lines()))
        for line in [*lines, lines[-1]["test_classification"]]:
            if key in line and value is None:
                del line[key]
            elif key in line:
                line[key] = value
        expect_error(runs.RunError, message, lambda: read(lines, "run.jsonl"))
    expect_error(runs.RunError, "cannot be read", lambda: runs.read_log(folder / "none.jsonl"))
    expect_error(runs.RunError, "number of parameters", lambda: runs.parameter_counts("", "output.txt"))


# ---- predictions and ranks -------------------------------------------------------------------


def prediction(label, p):
    names = [label, *(name for name in data.LABELS if name != label)]
    return checks.parse_prediction(json.dumps({"label": label, "probabilities": dict(zip(names, (p, 1 - p)))}), "p.jsonl:1")


def test_margins_are_differences_of_log_probabilities(folder):
    expect(near(prediction("positive", 0.8).margin, math.log(4)) and prediction("positive", 0.8).label == 1, "margin")
    predictions = [prediction("negative", p) for p in (0.9, 0.5002, 0.5003, 1.0)]
    expect(checks.close_rows(predictions) == [1], [p.margin for p in predictions])
    for bad in ("", "{}", '{"label": "x", "probabilities": {"negative": 1, "positive": 0}}', '{"label": "negative"}'):
        expect_error(runs.RunError, "p.jsonl:1", lambda: checks.parse_prediction(bad, "p.jsonl:1"))
    (folder / "p.jsonl").write_text("{}\n")
    expect_error(runs.RunError, "has 1 predictions for 2 texts", lambda: checks.read_predictions(folder / "p.jsonl", 2))


def test_only_close_rows_may_differ_between_ranks(folder):
    test = data.Part(["a", "b", "c", "d"], [0, 0, 1, 1])
    sure, unsure = checks.Prediction(0, 2.0), checks.Prediction(0, 1e-4)
    one, moved = [[2, 0], [2, 0]], [[1, 1], [2, 0]]
    for predictions, matrix, state in (([sure] * 4, one, "ok"), ([sure] * 4, moved, "MISSED"),
                                       ([sure, unsure, sure, sure], moved, "ok"),
                                       ([sure, sure, unsure, sure], moved, "MISSED"),  # close, but of the other class
                                       ([unsure] * 4, [[2, 0], [1, 0]], "MISSED")):    # a row is lost
        check, rows = checks.compare_matrices({"1 rank": one, "infer_gpt2": one, "dp 2": one, "tp 2": matrix}, test, predictions)
        expect(check.state == state, f"{predictions}, {matrix}: {check}")
        expect(len(rows) == sum(p.margin < checks.MARGIN for p in predictions), rows)
    check, _ = checks.compare_matrices({"1 rank": one, "infer_gpt2": one}, test, [sure] * 4)
    expect(check.state == "not run" and "dp 2, tp 2" in check.text, check)


# ---- the table and the figure ----------------------------------------------------------------


def make_rows(naive=0.6):
    def run(seed, right):
        return {"seed": seed, "test": metrics.classification([[right, 10 - right], [10 - right, right]]),
                "trained_parameters": 1234567, "planned_mib": 13.5, "step_ms": 40.0, "epoch_s": 10.6, "cpu": 1.95}
    naive_run = {"test": metrics.classification([[round(10 * naive), 10 - round(10 * naive)]] * 2)}
    naive_run["test"]["accuracy"] = naive
    return [results.make_row("all", "all weights", [run(1, 7), run(2, 8), run(3, 6)], 2.5, 3e-4),
            results.make_row("scratch", "from nothing", [run(1, 5)], 2.5, 1e-3),
            results.make_row(results.NAIVE_BAYES, "naive Bayes", [naive_run], ours=False)]


def test_the_table_has_means_and_deviations(folder):
    page = results.page(make_rows(), ["A note."], ["ok: a check"])
    expect("| all weights | 0.7000 ± 0.1000 | 0.7000 ± 0.1000 |" in page, page)
    expect("| from nothing | 0.5000 | 0.5000 |" in page, "one seed has no deviation")
    expect("| 1,234,567 | 14 | – | 40.0 | 10.6 | 1.95 | – | 2.5 | 0.0003 |" in page, page)
    expect("- A note." in page and "- ok: a check" in page and "20 test sentences" in page, page)
    expect("Naive Bayes has" not in page, "naive Bayes is not the best")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    expect(len({row.count("|") for row in rows}) == 1 and len(rows) == 5, "the table is not rectangular")
    lines = [json.loads(line) for line in results.json_lines(make_rows()).splitlines()]
    expect(lines[0]["accuracy_values"] == [0.7, 0.8, 0.6] and lines[0]["seeds"] == [1, 2, 3], lines[0])


def test_a_best_naive_bayes_is_named_first(folder):
    page = results.page(make_rows(0.78), [], [])
    expect(page.split("\n\n")[1].startswith("Naive Bayes has the best test accuracy, 0.7800"), page)
    expect("all weights, has 0.7000" in page.split("\n\n")[1], page)
    expect(checks.check_accuracy(make_rows(0.78)).state == "ok", "0.70 is enough")
    expect(checks.check_accuracy(make_rows(0.78)[1:]).state == "MISSED", "naive Bayes does not count")


def test_the_figure_has_every_method(folder):
    try:
        find_gnuplot()
    except GnuplotError as error:
        raise Skip(str(error)) from None
    picture.draw(make_rows(), folder / "accuracy.svg", "A title")
    text = "".join(ElementTree.parse(folder / "accuracy.svg").getroot().itertext())
    for label in ("all weights", "from nothing", "naive Bayes", "test accuracy", "macro F1", "A title"):
        expect(label in text, f"'{label}' is not in the picture")
    points = {line for line in picture.script(make_rows(), folder / "x.svg", "").splitlines()}
    expect("0.7 0.12 0.1" in {re.sub(r"(\d\.\d{6})\d+", lambda m: f"{float(m[0]):.6g}", line) for line in points}, points)


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
