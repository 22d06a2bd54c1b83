#!/usr/bin/env python3
"""Tests scripts/finetune_sentiment.sh with a simulated train_gpt2 (simulated_classifier.py), then with the real one.

    python3 test/test_sentiment_runs.py build/host [PATTERN]
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from made_up_sentences import write_sentences
from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
BUILD = (ROOT / sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build/host"

sys.path.insert(0, str(SCRIPTS))
from finetune_sentiment import data, methods, results  # noqa: E402


def run_script(folder, *arguments, code=0, **environment):
    done = subprocess.run([str(SCRIPTS / "finetune_sentiment.sh"), *map(str, arguments)], cwd=folder, capture_output=True,
                          text=True, timeout=240, env={**os.environ, **{k: str(v) for k, v in environment.items()}})
    expect(done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    expect("Traceback" not in done.stderr, done.stderr[-1500:])
    return done


class Simulation:
    """The script with simulated programs."""

    def __init__(self, folder, methods_list="scratch,all,lora"):
        self.folder = folder
        programs = folder / "programs"
        programs.mkdir()
        for name in ("train_gpt2", "infer_gpt2"):
            (programs / name).symlink_to(ROOT / "test/simulated_classifier.py")
        self.data = write_sentences(folder / "data")
        self.arguments = ["--smoke", "--data", self.data, "--methods", methods_list]

    def run(self, *arguments, plant="", code=0, out="out"):
        return run_script(self.folder, *self.arguments, "--out", out, *arguments, code=code, PLANT=plant, SCRIPTS=SCRIPTS,
                          SENTENCES=self.data, PROGRAMS=self.folder / "programs")

    def rows(self, out="out"):
        lines = (self.folder / out / "results.jsonl").read_text().splitlines()
        return {row["method"]: row for row in map(json.loads, lines)}


def test_validation_selects_rates_and_checkpoints_and_finished_runs_stay(folder):
    simulation = Simulation(folder)
    done = simulation.run()
    rows = simulation.rows()
    expect(rows.keys() == {"scratch", "all", "lora", results.NAIVE_BAYES}, rows.keys())
    expect([rows[name]["learning_rate"] for name in ("scratch", "all", "lora")] == [1e-3, 3e-4, 3e-3], "rates")
    parts = data.read_parts(folder / "out/data")
    for name, quality in (("scratch", 0.55), ("all", 0.75), ("lora", 0.70)):
        for seed, accuracy in zip((1, 2), rows[name]["accuracy_values"], strict=True):
            right = sum(data.split_hash(text) % 1009 / 1009 < quality + 0.01 * seed for text in parts["test"].texts)
            expect(abs(accuracy - right / len(parts["test"].texts)) < 1e-12, f"{name}, seed {seed}: {accuracy}: the last weights?")
        expect(rows[name]["step_ms"] == 4 and rows[name]["planned_mib"] == 12.5, rows[name])
    page = (folder / "out/results.md").read_text()
    expect("ok: confusion matrices" in page or "not run: dp 2" in page, page)
    expect("plan: 3 methods, 4 runs each (learning rates of the first seed: 3; other seeds: 1)" in done.stderr, done.stderr)
    expect("12/12 runs, ETA 0.0 min" in done.stderr, done.stderr)
    expect(not (folder / "out/runs/all-lr0.0003-seed2/weights").exists(), "checkpoints of the second seed stay")
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("runs/*/result.json")}
    (folder / "out/runs/lora-lr0.003-seed2/result.json").unlink()
    simulation.run()
    again = {path.parent.name for path in before if path.stat().st_mtime_ns != before[path]}
    expect(again == {"lora-lr0.003-seed2"} and simulation.rows()["lora"]["accuracy_values"] == rows["lora"]["accuracy_values"],
           f"ran again: {again}")
    failed = simulation.run("--seeds", 1, code=1)
    expect("other settings (seeds); give another --out" in failed.stderr, failed.stderr)


def test_planted_faults_are_noticed(folder):
    simulation = Simulation(folder, "scratch,all")
    for plant, message in (("split", "the splits differ"), ("no-test", "has no \"test_classification\"")):
        failed = simulation.run(plant=plant, code=1, out=plant)
        expect(message in failed.stderr and len(failed.stderr.splitlines()) < 12, failed.stderr)
    failed = simulation.run("--methods", "head", plant="head", code=1, out="head")
    expect("head: only 0 parameters learn" in failed.stderr, failed.stderr)


def test_a_sentence_that_ranks_predict_differently_is_missed_unless_it_is_close(folder):
    if subprocess.run([str(SCRIPTS / "run.sh"), "--dry-run", "-np", "1", "true"], capture_output=True).returncode == 2:
        raise Skip("mpirun is missing")
    simulation = Simulation(folder, "all")
    failed = simulation.run(plant="rank", code=1)
    expect("MISSED: confusion matrices" in failed.stdout and "more rows differ: tp 2" in failed.stdout, failed.stdout)
    done = simulation.run(plant="close")
    expect("ok: confusion matrices" in done.stdout and re.search(r"- row \d+ \((posi|nega)tive\), margin 4.0e-05", done.stdout),
           done.stdout)


def test_the_script_runs_with_the_real_programs(folder):
    if not os.access(BUILD / "train_gpt2", os.X_OK) or not os.access(BUILD / "infer_gpt2", os.X_OK):
        raise Skip(f"{BUILD} has no train_gpt2 and infer_gpt2")
    if "--task" not in subprocess.run([BUILD / "train_gpt2", "--help"], capture_output=True, text=True).stdout:
        raise Skip("train_gpt2 has no --task")
    run_script(folder, "--smoke", "--seeds", 1, "--rates", 1, "--data", write_sentences(folder / "data"), "--out", "out",
               PROGRAMS=BUILD)
    rows = [json.loads(line) for line in (folder / "out/results.jsonl").read_text().splitlines()]
    expect([row["method"] for row in rows] == [*methods.all_methods(2), results.NAIVE_BAYES], rows)
    trained = {row["method"]: row["trained_parameters"] for row in rows}
    expect(trained["head"] < trained["lora"] < trained["all"] and trained["scratch"] == trained["all"], trained)
    expect(trained["upper"] < trained["all"] and trained["lora-int8"] == trained["lora"], trained)


def test_the_script_asks_for_programs_with_the_task(folder):
    write_sentences(folder / "data")
    failed = run_script(folder, "--data", "data", "--out", "out", code=1, PROGRAMS=folder)
    expect("train_gpt2 is missing" in failed.stderr, failed.stderr)
    failed = run_script(folder, "--data", "data", "--out", "out", code=1, PYTHON="no/python")
    expect("PYTHON is 'no/python', which is no program" in failed.stderr, failed.stderr)
    failed = run_script(folder, "--methods", "all,none", code=2)
    expect("'none' is not a method" in failed.stderr and "scratch,all,head" in failed.stderr, failed.stderr)


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[2:3]))
