#!/usr/bin/env python3
"""Tests classifiers from the command line: their data, starts, evaluations and files, frozen parameters and adapters,
resumed runs, ranks, and errors.

    python3 test/test_task_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import sys

from runner import expect
from task_samples import LABELS, QUIET, SIZES, labelled, write_lines
from stored_tensors import read_safetensors
from test_programs import run_program_tests

TRAINING = ["--batch-size", 8, *QUIET]
CLASSIFY = ["--task", "classify", *TRAINING]
LEARN = ["--lr", 1e-2, "--warmup", 4, "--steps", 60]
STILL = ["--lr", 0, "--steps", 1]  # what the run saves is what it starts with
DATA = ["--train", "day.jsonl", "--val", "day.jsonl"]
LOSS = 2e-6  # relative error of losses between layouts, as in test_rank_programs.py


def samples(program):
    return write_lines(program, "day.jsonl", labelled())


def language_model(program):
    if not (program.folder / "lm").exists():
        program.run("--train", "text.txt", *SIZES, "--batch-size", 2, *QUIET, "--steps", 2, "--out", "lm")
    return program.folder / "lm/step_000002"


def classifier(program):
    """A classifier that has learnt samples()."""
    samples(program)
    if not (program.folder / "classifier").exists():
        program.run(*CLASSIFY, *DATA, *SIZES, *LEARN, "--out", "classifier", "--log", "classifier.jsonl", "--eval-every", 60)
    return program.folder / "classifier/step_000060"


def records(program, log, prefix="val"):
    return [line for line in program.log(log) if f"{prefix}_loss" in line]


def confusion(record, prefix="val"):
    return json.loads(record[f"{prefix}_classification"])["confusion_matrix"]


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def evaluate(program, *arguments, log="evaluation.jsonl"):
    """The record of --steps 0, and stdout."""
    (program.folder / log).unlink(missing_ok=True)
    out = program.run("--steps", 0, "--batch-size", 5, *QUIET, *arguments, "--log", log).stdout
    return records(program, log)[-1], out


# ---- data and files ------------------------------------------------------------------------


def test_a_classifier_learns_from_nothing_and_says_how_well(program):
    folder = classifier(program)
    before, after = records(program, "classifier.jsonl")
    expect(before["step"] == 0 and before["val_accuracy"] < 0.8, before)
    expect(after["step"] == 60 and after["val_accuracy"] == after["val_macro_f1"] == 1, after)
    details = json.loads(after["val_classification"])
    counts = [sum(one["label"] == label for one in labelled()) for label in LABELS]
    expect([(one["label"], one["support"], one["f1"]) for one in details["classes"]] ==
           [(label, count, 1) for label, count in zip(LABELS, counts)], details)
    expect(confusion(after) == [[counts[0], 0, 0], [0, counts[1], 0], [0, 0, counts[2]]], details)
    config = config_of(folder)
    expect(config["architectures"] == ["GPT2ForSequenceClassification"], config)
    expect(config["id2label"] == {"0": "COLD", "1": "HOT", "2": "MILD"} and config["pad_token_id"] == 256, config)
    tensors = read_safetensors(folder / "model.safetensors")
    expect(len(tensors["score.weight"]) == 3 * 32 * 4 and "lm_head.weight" not in tensors, sorted(tensors))


def test_a_text_has_one_label_in_every_form_of_the_data(program):
    samples(program)
    write_lines(program, "numbers.jsonl", labelled(label=lambda index: index))
    for label in LABELS:
        texts = [one["text"] + "\n" for one in labelled() if one["label"] == label]
        (program.folder / f"{label}.txt").write_text("".join(texts))
    lists = {order: ",".join(f"{label}={label}.txt" for label in order.split()) for order in ("COLD HOT MILD", "MILD COLD HOT")}
    run = [*CLASSIFY, *SIZES, *STILL]
    forms = {"strings": ["--train", "day.jsonl", "--split", "60/20/20"], "numbers": ["--train", "numbers.jsonl", "--split", "60/20/20"],
             "list": ["--classes", lists["COLD HOT MILD"], "--split", "60/20/20"],
             "other-order": ["--classes", lists["MILD COLD HOT"], "--split", "60/20/20"],
             "files": ["--classes", lists["COLD HOT MILD"], "--val", lists["COLD HOT MILD"], "--test", "day.jsonl"]}
    names = {}
    for form, flags in forms.items():
        program.run(*run, *flags, "--out", form, "--log", f"log-{form}.jsonl")
        names[form] = list(config_of(program.folder / form / "step_000001")["id2label"].values())
    expect(names == {"strings": LABELS, "numbers": ["LABEL_0", "LABEL_1", "LABEL_2"], "list": LABELS,
                     "other-order": ["MILD", "COLD", "HOT"], "files": LABELS}, names)
    # The parts depend on the texts only, so the same model makes the same errors in each.
    tests = {form: records(program, f"log-{form}.jsonl", "test")[-1] for form in forms}
    parts = [records(program, f"log-{form}.jsonl")[-1]["val_loss"] for form in ("strings", "numbers", "list")]
    expect(max(parts) - min(parts) <= LOSS * max(parts) and confusion(tests["strings"], "test") == confusion(tests["numbers"], "test"), parts)
    expect(sum(map(sum, confusion(tests["files"], "test"))) == 48, tests["files"])
    expect(0 < sum(map(sum, confusion(tests["list"], "test"))) < 48, tests["list"])


def test_a_long_text_loses_its_end_and_is_counted(program):
    long = [{"text": one["text"] + " " * 9 * (i % 2) + "and so on" * (i % 2), "label": one["label"]} for i, one in enumerate(labelled())]
    short = [{"text": one["text"][:12], "label": one["label"]} for one in long]
    run = ["--task", "classify", *SIZES, "--seq-len", 12, "--batch-size", 8, "--peak-tflops", 1, "--steps", 2]
    losses = []
    for name, objects in (("long.jsonl", long), ("short.jsonl", short)):
        write_lines(program, name, objects)
        done = program.run(*run, "--train", name, "--val", name, "--log", f"log-{name}", "--eval-every", 1)
        count = sum(len(one["text"]) > 12 for one in objects) * 2  # in --train and in --val
        expect((f"data: {count} texts have more than --seq-len 12 tokens and lose their end" in done.stderr) == (count > 0), done.stderr)
        losses.append([line.get("loss", line.get("val_loss")) for line in program.log(f"log-{name}")])
    expect(losses[0] == losses[1] and len(losses[0]) == 5, losses)


def test_results_are_printed_at_the_end_and_without_training(program):
    folder = classifier(program)
    write_lines(program, "half.jsonl", labelled(24))
    trained = program.run(*CLASSIFY, "--init-from", folder, "--train", "day.jsonl", "--val", "day.jsonl", "--test", "half.jsonl",
                          *STILL, "--log", "test.jsonl")
    test = records(program, "test.jsonl", "test")
    expect(len(test) == 1 and test[0]["step"] == 1 and test[0]["test_accuracy"] == 1, test)
    for phrase in (f"test_loss {test[0]['test_loss']:.6f}\n", "accuracy 1.0000, standard error 0.0000 (24 examples)\n", "(macro mean)",
                   "2 MILD\n"):
        expect(phrase in trained.stdout, f"'{phrase}' is not in: {trained.stdout}")
    record, out = evaluate(program, "--init-from", folder, "--val", "half.jsonl", "--test", "day.jsonl", log="zero.jsonl")
    test = records(program, "zero.jsonl", "test")[-1]
    expect(abs(test["test_loss"] / records(program, "classifier.jsonl")[-1]["val_loss"] - 1) <= LOSS, test)
    for phrase in (f"val_loss {record['val_loss']:.6f}\n", f"test_loss {test['test_loss']:.6f}\n", "(24 examples)", "(48 examples)"):
        expect(phrase in out, f"'{phrase}' is not in: {out}")


# ---- starts --------------------------------------------------------------------------------


def test_a_classifier_of_a_language_model_begins_with_its_tensors(program):
    base, _ = read_safetensors(language_model(program) / "model.safetensors"), samples(program)
    done = program.run(*CLASSIFY, *DATA, "--init-from", "lm", *STILL, "--out", "head")
    tuned = read_safetensors(program.folder / "head/step_000001/model.safetensors")
    expect(tuned.keys() - base.keys() == {"score.weight"} and base.keys() - tuned.keys() <= {"lm_head.weight"}, sorted(tuned))
    expect(all(values == base[name] for name, values in tuned.items() if name != "score.weight"), "other values")
    expect(any(tuned["score.weight"]), "the head is zero")
    program.run(*CLASSIFY, *DATA, "--init-from", "lm", *LEARN, "--log", "head.jsonl", "--eval-every", 60)
    expect(records(program, "head.jsonl")[-1]["val_accuracy"] == 1, (done.stderr, records(program, "head.jsonl")))


def test_labels_of_the_data_must_be_those_of_the_classifier_by_name_or_number(program):
    folder = classifier(program)
    write_lines(program, "numbers.jsonl", labelled(label=lambda index: index))
    write_lines(program, "two.jsonl", [one for one in labelled() if one["label"] != "COLD"])
    write_lines(program, "words.jsonl", labelled(label=lambda index: ["COLD", "WARM", "MILD"][index]))
    for label in LABELS:
        (program.folder / f"{label}.txt").write_text("".join(one["text"] + "\n" for one in labelled() if one["label"] == label))
    order = "MILD=MILD.txt,HOT=HOT.txt,COLD=COLD.txt"
    for flags in (["--val", "day.jsonl"], ["--val", "numbers.jsonl"], ["--val", "two.jsonl"], ["--val", order], ["--task", "classify", "--val", order]):
        record, _ = evaluate(program, "--init-from", folder, *flags)
        expect(record["val_accuracy"] == 1 and len(confusion(record)) == 3, f"{flags}: {record}")
    program.run(*TRAINING, "--init-from", folder, "--classes", order, *STILL, "--split", "80/20", "--out", "more")
    expect(config_of(program.folder / "more/step_000001")["id2label"] == config_of(folder)["id2label"], "other labels")
    expect(read_safetensors(program.folder / "more/step_000001/model.safetensors") == read_safetensors(folder / "model.safetensors"), "other tensors")
    program.fails(*TRAINING, "--init-from", folder, "--train", "words.jsonl", "--steps", 1,
                  phrases=["words.jsonl:2: the label WARM is unknown", "use one of the 3 labels COLD, HOT, MILD"])
    program.fails(*TRAINING, "--init-from", folder, "--train", "text.txt", "--steps", 1, "--task", "lm", code=2,
                  phrases=[f"--task lm: the model in {folder} is a classifier with 3 labels", "use --task classify"])


# ---- errors --------------------------------------------------------------------------------


def test_wrong_data_and_flags_are_one_clear_error(program):
    samples(program)
    for name, objects in {
            "unlabelled": [{"text": "a"}], "mixed": [{"text": "a", "label": 1}, {"text": "b", "label": "x"}],
            "blank": [{"text": "a", "label": 0}, {"text": " ", "label": 1}], "empty": [], "gap": [{"text": "a", "label": 0}, {"text": "b", "label": 2}],
            "one": [{"text": "a", "label": "x"}, {"text": "b", "label": "x"}]}.items():
        write_lines(program, f"{name}.jsonl", objects)
    (program.folder / "words.txt").write_text("a\nb\n")
    task = ["--task", "classify"]
    data = [*task, *DATA]
    file_errors = [(["--train", f"{name}.jsonl"], phrases) for name, phrases in (
        ("unlabelled", ['unlabelled.jsonl:1 has no "label"']), ("mixed", ["mixed.jsonl:2: the label x is a string", "mixed.jsonl:1 is an integer"]),
        ("blank", ["blank.jsonl:2: the text is empty"]), ("empty", ["empty.jsonl contains no examples"]), ("gap", ["gap.jsonl"]),
        ("one", ["one.jsonl"]), ("absent", ["cannot open absent.jsonl"]))]
    file_errors += [(["--train", "day.jsonl", "--split", "1/1000000"], ["day.jsonl", "training part"]),
                    ([*DATA, "--tokenizer", "words:words.txt"], ["words:words.txt has no end-of-text token"])]
    usage_errors = [
        (["--task", "clasify"], ["'clasify' is not one of lm, classify, chat; did you mean classify?"]),
        (task, ["--task classify needs data", "--train FILE.jsonl, or --classes"]),
        ([*task, "--classes", "a=text.txt"], ["--classes 'a=text.txt' has only one class"]),
        ([*task, "--train", "text.txt"], ["--train 'text.txt': 'text.txt' is not LABEL=FILE"]),
        ([*task, "--val", "day.jsonl"], ["--val without --train"]),
        ([*data, "--classes", "a=text.txt,b=text.txt"], ["--classes and --train exclude each other"]),
        (["--classes", "a=text.txt,b=text.txt"], ["--classes has no effect with --task lm"]),
        (["--train", "text.txt", "--split", "90/10"], ["--split has no effect with --task lm"]),
        (["--train", "text.txt", "--val", "text.txt", "--test", "text.txt"], ["--test has no effect with --task lm"]),
        ([*task, "--train", "day.jsonl", "--test", "day.jsonl"], ["--test needs --val"]),
        ([*data, "--split", "80/20"], ["--split and --val exclude each other"]),
        ([*task, "--train", "day.jsonl", "--split", "8:2"], ["--split: '8:2' is not a list of fractions; write TRAIN/VALIDATION"]),
        ([*data, "--chat-template", "{role}{content}"], ["--chat-template has no effect with --task classify"]),
        ([*data, "--eval", "perplexity:text.txt"], ["--eval has no effect with --task classify", "give --test"]),
        ([*data, "--sample-every", 2], ["--sample-every has no effect with --task classify"]),
        ([*data, "--final-samples-out", "o"], ["--final-samples-out has no effect with --task classify"]),
        ([*data, "--qat", "w8"], ["--qat has no effect with --task classify"]),
        ([*data, "--document-mask"], ["--document-mask has no effect with --task classify"]),
        ([*data, "--eval-batches", 3], ["--eval-batches 3 with --task classify"]),
        (["--train", "text.txt", "--keep-best-by", "macro-f1", "--out", "o"], ["--keep-best-by macro-f1 is for classifiers"]),
        ([*data, "--keep-best-by", "macro-f1"], ["--keep-best-by needs --out"]),
        ([*data, "--freeze", "nothing.*"], ["--freeze: 'nothing.*' matches no parameter"]),
        ([*data, "--train-only", "nothing.*"], ["--train-only: 'nothing.*' matches no parameter"])]
    for flags, phrases, code in [([*task, *flags], phrases, 1) for flags, phrases in file_errors] + [(*case, 2) for case in usage_errors]:
        done = program.run(*SIZES, "--steps", 1, "--batch-size", 2, *QUIET, *flags, code=code)
        expect(all(phrase in done.stderr for phrase in phrases), f"{flags}: {done.stderr}")
        expect(done.stderr.count("train_gpt2: ") == 1 and not (program.folder / "o").exists(), f"{flags}: {done.stderr}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
