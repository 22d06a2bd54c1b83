#!/usr/bin/env python3
"""Tests scripts/run_tests.sh with an invented binary of tests.

    python3 test/test_run_tests.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import os
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
# Answers as doctest does; a suite has one case, which executes the commands of a file with the suite's name.
BINARY = """#!/usr/bin/env bash
cd "$(dirname "$0")"
for word in "$@"; do [[ $word != --test-suite=* ]] || suite=${word#*=}; done
case " $* " in
  *" --list-test-suites "*) ls suites ;;
  *" --count "*)
    if [ -n "${suite:-}" ]; then count=1; else count=$(ls suites | wc -l); fi
    echo "[doctest] unskipped test cases passing the current filters: $count" ;;
  *)
    source "suites/$suite"
    code=$?
    echo "[doctest] test cases: 1 | $((code == 0)) passed | $((code != 0)) failed | 0 skipped"
    exit $code ;;
esac
"""
LOGGED = "echo begin >>log; sleep 0.5; echo end >>log"


def run(folder, suites, **environment):
    """Runs suites, given as {name: commands}. Returns (exit code, the report)."""
    (folder / "suites").mkdir()
    for name, commands in suites.items():
        (folder / "suites" / name).write_text(commands + "\n")
    binary = folder / "tests"
    binary.write_text(BINARY)
    binary.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TEST_")}
    done = subprocess.run([str(ROOT / "scripts/run_tests.sh"), str(folder)], capture_output=True, text=True, timeout=60,
                          env={**kept, "SANITIZE": "", "NO_BINARY": "", "FILE": "only the binary", **environment})
    expect(done.stderr == "" or "Killed" in done.stderr, done.stderr)  # bash names a killed job
    return done.returncode, done.stdout


def test_reports_count_every_suite(folder):
    code, text = run(folder, {"bad": "false", "good": "true"})
    expect(code == 1 and "FAILED bad: 1 of 1 (exit code 1)\n" in text and "ok     good: 1 passed, " in text, text)
    expect(text.endswith("\n1 passed, 1 failed, 0 skipped\n"), text)


def test_every_file_of_tests_is_run(folder):
    script = (ROOT / "scripts/run_tests.sh").read_text()
    left_out = [path.name for path in sorted((ROOT / "test").glob("test_*.py")) if f" test/{path.name} " not in script]
    expect(not left_out, f"run_tests.sh does not run {', '.join(left_out)}")


def test_a_killed_suite_is_not_called_a_slow_one(folder):
    code, text = run(folder, {"killed": "kill -KILL $$", "slow": "sleep 30"}, TEST_TIMEOUT="2")
    expect(code == 1 and "FAILED killed: 1 of 1 (killed, perhaps because memory was short" in text, text)
    expect("FAILED slow: 1 of 1 (stopped after 2 s)\n" in text, text)


def test_the_race_checker_runs_as_many_suites_as_memory_allows(folder):
    for memory, jobs, expected in (("13.9", None, "begin end begin end"), ("1", None, "begin end begin end"),
                                   ("1", "2", "begin begin end end")):
        place = folder / f"{memory}-{jobs}"
        place.mkdir()
        chosen = {} if jobs is None else {"TEST_JOBS": jobs}
        code, text = run(place, {"first": LOGGED, "second": LOGGED}, SANITIZE="thread", TEST_MEMORY=memory, **chosen)
        expect(code == 0 and (place / "log").read_text().split() == expected.split(), f"{memory} {jobs}: {text}")


def test_suites_of_compiled_kernels_run_with_several_seeds(folder):
    noted = 'echo "$LLMC_PTX_SEED ${LLMC_PTX_RACES:-1}" >>log'
    for chosen, expected in (({}, {"1 1", "2 0", "3 0"}), ({"LLMC_LONG": "1"}, {f"{seed} 1" for seed in range(1, 21)}),
                             ({"LLMC_PTX_SEED": "7"}, {"7 1"})):
        place = folder / "-".join(chosen or ["short"])
        place.mkdir()
        clean = {"LLMC_LONG": "", "LLMC_PTX_SEED": "", "LLMC_PTX_RACES": ""}
        code, text = run(place, {"kernels": noted, "ptx_forms": "echo executor >>log"}, PTX="build/ptx/90a", **{**clean, **chosen})
        lines = (place / "log").read_text().splitlines()
        expect(code == 0 and sorted(lines) == sorted([*expected, "executor"]), f"{chosen}: {lines}\n{text}")
        expect(text.endswith(f"\n{len(expected) + 1} passed, 0 failed, 0 skipped\n"), text)


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:2]))
