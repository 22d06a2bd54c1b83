#!/usr/bin/env python3
"""Looking at runs: what the log says of the machine, --profile, scripts/plot and scripts/export_run.py.

    python3 test/test_run_view.py build/host [PATTERN]
"""
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest import mock

from runner import Skip, expect
from test_programs import ROOT, run_program_tests

sys.path.insert(0, str(ROOT / "scripts"))
from run_view import gnuplot, tensorboard  # noqa: E402
from run_view.logs import LogError, load_runs  # noqa: E402
from run_view.panels import make_panels, running_mean, thinned  # noqa: E402

QUIET = ["--eval-every", 0, "--sample-every", 0]


def script(name, program, *arguments, code=0, environment=None, python=sys.executable):
    done = subprocess.run([python, str(ROOT / "scripts" / name), *map(str, arguments)], cwd=program.folder,
                          capture_output=True, text=True, timeout=120, env={**os.environ, **(environment or {})})
    expect(done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stdout[-300:]}{done.stderr[-700:]}")
    expect("Traceback" not in done.stderr, f"it crashed: {done.stderr[-700:]}")
    return done


def plot(program, *arguments, code=0):
    return script("plot", program, *arguments, code=code)


def line(step, **more):
    return {"step": step, "loss": 5 - 0.1 * step, "grad_norm": 1 + step % 3, "lr": 1e-3 / step, "tokens": 100 * step,
            "tok_per_s": 2e4 + step, "mfu": 0.3, "step_ms": 900.0, "cpu_percent": 190.0, "host_mem_mb": 512.0, **more}


def write_log(program, name, steps=20, gpu=False, extra=""):
    more = {"gpu_mem_mb": 2048.0, "gpu_util": 90.0, "gpu_power_w": 300.0} if gpu else {}
    lines = [{"step": 0, "val_loss": 5.1}]
    for step in range(1, steps + 1):
        lines.append(line(step, **more))
        if step % 5 == 0:
            lines.append({"step": step, "val_loss": 5.05 - 0.1 * step})
    path = program.folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + extra)
    return path


# ---- the log and the profile ---------------------------------------------------------------


def test_the_log_says_what_a_run_takes(program):
    program.train("--steps", 3, *QUIET, "--log", "run.jsonl")
    for entry in program.log("run.jsonl"):
        expect(entry["host_mem_mb"] > 1, f"memory: {entry}")
        expect(entry["cpu_percent"] >= 0, f"processor time: {entry}")
        expect(("gpu_mem_mb" in entry) <= (program.binary.parent.name == "cuda"), f"a GPU where there is none: {entry}")


def test_profile_shows_every_operation(program):
    done = program.train("--steps", 4, "--grad-accum", 2, *QUIET, "--profile", 2, "--profile-out", "profile.jsonl")
    expect(done.stderr.count("profile of 2 steps") == 1, f"no table: {done.stderr[-600:]}")
    rows = program.log("profile.jsonl")
    step = rows[0]
    expect(step["operation"] == "step" and step["steps"] == 2, f"first row: {step}")
    found = {row["operation"]: row for row in rows}
    # Two blocks, two micro-batches: four linear layers in each block, forward.
    for operation, calls in {
            "data": 2, "zero gradients": 1, "forward/embedding forward": 2, "forward/layernorm forward": 2,
            "forward/linear forward": 16, "forward/attention forward": 4, "forward/residual layernorm forward": 8,
            "forward/gelu forward": 4, "head/logits weight gradient": 2, "head/sum of losses": 2, "head/classifier": 2,
            "backward/linear weight gradient": 16, "backward/linear input gradient": 16, "backward/bias gradient": 16,
            "backward/attention backward": 4, "backward/gelu backward": 4, "backward/layernorm backward": 10,
            "backward/embedding backward": 2, "optimizer/gradient norm": 1, "optimizer/adamw": 1}.items():
        expect(operation in found, f"{operation} is missing: {list(found)}")
        expect(found[operation]["calls_per_step"] == calls, f"{operation}: {found[operation]}, not {calls} calls")
        expect(found[operation]["ms_per_step"] > 0, f"{operation} took no time")
    whole = sum(row["ms_per_step"] for row in rows if row["depth"] == 1)
    expect(math.isclose(whole, step["ms_per_step"], rel_tol=1e-6), f"{whole} ms of {step['ms_per_step']}")
    for parent in ("forward", "head", "backward", "optimizer"):
        parts = sum(row["ms_per_step"] for row in rows if row["operation"].startswith(parent + "/"))
        expect(math.isclose(parts, found[parent]["ms_per_step"], rel_tol=1e-6), f"{parent}: {parts}")
    expect(all(row["ms_per_step"] > -1e-9 for row in rows), "parts take longer than the whole")
    # Multiplications and additions of the forward products: 12 C^2 a token and block, C = 16.
    flops = found["forward/linear forward"]
    expect(math.isclose(flops["flop_per_s"] * flops["ms_per_step"] / 1e3, 2 * 2 * 32 * 2 * 12 * 16**2, rel_tol=1e-6),
           f"work: {flops}")


