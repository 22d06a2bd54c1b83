#!/usr/bin/env python3
"""Tests what scripts/plot does with the settings in a log: resume points, the table of settings, bits per byte.

    python3 test/test_run_history.py build/host [PATTERN]
"""
import html
import json
import math
import re
import shutil
import subprocess
import sys

from runner import Skip, expect
from test_programs import ROOT, run_program_tests
from test_run_view import line, page_data, plot

from run_view import gnuplot
from run_view.history import setting_rows
from run_view.logs import load_runs
from run_view.panels import make_marks, make_panels

LR_NOTE = "--lr was 0.0006, it is 0.0003 now"


def started(step=0, run="started", tokenizer="aa", bytes_per_token=4.0, **flags):
    """The line that train_gpt2 logs at the beginning of a process. Flags are without dashes."""
    values = {"lr": 0.0006, "steps": 20, "train": "a.txt", "prompt": "a|b", "final_samples_out": "", "tf32": False,
              "log": "x.jsonl", "keep_best": True, "eps": 1e-8, **flags}
    known = {"tokenizer_xxh64": tokenizer, "bytes_per_token": bytes_per_token}
    return {"step": step, "run": run, **{"--" + name.replace("_", "-"): value for name, value in values.items()},
            **{key: value for key, value in known.items() if value is not None}, "version": "1.0"}


def resumed(step, lr=0.0003, **more):
    return {**started(step, "resumed", lr=lr, **more), "checkpoint": f"run/step_{step:06}"}


def note(step, text=LR_NOTE):
    return {"step": step, "resumed": text}


def steps(first, last):
    for step in range(first, last + 1):
        yield line(step)
        if step % 5 == 0:
            yield {"step": step, "val_loss": 5.05 - 0.1 * step}


def write(program, name, *lines):
    path = program.folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def write_resumed_log(program, name, **more):
    return write(program, name, started(**more), {"step": 0, "val_loss": 5.1}, *steps(1, 12), resumed(10, **more), note(10),
                 *steps(11, 20))


def load(*paths):
    return load_runs(paths)


def page_text(path):
    return path.read_text().partition("<script")[0]


# ---- resume points -------------------------------------------------------------------------


def test_a_resumed_run_has_marks_and_discards_abandoned_steps(program):
    run, = load(write_resumed_log(program, "run.jsonl"))
    expect([(p.step, p.resumed) for p in run.history.processes] == [(0, False), (10, True)], "processes")
    expect([s for s, _ in run.series("loss")] == list(range(1, 21)), f"{run.series('loss')}")
    expect("back to step 11; discarded 2 steps" in "\n".join(run.warnings), f"{run.warnings}")
    expect([(m.x, m.text) for m in make_marks([run], "tokens")] == [(1000, f"resumed at step 10: {LR_NOTE}")], "by tokens")
    run, = load(write(program, "quiet.jsonl", started(), *steps(1, 7), resumed(5, lr=0.0006), *steps(6, 9)))
    expect([m.text for m in make_marks([run])] == ["resumed at step 5, nothing changed"], "without changes")


def test_processes_without_a_step_of_the_run_leave_no_mark(program):
    run, = load(write(program, "run.jsonl", started(), *steps(1, 12), resumed(10), note(10), resumed(10, lr=0.0006),
                      *steps(11, 15), resumed(14), note(14), *steps(15, 16), resumed(5), note(5, "x"), *steps(6, 9)))
    expect([m.text for m in make_marks([run])] == ["resumed at step 5: x"], f"{run.history.processes}")
    expect([s for s, _ in run.series("val_loss")] == [5], "evaluations of abandoned steps")
    run, = load(write(program, "again.jsonl", started(), *steps(1, 5), resumed(5), note(5), resumed(5, lr=0.1), note(5, "y"),
                      *steps(6, 9)))
    expect([m.text for m in make_marks([run])] == ["resumed at step 5: y"], "the first attempt made no step")
    expect(run.history.changes()["--lr"] == [(0, 0.0006), (5, 0.1)], f"{run.history.changes()['--lr']}")


def test_logs_of_older_programs_have_resume_points_but_no_settings(program):
    write(program, "old.jsonl", *steps(1, 12), note(10), note(10, "another"), *steps(11, 14), *steps(13, 20))
    run, = load(program.folder / "old.jsonl")
    expect([m.text for m in make_marks([run])] == [f"resumed at step 10: {LR_NOTE}; another", "resumed at step 12"], "marks")
    expect(run.history.tokenizer() is None and not run.series("bits_per_byte"), "known settings")
    done = plot(program, "old.jsonl", "--out", "old.html")
    expect("tokenizer" not in done.stderr and "<h2>Settings" not in (program.folder / "old.html").read_text(), "settings")


