#!/usr/bin/env python3
"""Tests runs of classifiers from the command line: frozen parameters and adapters, resumed runs, ranks, and
transformers, if it is installed for $PYTHON.

    python3 test/test_task_run_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import re
import subprocess
import sys

from runner import expect
from task_samples import SIZES, labelled, questions, write_lines
from stored_tensors import read_safetensors, same_state
from test_exchange_programs import transformers
from test_programs import run_program_tests
from test_rank_programs import expect_equal_runs, mpirun
from test_task_programs import CLASSIFY, DATA, QUIET, classifier, config_of, confusion, evaluate, language_model, records, samples

FROM_LM = [*CLASSIFY, *DATA, "--init-from", "lm", "--lr", 1e-2, "--warmup", 1]
ADAPTERS = {"lora": ["--lora", 4], "ia3": ["--ia3"], "w8": ["--lora", 4, "--base-quant", "w8"],
            "bf16": ["--lora", 4, "--dtype", "bf16", "--recompute", "full"]}
CHAT = ["--task", "chat", "--train", "qa.jsonl", "--val", "qa.jsonl", *SIZES, "--batch-size", 3, *QUIET, "--eval-every", 2]


# ---- frozen parameters and adapters --------------------------------------------------------


def test_the_head_learns_even_if_everything_else_is_frozen(program):
    base, _ = read_safetensors(language_model(program) / "model.safetensors"), samples(program)
    for name, flags, pattern in (("freeze", ["--freeze", "*"], r"score\.weight"),
                                 ("only", ["--train-only", "h.1.*"], r"transformer\.h\.1\..*|score\.weight")):
        program.run(*FROM_LM, *flags, "--steps", 2, "--out", name)
        tuned = read_safetensors(program.folder / name / "step_000002/model.safetensors")
        for tensor, values in tuned.items():
            expect((values != base.get(tensor)) == bool(re.fullmatch(pattern, tensor)), f"{flags}: {tensor}")
        moments = read_safetensors(program.folder / name / "step_000002/optimizer.safetensors")
        expect({"first_moment.score.weight", "second_moment.score.weight"} <= moments.keys(), sorted(moments))
    first, last = (read_safetensors(program.folder / "freeze" / "step_000002/model.safetensors"),
                   read_safetensors(program.folder / "only" / "step_000002/model.safetensors"))
    expect(first["score.weight"] != last["score.weight"], "the block below changes nothing in the head")
    program.fails(*FROM_LM, "--freeze", "score.*", "--steps", 1, code=2, phrases=["--freeze: 'score.*' matches only the head"])


def test_an_adapter_of_a_classifier_is_saved_with_its_head_and_labels(program):
    language_model(program), samples(program)
    for name, flags in ADAPTERS.items():
        program.run(*FROM_LM, *flags, "--steps", 40, "--out", name, "--log", f"{name}.jsonl", "--eval-every", 40)
        saved = program.folder / name / "step_000040"
        tensors = read_safetensors(saved / "adapter_model.safetensors")
        expect("base_model.model.score.weight" in tensors and len(tensors) == 5, sorted(tensors))
        expect(not (saved / "model.safetensors").exists(), f"{name}: the model is saved, too")
        settings, config = json.loads((saved / "adapter_config.json").read_text()), config_of(saved)
        expect(settings["task_type"] == "SEQ_CLS" and "score" in settings["modules_to_save"], settings)
        expect(config["id2label"] == {"0": "COLD", "1": "HOT", "2": "MILD"}, config)
        before, after = records(program, f"{name}.jsonl")
        expect(after["val_loss"] < 0.9 * before["val_loss"], f"{name}: {before} {after}")
        quant = flags[2:] if name == "w8" else []
        dtype = flags[2:4] if name == "bf16" else []
        record, _ = evaluate(program, "--adapter", name, "--val", "day.jsonl", *quant, *dtype, log=f"{name}-after.jsonl")
        tolerance = 1e-2 if name == "bf16" else 2e-6
        expect(abs(record["val_loss"] / after["val_loss"] - 1) <= tolerance, f"{name}: {record['val_loss']}, not {after['val_loss']}")
        expect(name == "bf16" or confusion(record) == confusion(after), f"{name}: {record}")
    # The labels are those of the adapter, in its order, and the data must agree with them.
    write_lines(program, "numbers.jsonl", labelled(label=lambda index: index))
    write_lines(program, "words.jsonl", labelled(label=lambda index: ["COLD", "WARM", "MILD"][index]))
    numbers, _ = evaluate(program, "--adapter", "lora", "--val", "numbers.jsonl", log="numbers.jsonl.log")
    expect(confusion(numbers) == confusion(records(program, "lora.jsonl")[-1]), numbers)
    program.fails("--adapter", "lora", "--steps", 0, "--val", "words.jsonl", *QUIET, phrases=["the label WARM is unknown"])
    program.fails("--adapter", "lora", "--steps", 0, "--val", "text.txt", "--task", "lm", *QUIET, code=2,
                  phrases=["--task lm: the model in lora/step_000040 is a classifier with 3 labels"])


# ---- resumed runs --------------------------------------------------------------------------


def test_a_run_in_two_parts_is_the_whole_run(program):
    language_model(program), samples(program), write_lines(program, "qa.jsonl", questions())
    runs = {"classify": [*FROM_LM, "--eval-every", 2, "--dropout", 0.1], "lora": [*FROM_LM, "--eval-every", 2, *ADAPTERS["lora"], "--lora-dropout", 0.1], "chat": CHAT}
    for name, run in runs.items():
        run = [*run, "--steps", 8]  # of 6 steps an epoch, or of 7
        program.run(*run, "--out", f"{name}-whole", "--log", f"{name}-whole.jsonl")
        program.run(*run, "--out", f"{name}-parts", "--log", f"{name}-parts.jsonl", "--stop-after", 4)
        program.run("--resume", "--out", f"{name}-parts", *QUIET)
        logs = [[{key: value for key, value in line.items() if re.search("loss|^val_|step$|grad_norm|token", key) and key != "tok_per_s"}
                 for line in program.log(f"{name}-{half}.jsonl") if "resumed" not in line] for half in ("whole", "parts")]
        expect(logs[0] == logs[1] and len(logs[0]) == 13, f"{name}: {list(zip(*logs))}")
        whole, parts = (program.folder / f"{name}-{half}/step_000008" for half in ("whole", "parts"))
        expect(same_state(whole, parts), f"{name}: another state")
        expect(name == "chat" or config_of(parts)["id2label"] == config_of(whole)["id2label"], f"{name}: other labels")


def test_what_a_run_must_keep_is_refused_on_resume(program):
    classifier(program)
    write_lines(program, "qa.jsonl", questions())
    write_lines(program, "words.jsonl", labelled(label=lambda index: ["COLD", "WARM", "MILD"][index]))
    program.run(*CHAT, "--steps", 1, "--out", "chat")
    for flags, code, phrases in (
            (["--steps", 61, "--batch-size", 7], 2, ["the run has used 480 samples, which are not a whole number of steps of 7 samples",
                                                     "resume with the --batch-size, the --grad-accum and the ranks of the run"]),
            (["--steps", 61, "--task", "lm"], 2, ["step_000060 was written with --task classify, not lm"]),
            (["--steps", 61, "--train", "words.jsonl", "--val", "words.jsonl"], 1, ["the label WARM is unknown"])):
        program.fails("--resume", "--out", "classifier", *QUIET, *flags, phrases=phrases, code=code)
    program.fails("--resume", "--out", "chat", "--steps", 2, "--task", "classify", *QUIET, phrases=["step_000001 was written with --task chat, not classify"], code=2)
    done = program.run("--resume", "--out", "classifier", "--steps", 61, "--batch-size", 4, "--peak-tflops", 1)  # 480 samples are 120 steps
    expect("--batch-size was 8, it is 4 now" in done.stderr, done.stderr)


def best_steps(program, log):
    """The first steps with the lowest validation loss and with the greatest macro F1."""
    evaluations = [record for record in records(program, log) if record["step"] > 0]
    return (min(evaluations, key=lambda record: record["val_loss"])["step"],
            max(evaluations, key=lambda record: record["val_macro_f1"])["step"])


def test_the_best_checkpoint_is_that_with_the_best_f1(program):
    samples(program)
    # A wrong label costs the more loss, the surer the model is: the lowest loss comes before the best F1.
    wrong = [{**one, "label": "HOT" if i % 6 == 0 else one["label"]} for i, one in enumerate(labelled())]
    write_lines(program, "wrong.jsonl", wrong)
    run = [*CLASSIFY, "--train", "day.jsonl", "--val", "wrong.jsonl", *SIZES, "--lr", 1e-2, "--warmup", 4, "--steps", 60, "--eval-every", 4]
    best = [*run, "--keep-best", "--keep-checkpoints", 1]
    program.run(*best, "--keep-best-by", "macro-f1", "--out", "f1", "--log", "f1.jsonl")
    program.run(*best, "--out", "loss", "--log", "loss.jsonl")
    by_loss, by_f1 = best_steps(program, "f1.jsonl")
    expect(by_loss != by_f1 and by_f1 < 60, f"both are best after step {by_f1}, so this test detects nothing")
    program.run(*best, "--keep-best-by", "macro-f1", "--out", "parts", "--log", "parts.jsonl", "--stop-after", by_f1 + 2)
    program.run("--resume", "--out", "parts", *QUIET)
    for name, step in (("f1", by_f1), ("loss", by_loss), ("parts", by_f1)):
        link = (program.folder / name / "best").resolve().name
        expect(link == f"step_{step:06}", f"{name}: best is {link}, not of step {step}: {records(program, f'{name}.jsonl')}")


# ---- ranks ---------------------------------------------------------------------------------


def test_ranks_train_and_evaluate_the_same_classifier(program):
    folder, _ = classifier(program), language_model(program)
    train = ["--task", "classify", *DATA, "--init-from", "lm", "--lr", 1e-2, "--warmup", 2, "--eps", 1e-4, "--steps", 4, "--eval-every", 2, *QUIET]
    program.run(*train, "--batch-size", 4, "--grad-accum", 2, "--log", "one.jsonl")
    half = [{**one, "label": "HOT" if i % 5 == 0 else one["label"]} for i, one in enumerate(labelled(43))]
    write_lines(program, "half.jsonl", half)  # an odd number, with errors
    zero = ["--steps", 0, "--batch-size", 5, *QUIET, "--init-from", folder, "--val", "half.jsonl"]
    record, table = evaluate(program, "--init-from", folder, "--val", "half.jsonl")
    expect(record["val_accuracy"] < 0.9, record)
    layouts = {"dp": (2, ["--batch-size", 4]), "tp": (2, ["--tp", 2, "--batch-size", 4, "--grad-accum", 2]),
               "sp": (2, ["--tp", 2, "--sequence-parallel", "--batch-size", 4, "--grad-accum", 2]),
               "pp": (2, ["--pp", 2, "--batch-size", 4, "--grad-accum", 2]), "zero": (2, ["--zero", 3, "--batch-size", 4]),
               "all": (4, ["--tp", 2, "--zero", 2, "--batch-size", 2, "--grad-accum", 2])}
    for name, (ranks, flags) in layouts.items():
        mpirun(program, ranks, *train, *flags, "--log", f"{name}.jsonl")
        expect_equal_runs(program, f"{name}.jsonl", "one.jsonl")
        mesh = flags[:flags.index("--batch-size")] + (["--grad-accum", 2] if name == "pp" else [])
        out, _ = mpirun(program, ranks, *zero, *mesh, "--log", f"zero-{name}.jsonl")
        result = records(program, f"zero-{name}.jsonl")[-1]
        expect(confusion(result) == confusion(record), f"{name}: {result}")
        expect(abs(result["val_loss"] / record["val_loss"] - 1) <= 2e-6 and out.split("\n", 1)[1] == table.split("\n", 1)[1], f"{name}: {out}")


# ---- transformers --------------------------------------------------------------------------


def test_a_pipeline_of_transformers_has_the_labels_and_probabilities_of_classify(program):
    language_model(program), classifier(program)
    program.run(*FROM_LM, "--lora", 4, "--steps", 40, "--out", "lora")
    base, infer = program.folder / "lm/step_000002", program.binary.parent / "infer_gpt2"
    subprocess.run([infer, "merge", base, "lora", "merged"], cwd=program.folder, check=True, capture_output=True)
    for model in ("classifier/step_000060", "merged"):  # which batches of transformers need
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            roles = json.loads((program.folder / model / name).read_text())
            expect(roles["pad_token"] == "<|endoftext|>" == roles["eos_token"], f"{model}/{name}: {roles}")
    expect("pad_token" not in json.loads((base / "tokenizer_config.json").read_text()), "a language model has a pad token")
    texts = [one["text"] for one in labelled(12)] + ["cold", "day"]
    (program.folder / "texts.txt").write_text("".join(text + "\n" for text in texts))
    for model in ("classifier/step_000060", "merged"):
        done = subprocess.run([infer, "classify", "texts.txt", "-m", model], cwd=program.folder, check=True, capture_output=True, text=True)
        ours = [json.loads(line) for line in done.stdout.splitlines()]
        script = "import json, sys\nfrom transformers import pipeline\n" \
                 "classify = pipeline('text-classification', model=sys.argv[1], top_k=None)\n" \
                 "print(json.dumps(classify(json.loads(sys.argv[2]), batch_size=4)))"
        theirs = json.loads(transformers(program, script, model, json.dumps(texts))[-1])
        for text, one, other in zip(texts, ours, theirs, strict=True):
            expect(one["label"] == other[0]["label"], f"{model}, {text}: {one}, {other}")
            for score in other:  # fp32
                expect(abs(one["probabilities"][score["label"]] - score["score"]) < 1e-5, f"{model}, {text}: {one}, {other}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
