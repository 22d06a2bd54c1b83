#!/usr/bin/env python3
"""Checkpoints of train_gpt2 as a user meets them: what a kill, a full disk, a signal or a flipped bit
leaves, what stays and what goes, and who else can read them.

    python3 test/test_checkpoint_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from runner import Skip, expect
from test_programs import DATA, ROOT, read_safetensors, run_program_tests, same_state

# Numbers whose resumed runs must be the uninterrupted one to the bit: flags of train_gpt2.
ARITHMETIC = {"fp32": ["--dtype", "fp32", "--dropout", 0.2],
              "bf16": ["--dtype", "bf16", "--dropout", 0.2],
              "bf16-rounded": ["--dtype", "bf16", "--stochastic-rounding"],
              "fp16": ["--dtype", "fp16", "--dropout", 0.2, "--loss-scale", 2 ** 24, "--loss-scale-window", 3]}

QUIET = ["--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]  # with a peak none is measured
TINY = ["--train", "text.txt", "--layers", 1, "--heads", 1, "--channels", 8, "--context", 8, "--batch-size", 1]
RUN = [*TINY, *QUIET, "--out", "ckpts", "--log", "ckpts/log.jsonl"]


def faults(program):
    """The library that makes calls fail, for LD_PRELOAD."""
    library = program.folder / "disk_faults.so"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Skip(f"{compiler} is not here to compile test/faults/disk_faults.cpp")
    subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library,
                    ROOT / "test/faults/disk_faults.cpp", "-ldl"], check=True)
    return library.resolve()


def with_flags(arguments, **changes):
    """The flags with others' values in place of theirs, or added."""
    arguments = list(arguments)
    for name, value in changes.items():
        flag = "--" + name.replace("_", "-")
        if flag not in arguments:
            arguments += [flag, value]
        arguments[arguments.index(flag) + 1] = value
    return arguments


def start(program, arguments, folder=None, **environment):
    return subprocess.Popen([str(program.binary), *map(str, arguments)], cwd=folder or program.folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment})


def finish(running, code=0):
    messages = running.communicate(timeout=300)[1]
    expect(running.returncode == code, f"exit code {running.returncode}, not {code}: {messages[-600:]}")
    return messages


