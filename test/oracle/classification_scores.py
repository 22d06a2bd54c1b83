#!/usr/bin/env python3
"""Computes metrics of confusion matrices with scikit-learn, for test_classification_metrics.cpp.

    classification_scores.py < MATRICES    one JSON list of rows (labels) of columns (predictions) per line;
                                           prints one JSON object with the scores of each
    classification_scores.py --remake      writes fixtures/classification.jsonl (scikit-learn 1.9.1)
"""
import json
import random
import sys
from pathlib import Path

try:
    import numpy
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support
except ImportError as error:
    print(f"not installed: {error.name}")
    sys.exit(77)

FIXTURE = Path(__file__).resolve().parent / "fixtures" / "classification.jsonl"


def scores(matrix):
    """Scores of the examples that the matrix counts, one by one."""
    counts = numpy.array(matrix)
    classes = range(len(matrix))
    labels, predictions = (numpy.repeat(axis.ravel(), counts.ravel()) for axis in numpy.indices(counts.shape))

    def average(kind):
        result = precision_recall_fscore_support(labels, predictions, labels=classes, average=kind, zero_division=0)
        return [numpy.asarray(value).tolist() for value in result if value is not None]

    return {"matrix": matrix, "accuracy": float(accuracy_score(labels, predictions)), "classes": average(None),
            "macro": average("macro"), "weighted": average("weighted")}


def fixture_matrices():
    """A class without examples, one that is never predicted, one with neither, and random matrices."""
    draw = random.Random(1)
    return [[[3, 1], [2, 4]], [[5, 2], [0, 0]], [[4, 0], [3, 0]], [[2, 0, 1], [0, 0, 0], [1, 0, 3]], [[0, 6], [7, 0]],
            [[9, 0], [0, 9]]] + [[[int(draw.random() * 30) * (draw.random() < 0.7) for _ in range(classes)]
                                  for _ in range(classes)] for classes in (2, 3, 4, 5, 7, 10)]


def main():
    if sys.argv[1:] == ["--remake"]:
        FIXTURE.write_text("".join(json.dumps(scores(matrix)) + "\n" for matrix in fixture_matrices()))
    elif not sys.argv[1:]:
        for line in sys.stdin:
            print(json.dumps(scores(json.loads(line))))


if __name__ == "__main__":
    main()
