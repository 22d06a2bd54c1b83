#!/usr/bin/env python3
"""Tests that no result is lost silently: every output of every program on a full device, and the exit codes.

    python3 test/test_output_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import fcntl
import json
import math
import os
import shutil
import stat
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import greedy  # noqa: E402
from runner import Skip, expect  # noqa: E402
from test_checkpoint_programs import build_fault_library, with_flags  # noqa: E402
from test_programs import ROOT, SMALL, run_program_tests  # noqa: E402

SHAPE = dict(layers=1, heads=1, channels=16, context=32)
MODEL, ADAPTER = ["-m", "model"], [ROOT / "test/oracle/fixtures/adapters" / name for name in ("base", "ia3")]
RUN = ["--train", "text.txt", *SMALL, "--steps", 2, "--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]
EVALUATION = ["--steps", 0, "--init-from", "model", "--no-cache"]
BENCH = ["bench", *MODEL, "--batches", 1, "--positions", 3, "--prompt-tokens", 4, "--gen-tokens", 4, "--repetitions", 1]
BYTES, TOY = ["--tokenizer", "bytes"], ["--tokens", 2000, "--val-tokens", 500]
CLASSIFY = ["--task", "classify", "--classes", "odd=odd.txt,even=even.txt", *SMALL, "--steps", 2, "--peak-tflops", 1]
COMMON = [["--help"], ["--help-json"], ["--version"]]

# The results that each program prints on stdout.
STDOUT = {
    "train_gpt2": [*COMMON, *([flag, *SMALL, "--ranks", 2] for flag in ("--dry-run", "--print-mesh", "--plan")), CLASSIFY,
                   [*EVALUATION, "--val", "text.txt"], *([*run, "--eval", "perplexity:text.txt"] for run in (EVALUATION, RUN))],
    "infer_gpt2": [*COMMON, *([*MODEL, "-n", 2, *form] for form in (
                       ["-p", "a"], ["--no-stream"], ["--display-prompt"], ["--json"], ["--jsonl"], ["--samples", 2],
                       ["--prompts", "prompts.txt"], ["--prompts", "prompts.txt", "--jsonl"], ["-i"])),
                   BENCH, [*BENCH, "--format", "json"], ["perplexity", "text.txt", *MODEL],
                   ["score", "lambada:words.jsonl", *MODEL], ["classify", "text.txt", "-m", "classifier"]],
    "tokenize": [*COMMON, ["text.txt", *BYTES, "-o", "summary.bin"], ["--decode", *BYTES, "tokens.bin"]],
    "toy_language": [["--help"], [*TOY, "--out", "language"], ["--parse", "sentences.txt"]],
}

# The files that each program writes as a result: (arguments, part of the path, files that must not exist afterwards).
# Finished shards of tokenize stay, and t.json completes them.
FILES = {
    "train_gpt2": [
        ([*RUN, "--log", "run.jsonl"], "run.jsonl", []), ([*EVALUATION, "--val", "text.txt", "--log", "zero.jsonl"], "zero.jsonl", []),
        ([*RUN, "--final-samples-out", "samples.txt", "--final-samples-tokens", 16], "samples.txt", ["samples.txt"]),
        *(([*RUN, "--profile", 1, "--profile-out", out], out, [out]) for out in ("profile.jsonl", "profile.json")),
        ([*RUN, "--offload", "optimizer=scratch"], "scratch", []),
        ([*RUN, "--out", "ckpt"], "step_000002", ["ckpt/step_000002/manifest.json"]),
        *((["--dry-run", *SMALL, "--pp", 2, "--grad-accum", 2, "--ranks", 2, "--dump-schedule", plan], plan, [plan])
          for plan in ("plan.csv", "plan.html", "plan.json")),
        *((["--plan", *SMALL, "--ranks", 2, "--plan-out", name], name, [name]) for name in ("all.csv", "all.json")),
        (["--measure-machine", "machine.json"], "machine.json", ["machine.json"])],
    "infer_gpt2": [(["perplexity", "text.txt", *MODEL, "--limit", 2, "--save-log", "base.log"], "base.log", ["base.log"]),
                   (["quantize", "model", "int8", "--quant", "w8"], "int8", ["int8"]),
                   (["merge", *ADAPTER, "merged"], "merged", ["merged"])],
    "tokenize": [
        (["text.txt", *BYTES, "-o", "t.bin"], "/t.bin", ["t.json"]),
        (["text.txt", *BYTES, "-o", "t.bin"], "t.json", ["t.json"]),
        (["lines.jsonl", *BYTES, "-o", "t.bin", "--val", "v.bin", "--val-fraction", 0.5], "v.bin", ["t.json"]),
        (["--decode", *BYTES, "tokens.bin", "-o", "back.txt"], "back.txt", ["back.txt"])],
    "toy_language": [([*TOY, "--out", "toy"], f"toy/{name}", [f"toy/{name}"])
                     for name in ("train.bin", "val.bin", "train.txt", "words.txt", "language.json")],
}

# Flags and words whose files are read, or are no results.
INPUT_FLAGS = {"--train", "--val", "--test", "--classes", "--tokenizer", "--init-from", "--pp-schedule", "--eval", "--model", "--file",
               "--adapter", "--prompts", "--calibrate", "--base", "--base-log", "inputs", "--machine", "--software"}
CACHE_FLAGS = {"--cache-dir"}
CALLS_FOR_SPACE = {"write", "open", "openat", "fallocate", "fsync", "mkdir", "rename", "renameat2"}


def full_device():
    if not Path("/dev/full").exists():
        raise Skip("this machine has no /dev/full")
    return open("/dev/full", "w")


def find(program, name):
    """The program of this name: of the same build, or of the host build."""
    for folder in (program.binary.parent, ROOT / "build/host"):
        if (folder / name).exists():
            return str((folder / name).resolve())
    raise Skip(f"{name} is not built")


def call(program, name, arguments, stdout=subprocess.PIPE, **environment):
    return subprocess.run([find(program, name), *map(str, arguments)], cwd=program.folder, text=True, stdout=stdout,
                          stderr=subprocess.PIPE, input="a\n\n", timeout=300, env={**os.environ, **environment})


def make_inputs(program):
    folder = program.folder
    greedy.write_model(folder / "model", **SHAPE)
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 12)
    texts = {"sentences.txt": "the king sleeps .\n", "prompts.txt": "a\nb\n", "words.jsonl": '{"text": "a b c"}\n'}
    texts |= {f"{kind}.txt": "".join(f"{i}\n" for i in range(first, 80, 2)) for first, kind in enumerate(("even", "odd"))}
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "lines.jsonl").write_text("".join(f'{{"text": "document {i}"}}\n' for i in range(40)))
    for name, arguments in (("tokenize", ["text.txt", *BYTES, "-o", "tokens.bin"]), ("train_gpt2", [*CLASSIFY, "--out", "classifier"])):
        done = call(program, name, arguments)
        expect(done.returncode == 0, done.stderr)


# ---- lost results --------------------------------------------------------------------------


def test_every_result_on_a_full_stdout_is_an_error(program):
    make_inputs(program)
    for name, commands in STDOUT.items():
        for arguments in commands:
            if name in ("train_gpt2", "infer_gpt2") and arguments not in COMMON:
                arguments = [*arguments, "--quiet"]
            with full_device() as full:
                done = call(program, name, arguments, stdout=full)
            what = f"{name} {' '.join(map(str, arguments))}: {done.returncode}: {done.stderr[-300:]}"
            expect(done.returncode == 1 and done.stderr.endswith(f"{name}: stdout cannot be written\n"), what)


def test_every_program_ends_silently_with_its_reader(program):
    make_inputs(program)
    for name, arguments in ((name, one) for name, commands in STDOUT.items() for one in commands):
        reader, writer = os.pipe()
        os.close(reader)
        done = call(program, name, arguments, stdout=writer)
        os.close(writer)
        expect(done.returncode == -signal.SIGPIPE and "stdout" not in done.stderr, done)


def test_a_closed_stdout_is_an_error_and_no_file_takes_its_place(program):
    make_inputs(program)
    closed = {"train_gpt2": [*EVALUATION, "--val", "text.txt", "--log", "zero.jsonl"], "infer_gpt2": [*MODEL, "-p", "a", "-n", 2],
              "tokenize": ["--decode", *BYTES, "tokens.bin"], "toy_language": ["--parse", "sentences.txt"]}
    for name, arguments in closed.items():
        for streams in (">&-", ">&- 2>&-", "<&- >&-"):
            command = ["bash", "-c", f'exec "$@" {streams}', "bash", find(program, name), *map(str, arguments)]
            done = subprocess.run(command, cwd=program.folder, text=True, stderr=subprocess.PIPE, timeout=300)
            expect(done.returncode == 1, f"{name} {streams}: {done}")
            expect("2>" in streams or f"{name}: stdout cannot be written\n" in done.stderr, f"{name} {streams}: {done}")
            if name == "train_gpt2":
                lines = program.log("zero.jsonl")  # valid JSON
                expect([set(line) for line in lines] == [{"step", "val_loss"}], f"{streams}: {lines}")
                (program.folder / "zero.jsonl").unlink()
    write_log(program)
    done = run_script(program, "bash", "-c", f'"{ROOT}/scripts/plot" run.jsonl --out page.html >&-')
    expect(done.returncode == 1 and done.stderr == "plot: stdout cannot be written: it is closed\n", done)


def calls_for_space(program, name, arguments, **faults):
    """The number of the first call of each kind that takes space, in a run in which none fails."""
    calls = program.folder / "calls"
    calls.unlink(missing_ok=True)
    done = call(program, name, arguments, FAULT_LIST=str(calls), **faults)
    expect(done.returncode == 0, f"{name} {arguments}: {done.stderr[-300:]}")
    first = {}
    for number, line in enumerate(calls.read_text().splitlines(), 1):
        kind = line.split()[0]
        if kind in CALLS_FOR_SPACE:
            first.setdefault(kind, number)
    return first


def test_every_file_on_a_full_disk_is_an_error_that_names_it(program):
    make_inputs(program)
    library = str(build_fault_library(program))
    inputs = set(program.folder.iterdir())

    def remove_outputs():
        for path in set(program.folder.iterdir()) - inputs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, files in FILES.items():
        for arguments, part, absent in files:
            remove_outputs()
            faults = dict(LD_PRELOAD=library, FAULT_DO="once", FAULT_IN=part)
            for kind, number in calls_for_space(program, name, arguments, **faults).items():
                remove_outputs()
                done = call(program, name, arguments, FAULT_AT=str(number), **faults)
                what = f"{name} {' '.join(map(str, arguments))}, {kind}, call {number} of {part}: {done.returncode}: {done.stderr[-400:]}"
                expect(done.returncode == 1 and "No space left on device" in done.stderr, what)
                expect(part.strip("/") in done.stderr, what)
                left = [path for path in absent if (program.folder / path).exists()]
                expect(not left, f"{left} looks complete: {what}")


def test_the_lists_of_outputs_are_complete(program):
    """A flag that names a file, or a command, must be in the lists above."""
    for name in ("train_gpt2", "infer_gpt2", "tokenize"):
        rows = json.loads(call(program, name, ["--help-json"]).stdout)
        words = {str(word) for arguments, *_ in FILES[name] for word in arguments}
        named = {row["flag"] for row in rows if any(kind in row["unit"] for kind in ("FILE", "DIR", "OUT", "INPUT"))}
        unknown = {flag for flag in named - INPUT_FLAGS - CACHE_FLAGS
                   if flag not in words and not {row["synonym"] for row in rows if row["flag"] == flag} & words}
        expect(not unknown, f"{name}: no test of a full disk for {unknown}")
        tested = {str(arguments[0]) for arguments in STDOUT[name]} | words
        commands = {command for row in rows for command in row["commands"] if command}
        expect(commands <= tested, f"{name}: no test of a full device for {commands - tested}")


# ---- scripts -------------------------------------------------------------------------------


def run_script(program, *command, stdout=subprocess.PIPE, **environment):
    return subprocess.run([str(word) for word in command], cwd=program.folder, text=True, stdout=stdout,
                          stderr=subprocess.PIPE, timeout=120, env={**os.environ, **environment})


def scripts():
    """The commands of scripts that print: those in Python with flags, and those in bash with --help or --dry-run."""
    for path in sorted([ROOT / "scripts/plot", *(ROOT / "scripts").glob("**/*.py"), *(ROOT / "data").glob("*.py"),
                        *(ROOT / "dev").glob("**/*.py")]):
        text = path.read_text()
        if "ArgumentParser(" in text and '__name__ == "__main__"' in text:
            yield [sys.executable, path, "--help"]
    for name in ("scripts/run.sh", "scripts/setup.sh", "scripts/get_gpt2.sh", "dev/experiments/reference_model.sh"):
        yield [ROOT / name, "--help"]
    if shutil.which("mpirun"):
        yield [ROOT / "scripts/run.sh", "--dry-run", "-np", 2, "true"]


def test_a_script_whose_output_is_lost_fails_with_a_message(program):
    count = 0
    for command in scripts():
        with full_device() as full:
            done = run_script(program, *command, stdout=full)
        if "ModuleNotFoundError" in done.stderr:  # PyTorch
            continue
        count += 1
        what = f"{' '.join(map(str, command))}: {done.returncode}: {done.stderr[-300:]}"
        expect(done.returncode != 0 and "Traceback" not in done.stderr, what)
        expect("No space left on device" in done.stderr, what)
    expect(count >= 15, count)


def write_log(program):
    (program.folder / "run.jsonl").write_text("".join(f'{{"step":{i},"loss":{5 - i / 10},"step_ms":9}}\n' for i in range(1, 9)))


def test_plots_and_exports_on_a_full_disk_are_errors_that_name_the_file(program):
    write_log(program)
    plot = [ROOT / "scripts/plot", "run.jsonl", "--out"]
    with full_device() as full:
        done = run_script(program, *plot, "page.html", stdout=full)
    expect(done.returncode == 1 and done.stderr == "plot: stdout cannot be written: No space left on device\n", done)
    library = str(build_fault_library(program))
    commands = [([*plot, "new.html"], "new.html", "new.html"),
                ([ROOT / "scripts/export_run.py", "run.jsonl", "--tensorboard", "board"], "board/run", "board/run/*")]
    for command, part, final in commands:
        done = run_script(program, *command, LD_PRELOAD=library, FAULT_DO="full", FAULT_IN=part, FAULT_AT="1")
        expect(done.returncode == 1 and "No space left" in done.stderr and "Traceback" not in done.stderr, done)
        expect(part.split("/")[0] in done.stderr and not list(program.folder.glob(final)), done)


def test_a_picture_that_gnuplot_wrote_in_part_is_an_error(program):
    write_log(program)
    (program.folder / "bin").mkdir()
    gnuplot = program.folder / "bin/gnuplot"  # on a full disk gnuplot ends with code 0
    gnuplot.write_text("#!/bin/sh\nprintf '<svg>' >\"$(sed -n \"s/^set output '\\(.*\\)'$/\\1/p\")\"\n")
    gnuplot.chmod(gnuplot.stat().st_mode | stat.S_IXUSR)
    done = run_script(program, ROOT / "scripts/plot", "run.jsonl", "--out", "loss.svg",
                      PATH=f"{gnuplot.parent}:{os.environ['PATH']}")
    expect(done.returncode == 1 and "loss.svg cannot be written" in done.stderr, done)
    expect(not (program.folder / "loss.svg").exists(), "a part of the picture has the name of the whole")


# ---- one log, one run ----------------------------------------------------------------------


def test_runs_that_start_together_do_not_share_a_log(program):
    make_inputs(program)
    for flags in (with_flags(RUN, steps=12), [*EVALUATION, "--val", "text.txt"]):
        (program.folder / "run.jsonl").unlink(missing_ok=True)
        command = [str(program.binary), *map(str, flags), "--log", "run.jsonl", "--quiet"]
        runs = [subprocess.Popen(command, cwd=program.folder, text=True, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE) for _ in range(4)]
        ends = [(run.communicate(timeout=300)[1], run.returncode) for run in runs]
        expect(sorted(code for _, code in ends) == [0, 1, 1, 1], ends)
        expect(all("--log run.jsonl" in error for error, code in ends if code), ends)
        steps = [line["step"] for line in program.log("run.jsonl") if "loss" in line]
        expect(steps == (list(range(1, 13)) if "--train" in flags else []), steps)


def test_a_log_that_another_run_writes_is_refused_at_once_and_stays_as_it_is(program):
    make_inputs(program)
    log = program.folder / "run.jsonl"
    log.write_text("")
    with open(log, "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for flags in (RUN, [*EVALUATION, "--val", "text.txt"], [*RUN, "--out", "ckpt", "--resume"]):
            program.fails(*flags, "--log", "run.jsonl", phrases=[
                "another run is writing into --log run.jsonl", "wait until that run ends, or give another --log"])
            expect(log.read_text() == "", "the log has changed")
    program.run(*RUN, "--out", "ckpt", "--log", "run.jsonl")
    program.run(*RUN, "--out", "ckpt", "--log", "run.jsonl", "--resume")
    program.run(*RUN, "--log", "/dev/null")


def test_a_run_that_is_refused_leaves_no_empty_log(program):
    (program.folder / "ckpt").write_text("a file")
    program.fails(*RUN, "--out", "ckpt", "--log", "run.jsonl", phrases=["ckpt"])
    expect(not (program.folder / "run.jsonl").exists(), "an empty log")


# ---- exit codes ----------------------------------------------------------------------------


def test_wrong_flags_exit_with_2(program):
    make_inputs(program)
    train = ["--train", "text.txt", *SMALL, "--steps", 2]
    usage_errors = {
        "train_gpt2": [
            ([*train, "--total-batch-tokens", 33], "--total-batch-tokens 33"), ([*train, "--eps", 0], "--eps"),
            ([*train, "--eps", "1e-46"], "--eps"), ([*train, "--seq-len", 17], "--seq-len 17"),
            (["--train", "text.txt", "--heads", 3, "--channels", 16, "--steps", 1], "--channels 16 with --heads 3"),
            (["--train", "text.txt", "--model", "gpt5"], "--model 'gpt5'"),
            ([*train, "--schedule", "wsd", "--warmup", 3], "--schedule wsd"),
            ([*train, "--grad-accum", 2 ** 40], "--grad-accum"), (with_flags(train, batch_size=65536), "--batch-size"),
            ([*train, "--prompt", "x" * 16], "--prompt has 16 tokens"), ([*train, "--document-mask"], "--document-mask"),
            (with_flags(train, train="text.txt:0"), "--train"), ([*train, "--val", "text.txt:1"], "--val takes no weights"),
            ([*train, "--keep-best", "--out", "o", "--eval-every", 0], "--keep-best"),
            ([*train, "--loss-scale", 3, "--dtype", "fp16"], "--loss-scale"), ([*train, "--loss-scale", 2], "--loss-scale"),
            ([*train, "--vocab-size", 300], "--vocab-size"), ([*train, "--eval", "perplexity:text.txt", "--eval-stride", 17],
                                                              "--eval-stride 17"),
            (["--train", "text.txt", "--init-from", "model", "--layers", 2], "--layers 2"),
            (["--val", "text.txt"], "--val without --train"), (["--init-from", "model"], "--init-from model"),
            (["--vocab-size", 300], "--vocab-size has no effect"), (["--steps", 0, "--resume", "--out", "o"], "--steps 0")],
        "infer_gpt2": [
            ([*MODEL, "--logit-bias", "5=1e39"], "--logit-bias"), ([*MODEL, "--logit-bias", "5=-1e39"], "--logit-bias"),
            ([*MODEL, "--logit-bias", ",".join(f"{i}=-inf" for i in range(257))], "--logit-bias bans all 257 tokens"),
            ([*MODEL, "--logit-bias", "257=1"], "--logit-bias names token 257"),
            ([*MODEL, "-p", "x" * 40], "--prompt has 40 tokens"),
            (["perplexity", "text.txt", *MODEL, "--seq-len", 33], "--seq-len 33"),
            (["perplexity", "text.txt", *MODEL, "--stride", 33], "--stride 33"),
            (["bench", *MODEL, "--quant", "w8a8-static"], "--quant w8a8-static")],
        "tokenize": [(["a.txt", *BYTES, "-o", "t.bin", "--val", "t_val.bin", "--val-fraction", 2], "--val-fraction"),
                     (["a.txt", *BYTES, "-o", "a.bin", "--val", "a_000001.bin", "--val-fraction", 0.5], "can be the same file")],
    }
    for name, cases in usage_errors.items():
        for arguments, phrase in cases:
            done = call(program, name, arguments)
            what = f"{name} {' '.join(map(str, arguments))[:200]}: {done.returncode}: {done.stderr[-400:]}"
            expect(done.returncode == 2 and phrase in done.stderr and done.stdout == "", what)


def test_errors_of_files_exit_with_1(program):
    make_inputs(program)
    for name, arguments in {"train_gpt2": ["--train", "none.txt", "--steps", 1], "infer_gpt2": ["-m", "none"],
                            "tokenize": ["none.txt", *BYTES, "-o", "t.bin"]}.items():
        done = call(program, name, arguments)
        expect(done.returncode == 1 and "none" in done.stderr, f"{name}: {done.returncode}: {done.stderr}")
    config = program.folder / "model/config.json"
    config.write_text(config.read_text().replace('"n_head": 1', '"n_head": 3'))  # a damaged model is no wrong flag
    for name, arguments in {"train_gpt2": [*EVALUATION, "--val", "text.txt"], "infer_gpt2": MODEL}.items():
        expect(call(program, name, arguments).returncode == 1, name)


def test_failed_prompts_are_counted_and_exit_with_1(program):
    make_inputs(program)
    (program.folder / "mixed.jsonl").write_text('{"prompt": "a"}\nnot json\n{"prompt": ""}\n{"prompts": "b"}\n')
    (program.folder / "mixed.txt").write_text("a\n\nb\n")
    for arguments, count, lines in ((["mixed.jsonl", "--jsonl"], "2 of 4 completions have an error", 4),
                                    (["mixed.txt", "--jsonl"], "1 of 3 completions has an error", 3),
                                    (["mixed.txt"], "1 of 3 completions has an error", 2)):
        for quiet in ([], ["--quiet"]):
            done = call(program, "infer_gpt2", [*MODEL, "-n", 2, "--ignore-eos", "--prompts", *arguments, *quiet])
            expect(done.returncode == 1 and f"infer_gpt2: {count}" in done.stderr, f"{arguments}: {done}")
            if "--jsonl" in arguments:
                expect(len(done.stdout.splitlines()) == lines, f"{arguments}: {done}")
    (program.folder / "good.jsonl").write_text('{"prompt": "a"}\n')
    done = call(program, "infer_gpt2", [*MODEL, "-n", 2, "--prompts", "good.jsonl", "--jsonl", "--quiet"])
    expect(done.returncode == 0 and done.stderr == "", done)


def test_a_probability_mass_of_0_prints_the_text_of_temperature_0(program):
    make_inputs(program)
    common = [*MODEL, "-p", "The", "-n", 9, "--ignore-eos", "--quiet"]
    expected = call(program, "infer_gpt2", [*common, "--temp", 0])
    expect(expected.returncode == 0 and expected.stdout, expected)
    for flags in (["--top-p", 0], ["--typical", 0], ["--top-p", 0, "--temp", 5, "--top-k", 20], ["--typical", "1e-300"]):
        done = call(program, "infer_gpt2", [*common, *flags])
        expect((done.returncode, done.stdout, done.stderr) == (0, expected.stdout, ""), f"{flags}: {done}")


def test_mfu_above_100_percent_is_neither_printed_nor_logged(program):
    done = program.run(*with_flags(RUN, peak_tflops=1e-9), "--log", "run.jsonl")
    steps = [line for line in program.log("run.jsonl") if "loss" in line]
    expect(len(steps) == 2 and all(line["mfu"] is None and line["mfu_full"] is None for line in steps), steps)
    expect(done.stderr.count("--peak-tflops sets a higher peak") == 1, done.stderr)
    expect("%" not in "".join(line for line in done.stderr.splitlines() if line.startswith("step ")), done.stderr)
    expect(math.isfinite(steps[0]["tok_per_s"]), steps)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