def wait_for(running, text):
    """The line of stderr that has `text`."""
    for line in running.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without '{text}'")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps_logged(path):
    return [line["step"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line]


class SecondSave:
    """A run of three steps that stands after its first checkpoint; what every disturbed second save,
    which also removes that first one, is compared with."""

    def __init__(self, program):
        self.program, self.library = program, faults(program)
        self.base, self.whole = program.folder / "base", program.folder / "whole"
        for folder in (self.base, self.whole):
            folder.mkdir()
            shutil.copy(program.folder / "text.txt", folder)
        arguments = [*RUN, "--steps", 3, "--checkpoint-every", 1, "--keep-checkpoints", 1]
        finish(start(program, arguments, self.whole))
        finish(start(program, [*arguments, "--stop-after", 1], self.base))
        self.resumed = [*arguments, "--resume"]
        listing = program.folder / "calls"
        self.disturbed("counting", FAULT_LIST=str(listing))
        self.calls = [line.split()[0] for line in listing.read_text().splitlines()]
        expect(len(self.calls) > 60, f"only {len(self.calls)} calls: are they counted?")

    def disturbed(self, name, code=0, **environment):
        """A copy of the run, its second step under faults: its folder and messages."""
        folder = self.program.folder / name
        shutil.copytree(self.base, folder)
        running = start(self.program, [*self.resumed, "--stop-after", 1], folder, LD_PRELOAD=str(self.library),
                        FAULT_IN="ckpts", **environment)
        messages = running.communicate(timeout=300)[1]
        expect(code is None or running.returncode == code, f"exit code {running.returncode}, not {code}: {messages}")
        return folder, messages, running.returncode

    def goes_on(self, folder):
        """Resumed, it is the undisturbed run, and nothing lies about."""
        messages = finish(start(self.program, self.resumed, folder))
        expect(re.search(r"resume: from ckpts/step_00000[12]\n", messages), messages)
        expect(names(folder / "ckpts") == ["log.jsonl", "step_000003"], names(folder / "ckpts"))
        expect(same_state(folder / "ckpts/step_000003", self.whole / "ckpts/step_000003"), "another state")
        expect(steps_logged(folder / "ckpts/log.jsonl") == [1, 2, 3], "the log is not whole")
        shutil.rmtree(folder)

    def at_all(self, points, check):
        """On a GPU, which every one of these runs has to wait for, at some of them: files are saved by the same
        calls there.
        """
        if self.program.binary.parent.name == "cuda":
            points = points[::9]
        expect(len(points) <= 200, f"{len(points)} points: make the run smaller")

        def checked(n):
            try:
                check(n)
            except AssertionError as why:
                raise AssertionError(f"{self.calls[n - 1]}, call {n} of {len(self.calls)}: {why}") from why

        with ThreadPoolExecutor(4) as pool:  # they wait for the disk most of the time
            list(pool.map(checked, points))


# ---- kills, full disks, damage -------------------------------------------------------------


def test_a_kill_at_any_call_of_a_save_loses_nothing(program):
    save = SecondSave(program)

    def killed(what, n):
        save.goes_on(save.disturbed(f"{what}-{n}", -signal.SIGKILL, FAULT_DO=what, FAULT_AT=str(n))[0])

    points = range(1, len(save.calls) + 1)
    save.at_all(points, lambda n: killed("kill", n))
    save.at_all([n for n in points if save.calls[n - 1] == "write"], lambda n: killed("tear", n))
    print(f"# killed before calls, of {len(save.calls)}, and in the middle of writes")


def test_a_disk_full_from_any_call_on_loses_nothing(program):
    save = SecondSave(program)
    before = contents(save.base / "ckpts/step_000001")
    endings = {0: 0, 1: 0}

    def full(n):
        folder, messages, code = save.disturbed(f"full-{n}", None, FAULT_DO="full", FAULT_AT=str(n))
        saved = (folder / "ckpts/step_000002").exists()
        if code == 0:  # only what comes after the save failed
            expect(saved and "saved ckpts/step_000002" in messages, messages)
        else:
            expect(code == 1, f"exit code {code}: {messages}")
            expect(re.search(r"train_gpt2: cannot .*ckpts.*: No space left on device\n  hint: free some", messages),
                   messages[-400:])
        endings[code] += 1
        if (folder / "ckpts/step_000001").exists():
            expect(contents(folder / "ckpts/step_000001") == before, "the older checkpoint changed")
        else:
            expect(saved and code == 0, "the older checkpoint is gone")
        expect(not any(".tmp-" in name for name in names(folder / "ckpts")) or code == 0, names(folder / "ckpts"))
        if n % 8 == 0 or code == 0:
            save.goes_on(folder)
        else:
            shutil.rmtree(folder)

    save.at_all(range(1, len(save.calls) + 1), full)
    expect(endings[1] > 0.4 * sum(endings.values()), f"{endings} runs ended so: does the disk fill up?")


def test_a_corrupted_file_is_named_and_the_checkpoint_before_it_taken(program):
    arguments = [*RUN, "--steps", 3, "--checkpoint-every", 1]
    finish(start(program, [*arguments, "--stop-after", 2]))
    newest = program.folder / "ckpts/step_000002"
    expect({"README.md", "config.json", "generation_config.json", "manifest.json", "model.safetensors",
            "optimizer.safetensors"} <= set(names(newest)), names(newest))
    for name in names(newest):
        bytes_ = (newest / name).read_bytes()
        for damage in (bytes([bytes_[0] ^ 1]) + bytes_[1:], bytes_[:-1]):
            (newest / name).write_bytes(damage)
            messages = finish(start(program, [*arguments, "--resume", "--stop-after", 1]))  # writes it anew
            expect(f"ckpts/step_000002/{name} " in messages and "resume: from ckpts/step_000001" in messages, messages)
            expect((newest / name).read_bytes() == bytes_, f"{name} is not what it was")


def test_resume_without_a_good_checkpoint_starts_fresh_and_says_so(program):
    messages = finish(start(program, [*RUN, "--steps", 1, "--resume"]))
    expect("resume: no good checkpoint in ckpts, starting fresh" in messages, messages)
    (program.folder / "ckpts/step_000001/manifest.json").unlink()
    messages = finish(start(program, [*RUN, "--steps", 1, "--resume"]))
    expect("step_000001 is not a whole checkpoint" in messages and "starting fresh" in messages, messages)
    expect(steps_logged(program.folder / "ckpts/log.jsonl") == [1], "the log has the step twice")


# ---- signals -------------------------------------------------------------------------------


def test_five_interruptions_leave_the_uninterrupted_run(program):
    library = faults(program)
    for name, flags in ARITHMETIC.items():
        common = [*TINY, *flags, "--steps", 15, "--eval-every", 4, "--eval-batches", 2, "--sample-every", 0,
                  "--peak-tflops", 1]
        finish(start(program, [*common, "--out", f"a-{name}", "--log", f"a-{name}.jsonl"]))
        resumed = [*common, "--out", f"b-{name}", "--log", f"b-{name}.jsonl", "--resume"]
        for stop in range(5):  # SIGTERM as the second line of the log, or the third, has been written
            messages = finish(start(program, resumed, LD_PRELOAD=str(library), FAULT_IN=f"b-{name}.jsonl",
                                    FAULT_DO="term", FAULT_AT=str(3 + stop % 2)))
            expect(re.search(rf"interrupted by SIGTERM after step \d+: saved b-{name}/step_\d+, --resume goes on",
                             messages), messages)
        finish(start(program, resumed))
        logs = [[(line["step"], line.get("loss"), line.get("val_loss"), line.get("grad_norm"), line.get("lr"))
                 for line in program.log(f"{run}-{name}.jsonl")] for run in "ab"]
        expect(logs[0] == logs[1], f"{name}: {logs[0]}\n{logs[1]}")
        expect(same_state(*(program.folder / f"{run}-{name}/step_000015" for run in "ab")), f"{name}: another state")


def test_a_signal_ends_each_part_of_a_run_in_order(program):
    endless = [*TINY, "--peak-tflops", 1, "--steps", 10 ** 9, "--grad-accum", 4]
    quiet = ["--eval-every", 0, "--sample-every", 0]
    sampling = ["--eval-every", 0, "--sample-every", 1, "--sample-length", 4]
    cases = {"step": (signal.SIGINT, [*quiet, "--out", "step"], "step 1/", "saved step/step_"),
             "nowhere": (signal.SIGTERM, quiet, "step 1/", "nothing is saved without --out"),
             "sample": (signal.SIGTERM, [*sampling, "--out", "sample"], "sample: ", "saved sample/step_")}
    for what, (sent, flags, line, says) in cases.items():
        running = start(program, [*endless, *flags])
        wait_for(running, line)
        running.send_signal(sent)
        messages = finish(running)
        expect(f"interrupted by {sent.name} after step " in messages and says in messages, f"{what}: {messages}")
        if "--out" in flags:
            saved, = names(program.folder / what)
            expect(f"after step {int(saved[5:])}:" in messages, f"saved {saved}: {messages}")


def test_an_evaluation_is_left_and_made_up_for(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 100_000)
    long = [*TINY, "--peak-tflops", 1, "--val", "long.txt", "--steps", 2, "--eval-every", 1, "--eval-batches", 0,
            "--sample-every", 0, "--out", "long", "--log", "long.jsonl"]
    running = start(program, long)
    wait_for(running, "MFU:")  # the evaluation before the first step comes next
    running.send_signal(signal.SIGTERM)
    expect("after step 0: nothing to save yet" in finish(running), "it saved what was not there")
    expect(not (program.folder / "long.jsonl").read_text(), "half an evaluation was logged")
    short = with_flags(long, eval_batches=2)
    library = faults(program)
    finish(start(program, [*short, "--resume"], LD_PRELOAD=str(library), FAULT_IN="long.jsonl", FAULT_DO="term",
                 FAULT_AT="3"))  # after the line of step 1, before its evaluation
    expect([line for line in program.log("long.jsonl") if "val_loss" in line and line["step"] == 1] == [], "evaluated")
    finish(start(program, [*short, "--resume"]))
    lines = [(line["step"], "val_loss" in line) for line in program.log("long.jsonl")]
    expect(lines == [(0, True), (1, False), (1, True), (2, False), (2, True)], lines)


# ---- what stays ----------------------------------------------------------------------------


def test_keep_and_milestones(program):
    arguments = [*RUN, "--checkpoint-every", 1, "--keep-checkpoints", 2, "--milestone-every", 3]
    ours = program.folder / "ckpts"
    finish(start(program, [*arguments, "--steps", 10, "--stop-after", 8]))
    expect(names(ours) == ["log.jsonl", "step_000003", "step_000006", "step_000007", "step_000008"], names(ours))
    # What is not this run's whole checkpoint is neither counted nor removed.
    shutil.copytree(ours / "step_000003", ours / "best")
    shutil.copytree(ours / "step_000003", ours / "step_000005")
    shutil.copytree(ours / "step_000007", ours / "step_000004")
    (ours / "step_000004/config.json").unlink()
    other = [*TINY, *QUIET, "--out", "other", "--seed", 5, "--steps", 1]
    finish(start(program, other))
    shutil.move(program.folder / "other/step_000001", ours / "step_000001")
    (ours / "step_000008/optimizer.safetensors").write_bytes(b"torn")
    messages = finish(start(program, [*arguments, "--steps", 10, "--resume", "--stop-after", 2]))
    expect("optimizer.safetensors has 4 bytes" in messages and "resume: from ckpts/step_000007" in messages, messages)
    expect(names(ours) == ["best", "log.jsonl", "step_000001", "step_000003", "step_000004", "step_000005",
                           "step_000006", "step_000008", "step_000009"], names(ours))
    program.fails("--milestone-every", 2, "--out", "x", says=["--milestone-every", "--keep-checkpoints"], code=2)
    program.fails("--keep-checkpoints", 2, says=["--keep-checkpoints", "--out"], code=2)


def test_milestones_are_saved_between_checkpoints(program):
    finish(start(program, [*RUN, "--steps", 7, "--keep-checkpoints", 1, "--checkpoint-every", 2, "--milestone-every", 5]))
    expect(names(program.folder / "ckpts") == ["log.jsonl", "step_000005", "step_000007"], "5 is no milestone")


# ---- whose files we read -------------------------------------------------------------------


def write_llmc_model(path, checkpoint, version):
    """The checkpoint's weights as a model file of llm.c: version 3 is fp32, 5 bf16 (cut, not rounded)."""
    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {name.removeprefix("transformer."): data
               for name, data in read_safetensors(checkpoint / "model.safetensors").items()}
    V, C, L = config["vocab_size"], config["n_embd"], config["n_layer"]
    Vp = -(-V // 128) * 128
    tensors["wte.weight"] += bytes(4 * (Vp - V) * C)
    parts = [tensors["wte.weight"], tensors["wpe.weight"]]
    for kind in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for what in ("weight", "bias"):
            for layer in range(L):
                data = tensors[f"h.{layer}.{kind}.{what}"]
                if what == "weight" and "c_" in kind:  # (in, out) -> (out, in)
                    inputs = 4 * C if kind == "mlp.c_proj" else C
                    width = len(data) // inputs
                    data = b"".join(data[row * width + at:row * width + at + 4]
                                    for at in range(0, width, 4) for row in range(inputs))
                parts.append(data)
    data = b"".join([*parts, tensors["ln_f.weight"], tensors["ln_f.bias"]])
    if version == 5:
        data = b"".join(data[at + 2:at + 4] for at in range(0, len(data), 4))
    header = [20240326, version, config["n_positions"], V, L, config["n_head"], C, Vp] + [0] * 248
    path.write_bytes(struct.pack("<256i", *header) + data)


def test_llmc_model_files_start_a_run(program):
    sizes = with_flags(TINY, layers=2, heads=2, channels=16)
    finish(start(program, [*sizes, *QUIET, "--steps", 2, "--out", "run"]))
    checkpoint = program.folder / "run/step_000002"

    def val_loss(source, *flags):
        return program.run("--init-from", source, "--val", "text.txt", "--steps", 0, *flags).stdout

    write_llmc_model(program.folder / "model.bin", checkpoint, 3)
    expect(val_loss("model.bin") == val_loss(checkpoint), "another loss")
    write_llmc_model(program.folder / "half.bin", checkpoint, 5)
    loss, half = (float(val_loss(name).split()[1]) for name in ("model.bin", "half.bin"))
    expect(loss != half and abs(half / loss - 1) < 2 ** -7, f"{loss} in fp32, {half} in bf16")

    # It trains on, and what it saves has the same weights before the first step changes them.
    goes_on = ["--train", "text.txt", *QUIET, "--batch-size", 1, "--steps", 1, "--lr", 0]
    finish(start(program, [*goes_on, "--init-from", "model.bin", "--out", "on"]))
    expect((program.folder / "on/step_000001/model.safetensors").read_bytes() ==
           (checkpoint / "model.safetensors").read_bytes(), "other weights")
    expect("| started from | `model.bin` |" in (program.folder / "on/step_000001/README.md").read_text(), "the card")
    inference = program.binary.parent / "infer_gpt2"
    if inference.exists():
        texts = [subprocess.run([inference, "-m", model, "-p", "The", "-n", "8", "--seed", "3"], cwd=program.folder,
                                capture_output=True, timeout=300) for model in ("model.bin", checkpoint.resolve())]
        expect(texts[0].returncode == 0 and texts[0].stdout == texts[1].stdout != b"", texts)

    whole = (program.folder / "model.bin").read_bytes()
    for damage, says in ((whole[:-1], "its header asks for"), (b"\0" * 2000, "no model file of llm.c"),
                         (whole[:4] + struct.pack("<i", 4) + whole[8:], "version 4"), (b"", "too short")):
        (program.folder / "bad.bin").write_bytes(damage)
        program.fails("--init-from", "bad.bin", "--val", "text.txt", "--steps", 0, says=["bad.bin", says])
    program.fails("--init-from", "none.bin", "--val", "text.txt", "--steps", 0, says=["cannot open none.bin"])
    program.fails("--init-from", "model.bin", "--layers", 3, "--val", "text.txt", "--steps", 0,
                  says=["--layers 3 does not agree with 2 in model.bin"])


# ---- who else reads them -------------------------------------------------------------------


def transformers(program, script, *arguments):
    python = os.environ.get("PYTHON", "python3")
    if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
        raise Skip("transformers is not installed (PYTHON names the interpreter)")
    done = subprocess.run([python, "-c", script, *map(str, arguments)], cwd=program.folder, capture_output=True,
                          text=True, timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    expect(done.returncode == 0, done.stderr[-1500:])
    return done.stdout.splitlines()


def test_auto_model_generates_what_ours_does(program):
    finish(start(program, [*TINY, *QUIET, "--steps", 3, "--out", "run"]))
    lines = transformers(program, """
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
path = "run/step_000003"
config, model = AutoConfig.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
generation = GenerationConfig.from_pretrained(path)
print(type(model).__name__, config.model_type, *config.architectures)
print(sum(p.numel() for p in model.parameters()), generation.eos_token_id, generation.max_length)
print(*model.generate(torch.tensor([[51, 71]]), min_length=8)[0].tolist())
""")
    expect(lines[0] == "GPT2LMHeadModel gpt2 GPT2LMHeadModel" and lines[1] == "3008 256 8", lines[:2])
    inference = program.binary.parent / "infer_gpt2"
    if not inference.exists():
        raise Skip("infer_gpt2 is not built")
    done = subprocess.run([inference, "-m", "run/step_000003", "-p", "Th", "-n", "6", "--temp", "0", "--json",
                           "--ignore-eos"], cwd=program.folder, capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, done.stderr)
    ours = json.loads(done.stdout)["ids"]
    theirs = [int(word) for word in lines[2].split()][2:]
    expect(theirs[:len(ours)] == ours, f"ours {ours}, transformers' {theirs}")


def test_auto_tokenizer_and_pipeline_take_a_checkpoint(program):
    arguments = [*TINY, *QUIET, "--steps", 1, "--out", "run"]
    if (DATA / "gpt2/encoder.json").exists():
        arguments += ["--tokenizer", DATA / "gpt2"]
    finish(start(program, arguments))
    checkpoint = program.folder / "run/step_000001"
    if not any((checkpoint / name).exists() for name in ("tokenizer.json", "vocab.json")):
        raise Skip("this tokenizer writes no files for transformers")
    lines = transformers(program, """
from transformers import AutoTokenizer, pipeline
path = "run/step_000001"
tokenizer = AutoTokenizer.from_pretrained(path)
print(tokenizer.decode(tokenizer("the king's horse")["input_ids"]))
print(repr(pipeline("text-generation", model=path)("king")[0]["generated_text"]))  # shorter than the context, in bytes too
""")
    expect(lines[0] == "the king's horse", lines)
    expect(eval(lines[1]).startswith("king"), lines)


def test_the_model_card_tells_the_truth(program):
    finish(start(program, [*TINY, "--eval-every", 2, "--eval-batches", 1, "--sample-every", 0, "--steps", 2, "--out",
                           "run", "--log", "run.jsonl"]))
    card = (program.folder / "run/step_000002/README.md").read_text()
    front = card.split("---\n")[1]
    expect("library_name: transformers\n" in front and "pipeline_tag: text-generation\n" in front, front)
    lines = program.log("run.jsonl")
    loss = [line["loss"] for line in lines if "loss" in line][-1]
    val_loss = [line["val_loss"] for line in lines if "val_loss" in line][-1]
    parameters = sum(len(data) // 4
                     for data in read_safetensors(program.folder / "run/step_000002/model.safetensors").values())
    for part in (f"| parameters | {parameters:,} |", "| optimizer steps | 2 |", "| tokens trained on | 16,",
                 "| training text | `text.txt` |", f"| {loss:.4f} nats", f"| {val_loss:.4f} nats", "| layers | 1 |",
                 "| started from | random weights |"):
        expect(part in card, f"'{part}' is not in:\n{card}")
    expect(str(program.folder) not in card, "it names a folder of this machine")


if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and so would what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_program_tests(globals(), "train_gpt2"))