def test_profile_changes_no_number(program):
    common = ["--steps", 5, "--dtype", "bf16", "--eval-every", 2, "--sample-every", 0]
    program.train(*common, "--log", "off.jsonl")
    program.train(*common, "--log", "on.jsonl", "--profile", 3)
    numbers = [[{k: e[k] for k in ("step", "loss", "val_loss", "grad_norm", "lr", "tokens") if k in e}
                for e in program.log(f"{run}.jsonl")] for run in ("off", "on")]
    expect(numbers[0] == numbers[1], "the runs differ")


def test_profile_of_a_short_run(program):
    done = program.train("--steps", 3, *QUIET, "--profile", 9)
    expect("profile of 2 steps" in done.stderr, done.stderr[-300:])
    done = program.train("--steps", 1, *QUIET, "--profile", 9)
    expect("no second step" in done.stderr, done.stderr[-300:])
    program.fails("--profile-out", "x.jsonl", says=["--profile-out", "--profile"], code=2)
    program.fails("--profile", "-1", says=["--profile"], code=2)


# ---- reading logs --------------------------------------------------------------------------


def test_logs_that_are_not_clean(program):
    extra = (json.dumps(line(21, loss=None)) + "\n" + '{"step": 22, "loss": NaN, "grad_norm": Infinity}\n'
             + "not json\n[1]\n" + '{"step": "x", "loss": 1}\n' + '{"step": 23, "lo')
    run = load_runs([write_log(program, "run.jsonl", extra=extra)])[0]
    expect([s for s, _ in run.series("loss")] == list(range(1, 21)), "null and NaN are no losses")
    expect(len(run.series("lr")) == 21, "the rest of such a line counts")
    says = "\n".join(run.warnings)
    for part in (":28: not JSON", ":29: without a step", ":30: without a step", ":31: cut off"):
        expect(part in says, f"'{part}' is not in {says}")


def test_a_run_that_went_back(program):
    extra = "".join(json.dumps(line(step, loss=1.0)) + "\n" for step in (11, 12))
    run = load_runs([write_log(program, "run.jsonl", extra=extra)])[0]
    expect(run.series("loss")[-3:] == [(10, 4.0), (11, 1.0), (12, 1.0)], f"{run.series('loss')[-3:]}")
    expect([s for s, _ in run.series("val_loss")] == [0, 5, 10], "evaluations of the abandoned steps stay")
    expect("back to step 11: 10 steps" in "\n".join(run.warnings), f"{run.warnings}")


def test_names_differ(program):
    for folder in "ab":
        (program.folder / folder).mkdir()
        write_log(program, f"{folder}/log.jsonl")
    paths = [program.folder / folder / "log.jsonl" for folder in "ab"]
    expect([run.name for run in load_runs(paths)] == ["a/log", "b/log"], "by folder")
    expect([run.name for run in load_runs([paths[0]] * 2)] == ["log (1)", "log (2)"], "by number")
    expect([run.name for run in load_runs(paths, ["x", "y"])] == ["x", "y"], "as told")


