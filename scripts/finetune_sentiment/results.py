"""The table of all methods, as Markdown and as JSON lines."""
import json
import math
import statistics

from finetune_sentiment.metrics import mean_and_deviation

SCORES = {"accuracy": "test accuracy", "precision": "macro precision", "recall": "macro recall", "f1": "macro F1"}
MEASURES = ("trained_parameters", "parameters", "planned_mib", "peak_mib", "step_ms", "epoch_s", "cpu", "gpu")
NAIVE_BAYES = "naive-bayes"


def scores_of(test):
    return {"accuracy": test["accuracy"], **test["macro"]}


def mean_of(values):
    values = [value for value in values if value is not None]
    return statistics.fmean(values) if values else None


def make_row(name, title, runs, epochs=None, rate=None, ours=True):
    """A row of the table: means and standard deviations of the runs of one method, which have different seeds."""
    row = {"method": name, "title": title, "ours": ours, "runs": len(runs), "epochs": epochs, "learning_rate": rate,
           "seeds": [run.get("seed") for run in runs], "test_examples": runs[0]["test"]["examples"]}
    for score in SCORES:
        values = [scores_of(run["test"])[score] for run in runs]
        row[score], row[score + "_sd"] = mean_and_deviation(values)
        row[score + "_values"] = values
    row["validation_macro_f1_values"] = [run.get("validation", {}).get("macro_f1") for run in runs]
    for measure in MEASURES:
        row[measure] = mean_of([run.get(measure) for run in runs])
    row["confusion_matrices"] = [run["test"]["confusion_matrix"] for run in runs]
    return row


def number_text(value, digits, scale=1):
    return "–" if value is None else f"{scale * value:,.{digits}f}"


def score_text(row, score):
    deviation = row[score + "_sd"]
    return f"{row[score]:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def cells(row):
    epochs = number_text(row["epochs"], 1)
    rate = "–" if row["learning_rate"] is None else f"{row['learning_rate']:g}"
    return [row["title"], *(score_text(row, score) for score in SCORES), str(row["runs"]),
            number_text(row["trained_parameters"], 0), number_text(row["planned_mib"], 0), number_text(row["peak_mib"], 0),
            number_text(row["step_ms"], 1), number_text(row["epoch_s"], 1), number_text(row["cpu"], 2),
            "–" if row["gpu"] is None else f"{row['gpu']:.0f}%", epochs, rate]


HEADINGS = ["method", *SCORES.values(), "seeds", "trained parameters", "planned MiB", "peak MiB", "ms per step", "s per epoch",
            "CPU use", "GPU use", "epochs", "learning rate"]


def markdown_table(rows):
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
    return "\n".join(lines + ["| " + " | ".join(cells(row)) + " |" for row in rows])


def first_sentence(rows):
    """The sentence at the top of the page if naive Bayes has the best mean accuracy; else an empty text."""
    naive = next((row for row in rows if row["method"] == NAIVE_BAYES), None)
    best = max((row for row in rows if row["method"] != NAIVE_BAYES), key=lambda row: row["accuracy"], default=None)
    if naive is None or best is None or naive["accuracy"] < best["accuracy"]:
        return ""
    return (f"Naive Bayes has the best test accuracy, {naive['accuracy']:.4f}: no fine-tuned model is better than counts of "
            f"words and pairs of words. The best of them, {best['title']}, has {best['accuracy']:.4f}.")


def best_of_ours(rows):
    return max((row for row in rows if row["ours"]), key=lambda row: row["accuracy"])


def page(rows, notes, checks):
    """The text of results.md. `notes`: sentences about the data, the models and the times. `checks`: their lines."""
    examples = rows[0]["test_examples"]
    accuracy = best_of_ours(rows)["accuracy"]
    error = math.sqrt(accuracy * (1 - accuracy) / examples)
    legend = (f"Scores are means ± standard deviations over seeds, on the {examples} test sentences. All seeds share "
              f"these sentences, which alone give an accuracy of {accuracy:.2f} a standard error of {error:.3f}. Planned "
              "MiB: memory that train_gpt2 plans; peak: the largest memory of the process (of the GPU, with one). CPU "
              "use: (user + system) time / elapsed time. GPU use: mean of nvidia-smi. Epochs and learning rate were "
              "chosen without the test part.")
    parts = ["# Fine-tuning on sentence polarity", first_sentence(rows), markdown_table(rows), legend,
             "\n".join(f"- {note}" for note in notes), "## Checks", "\n".join(f"- {line}" for line in checks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)
