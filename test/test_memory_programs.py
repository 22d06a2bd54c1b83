#!/usr/bin/env python3
"""Tests what a run of train_gpt2 knows about itself: what --resume and --init-from take from a checkpoint, what
they report, the history of a run, and which checkpoints the links name.

    python3 test/test_memory_programs.py build/host [PATTERN]
    python3 test/test_memory_programs.py build/host --table > llmc/train/RESUMING.md

Prints and exits as test_programs.py does.
"""
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from manifest_seal import reseal
from resume_cases import CASES, NOTHING
from runner import Skip, expect
from stored_tensors import same_state
from test_exchange_programs import write_llmc_model
from test_programs import ROOT, TEXT, Program, run_program_tests, write_bin

TABLE = ROOT / "llmc/train/RESUMING.md"
SIZES = "--layers 1 --heads 1 --channels 8 --context 16 --batch-size 2"
FAST = "--peak-tflops 1"
HEADING = """# What a resumed run takes from its checkpoint

## Another number of ranks

The order of the samples, the micro-batch and the losses do not depend on the number of ranks; the tokens per step may.

- **`--total-batch-tokens` was typed**, now or earlier: the tokens per step stay, and `--grad-accum` changes. If the
  ranks do not divide the micro-batches, the run is refused, and the error lists the numbers of ranks and the
  `--batch-size` that are possible.
- **It was not typed**: `--grad-accum` stays, so twice as many ranks have steps of twice as many tokens. One line
  reports it: `steps had 192 tokens and now have 96, on 2 instead of 4 data-parallel ranks; --total-batch-tokens 192
  keeps them`. To keep them, stop the run and resume it with that flag; without the last part, these ranks cannot.
- **`scripts/run.sh --restarts N`** adds `--resume` after a failure, and with `--elastic` sets the number of ranks and
  `--grad-accum`: [messages](../../scripts/README.md#restart-a-run-that-fails).

## Cases

Written by `python3 test/test_memory_programs.py build/host --table`, which runs each case. The run so far has
`--steps 6 --lr 0.01 --log run/log.jsonl` and has done 3 steps on `text.txt`. The test also checks that the next
checkpoint records the same value as before for every flag except those in the third column.

| case | flags that are typed | flags that change | taken from | reported |
|---|---|---|---|---|
"""