def test_the_page_marks_resume_points(program):
    write_resumed_log(program, "run.jsonl")
    write(program, "other.jsonl", started(), *steps(1, 8))
    plot(program, "run.jsonl", "--out", "one.html")
    plot(program, "other.jsonl", "run.jsonl", "--out", "two.html")
    expect(page_data(program.folder / "one.html")["marks"] == [{"run": 0, "x": 10, "text": f"resumed at step 10: {LR_NOTE}"}],
           "marks")
    expect(f"<li>resumed at step 10: {LR_NOTE}</li>" in page_text(program.folder / "one.html"), "no list")
    expect(f"run resumed at step 10: {LR_NOTE}</li>" in page_text(program.folder / "two.html"), "no run in the list")
    if not shutil.which("node"):
        raise Skip("no node here to run the page's script")
    for name, colour, text in (("one.html", "plain", "resumed"), ("two.html", "c1", "run resumed")):
        panels = json.loads(subprocess.run(["node", str(ROOT / "test/page_dom.js"), name], cwd=program.folder, timeout=60,
                                           capture_output=True, text=True, check=True).stdout)
        expect("resumed" in panels[0]["legend"] and "resumed" not in panels[1]["legend"], f"{panels[0]['legend']}")
        for panel in panels:
            mark, = panel["resumes"]
            expect(mark["class"] == f"resume {colour}" and mark["x"] == 62 + (786 - 62) / 2, f"{mark}")
            expect(mark["reading"].endswith(f"\n{text} at step 10: {LR_NOTE}"), mark["reading"])
            expect("resumed at" not in "".join(panel["readings"][::2]), "a reading far from the mark")


def test_gnuplot_marks_resume_points(program):
    paths = [write_resumed_log(program, "run.jsonl"), write(program, "other.jsonl", started(), *steps(1, 8))]
    for runs, colour in ((load(paths[0]), gnuplot.MARK_COLOUR), (load(paths[1], paths[0]), gnuplot.COLOURS[1])):
        commands = gnuplot.script(make_panels(runs), make_marks(runs), len(runs), program.folder / "x.svg", "step", "")
        arrows = re.findall(r"set arrow from (\S+), graph 0 to \1, graph 1 .*dt 3.*'(#\w+)'", commands)
        expect(arrows == [("10", colour)] and commands.count("title 'resumed'") == 1, f"{arrows}")
    if not (shutil.which("gnuplot") or shutil.which("gnuplot-nox")):
        raise Skip("no gnuplot here")
    plot(program, "run.jsonl", "--out", "run.svg")
    expect(">resumed<" in (program.folder / "run.svg").read_text(), "no legend")


# ---- settings ------------------------------------------------------------------------------


def test_the_page_has_settings_and_their_changes(program):
    write_resumed_log(program, "run.jsonl")
    plot(program, "run.jsonl", "--out", "run.html")
    text = page_text(program.folder / "run.html")
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', text[text.index("<h2>Settings"):]))
    expected = {"--lr": "0.0006, from step 10: 0.0003", "--steps": "20", "--train": "a.txt", "--prompt": "a|b",
                "--keep-best": "on", "--eps": "1e-08", "tokenizer (checksum)": "aa", "bytes per token of validation text": "4",
                "version of the program": "1.0"}
    expect(rows == expected and "<details" not in text, f"{rows}")


def test_settings_that_differ_between_runs_come_first(program):
    write(program, "a.jsonl", started(), *steps(1, 5))
    write(program, "b.jsonl", started(train="<b>.txt", tf32=True), *steps(1, 5))
    write(program, "old.jsonl", *steps(1, 5))
    plot(program, "a.jsonl", "b.jsonl", "old.jsonl", "--out", "runs.html")
    text = page_text(program.folder / "runs.html")
    first, _, rest = text[text.index("<h2>Settings"):].partition("<details>")
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', first)
    expect([name for name, _ in rows] == ["--train", "--tf32"], f"{rows}")
    expect([html.unescape(cell) for cell in re.findall("<td>(.*?)</td>", rows[0][1])] == ["a.txt", "<b>.txt", "–"], f"{rows}")
    expect("<td>off</td><td>on</td><td>–</td>" in rows[1][1], f"{rows[1]}")
    expect(rest.startswith("<summary>8 settings that are the same") and rest.count("<td>0.0006</td>") == 1, rest[:300])
    different, equal = setting_rows([run.history for run in load(*[program.folder / "a.jsonl"] * 2)])
    expect(not different and len(equal) == 9, f"equal runs: {equal}")