def test_axes(program):
    run = load_runs([write_log(program, "run.jsonl")])[0]
    expect(run.axis("tokens")(7) == 700 and run.axis("tokens")(0) == 0, "tokens")
    expect(math.isclose(run.axis("hours")(20), 20 * 0.9 / 3600), "hours")
    curve = make_panels([run], ["loss"], x="tokens")[0].curves[1]
    expect([x for x, _ in curve.points] == [0, 500, 1000, 1500, 2000], "evaluations by tokens")


def test_means_and_thinning(_):
    points = [(i, float(i % 2)) for i in range(100)]
    expect(running_mean(points, 1) == points, "a mean of one is the value")
    mean = running_mean(points, 4)
    expect(mean[0] == (0, 0.0) and math.isclose(mean[51][1], 1 / 3), f"{mean[:3]}")
    spike = [(i, 9.0 if i == 5003 else 1.0) for i in range(10000)]
    thin = thinned(spike, 1000)
    expect(len(thin) <= 1000 and (5003, 9.0) in thin and thin == sorted(thin), "the spike is lost")


# ---- pictures ------------------------------------------------------------------------------


def test_svg_and_png(program):
    if not (shutil.which("gnuplot") or shutil.which("gnuplot-nox") or (ROOT / "deps/usr/bin/gnuplot-nox").exists()):
        raise Skip("no gnuplot here")
    write_log(program, "one.jsonl", gpu=True)
    write_log(program, "it's <two> & a_b.jsonl", steps=12)
    for out in ("deep/er/all.svg", "all.png"):
        plot(program, "one.jsonl", "it's <two> & a_b.jsonl", "--out", out, "--title", "it's a 'title' <b>")
    svg = program.folder / "deep/er/all.svg"
    text = " ".join(ElementTree.parse(svg).getroot().itertext())
    for part in ("it's a 'title' <b>", "it's <two> & a_b: training", "one: validation", "gradient norm", "learning rate",
                 "tokens per second", "memory in use (GiB)", "one: GPU", "step"):
        expect(part in text, f"'{part}' is not in the SVG")
    expect((program.folder / "all.png").read_bytes().startswith(b"\x89PNG"), "no PNG")
    for x in ("tokens", "hours"):
        plot(program, "one.jsonl", "--x", x, "--out", "x.svg", "--smooth", 1, "--metrics", "gpu,mfu,cpu,power")
    plot(program, "one.jsonl", "--out", "loss.svg", "--metrics", "loss", "--line", "entropy=2.31")
    expect("entropy = 2.310" in (program.folder / "loss.svg").read_text(), "no level")
    (program.folder / "short.jsonl").write_text(json.dumps(line(1)) + "\n")
    plot(program, "short.jsonl", "--out", "short.svg")
    (program.folder / "zero.jsonl").write_text('{"step": 1, "loss": 0.0, "lr": 0.0}\n')
    plot(program, "zero.jsonl", "--out", "zero.svg")
    expect(not [p for p in program.folder.iterdir() if p.name.startswith("tmp")], "drafts are left")


def test_an_unpacked_gnuplot_finds_its_libraries(program):
    deps = program.folder.resolve() / "deps"
    (deps / "usr/bin").mkdir(parents=True)
    (deps / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (deps / "usr/bin/gnuplot-nox").write_text("#!/bin/sh\n")
    (deps / "usr/bin/gnuplot-nox").chmod(0o755)
    for path in (str(deps / "usr/bin"), "/nowhere"):  # as make starts it, and by hand
        with mock.patch.dict(os.environ, {"DEPS": str(deps), "PATH": path}):
            found, environment = gnuplot.find_gnuplot()
        expect(found == str(deps / "usr/bin/gnuplot-nox"), f"found {found}")
        expect(str(deps / "usr/lib/x86_64-linux-gnu") in environment.get("LD_LIBRARY_PATH", ""), "no libraries")


def page_data(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])


