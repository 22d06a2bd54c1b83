#!/usr/bin/env python3
"""Tests machine metrics in the log, --profile and scripts/plot.

    python3 test/test_run_view.py build/host [PATTERN]
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from unittest import mock

from runner import Skip, expect
from test_programs import ROOT, run_program_tests

sys.path.insert(0, str(ROOT / "scripts"))
from run_view import gnuplot  # noqa: E402
from run_view.logs import load_runs  # noqa: E402
from run_view.panels import make_panels, running_mean, thin_out  # noqa: E402

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


def test_the_log_has_memory_and_processor_time(program):
    program.train("--steps", 3, *QUIET, "--log", "run.jsonl")
    for entry in program.log("run.jsonl"):
        expect(entry["host_mem_mb"] > 1, f"memory: {entry}")
        expect(entry["cpu_percent"] >= 0, f"processor time: {entry}")
        expect(("gpu_mem_mb" in entry) <= (program.binary.parent.name == "cuda"), f"GPU memory in a host run: {entry}")


def test_the_profile_lists_every_operation(program):
    done = program.train("--steps", 4, "--grad-accum", 2, *QUIET, "--profile", 2, "--profile-out", "profile.jsonl")
    expect(done.stderr.count("profile of 2 steps") == 1, f"no table: {done.stderr[-600:]}")
    rows = program.log("profile.jsonl")
    step = rows[0]
    expect(step["operation"] == "step" and step["steps"] == 2, f"first row: {step}")
    row_of = {row["operation"]: row for row in rows}
    # Two blocks and two micro-batches; the forward pass of a block has four linear layers.
    for operation, calls in {
            "data": 2, "zero gradients": 1, "forward/embedding forward": 2, "forward/layernorm forward": 2,
            "forward/linear forward": 16, "forward/attention forward": 4, "forward/residual layernorm forward": 8,
            "forward/gelu forward": 4, "head/logits weight gradient": 2, "head/sum of losses": 2, "head/classifier": 2,
            "backward/linear weight gradient": 16, "backward/linear input gradient": 16, "backward/bias gradient": 16,
            "backward/attention backward": 4, "backward/gelu backward": 4, "backward/layernorm backward": 10,
            "backward/embedding backward": 2, "optimizer/gradient norm": 1, "optimizer/adamw": 1}.items():
        expect(operation in row_of, f"{operation} is missing: {list(row_of)}")
        expect(row_of[operation]["calls_per_step"] == calls, f"{operation}: {row_of[operation]}, not {calls} calls")
        expect(row_of[operation]["ms_per_step"] > 0, f"{operation} took no time")
    whole = sum(row["ms_per_step"] for row in rows if row["depth"] == 1)
    expect(math.isclose(whole, step["ms_per_step"], rel_tol=1e-6), f"{whole} ms of {step['ms_per_step']}")
    for parent in ("forward", "head", "backward", "optimizer"):
        parts = sum(row["ms_per_step"] for row in rows if row["operation"].startswith(parent + "/"))
        expect(math.isclose(parts, row_of[parent]["ms_per_step"], rel_tol=1e-6), f"{parent}: {parts}")
    # A rest is a difference of times, so it may be slightly negative: GPU events measure in floats.
    expect(all(row["ms_per_step"] >= -1e-6 * step["ms_per_step"] for row in rows), "parts take longer than the whole")
    # FLOP of the forward matmuls: 2 * 12 C^2 per token and block, C = 16; 2 micro-batches of 32 tokens.
    flops = row_of["forward/linear forward"]
    expect(math.isclose(flops["flop_per_s"] * flops["ms_per_step"] / 1e3, 2 * 2 * 32 * 2 * 12 * 16**2, rel_tol=1e-6),
           f"work: {flops}")


def test_the_trace_of_a_profile_has_the_calls_of_one_step(program):
    program.train("--steps", 4, *QUIET, "--grad-accum", 2, "--profile", 2, "--profile-out", "profile.json")
    trace = json.loads((program.folder / "profile.json").read_text())["traceEvents"]
    boxes = [event for event in trace if event["ph"] == "X"]
    calls = [event["name"] for event in boxes]
    expect(calls[0] == "step" and calls.count("step") == 1 and calls.count("adamw") == 1, f"not one step: {calls}")
    expect(calls.count("attention forward") == 4 and calls.count("forward") == 2, f"not two micro-batches: {calls}")
    # Each call begins inside the last one that has not ended, and ends before it.
    ends = [math.inf]
    for event in boxes:
        begin, end = event["ts"], event["ts"] + event["dur"]
        while begin > ends[-1] - 1e-4:
            ends.pop()
        expect(0 <= begin and end <= ends[-1] + 1e-3, f"{event} overlaps a call")
        ends.append(end)
    operations = [event for event in trace if event["ph"] == "M"]
    expect([event["args"].get("name") for event in operations[::2]] == ["rank 0", "operations"], operations)


def test_profiling_changes_no_result(program):
    common = ["--steps", 5, "--dtype", "bf16", "--eval-every", 2, "--sample-every", 0]
    program.train(*common, "--log", "off.jsonl")
    program.train(*common, "--log", "on.jsonl", "--profile", 3)
    numbers = [[{k: e[k] for k in ("step", "loss", "val_loss", "grad_norm", "lr", "tokens") if k in e}
                for e in program.log(f"{run}.jsonl")] for run in ("off", "on")]
    expect(numbers[0] == numbers[1], "the runs differ")


def test_the_profile_of_a_short_run_has_fewer_steps(program):
    done = program.train("--steps", 3, *QUIET, "--profile", 9)
    expect("profile of 2 steps" in done.stderr, done.stderr[-300:])
    done = program.train("--steps", 1, *QUIET, "--profile", 9)
    expect("no second step" in done.stderr, done.stderr[-300:])
    program.fails("--profile-out", "x.jsonl", phrases=["--profile-out", "--profile"], code=2)
    program.fails("--profile", "-1", phrases=["--profile"], code=2)


# ---- reading logs --------------------------------------------------------------------------


def test_damaged_lines_are_skipped_with_a_warning(program):
    extra = (json.dumps(line(21, loss=None)) + "\n" + '{"step": 22, "loss": NaN, "grad_norm": Infinity}\n'
             + "not json\n[1]\n" + '{"step": "x", "loss": 1}\n' + '{"step": 23, "lo')
    run = load_runs([write_log(program, "run.jsonl", extra=extra)])[0]
    expect([s for s, _ in run.series("loss")] == list(range(1, 21)), "null and NaN are no losses")
    expect(len(run.series("lr")) == 21, "the rest of such a line counts")
    warnings = "\n".join(run.warnings)
    for part in (":28: not JSON", ":29: without a step", ":30: without a step", ":31: cut off"):
        expect(part in warnings, f"'{part}' is not in {warnings}")


def test_a_resumed_log_discards_abandoned_steps(program):
    extra = "".join(json.dumps(line(step, loss=1.0)) + "\n" for step in (11, 12))
    run = load_runs([write_log(program, "run.jsonl", extra=extra)])[0]
    expect(run.series("loss")[-3:] == [(10, 4.0), (11, 1.0), (12, 1.0)], f"{run.series('loss')[-3:]}")
    expect([s for s, _ in run.series("val_loss")] == [0, 5, 10], "evaluations of the abandoned steps stay")
    expect("back to step 11; discarded 10 steps" in "\n".join(run.warnings), f"{run.warnings}")


def test_runs_have_different_names(program):
    for folder in "ab":
        (program.folder / folder).mkdir()
        write_log(program, f"{folder}/log.jsonl")
    paths = [program.folder / folder / "log.jsonl" for folder in "ab"]
    expect([run.name for run in load_runs(paths)] == ["a/log", "b/log"], "by folder")
    expect([run.name for run in load_runs([paths[0]] * 2)] == ["log (1)", "log (2)"], "by number")
    expect([run.name for run in load_runs(paths, ["x", "y"])] == ["x", "y"], "by --names")


def test_file_names_may_have_any_bytes(program):
    log, picture, odd = (os.fsdecode(name) for name in (b"r\xff n.jsonl", b"p\xfe.", b"\xfd=1"))
    (program.folder / log).write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2}\n')
    for ending in ["html"] + ["svg"] * (shutil.which("gnuplot") is not None):
        plot(program, log, "--out", picture + ending, "--title", odd, "--line", odd)
    expect("r? n" in (program.folder / (picture + "html")).read_text(), "the run's name is missing")


def test_axes_are_tokens_or_hours(program):
    run = load_runs([write_log(program, "run.jsonl")])[0]
    expect(run.axis("tokens")(7) == 700 and run.axis("tokens")(0) == 0, "tokens")
    expect(math.isclose(run.axis("hours")(20), 20 * 0.9 / 3600), "hours")
    curve = make_panels([run], ["loss"], x="tokens")[0].curves[1]
    expect([x for x, _ in curve.points] == [0, 500, 1000, 1500, 2000], "evaluations by tokens")


def test_thinning_keeps_spikes_and_means_are_centred(_):
    points = [(i, float(i % 2)) for i in range(100)]
    expect(running_mean(points, 1) == points, "a mean of one is the value")
    mean = running_mean(points, 4)
    expect(mean[0] == (0, 0.0) and math.isclose(mean[51][1], 1 / 3), f"{mean[:3]}")
    spike = [(i, 9.0 if i == 5003 else 1.0) for i in range(10000)]
    thin = thin_out(spike, 1000)
    expect(len(thin) <= 1000 and (5003, 9.0) in thin and thin == sorted(thin), "the spike is lost")


# ---- pictures ------------------------------------------------------------------------------


def test_gnuplot_draws_svg_and_png(program):
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
    expect(not [p for p in program.folder.iterdir() if p.name.startswith("tmp")], "temporary files remain")


def test_an_unpacked_gnuplot_finds_its_libraries(program):
    deps = program.folder.resolve() / "deps"
    (deps / "usr/bin").mkdir(parents=True)
    (deps / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (deps / "usr/bin/gnuplot-nox").write_text("#!/bin/sh\n")
    (deps / "usr/bin/gnuplot-nox").chmod(0o755)
    for path in (str(deps / "usr/bin"), "/nowhere"):  # PATH as make sets it, and another one
        with mock.patch.dict(os.environ, {"DEPS": str(deps), "PATH": path}):
            program_path, environment = gnuplot.find_gnuplot()
        expect(program_path == str(deps / "usr/bin/gnuplot-nox"), f"found {program_path}")
        expect(str(deps / "usr/lib/x86_64-linux-gnu") in environment.get("LD_LIBRARY_PATH", ""), "no libraries")


def page_data(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])


def test_the_page_is_self_contained(program):
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
    for part in ("validation loss, best", "3.0500 at step 20", "tokens per second, mean", "GPU memory, maximum", "2.00 GiB",
                 "90%", "300 W", "18.0 s"):
        expect(part in figures, f"'{part}' is not in the table: {figures}")


def test_the_page_draws_curves_and_displays_values(program):
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
    expect(all(p["hidden"] and len(set(p["labels"])) > 4 for p in drawn[0]), "no labels, or a visible reading")
    expect("flat" not in drawn[1][0]["readings"][2], "a run that ended has a value")


def test_the_page_has_the_memory_of_each_rank_next_to_what_it_planned(program):
    parts = {"fwd_ms": 100.0, "bwd_ms": 150.0, "recompute_ms": 50.0, "optimizer_ms": 50.0, "comm_ms": 30.0, "bubble_ms": 20.0}
    planned = {"step": 0, "run": "started", "planned_mem_mb_ranks": "1024.0 512.0 1024.0"}
    lines = [planned] + [line(step, **parts, host_mem_mb_ranks=f"{2048 + step}.0 1536.0 2048.0") for step in (1, 2, 3)]
    (program.folder / "ranks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    plot(program, "ranks.jsonl", "--out", "ranks.html")
    text = (program.folder / "ranks.html").read_text()
    memory, times = page_data(program.folder / "ranks.html")["panels"][-2:]
    expect([c["name"] for c in memory["curves"]] == ["rank 0, host", "rank 1, host", "rank 2, host"], memory)
    expect(memory["curves"][0]["points"][-1] == [3, round(2051 / 1024, 6)], memory["curves"][0])
    levels = [(level["name"], level["value"]) for level in memory["levels"]]
    expect(levels == [("planned, ranks 0, 2", 1), ("planned, rank 1", 0.5)], levels)
    shown = {c["name"]: c["points"][0][1] for c in times["curves"]}
    expect(shown == {"step": 900, "computation": 350, "communication": 30, "bubble": 20}, shown)
    table = [re.sub("<[^>]+>", " ", row).split() for row in text.split("<h2>Memory of each rank")[1].split("</tr>")]
    expect(table[1:3] == [["rank", "0", "1,024.0", "MiB", "2,051.0", "MiB"], ["rank", "1", "512.0", "MiB", "1,536.0", "MiB"]],
           table[1:3])
    expect("<h1>Training run: ranks</h1>" in text and "3 steps, 300 tokens, 3 ranks" in text, "title")
    expect("planned_mem" not in text.split("<h2>Settings")[-1], "the planned memory is no setting")
    for number in (1, 2):  # one rank has no panel; two runs have the extremes of each
        write_log(program, f"one{number}.jsonl")
    plot(program, "one1.jsonl", "--metrics", "rank_memory", "--out", "x.html", code=1)
    plot(program, "one1.jsonl", "ranks.jsonl", "--metrics", "rank_memory,compute,communication,bubble", "--out", "two.html")
    names = [c["name"] for c in page_data(program.folder / "two.html")["panels"][0]["curves"]]
    expect(names == ["ranks: rank 0, host", "ranks: rank 1, host"], names)
    plot(program, "one1.jsonl", "ranks.jsonl", "--out", "two.html")
    labels = [panel["label"] for panel in page_data(program.folder / "two.html")["panels"]][-3:]
    expect([label.split(" per step")[0] for label in labels] == [
        "time of computation", "time of communication", "idle time in the pipeline"], labels)
    if shutil.which("gnuplot"):
        plot(program, "ranks.jsonl", "--out", "ranks.svg")
        expect("planned, rank 1 = 0.500" in (program.folder / "ranks.svg").read_text(), "no level in the SVG")


def test_margins_have_room_for_the_longest_labels(program):
    if not shutil.which("node"):
        raise Skip("no node here to run the page's script")
    lines = [line(step, loss=-0.00012 + 1e-6 * step, lr=2.5e-5) for step in range(1, 60)]
    (program.folder / "tiny.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    plot(program, "tiny.jsonl", "--out", "tiny.html")
    panels = json.loads(subprocess.run(["node", str(ROOT / "test/page_dom.js"), "tiny.html"], cwd=program.folder,
                                       capture_output=True, text=True, timeout=60, check=True).stdout)
    for panel in panels:
        for label, x in zip(panel["labels"], panel["ends"]):
            expect(x - 7 * len(label) >= 0, f"{panel['label']}: {label} ends at {x}")


def test_errors_of_plot_name_the_cause(program):
    write_log(program, "run.jsonl")
    (program.folder / "empty.jsonl").write_text("")
    (program.folder / "text.jsonl").write_text("hello\n")
    for arguments, code, phrases in (
            (["no.jsonl"], 1, ["no.jsonl", "No such file"]), (["empty.jsonl"], 1, ["empty.jsonl", "no line has a step"]),
            (["text.jsonl"], 1, ["text.jsonl", "not JSON"]), (["run.jsonl", "--metrics", "gpu"], 1, ["gpu", "gpu_util"]),
            (["run.jsonl", "--metrics", "los"], 2, ["'los'", "grad_norm"]), (["run.jsonl", "--smooth", "0"], 2, ["--smooth"]),
            (["run.jsonl", "--names", "a,b"], 1, ["2 names for 1"]), (["run.jsonl", "--line", "x"], 2, ["NAME=VALUE"]),
            (["run.jsonl", "--line", "x=nan"], 2, ["NAME=VALUE"])):
        done = plot(program, *arguments, "--out", "x.html", code=code)
        expect(all(part in done.stderr for part in phrases), f"{arguments}: {done.stderr[-300:]}")
    expect(".html, .svg or .png" in plot(program, "run.jsonl", "--out", "x.pdf", code=2).stderr, "the kinds of picture")
    expect(not (program.folder / "x.html").exists(), "a page was written")
    (program.folder / "bare.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([ROOT / "scripts/plot", "run.jsonl", "--out", "y.html"], cwd=program.folder, stdout=writer,
                          stderr=subprocess.PIPE, timeout=120)
    os.close(writer)
    expect(done.returncode == -signal.SIGPIPE and done.stderr == b"", f"the reader of plot has ended: {done}")
    done = plot(program, "bare.jsonl", "--x", "hours", "--out", "x.html", code=1)
    expect("step_ms" in done.stderr, done.stderr)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
