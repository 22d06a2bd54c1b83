"""Metrics of a confusion matrix, as llmc/eval/classification_metrics.h defines them, and statistics over seeds."""
import math
import statistics


def confusion_matrix(labels, predictions, classes):
    """Rows are labels, columns predictions."""
    matrix = [[0] * classes for _ in range(classes)]
    for label, prediction in zip(labels, predictions, strict=True):
        matrix[label][prediction] += 1
    return matrix


def ratio(a, b):
    return a / b if b else 0.0


def classification(matrix):
    """{"examples", "accuracy", "macro": {"precision", "recall", "f1"}, "confusion_matrix"}."""
    examples, classes = sum(map(sum, matrix)), range(len(matrix))
    right = [matrix[c][c] for c in classes]
    predicted = [sum(row[c] for row in matrix) for c in classes]
    support = [sum(row) for row in matrix]
    macro = {"precision": [ratio(right[c], predicted[c]) for c in classes],
             "recall": [ratio(right[c], support[c]) for c in classes],
             "f1": [ratio(2 * right[c], predicted[c] + support[c]) for c in classes]}
    return {"examples": examples, "accuracy": ratio(sum(right), examples),
            "macro": {name: statistics.fmean(values) for name, values in macro.items()}, "confusion_matrix": matrix}


def mean_and_deviation(values):
    """The mean, and the standard deviation of the sample (None for one value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def paired_difference(a, b):
    """Of {seed: value} a - b over the seeds that both have: the differences, their mean, and the standard error of the
    mean (None for fewer than two seeds)."""
    differences = {seed: a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())}
    if not differences:
        return differences, None, None
    mean, deviation = mean_and_deviation(list(differences.values()))
    return differences, mean, None if deviation is None else deviation / math.sqrt(len(differences))