def test_the_page_needs_nothing_else(program):
    write_log(program, "one.jsonl", gpu=True)
    write_log(program, "two.jsonl", steps=12)
    plot(program, "one.jsonl", "two.jsonl", "--out", "runs.html", "--names", "</script><b>,two", "--line", "best=3")
    text = (program.folder / "runs.html").read_text()
    expect(not re.search(r"""(src|href)\s*=|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", text), "it loads something")
    expect("</script><b>" not in text and "prefers-color-scheme: dark" in text, "names are not escaped")
    data = page_data(program.folder / "runs.html")
    expect([p["label"] for p in data["panels"]] == ["loss (nats per token)", "gradient norm", "learning rate",
                                                   "tokens per second", "memory in use (GiB)"], "panels")
    curves = data["panels"][0]["curves"]
    expect([c["name"] for c in curves][2:] == ["two: training", "two: validation"], "curves")
    expect(curves[0]["points"][3] == [4, 4.6] and data["panels"][4]["curves"][0]["points"][0] == [1, 2], "values")
    figures = re.sub("<[^>]+>", " ", text[text.index("<table"):text.index("</table")])
    for part in ("validation loss, best", "3.0500 at step 20", "tokens per second, mean", "GPU memory, most", "2.00 GiB",
                 "90%", "300 W", "18.0 s"):
        expect(part in figures, f"'{part}' is not in the table: {figures}")


def test_the_page_draws_and_reads_out(program):
    if not shutil.which("node"):
        raise Skip("no node here to run the page's script")
    write_log(program, "one.jsonl", gpu=True)
    (program.folder / "flat.jsonl").write_text('{"step": 1, "loss": 2.0, "lr": 0.0}\n')
    plot(program, "one.jsonl", "--out", "one.html", "--line", "best=3")
    plot(program, "one.jsonl", "flat.jsonl", "--out", "two.html")
    drawn = [json.loads(subprocess.run(["node", str(ROOT / "test/page_dom.js"), name], cwd=program.folder, timeout=60,
                                       capture_output=True, text=True, check=True).stdout)
             for name in ("one.html", "two.html")]
    loss = drawn[0][0]
    expect(loss["legend"] == ["training", "validation", "best = 3"], f"legend {loss['legend']}")
    expect(loss["paths"] == 2 and loss["circles"] == 5, f"{loss['paths']} paths, {loss['circles']} circles")
    expect(loss["readings"][2].splitlines() == ["step 20", "training 3 (mean 3)", "validation 3.05"],
           f"at the right end: {loss['readings'][2]}")
    expect(all(p["hidden"] and len(set(p["labels"])) > 4 for p in drawn[0]), "no labels, or a reading that stays")
    expect("flat" not in drawn[1][0]["readings"][2], "a run that ended has a value")


def test_plot_says_what_is_wrong(program):
    write_log(program, "run.jsonl")
    (program.folder / "empty.jsonl").write_text("")
    (program.folder / "text.jsonl").write_text("hello\n")
    for arguments, code, says in (
            (["no.jsonl"], 1, ["no.jsonl", "No such file"]), (["empty.jsonl"], 1, ["empty.jsonl", "no line has a step"]),
            (["text.jsonl"], 1, ["text.jsonl", "not JSON"]), (["run.jsonl", "--metrics", "gpu"], 1, ["gpu", "gpu_util"]),
            (["run.jsonl", "--metrics", "los"], 2, ["'los'", "grad_norm"]), (["run.jsonl", "--smooth", "0"], 2, ["--smooth"]),
            (["run.jsonl", "--names", "a,b"], 1, ["2 names for 1"]), (["run.jsonl", "--line", "x"], 2, ["NAME=VALUE"]),
            (["run.jsonl", "--line", "x=nan"], 2, ["NAME=VALUE"])):
        done = plot(program, *arguments, "--out", "x.html", code=code)
        expect(all(part in done.stderr for part in says), f"{arguments}: {done.stderr[-300:]}")
    expect(".html, .svg or .png" in plot(program, "run.jsonl", "--out", "x.pdf", code=2).stderr, "the kinds of picture")
    expect(not (program.folder / "x.html").exists(), "a page was written")
    (program.folder / "bare.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    done = plot(program, "bare.jsonl", "--x", "hours", "--out", "x.html", code=1)
    expect("step_ms" in done.stderr, done.stderr)


# ---- TensorBoard ---------------------------------------------------------------------------


def slow_crc32c(data):
    """By the definition: the remainder modulo the polynomial 0x1EDC6F41, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            top = crc >> 31 ^ (byte >> bit & 1)
            crc = crc << 1 & 0xFFFFFFFF ^ (0x1EDC6F41 if top else 0)
    return int(f"{crc ^ 0xFFFFFFFF:032b}"[::-1], 2)


def read_fields(data):
    """[(number, value)] of a protocol buffer: bytes, or an integer for a varint."""
    fields, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            fields.append((tag >> 3, varint()))
            continue
        size = varint() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
        fields.append((tag >> 3, data[at:at + size]))
        at += size
    return fields


def read_events(path):
    """[(wall time, step, tag, value)], after every checksum."""
    data, at, events = path.read_bytes(), 0, []

    def checked(part, crc):
        plain = slow_crc32c(part)
        masked = ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF
        expect(struct.unpack("<I", crc)[0] == masked, "a checksum is wrong")
        return part
    while at < len(data):
        length = struct.unpack("<Q", checked(data[at:at + 8], data[at + 8:at + 12]))[0]
        event = dict(read_fields(checked(data[at + 12:at + 12 + length], data[at + 12 + length:at + 16 + length])))
        at += 16 + length
        time = struct.unpack("<d", event[1])[0]
        if 3 in event:
            expect(event[3] == b"brain.Event:2" and not events, "the version comes first")
            continue
        for number, value in read_fields(event[5]):
            expect(number == 1, "a summary has values alone")
            inner = dict(read_fields(value))
            events.append((time, event[2], inner[1].decode(), struct.unpack("<f", inner[2])[0]))
    return events


def test_crc32c(_):
    expect(slow_crc32c(b"123456789") == 0xE3069283, "the test's own")  # the check value of CRC-32C
    expect(tensorboard.masked_crc(b"123456789") == (((0xE3069283 >> 15 | 0xE3069283 << 17) & 0xFFFFFFFF)
                                                    + 0xA282EAD8) & 0xFFFFFFFF, "ours")


def test_tensorboard_events(program):
    write_log(program, "run.jsonl", steps=300)
    for _ in range(2):
        script("export_run.py", program, "run.jsonl", "--tensorboard", "board")
    files = list((program.folder / "board").rglob("*"))
    expect([f.name for f in files if f.is_file()] == [tensorboard.EVENT_FILE], f"{files}: exported twice")
    events = read_events(program.folder / "board/run" / tensorboard.EVENT_FILE)
    losses = [(step, value) for _, step, tag, value in events if tag == "loss/training"]
    expect([step for step, _ in losses] == list(range(1, 301)), "steps")
    expect(all(math.isclose(value, 5 - 0.1 * step, rel_tol=1e-6, abs_tol=1e-6) for step, value in losses), "values")
    expect(len([1 for _, _, tag, _ in events if tag == "loss/validation"]) == 61, "evaluations")
    expect({"training/lr", "machine/cpu_percent", "speed/tok_per_s"} <= {tag for _, _, tag, _ in events}, "tags")
    times = [time for time, *_ in events]
    expect(times == sorted(times) and math.isclose(times[-1] - times[0], 300 * 0.9, abs_tol=1e-3), "wall times")
    expect(abs(times[-1] - (program.folder / "run.jsonl").stat().st_mtime) < 1e-3, "the end is the file's")


def test_tensorboard_reads_it(program):
    python = os.environ.get("PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import tensorboard"], capture_output=True).returncode:
        raise Skip(f"{python} has no tensorboard")
    write_log(program, "run.jsonl")
    script("export_run.py", program, "run.jsonl", "--tensorboard", "board")
    reader = ("import sys\nfrom tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
              "board = EventAccumulator('board/run'); board.Reload()\n"
              "print([(e.step, round(e.value, 4)) for e in board.Scalars('loss/validation')])")
    done = subprocess.run([python, "-c", reader], cwd=program.folder, capture_output=True, text=True, timeout=120)
    expect(done.stdout.strip() == "[(0, 5.1), (5, 4.55), (10, 4.05), (15, 3.55), (20, 3.05)]",
           f"{done.stdout[-300:]} {done.stderr[-500:]}")


# ---- Weights & Biases ----------------------------------------------------------------------

# Stands in for the package: appends what it is told to calls.jsonl.
FAKE_WANDB = """
import json
def note(*what):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps(what) + "\\n")
class Run:
    def log(self, values, step): note("log", step, values)
    def finish(self): note("finish")
def init(**options):
    note("init", options)
    return Run()
"""


def test_wandb_gets_each_step_once(program):
    write_log(program, "run.jsonl", steps=4)
    (program.folder / "fake").mkdir()
    (program.folder / "fake/wandb.py").write_text(FAKE_WANDB)

    def export(*arguments):
        (program.folder / "calls.jsonl").write_text("")
        script("export_run.py", program, "run.jsonl", "--wandb", "shakespeare", *arguments,
               environment={"PYTHONPATH": str(program.folder / "fake")})
        return program.log("calls.jsonl")
    calls = export()
    options = calls[0][1]
    expect(options["project"] == "shakespeare" and options["name"] == "run" and options["mode"] == "offline", f"{options}")
    expect([c[1] for c in calls if c[0] == "log"] == [0, 1, 2, 3, 4] and calls[-1] == ["finish"], f"{calls}")
    expect(calls[1][2] == {"loss/validation": 5.1} and calls[2][2]["loss/training"] == 4.9, f"{calls[1:3]}")
    expect(export() == [], "exported twice")
    write_log(program, "run.jsonl", steps=6)
    calls = export("--online")
    expect([c[1] for c in calls if c[0] == "log"] == [5, 6], f"{calls}")
    expect(calls[0][1]["id"] == options["id"] and calls[0][1]["mode"] == "online", "another run")


def test_wandb_itself(program):
    python = os.environ.get("PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import wandb; wandb.init"], capture_output=True).returncode:
        raise Skip(f"{python} has no wandb")
    write_log(program, "run.jsonl", steps=4)
    script("export_run.py", program, "run.jsonl", "--wandb", "shakespeare", python=python,
           environment={"WANDB_SILENT": "true"})
    expect(len(list((program.folder / "wandb").glob("offline-run-*/*.wandb"))) == 1, "no offline run")


def test_export_says_what_is_wrong(program):
    write_log(program, "run.jsonl")
    (program.folder / "none").mkdir()
    (program.folder / "none/wandb.py").write_text("raise ImportError")
    done = script("export_run.py", program, "run.jsonl", "--wandb", "p", code=1,
                  environment={"PYTHONPATH": str(program.folder / "none")})
    expect("pip install wandb" in done.stderr, done.stderr)
    expect("--tensorboard DIR or --wandb" in script("export_run.py", program, "run.jsonl", code=2).stderr, "nothing to do")
    expect("no.jsonl" in script("export_run.py", program, "no.jsonl", "--tensorboard", "b", code=1).stderr, "the file")
    (program.folder / "file").write_text("")
    expect("file" in script("export_run.py", program, "run.jsonl", "--tensorboard", "file", code=1).stderr, "the folder")
    try:
        load_runs([program.folder / "run.jsonl"], ["a", "b"])
    except LogError as error:
        expect("2 names" in str(error), str(error))
    else:
        raise AssertionError("too many names")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
