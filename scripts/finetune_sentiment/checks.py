"""The checks of an experiment: each has a line, and passes, is missed (exit code 1) or could not run."""
import json
import math
import shutil
from typing import NamedTuple

from finetune_sentiment.data import LABELS, PARTS
from finetune_sentiment.methods import evaluation_flags
from finetune_sentiment.metrics import confusion_matrix, paired_difference
from finetune_sentiment.results import best_of_ours
from finetune_sentiment.runs import read_log, test_record
from measured_programs import ROOT, RunError, execute, program

MIN_ACCURACY, AIM = 0.70, 0.75
MARGIN = 1e-3  # of |log p1 - log p2|, below which ranks may predict different classes in fp32
RANKS = {"dp 2": [], "tp 2": ["--tp", 2]}


class Check(NamedTuple):
    state: str   # ok, MISSED, "not run" or "not applied"
    text: str

    def line(self):
        return f"{self.state}: {self.text}"


def check_gain(pretrained, scratch):
    """`pretrained`, `scratch`: test accuracy of each seed. Their mean difference must exceed twice its standard error."""
    differences, mean, error = paired_difference(pretrained, scratch)
    if error is None:
        return Check("not run", "the gain of pretraining has no standard error: it needs two seeds of scratch and all")
    listed = ", ".join(f"{difference:+.4f}" for difference in differences.values())
    passed = mean > 0 and mean > 2 * error
    return Check("ok" if passed else "MISSED",
                 f"all weights minus from nothing, test accuracy: {mean:+.4f}, standard error {error:.4f} ({listed}); "
                 "required: more than twice the standard error")


def check_accuracy(rows):
    best = best_of_ours(rows)
    aim = "reached" if best["accuracy"] >= AIM else "missed"
    return Check("ok" if best["accuracy"] >= MIN_ACCURACY else "MISSED",
                 f"best mean test accuracy {best['accuracy']:.4f} ({best['title']}); required: {MIN_ACCURACY:.2f}; the aim, "
                 f"{AIM:.2f}, is {aim}")


# ---- predictions -----------------------------------------------------------------------------


class Prediction(NamedTuple):
    label: int
    margin: float  # |log p1 - log p2| of the two most likely classes


def parse_prediction(text, source):
    """A line of `infer_gpt2 classify`: {"label": "negative", "probabilities": {"negative": 0.9, "positive": 0.1}}."""
    try:
        record = json.loads(text)
        probabilities = sorted((float(record["probabilities"][name]) for name in LABELS), reverse=True)
        label = LABELS.index(record["label"])
        first, second = probabilities[:2]
        return Prediction(label, math.log(first / second) if second > 0 else math.inf)
    except (ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise RunError(f"{source}: '{text[:80]}' is no line of predictions ({type(error).__name__}: {error})") from None


def read_predictions(path, count):
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) != count:
        raise RunError(f"{path} has {len(lines)} predictions for {count} texts")
    return [parse_prediction(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def close_rows(predictions):
    """Indices of the rows whose class may change."""
    return [i for i, prediction in enumerate(predictions) if prediction.margin < MARGIN]


def difference_allowed(reference, other, labels, close):
    """Whether two confusion matrices differ by at most the predictions of the rows `close`."""
    for label, (row, other_row) in enumerate(zip(reference, other)):
        changed = sum(abs(a - b) for a, b in zip(row, other_row)) / 2
        if sum(row) != sum(other_row) or changed > sum(labels[i] == label for i in close):
            return False
    return True


def check_ranks(folder, method, model, data, checkpoint, test):
    """Evaluates a checkpoint on one rank, on two data-parallel and on two tensor-parallel ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = [program("train_gpt2"), *evaluation_flags(method, model, data, checkpoint)]

    def matrix(name, launcher, more):
        log = folder / f"{name.replace(' ', '')}.jsonl"
        log.unlink(missing_ok=True)
        execute([*launcher, *flags, *more, "--log", log], folder / f"{name.replace(' ', '')}.txt")
        return test_record(read_log(log), log)["confusion_matrix"]

    texts = folder / f"{PARTS[2]}.txt"
    texts.write_text("\n".join(test.texts) + "\n", encoding="utf-8")
    execute([program("infer_gpt2"), "classify", texts, "--model", checkpoint], folder / "predictions.txt",
            folder / "predictions.jsonl")
    predictions = read_predictions(folder / "predictions.jsonl", len(test.texts))
    matrices = {"1 rank": matrix("1 rank", [], []),
                "infer_gpt2": confusion_matrix(test.labels, [one.label for one in predictions], len(LABELS))}
    if shutil.which("mpirun") or (ROOT / "deps/usr/bin/mpirun").exists():
        launcher = [ROOT / "scripts/run.sh", "-np", 2]
        matrices |= {name: matrix(name, launcher, more) for name, more in RANKS.items()}
    return compare_matrices(matrices, test, predictions)


def compare_matrices(matrices, test, predictions):
    """The check of matrices, by layout, against that of one rank, and its lines about rows near the boundary."""
    close = close_rows(predictions)
    one = matrices["1 rank"]
    bad = [name for name, matrix in matrices.items() if not difference_allowed(one, matrix, test.labels, close)]
    equal = [name for name, matrix in matrices.items() if matrix == one and name != "1 rank"]
    text = (f"confusion matrices of the same weights, {json.dumps(one)} on 1 rank; equal: {', '.join(equal) or 'none'}"
            + "".join(f"; {name}: {json.dumps(matrix)}" for name, matrix in matrices.items() if matrix != one)
            + f"; test sentences with |log p1 - log p2| < {MARGIN:g}: {len(close)}")
    rows = [f"row {i + 1} ({LABELS[test.labels[i]]}), margin {predictions[i].margin:.1e}: {test.texts[i]}" for i in close]
    if bad:
        return Check("MISSED", f"{text}; more rows differ: {', '.join(bad)}"), rows
    absent = [name for name in RANKS if name not in matrices]
    if absent:
        return Check("not run", f"{', '.join(absent)}: mpirun is missing, scripts/setup.sh installs it; {text}"), rows
    return Check("ok", text), rows
