#!/usr/bin/env python3
"""Tests scripts/study on logs that study_samples.py makes up: runs, budgets, tables, figures, errors. Its experiments
are in test_study_experiments.py, real programs in test_study_runs.py.

    python3 test/test_study.py [PATTERN]

Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

from runner import Skip, expect, expect_error, run_tests
from study_samples import MACHINE, ROOT, FakeRunner, make_study, run_experiment

from measured_programs import RunError
from run_view.gnuplot import GnuplotError, find_gnuplot
from studies import budget, experiment, figures, inputs, machine, runs, table_files, tables
from studies.experiments import EXPERIMENTS, common
from studies.latex import latex

# ---- machine, runs, budget -------------------------------------------------------------------


def test_more_ranks_than_cores_are_functional(folder):
    expect([MACHINE.evidence(n, 1) for n in (1, 2, 4)] == ["measured", "measured", "functional"], "one core per rank")
    gpu = MACHINE._replace(device="cuda", gpus=1)
    expect([gpu.evidence(n, 1) for n in (1, 2)] == ["measured", "functional"], "ranks that share a GPU")


def test_the_load_meter_leaves_out_its_own_use(folder):
    """4 seconds in which the machine was busy for 5 processor seconds, 3 of them for this program and its children."""
    clock, busy, own = iter([10.0, 14.0]), iter([100.0, 105.0]), iter([7.0, 10.0])
    replaced = {"busy_seconds": lambda: next(busy), "own_seconds": lambda: next(own),
                "time": SimpleNamespace(monotonic=lambda: next(clock))}
    originals = {name: getattr(machine, name) for name in replaced}
    try:
        for name, value in replaced.items():
            setattr(machine, name, value)
        with machine.LoadMeter() as meter:
            pass
        load = meter.elsewhere()
    finally:
        for name, value in originals.items():
            setattr(machine, name, value)
    expect(load == 0.5, f"load {load}")


def test_the_use_of_children_is_our_own(folder):
    before = machine.own_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10 ** 7))"], check=True)
    expect(machine.own_seconds() > before + 0.02, f"{machine.own_seconds() - before} seconds of a child")


def test_pin_gives_each_rank_its_cores(folder):
    have = sorted(os.sched_getaffinity(0))
    if len(have) < 2:
        raise Skip("needs two cores")
    for rank, cores, expected in (("0", 1, have[:1]), ("1", 1, have[1:2]), ("2", 1, have[:1]), ("0", 2, have[:2])):
        out = folder / "cores.txt"
        command = f"{runs.PIN} {cores} {','.join(map(str, have[:2]))} {sys.executable} -c " \
                  f"'import os; print(sorted(os.sched_getaffinity(0)))' > {out}"
        code = os.system(f"env OMPI_COMM_WORLD_LOCAL_RANK={rank} sh -c \"{command}\"")
        expect(code == 0 and json.loads(out.read_text()) == expected, f"rank {rank}: {out.read_text()}")


def test_a_run_is_found_again_only_with_equal_settings(folder):
    study = make_study(folder)
    run = common.Training("r", 32, 4, 320)
    spec = common.our_run(study, run)
    first = study.runner.run(spec)
    expect(study.runner.find(spec).folder == first.folder, "the run is not found")
    for other in (run._replace(seed=2), run._replace(layout=("--zero", 1)), run._replace(steps=5), run._replace(repeat=2)):
        expect(study.runner.find(common.our_run(study, other)) is None, f"{other} is taken for another run")
    changed = FakeRunner(study.out)
    changed._versions["ours"] = "other"
    expect(changed.find(spec) is None, "another program is taken for the same")


def test_a_budget_drops_steps_then_points_then_repeats(folder):
    sizes = budget.shrunk_sizes([100, 50], [(1, 2), (1,)], 3)
    expect([(size.samples, size.points, size.repeats) for size in sizes] ==
           [(100, (1, 2), 3), (50, (1, 2), 3), (50, (1,), 3), (50, (1,), 2), (50, (1,), 1)], f"{sizes}")


def test_a_small_budget_says_what_it_dropped(folder):
    _, plan, _ = run_experiment(folder, "strong", minutes=0.3)
    expect(plan["size"]["samples"] < 1024 and plan["dropped"], f"{plan['size']}, {plan['dropped']}")
    page = (folder / "study/strong/strong.md").read_text()
    expect("The time allows" in page, "the page does not say what was dropped")


def test_an_interrupted_study_continues(folder):
    study = make_study(folder)
    stop_at = [5]

    class Stopped(FakeRunner):
        def run(self, spec):
            if len(self.executed) == stop_at[0]:
                raise KeyboardInterrupt
            return super().run(spec)
    study.runner = Stopped(study.out)
    for _ in range(2):
        try:
            experiment.make_runs(EXPERIMENTS["weak"], study, budget.Clock(60), 3600)
        except KeyboardInterrupt:
            stop_at[0] = -1
    names = study.runner.executed
    expect(len(names) == len(set(names)) > 5, f"runs were repeated: {names}")


def test_sizes_of_another_study_are_repeated(folder):
    first = make_study(folder)
    small = experiment.make_runs(EXPERIMENTS["precision"], first, budget.Clock(60), 3)
    second = make_study(folder)
    second.out = folder / "second"
    second.runner, second.like = FakeRunner(second.out), first.out
    again = experiment.make_runs(EXPERIMENTS["precision"], second, budget.Clock(60), 3600)
    expect(again["size"] == small["size"] and "of " in again["dropped"][0], f"{again['size']}, {again['dropped']}")
    plan = json.loads((first.out / "precision/plan.json").read_text())
    plan["size"]["samples"] = 7
    (first.out / "precision/plan.json").write_text(json.dumps(plan))
    expect_error(RunError, "a size that this command does not have",
                 lambda: experiment.make_runs(EXPERIMENTS["precision"], second, budget.Clock(60), 3600))


def test_other_texts_have_other_inputs(folder):
    (folder / "a.txt").write_text("one")
    (folder / "texts").mkdir()
    (folder / "texts/a.txt").write_text("one")
    names = []
    for words in ("one", "two"):
        (folder / "a.txt").write_text(words)
        names.append(inputs.Inputs(folder / "in", "host", folder / "a.txt").folder)
    expect(names[0] != names[1] and names[0].parent == folder / "in", f"{names}")
    (folder / "texts/b.txt").write_text("two")
    expect(inputs.Inputs(folder / "in", "host", folder / "texts").folder not in names, "a folder of texts")


def test_sentences_are_copied_and_their_test_part_counted(folder):
    for label in ("negative", "positive"):
        (folder / f"{label}.txt").write_text("".join(f"{label} sentence {i}\n" for i in range(60)))
    (folder / "text.txt").write_text("one")
    one = inputs.Inputs(folder / "in", "host", folder / "text.txt", folder)
    few = one.sentences(40)
    expect(len((few / "negative.txt").read_text().splitlines()) == 40 and few != one.sentences(), f"{few}")
    texts = (one.test_sentences(40) / "test.txt").read_text().splitlines()
    support = one.test_support(40)
    expect(sum(support) == len(texts) and [text.split()[0] for text in texts] ==
           ["negative"] * support[0] + ["positive"] * support[1] and min(support) > 0, f"{support}, {texts}")
    (folder / "positive.txt").unlink()
    expect_error(RunError, "positive.txt is missing", inputs.Inputs(folder / "in2", "host", folder / "text.txt", folder).sentences)


# ---- tables ----------------------------------------------------------------------------------


def sample_table():
    row = tables.Row({"a": 1, "b": {"median": 2.0, "min": 1.5, "max": 2.5, "values": [1.5, 2.0, 2.5]}}, "measured", 1)
    empty = tables.Row({"a": 2, "b": None}, "functional", 1, why={"b": "cores are shared"})
    return tables.Table("t", "A_title", [tables.Column("a", "a"), tables.Column("b", "b, s", tables.TIMED, 2)], [row, empty],
                        "CPU", "abc", ["A note."])


def test_a_table_has_the_same_numbers_in_all_forms(folder):
    table = sample_table()
    text = table_files.markdown(table)
    expect("| 1 | 2.00 (1.50–2.50) | measured | 1 |" in text and "| 2 | — [1] | functional | 1 |" in text, text)
    expect("- [1] cores are shared\n- A note." in text, text)
    expect(table_files.csv_text(table).splitlines() ==
           ["a,b,b_min,b_max,evidence,seed,device,commit", "1,2.0,1.5,2.5,measured,1,CPU,abc",
            "2,,,,functional,1,CPU,abc"], table_files.csv_text(table))
    printed = latex(table)
    for part in (r"\toprule", r"\label{tab:t}", r"A\_title. CPU, commit abc; evidence: measured, functional.",
                 r"1 & 2.00 (1.50\textendash{}2.50) & measured \\", r"\textemdash{}\textsuperscript{1}", "In all rows: seed 1.", "A note."):
        expect(part in printed, f"no {part!r} in {printed}")
    exact = table_files.exact_part(table_files.json_value(table))
    expect(exact == [{"a": 1, "seed": 1}, {"a": 2, "seed": 1}], f"{exact}")


def test_a_wide_and_long_table_becomes_panels_of_whole_rows(folder):
    columns = [tables.Column("model", "model"), tables.Column("ranks", "ranks")] \
        + [tables.Column(f"n{i}", f"a heading of {i} words", digits=0) for i in range(12)]
    rows = [tables.Row({"model": f"d{i // 2}", "ranks": 1 + i % 2} | {f"n{j}": 1000 * i + j for j in range(12)}, "simulated", 1)
            for i in range(60)]
    text = latex(tables.Table("wide", "Wide", columns, rows, "CPU", "abc"))
    panels = [[line.strip().removesuffix(r" \\").split(" & ") for line in part.split(r"\midrule")[1].strip().splitlines()]
              for part in text.split(r"\bottomrule")[:-1]]
    cells = {}
    for panel in panels:
        expect(len(panel) <= 46 and len(panel[0]) < 14, f"{len(panel)} rows of {len(panel[0])} cells")
        for model, ranks, *numbers in panel:
            cells.setdefault((model, ranks), []).extend(numbers)
    expect(cells == {(row.cells["model"], str(row.cells["ranks"])): [f"{row.cells[f'n{j}']:,}" for j in range(12)] for row in rows},
           f"{cells}")
    floats = text.count(r"\begin{table}")
    expect(floats > 1 and text.count("(continued)") == text.count(r"\addtocounter{table}{-1}") == floats - 1, text)
    expect(text.count(r"\label") == 1 and text.count("In all rows: evidence simulated, seed 1.") == 1, text)


def test_tables_come_from_logs_alone(folder):
    study, plan, _ = run_experiment(folder, "strong")
    written = {path.name: path.read_bytes() for path in (study.out / "strong").iterdir() if path.suffix in (".md", ".csv", ".json",
                                                                                                        ".tex")}
    copy = folder / "elsewhere"
    shutil.copytree(study.out / "logs", copy / "logs")
    (copy / "strong").mkdir()
    shutil.copy(study.out / "strong/plan.json", copy / "strong")
    code = os.system(f"{sys.executable} {ROOT}/scripts/study tables {copy}/strong > {folder}/out.txt")
    expect(code == 0, "study tables failed")
    for name, content in written.items():
        expect((copy / "strong" / name).read_bytes() == content, f"{name} differs")
    log = copy / "logs" / plan["runs"][0]["folder"] / "log.jsonl"
    log.write_text(log.read_text().replace('"step_ms": 1', '"step_ms": 9'))
    os.system(f"{sys.executable} {ROOT}/scripts/study tables {copy}/strong > {folder}/out.txt")
    expect((copy / "strong/strong.csv").read_bytes() != written["strong.csv"], "a changed log changes no table")


def test_figures_are_drawn_in_three_formats(folder):
    try:
        find_gnuplot()
    except GnuplotError as error:
        raise Skip(str(error).splitlines()[0])
    bars = figures.Bars("bars", "Title's \"bars\"", "s", ["one", "two"], [("a_b", [1.0, 2.0], False), ("c", [2.0, 1.0], True)])
    curves = figures.Curves("curves", "T", "x", "y", [figures.Curve("a", [(1, 1.0), (2, 1.9, 1.8, 2.0)], dots=True),
                                                      figures.Curve("ideal", [(1, 1), (2, 2)], dashed=True)], x_ticks=[1, 2])
    timeline = figures.Timeline("timeline", "T", "slots", ["forward", "backward"], [("rank 0", [(0, 1, 0, "0"), (2, 3, 1, "0")])])
    for figure in (bars, curves, timeline):
        figures.write_figure(folder, figure)
        for suffix in figures.FORMATS:
            expect((folder / (figure.name + suffix)).stat().st_size > 1000, f"{figure.name}{suffix}")
    expect("a_b" in (folder / "bars.svg").read_text() and "hatched" in (folder / "bars.svg").read_text(), "labels")


def test_errors_of_the_command_name_the_cause(folder):
    cases = [("nothing", "'nothing' is not an experiment"), ("strong strong", "is repeated"), ("strong --budget 0", "--budget"),
             ("strong --ranks 0,1", "--ranks"), ("strong --ranks 2,4", "has no 1"), ("tables", "tables needs folders"),
             ("tables /nowhere", "has no plan.json"), ("strong --data /nowhere", "does not exist"),
             ("strong --launcher srun", "has no {ranks}"), ("strong --repeats 0", "--repeats"),
             ("strong --sentences /nowhere", "is no folder"), ("strong --like /nowhere", "is no folder")]
    programs = folder / "programs"
    programs.mkdir()
    for name in ("train_gpt2", "infer_gpt2", "tokenize"):
        (programs / name).write_text("#!/bin/sh\necho target: host\n")
        (programs / name).chmod(0o755)
    for words, part in cases:
        code = os.system(f"PROGRAMS={programs} {sys.executable} {ROOT}/scripts/study {words} --out {folder}/out "
                         f"> {folder}/out.txt 2>&1")
        text = (folder / "out.txt").read_text()
        expect(code != 0 and part in text and "Traceback" not in text, f"{words}: {text}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