def train(program, command, folder, code=0):
    arguments = [*shlex.split(command), *FAST.split()]
    done = subprocess.run([program.binary, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    expect(done.returncode == code, f"{command}: exit code {done.returncode}, not {code}: {done.stderr[-600:]}")
    return done.stderr


def newest_manifest(run):
    paths = [path for path in run.iterdir() if path.name.startswith("step_")]
    return json.loads((max(paths) / "manifest.json").read_text()) if paths else None


def recorded(run):
    return {flag: value for flag, value in newest_manifest(run)["state"].items() if flag.startswith("--")}


def make_runs(program, folder):
    """Fills `folder` with the runs, texts and weights that the cases need."""
    for name in ("moved", "elsewhere"):
        (folder / name).mkdir(parents=True)
    for name, text in (("text.txt", TEXT), ("moved/text.txt", TEXT), ("other.txt", TEXT.replace("fox", "cat")),
                       ("words.txt", "a\nb\n"), ("ab.txt", "a b b a " * 100),
                       ("docs.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in TEXT.splitlines()))):
        (folder / name).write_text(text)
    write_bin(folder / "ids.bin", [(7 * i + i // 50) % 250 for i in range(1500)])
    common = f"{SIZES} --steps 6 --lr 0.01 --eval-every 2 --eval-batches 2 --sample-every 1 --sample-length 4"
    stop = "--checkpoint-every 1 --keep-checkpoints 0 --stop-after 3"
    train(program, f"--train text.txt {common} --out run --log run/log.jsonl {stop}", folder)
    train(program, f"--train text.txt {common} --total-batch-tokens 64 --out total {stop}", folder)
    train(program, f"--train ids.bin --vocab-size 300 {common} --out ids {stop}", folder)
    train(program, f"--train ab.txt --tokenizer words:words.txt {common} --out words {stop}", folder)
    train(program, f"--steps 6 --eval-batches 2 --out toy {stop}", folder)
    wide = common.replace("--heads 1 --channels 8", "--heads 2 --channels 16")
    train(program, f"--train text.txt {wide} --out tensor {stop}", folder)
    for path in (folder / "tensor").glob("step_*/manifest.json"):  # the rest of a checkpoint does not depend on --tp
        reseal(path, {'"--ranks": 1,': '"--ranks": 2,', '"--tp": 1,': '"--tp": 2,',
                      '"--sequence-parallel": false,': '"--sequence-parallel": true,'})
    train(program, f"--train text.txt {common.replace('--layers 1', '--layers 4')} --out pipeline {stop}", folder)
    for path in (folder / "pipeline").glob("step_*/manifest.json"):
        reseal(path, {'"--ranks": 1,': '"--ranks": 2,', '"--pp": 1,': '"--pp": 2,', '"--pp-chunks": 1,': '"--pp-chunks": 2,',
                      '"--pp-layers": "",': '"--pp-layers": "1,1,1,1",'})
    shutil.copytree(folder / "run/step_000001", folder / "hf")
    for name in ("manifest.json", "optimizer.safetensors"):
        (folder / "hf" / name).unlink()
    write_llmc_model(folder / "model.bin", folder / "run/step_000001", 3)
    train(program, f"--init-from hf --train text.txt --steps 6 --eval-batches 2 --sample-every 0 --out from_hf {stop}", folder)


def run_case(program, case, original, folder):
    """Runs a case in `folder`, a copy of `original`, and checks it. Returns the lines that it reports."""
    shutil.copytree(original, folder, symlinks=True)
    place = (case.prepare and case.prepare(folder)) or folder
    try:
        stop = " --stop-after 1" if "--out" in case.command else ""
        messages = train(program, case.command + stop, place / case.folder, code=case.code if case.error else 0)
        if case.error:
            error = next(line for line in messages.splitlines() if line.startswith("train_gpt2: "))
            expect(case.error in error, f"{case.name}: {error}")
            return [error.removeprefix("train_gpt2: ")]
        lines = [line.removeprefix("resume: ") for line in messages.splitlines() if line.startswith("resume: ")]
        notes = [line for line in lines if not line.startswith("from ")]
        expect(len(notes) == len(case.reported) and all(map(str.__contains__, notes, case.reported)),
               f"{case.name}: reported {notes}")
        check_records(case, original, place / case.folder / case.command.split("--out ")[1].split()[0])
        return notes
    finally:
        shutil.rmtree(place)


def check_records(case, original, out):
    """Checks what the next checkpoint records: the changed flags of the case, everything else as before."""
    if not case.run:
        config = json.loads((out / "step_000001/config.json").read_text())
        expect((config["n_layer"], config["n_embd"], config["vocab_size"]) == (1, 8, 257), f"{case.name}: {config}")
    elif case.changed is not None:
        before, after = recorded(original / case.run), recorded(out)
        changed = {flag for flag in before.keys() | after.keys() if before.get(flag) != after.get(flag)}
        expect(changed == case.changed, f"{case.name}: recorded differently: {sorted(changed)}")
        expect(newest_manifest(out)["step"] == (3 if "damaged" in case.name else 4), f"{case.name}: another step")


def table_row(case, reported):
    changed = "" if not case.changed else "<br>".join(f"`{flag}`" for flag in sorted(case.changed))
    takes = "refused" if case.error else case.takes or (NOTHING if not case.changed else "the rest from the checkpoint")
    cell = "<br>".join(line.replace("|", "\\|") for line in reported) or "nothing"
    return f"| {case.name} | `{case.command}` | {changed} | {takes} | {cell} |\n"


def make_table(program, folder):
    # The cases run where the runs were made, because checkpoints record that directory.
    place, original = folder / "work", folder / "original"
    make_runs(program, place)
    place.rename(original)
    rows = [table_row(case, run_case(program, case, original, place)) for case in CASES]
    return HEADING + "".join(rows).replace(str(place), "DIR")


# ---- resume and init -----------------------------------------------------------------------


def test_every_case_of_the_table_takes_and_reports_what_it_says(program):
    table = make_table(program, program.folder)
    expect(len(CASES) >= 25, "too few cases")
    expect(TABLE.read_text() == table, f"{TABLE} is out of date: run this test with --table")


def test_a_resumed_run_that_types_nothing_equals_the_uninterrupted_run(program):
    flags = f"--train text.txt {SIZES} --steps 6 --eval-every 2 --eval-batches 2 --sample-every 0 --dropout 0.1"
    train(program, f"{flags} --out whole --log whole.jsonl", program.folder)
    train(program, f"{flags} --out cut --log cut.jsonl --stop-after 2", program.folder)
    for _ in range(2):
        train(program, "--out cut --resume --stop-after 2", program.folder)
    expect(same_state(*(program.folder / name / "step_000006" for name in ("whole", "cut"))), "another state")
    losses = [[(line["step"], line.get("loss"), line.get("val_loss")) for line in program.log(f"{name}.jsonl")
               if {"loss", "val_loss"} & set(line)] for name in ("whole", "cut")]
    expect(losses[0] == losses[1] and len(losses[0]) == 10, losses)


# ---- history -------------------------------------------------------------------------------


def test_the_history_names_the_text_of_each_stretch(program):
    (program.folder / "other.txt").write_text(TEXT.replace("fox", "cat"))
    train(program, f"--train text.txt {SIZES} --steps 6 --lr 0.01 --warmup 0 --out run --stop-after 2", program.folder)
    train(program, "--out run --resume --stop-after 1", program.folder)  # nothing changes: the same stretch
    train(program, "--out run --resume --train other.txt --lr 0.002 --stop-after 2", program.folder)
    train(program, "--out run --resume", program.folder)
    history = newest_manifest(program.folder / "run")["history"]
    expect([(s["first_step"], s["last_step"], s["train"], s["tokens"]) for s in history] ==
           [(1, 3, "text.txt", 96), (4, 6, "other.txt", 96)], history)
    expect(history[0]["max_lr"] == history[0]["first_lr"] == 0.01 and history[1]["max_lr"] < 0.002, history)
    expect(history[1]["changes"][1:] == ["--lr was 0.01, it is 0.002 now"], history)
    card = (program.folder / "run/step_000006/README.md").read_text()
    expect("| training text | `text.txt`: 96 tokens<br>`other.txt`: 96 tokens |" in card, card)
    expect("| 1 to 3 | `text.txt` | 96 |" in card and "| 4 to 6 | `other.txt` | 96 |" in card, card)


def test_the_log_begins_each_process_with_the_settings(program):
    train(program, f"--train text.txt {SIZES} --steps 4 --out run --log run.jsonl --stop-after 2", program.folder)
    train(program, "--out run --resume --lr 0.5", program.folder)
    first, second = (line for line in program.log("run.jsonl", settings=True) if "run" in line)
    expect((first["step"], first["run"], first["--lr"], first["--train"]) == (0, "started", 6e-4, "text.txt"), first)
    expect((second["step"], second["run"], second["--lr"]) == (2, "resumed", 0.5), second)
    expect(second["checkpoint"] == "run/step_000002" and first["tokenizer_xxh64"] == second["tokenizer_xxh64"], second)
    expect(first["bytes_per_token"] == 1, first)


# ---- the best checkpoint and the links -----------------------------------------------------

# The learning rate rises until the loss does too.
RISING = f"--train text.txt {SIZES} --steps 12 --warmup 12 --schedule constant --lr 1 --grad-clip 0 --eval-every 2 " \
         "--eval-batches 4 --sample-every 0"


def validation_losses(program, log):
    return {line["step"]: line["val_loss"] for line in program.log(log) if line.get("val_loss") is not None and line["step"]}


def test_the_best_checkpoint_is_kept_whatever_else_is_removed(program):
    train(program, f"{RISING} --out run --log run.jsonl --checkpoint-every 3 --keep-checkpoints 1", program.folder)
    losses = validation_losses(program, "run.jsonl")
    best = min(losses, key=losses.get)
    expect(0 < best < 12, f"the loss does not rise: {losses}")
    names = sorted(path.name for path in (program.folder / "run").iterdir())
    expect(names == sorted({"best", "latest", "status.json", f"step_{best:06}", "step_000012"}), names)
    expect(os.readlink(program.folder / "run/best") == f"step_{best:06}", losses)
    expect(os.readlink(program.folder / "run/latest") == "step_000012", "latest")
    state = newest_manifest(program.folder / "run")["state"]
    expect((state["best_validation_step"], state["best_validation_loss"]) == (best, losses[best]), state)
    expect("| lowest validation loss |" in (program.folder / "run/latest/README.md").read_text(), "the card")


def test_keep_best_can_be_switched_off(program):
    train(program, f"{RISING} --out run --keep-best=false", program.folder)
    names = sorted(path.name for path in (program.folder / "run").iterdir())
    expect(names == ["latest", "status.json", "step_000012"], names)
    program.fails("--train", "text.txt", "--keep-best", "--eval-every", 0, "--out", "x",
                  phrases=["--keep-best has no effect with --eval-every 0"], code=2)


def test_a_checkpoint_that_is_due_stays_when_another_is_better(program):
    train(program, f"--train text.txt {SIZES} --steps 6 --lr 0.01 --warmup 0 --eval-every 1 --eval-batches 4 --out run "
                   "--checkpoint-every 2 --log run.jsonl", program.folder)
    losses = validation_losses(program, "run.jsonl")
    expect(all(losses[step] < losses[step - 1] for step in range(2, 7)), f"the loss does not fall: {losses}")
    names = sorted(path.name for path in (program.folder / "run").glob("step_*"))
    expect(names == ["step_000002", "step_000004", "step_000006"], names)


def test_another_validation_text_forgets_the_best_loss(program):
    (program.folder / "other.txt").write_text(TEXT.replace("fox", "cat"))
    train(program, f"{RISING} --out run --stop-after 6", program.folder)
    train(program, "--out run --resume --val other.txt --stop-after 2", program.folder)
    expect(newest_manifest(program.folder / "run")["state"]["best_validation_step"] == 8, "step 8 is the only one")


def test_a_user_directory_named_best_is_not_replaced(program):
    (program.folder / "run/best").mkdir(parents=True)
    (program.folder / "run/best/notes.txt").write_text("mine")
    messages = train(program, f"{RISING} --out run", program.folder)
    expect("warning: cannot create the link run/best" in messages, messages)
    expect((program.folder / "run/best/notes.txt").read_text() == "mine", "the directory was changed")


def test_infer_takes_the_newest_good_checkpoint_of_a_run(program):
    infer = program.binary.parent / "infer_gpt2"
    if not infer.exists():
        raise Skip("infer_gpt2 is not built")
    train(program, f"--train text.txt {SIZES} --steps 3 --checkpoint-every 1 --out run", program.folder)

    def generate(model, code=0):
        done = subprocess.run([infer, "-m", model, "-p", "line", "-n", "5"], cwd=program.folder, capture_output=True,
                              timeout=300)
        expect(done.returncode == code, done.stderr)
        return done.stdout, done.stderr.decode()
    expect(generate("run")[0] == generate("run/step_000003")[0] == generate("run/latest")[0] != b"", "another text")
    expect("run/step_000003, the newest valid checkpoint of run" in generate("run")[1], "the message")
    (program.folder / "run/step_000003/model.safetensors").write_bytes(b"torn")
    text, messages = generate("run")
    expect(text == generate("run/step_000002")[0] and "warning: skipped run/step_000003" in messages, messages)
    (program.folder / "empty").mkdir()
    expect("no valid checkpoint" in generate("empty", code=1)[1], "an empty directory")


# ---- first lines ---------------------------------------------------------------------------


def test_a_run_without_out_says_that_nothing_is_saved(program):
    flags = f"--train text.txt {SIZES} --steps 1 --eval-every 0 --sample-every 0"
    phrase = "without --out DIR nothing is saved"
    expect(phrase in train(program, flags, program.folder), "the first lines")
    expect(phrase not in train(program, f"{flags} --out run", program.folder), "a run with --out")


def test_the_same_tokenizer_in_two_places_has_one_cache(program):
    gpt2 = ROOT / "../shared/data/gpt2"
    if not gpt2.exists():
        raise Skip("GPT-2's vocabulary is not here")
    for name in ("one", "two"):
        shutil.copytree(gpt2, program.folder / name)
        train(program, f"--train text.txt {SIZES} --tokenizer {name} --steps 1 --eval-every 0 --sample-every 0 "
                       f"--out run_{name}", program.folder)
    train(program, "--init-from run_one --train text.txt --steps 1 --eval-every 0 --sample-every 0", program.folder)
    caches = [path.name for path in program.folder.glob("*.cache.bin")]
    expect(len(caches) == 1 and caches[0].startswith("text.txt.50257-"), caches)


if __name__ == "__main__":
    if sys.argv[2:] == ["--table"]:
        with tempfile.TemporaryDirectory() as temporary:
            print(make_table(Program((ROOT / sys.argv[1] / "train_gpt2").resolve(), Path(temporary)), Path(temporary)), end="")
        sys.exit()
    sys.exit(run_program_tests(globals(), "train_gpt2"))
