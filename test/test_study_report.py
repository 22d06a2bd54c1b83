#!/usr/bin/env python3
"""Tests the verdicts on claims, and the page of scripts/study report, on made-up runs.

    python3 test/test_study_report.py [PATTERN]

Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from runner import Skip, expect, run_tests
from study_samples import ROOT, run_experiment

from measured_programs import RunError
from run_view.gnuplot import GnuplotError, find_gnuplot
from studies import claims, report
from studies.experiments import EXPERIMENTS


def claim(rule, evidence="measured"):
    return {"id": "c", "text": "t", "source": "s", "published": "p", "experiment": "strong", "rule": rule, "evidence": evidence}


def table(*rows):
    return {"t": {"rows": [{"evidence": "measured", "seed": 1, "why": {}, **row} for row in rows]}}


def cell(**where):
    return {"table": "t", "where": where, "key": "x"}


def verdict(rule, *rows, evidence="measured"):
    return claims.judge(claim(rule, evidence), table(*rows))


def test_rules_confirm_and_refute(folder):
    one, two = {"n": 1, "x": 2.0}, {"n": 2, "x": {"median": 3.0, "min": 2.5, "max": 9.0}}
    cases = [({"value": cell(n=1), "at_least": 2.0}, True), ({"value": cell(n=1), "at_most": 1.9}, False),
             ({"value": cell(n=2), "at_least": 2.9, "at_most": 3.1}, True), ({"greater": [cell(n=2), cell(n=1)]}, True),
             ({"greater": [cell(n=2), cell(n=1)], "times": 1.6}, False), ({"rising": cell()}, True), ({"falling": cell()}, False),
             ({"value": {"ratio": [cell(n=2), cell(n=1)]}, "at_least": 1.5, "at_most": 1.5}, True),
             ({"value": {"largest": cell()}, "at_most": 2.9}, False), ({"value": {"smallest": cell()}, "at_most": 2.9}, True),
             ({"value": {"ratio": [{"last": cell()}, {"first": cell()}]}, "at_least": 1.5, "at_most": 1.5}, True)]
    for rule, holds in cases:
        result = verdict(rule, one, two)
        expect(result.verdict == ("confirmed" if holds else "refuted"), f"{rule}: {result}")
    expect(verdict(cases[7][0], one, two).own == "1.5", "our number is the ratio")


def test_a_difference_within_its_error_decides_nothing(folder):
    rule = {"positive": cell(n=1), "error": cell(n=2)}
    for mean, expected in ((2.0, "confirmed"), (-2.0, "refuted"), (1.9, "not measurable here"), (-1.9, "not measurable here")):
        result = verdict(rule, {"n": 1, "x": mean}, {"n": 2, "x": 1.0})
        expect(result.verdict == expected, f"{mean}: {result}")
    expect("within two standard errors (1) of 0" in result.reason, result.reason)
    expect(verdict(rule, {"n": 1, "x": 2.0}, {"n": 2, "x": None, "why": {"x": "needs two seeds"}}).reason == "needs two seeds",
           "an error that is missing")


def test_evidence_that_is_too_weak_decides_nothing(folder):
    rule = {"value": cell(n=1), "at_least": 2.0}
    functional, simulated = {"n": 1, "x": 2.0, "evidence": "functional"}, {"n": 1, "x": 2.0, "evidence": "simulated"}
    result = verdict(rule, functional)
    expect(result.verdict == "not measurable here" and "only functional" in result.reason, f"{result}")
    expect(verdict(rule, functional, evidence="functional").verdict == "confirmed", "functional suffices for some claims")
    expect(verdict(rule, simulated, evidence="simulated").verdict == "simulated only", "a plan is not a measurement")
    expect("does not hold" in verdict({"value": cell(n=1), "at_least": 3}, simulated, evidence="simulated").reason, "a plan")
    busy = verdict(rule, {"n": 1, "x": 2.0, "busy": "busy"})
    expect(busy.verdict == "not measurable here" and "other programs" in busy.reason, f"{busy}")
    expect(verdict(rule, {"n": 1, "x": 2.0, "busy": "busy"}, evidence="functional").verdict == "confirmed", "no time")


def test_one_seed_decides_nothing_about_quality(folder):
    one = {**claim({"value": cell(n=1), "at_least": 2.0}), "quality": True}
    result = claims.judge(one, table({"n": 1, "x": 2.0, "seed": 1}))
    expect(result.verdict == "not measurable here" and result.reason == "one seed gives no verdict", f"{result}")
    expect(claims.judge(one, table({"n": 1, "x": 2.0, "seed": "1, 2, 3"})).verdict == "confirmed", "three seeds decide")


def test_a_missing_number_states_why(folder):
    cases = [({"value": {"table": "none", "where": {}, "key": "x"}}, "there is no table none"),
             ({"value": cell(n=9)}, "has no row with n 9"), ({"value": cell(n=1)}, "no gloo here"),
             ({"value": {"table": "t", "where": {"n": 2}, "key": "y"}}, "has no column y"), ({"value": cell()}, "has 2 rows"),
             ({"rising": cell(n=2)}, "needs two rows")]
    for rule, reason in cases:
        result = verdict({**rule, "at_least": 0}, {"n": 1, "x": None, "why": {"x": "no gloo here"}}, {"n": 2, "x": 1.0})
        expect(result.verdict == "not measurable here" and reason in result.reason, f"{rule}: {result}")


def test_every_claim_has_an_experiment_and_readable_rules(folder):
    for one in claims.read_claims():
        expect("not_ours" in one or one["experiment"] in EXPERIMENTS, f"{one['id']}: {one.get('experiment')}")
    path = folder / "claims.json"
    for bad, part in (([{"id": "a"}], "has the keys"), ([claim({})] * 2, "two claims"), ([claim({}, "guessed")], "'guessed'")):
        path.write_text(json.dumps(bad))
        try:
            claims.read_claims(path)
        except RunError as error:
            expect(part in str(error), f"{error}")
        else:
            raise AssertionError(f"{bad} is accepted")


@functools.cache
def full_study():
    """(its folder, the object that removes it at the end)"""
    def change(spec, lines):  # the bytes that the made-up plans of small runs state
        if spec.name.startswith("zero"):
            lines[-1]["comm_bytes"] = 0
    place = tempfile.TemporaryDirectory()
    for name in EXPERIMENTS:
        run_experiment(Path(place.name), name, minutes=600, change=change)
    return Path(place.name) / "study", place


def tables_of(out):
    return {path.name: path.read_bytes() for path in out.glob("*/*") if path.suffix in (".csv", ".json", ".tex", ".md")}


def test_every_table_comes_from_the_logs_alone(folder):
    out, _ = full_study()
    shutil.copytree(out / "logs", folder / "logs")
    for plan in out.glob("*/plan.json"):
        (folder / plan.parent.name).mkdir()
        shutil.copy(plan, folder / plan.parent.name)
    code = os.system(f"{sys.executable} {ROOT}/scripts/study tables {' '.join(str(folder / name) for name in EXPERIMENTS)} "
                     f"> {folder}/out.txt")
    expect(code == 0, "study tables failed")
    before, after = tables_of(out), tables_of(folder)
    expect(before.keys() == after.keys() and len(before) > 60, f"{before.keys() ^ after.keys()}")
    expect(not [name for name in before if before[name] != after[name]], "tables differ")


def test_every_claim_has_its_table_row_and_column(folder):
    out, _ = full_study()
    tables = {one["name"]: one for one in (json.loads(path.read_text()) for path in out.glob("*/*.json")
                                           if path.name != "plan.json")}
    for one in claims.read_claims():
        reason = claims.judge(one, tables).reason
        expect(not re.search(r"there is no table|has no row|has no column|rows with these cells", reason), f"{one['id']}: {reason}")


def test_tables_are_latex(folder):
    if not shutil.which("pdflatex"):
        raise Skip("pdflatex is not installed")
    out, _ = full_study()
    paths = sorted(out.glob("*/*.tex"))
    (folder / "all.tex").write_text("\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
                                    + "".join(f"\\input{{{path}}}\\clearpage\n" for path in paths) + "\\end{document}\n")
    done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"], cwd=folder, capture_output=True)
    printed = done.stdout.decode(errors="replace")
    expect(done.returncode == 0 and (folder / "all.pdf").exists(), printed[-800:])
    expect("Overfull" not in printed and "Float too large" not in printed, f"a table leaves its page: {printed}")


def numbers(text):
    return set(re.findall(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text))


def test_the_page_has_only_numbers_of_its_files(folder):
    try:
        find_gnuplot()
    except GnuplotError as error:
        raise Skip(str(error).splitlines()[0])
    out, _ = full_study()
    code = os.system(f"{sys.executable} {ROOT}/scripts/study report --out {out} > {folder}/out.txt")
    expect(code == 0, "study report failed")
    page = (out / "report.html").read_text()
    expect("http" not in page and "src=\"data:" in page, "the page needs other files")
    tables = [json.loads(path.read_text()) for path in out.glob("*/*.json") if path.name != "plan.json"]
    known = numbers(" ".join([*(report.table_html(one) for one in tables), (ROOT / "scripts/study_claims.json").read_text(),
                              *(path.read_text() for path in out.glob("*/plan.json"))]))
    by_name = {one["name"]: one for one in tables}
    known |= numbers(" ".join(f"{result.own} {result.reason}" for result in (claims.judge(one, by_name)
                                                                             for one in claims.read_claims())))
    shown = re.sub(r"<style>.*?</style>|<img[^>]*>|<[^>]*>", " ", page, flags=re.S)
    expect(numbers(shown) - known <= {"2"}, f"numbers without a source: {sorted(numbers(shown) - known)}")  # GPT-2
    for word in ("confirmed", "simulated only", "not measurable here", "Test CPU, 2 cores"):
        expect(word in shown, f"no {word!r}")


def test_a_page_of_two_machines_has_both(folder):
    run_experiment(folder, "weak")
    shutil.copytree(folder / "study", folder / "other")
    plan = folder / "other/weak/plan.json"
    plan.write_text(plan.read_text().replace("Test CPU, 2 cores", "Other CPU, 8 cores"))
    code = os.system(f"{sys.executable} {ROOT}/scripts/study report {folder}/study {folder}/other --out {folder}/page > "
                     f"{folder}/out.txt")
    page = (folder / "page/report.html").read_text()
    expect(code == 0 and page.count('<div class="machine">') == 2, "two columns")
    expect("<li>Test CPU, 2 cores</li>" in page and "<li>Other CPU, 8 cores</li>" in page, "two names")
    code = os.system(f"{sys.executable} {ROOT}/scripts/study report {folder} --out {folder}/page 2> {folder}/out.txt")
    expect(code != 0 and "has no experiment" in (folder / "out.txt").read_text(), "a folder without experiments")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