# ---- bits per byte -------------------------------------------------------------------------


def bits(loss, bytes_per_token):
    return loss / math.log(2) / bytes_per_token


def test_losses_in_bits_per_byte_use_the_text_of_their_time(program):
    run, = load(write(program, "run.jsonl", started(), *steps(1, 10), resumed(10, bytes_per_token=2.0), *steps(11, 15),
                      resumed(15, bytes_per_token=None), *steps(16, 20)))
    losses, bits_of = dict(run.series("loss")), dict(run.series("bits_per_byte"))
    expect(list(bits_of) == list(range(1, 16)) and not run.has_bits(), f"{list(bits_of)}")
    expect(all(math.isclose(bits_of[s], bits(losses[s], 4 if s <= 10 else 2)) for s in bits_of), f"{bits_of}")
    expect([round(b, 6) for _, b in run.series("val_bits_per_byte")]
           == [round(bits(5.05 - 0.1 * s, 4 if s <= 10 else 2), 6) for s in (5, 10, 15)], "evaluations")
    expect("validation loss, last (bits per byte)" not in run.summary(), "the last one is unknown")
    run, = load(write_resumed_log(program, "whole.jsonl"))
    expect(run.has_bits() and run.summary()["validation loss, last (bits per byte)"] == f"{bits(3.05, 4):.4f}", "summary")
    panel, = make_panels([run], ["bits_per_byte"])
    expect(panel.label == "loss (bits per byte of validation text)" and not panel.note, f"{panel.label}{panel.note}")
    expect([(c.name, c.dots) for c in panel.curves] == [("training", False), ("validation", True)], "curves")
    write(program, "broken.jsonl", started(bytes_per_token=0, tokenizer=7), *steps(1, 5))
    done = plot(program, "broken.jsonl", "--metrics", "bits_per_byte", "--out", "x.html", code=1)
    expect("--metrics bits_per_byte: no log has a loss and bytes_per_token" in done.stderr, done.stderr)


def test_runs_with_different_tokenizers_are_compared_in_bits_per_byte(program):
    write(program, "a.jsonl", started(), *steps(1, 5))
    write(program, "b.jsonl", started(tokenizer="bb", bytes_per_token=1.0), *steps(1, 5))
    done = plot(program, "a.jsonl", "b.jsonl", "--out", "x.html", "--line", "best=1")
    panel = page_data(program.folder / "x.html")["panels"][0]
    expect(panel["label"] == "loss (bits per byte of validation text)" and panel["levels"], f"{panel['label']}")
    expect("losses and the levels of --line are in bits per byte" in done.stderr, done.stderr)
    expect("nats per token: the runs have different tokenizers" in page_text(program.folder / "x.html"), "the figures")
    done = plot(program, "a.jsonl", "a.jsonl", "--out", "same.html")
    expect(page_data(program.folder / "same.html")["panels"][0]["label"] == "loss (nats per token)" and not done.stderr, "same")


def test_losses_that_cannot_be_compared_have_a_note(program):
    different = "the runs have different tokenizers, so their losses cannot be compared"
    unknown = "unknown tokenizer: old; losses of different tokenizers cannot be compared"
    write(program, "a.jsonl", started(), *steps(1, 5))
    write(program, "b.jsonl", started(tokenizer="bb"), *steps(1, 5))
    write(program, "tokens.jsonl", started(tokenizer="cc", bytes_per_token=None), *steps(1, 5))
    write(program, "old.jsonl", *steps(1, 5))
    for names, flags, text in ((["a", "tokens"], [], different), (["a", "b"], ["--metrics", "loss"], different),
                               (["a", "old"], [], unknown), (["a", "b", "old"], [], different + "; unknown tokenizer: old"),
                               (["old", "old"], [], "")):
        logs = [f"{name}.jsonl" for name in names]
        done = plot(program, *logs, *flags, "--out", "x.html")
        panel = page_data(program.folder / "x.html")["panels"][0]
        expect(panel["label"] == "loss (nats per token)" and panel["note"] == text, f"{names}: {panel['note']}")
        expect((f"warning: loss (nats per token): {text}\n" in done.stderr) == bool(text), f"{names}: {done.stderr}")
        runs = load(*(program.folder / log for log in logs))
        commands = gnuplot.script(make_panels(runs, ["loss"]), [], len(runs), program.folder / "x.svg", "step", "")
        expect(f"set title '{text}'" in commands, f"{names}: gnuplot has no note")
    done = plot(program, "a.jsonl", "tokens.jsonl", "--metrics", "bits_per_byte", "--out", "x.html")
    expect("no bytes per token in the log of tokens" in done.stderr, done.stderr)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
