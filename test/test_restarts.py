#!/usr/bin/env python3
"""Tests scripts/run.sh --restarts with stand-ins for mpirun, ssh and the program.

    python3 test/test_restarts.py [PATTERN]

Prints and exits as runner.py does. test_restart_programs.py restarts train_gpt2.
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from runner import Skip, expect, run_tests  # noqa: E402
from test_run_script import environment  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "scripts" / "run.sh"
MPIRUN = """#!/bin/bash
[ "$1" != --version ] || { echo "mpirun (Open MPI) 4.1.4"; exit; }
echo "$*" >>mpirun.log
while [ "${1##*/}" != program.py ]; do shift; done
OMPI_COMM_WORLD_RANK=0 setsid "$@" &
wait $!
"""
# The program: start number i does what plan.json has as entry i, and the last entry from then on.
PROGRAM = f"""#!{sys.executable}
import json, os, signal, sys, time
starts = len(open("starts").readlines()) if os.path.exists("starts") else 0
open("starts", "a").write(json.dumps(sys.argv[1:]) + "\\n")
plan = json.load(open("plan.json"))
entry = plan[min(starts, len(plan) - 1)]
if "status" in entry:
    os.makedirs("out", exist_ok=True)
    status = {{"status": "running", "step": 0, "start": starts, **entry["status"]}}
    json.dump(status, open("out/status.json", "w"))
if "log" in entry:
    open("log.jsonl", "a").write(json.dumps({{"step": entry["log"], "loss": 1.0}}) + "\\n")
if "save" in entry:
    folder = f"out/step_{{entry['save']:06}}"
    os.makedirs(folder)
    json.dump({{"state": entry.get("state", {{}})}}, open(folder + "/manifest.json", "w"))
if entry.get("wait"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(entry["code"]))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # as mpirun does for its ranks
    open("ready", "w").write("ready")
    time.sleep(100)
sys.exit(entry["code"])
"""
SETTINGS = {"--batch-size": 2, "--seq-len": 16, "--grad-accum": 3, "--ranks": 8, "--tp": 2, "--pp": 1}


def make(folder, *plan, **programs):
    """The stand-ins in a folder, and the environment that has them in PATH."""
    for name, text in {"bin/mpirun": MPIRUN, "program.py": PROGRAM, **programs}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (folder / "plan.json").write_text(json.dumps(plan))
    return environment(PATH=f"{folder}/bin:{os.environ['PATH']}")


def start(folder, words, variables):
    return subprocess.Popen([str(word) for word in (RUN, *words)], cwd=folder, env=variables, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(folder, words, *plan, more=None, **programs):
    """Returns the exit code, the messages, and the arguments of the program at each start."""
    process = start(folder, words, {**make(folder, *plan, **programs), **(more or {})})
    messages = process.communicate(timeout=60)[1]
    file = folder / "starts"
    return process.returncode, messages, [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def words(*more, restarts=2, options=(), ranks=2, launcher=()):
    return ["--restarts", restarts, *options, "-np", ranks, *launcher, "./program.py", "--train", "x", "--out", "out", *more]


TYPED = ["--train", "x", "--out", "out"]
BEGINS = {"status": {}}


def test_a_failed_run_continues_from_its_newest_checkpoint(folder):
    failed = {"status": "failed", "step": 4, "reason": "No space left on device\n  hint"}
    code, messages, starts = run(folder, words("--log", "log.jsonl", restarts=1),
                                 {**BEGINS, "log": 3, "code": 137}, {"status": failed, "save": 4, "code": 1},
                                 {**BEGINS, "log": 6, "save": 5, "code": 3}, {**BEGINS, "code": 0})
    typed = [*TYPED, "--log", "log.jsonl"]
    expect(code == 0 and starts == [typed, *3 * [[*typed, "--resume"]]], (code, messages, starts))
    lines = [line for line in messages.splitlines() if line.startswith("run.sh: ")]
    expect(lines == [
        "run.sh: restart 1 of 1 after exit code 137 (SIGKILL) after step 3; starts from the beginning",
        "run.sh: restart 1 of 1 after exit code 1 after step 4: No space left on device; continues from out/step_000004",
        "run.sh: restart 1 of 1 after exit code 3 after step 6; continues from out/step_000005"], lines)


def test_exit_codes_0_and_2_and_stops_end_it(folder):
    for name, last in (("done", {**BEGINS, "code": 0}), ("usage", {"code": 2}),
                       ("stopped", {"status": {"status": "stopped"}, "code": 143})):
        (folder / name).mkdir()
        code, messages, starts = run(folder / name, words("--resume"), last)
        expect(code == last["code"] and starts == [[*TYPED, "--resume"]] and "restart" not in messages, (code, messages, starts))


def test_two_failures_at_the_same_step_end_it(folder):
    for name, entry, place in (("step", {"status": {"status": "failed", "step": 7, "reason": "loss"}, "code": 1}, "after step 7: loss"),
                               ("log", {**BEGINS, "log": 7, "code": 137}, "after step 7"), ("start", {"code": 1}, "before the run began")):
        (folder / name).mkdir()
        code, messages, starts = run(folder / name, words("--log", "log.jsonl", restarts=5), entry)
        expect(code == entry["code"] and len(starts) == 2, (name, code, messages, starts))
        expect(f"{place}: two failures in a row at the same place without a new checkpoint" in messages, messages)
        # A run that never began owns no files, so it must not continue those of another run.
        expect(("--resume" in starts[1]) == (name != "start"), starts)


def test_restarts_without_a_new_checkpoint_are_limited(folder):
    plan = [{**BEGINS, "log": step, "code": 1} for step in (1, 2, 3, 4)]
    code, messages, starts = run(folder, words("--log", "log.jsonl"), *plan)
    expect(code == 1 and len(starts) == 3 and "2 of 2 restarts are used up without a new checkpoint" in messages,
           (code, messages, starts))


def test_checkpoints_of_another_run_are_not_continued(folder):
    (folder / "out/step_000009").mkdir(parents=True)
    (folder / "out/step_000009/manifest.json").write_text("{}")
    code, messages, starts = run(folder, words(), {"code": 1})
    expect(code == 1 and starts == [TYPED, TYPED], (code, messages, starts))


def wait_for(condition, text):
    end = time.monotonic() + 30
    while not condition():
        expect(time.monotonic() < end, text)
        time.sleep(0.02)


def test_a_signal_ends_the_run_and_the_restarts(folder):
    if not Path("/proc/self/task").exists():
        raise Skip("no /proc")
    for name, code in (("saved", 0), ("failed", 5)):
        (folder / name).mkdir()
        process = start(folder / name, words(), make(folder / name, {**BEGINS, "save": 1, "wait": True, "code": code}))
        wait_for((folder / name / "ready").exists, "the program did not start")
        process.send_signal(signal.SIGTERM)
        messages = process.communicate(timeout=30)[1]
        expect(process.returncode == code and "restart" not in messages, (process.returncode, messages))
        expect(len((folder / name / "starts").read_text().splitlines()) == 1, "it was restarted")
    # A pause before a restart ends too.
    (folder / "pause").mkdir()
    process = start(folder / "pause", words("--log", "log.jsonl", restarts=9),
                    make(folder / "pause", *[{**BEGINS, "log": step, "code": 1} for step in range(9)]))
    wait_for(lambda: (folder / "pause/starts").exists() and len((folder / "pause/starts").read_text().splitlines()) == 3, "no restarts")
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    messages = process.communicate(timeout=2)[1]
    expect(process.returncode in (1, 130) and "restart 3" not in messages, (process.returncode, messages))


# ---- elastic ----------------------------------------------------------------------------------


def elastic(folder, slots, *more, settings=None, saved=True, ranks=8, launcher=(), options=None, variables=None, **programs):
    """A run that fails once after a checkpoint. Returns the exit code, messages, starts, and the words of mpirun."""
    folder.mkdir()
    entry = {"status": {"status": "failed", "step": 1, "reason": "rank 3 is lost"}, "code": 1}
    if saved:
        entry |= {"save": 1, "state": {**SETTINGS, **(settings or {})}}
    options = ["--slots", slots] if options is None else options
    code, messages, starts = run(folder, words(*more, options=["--elastic", *options], ranks=ranks, launcher=launcher), entry,
                                 {**BEGINS, "code": 0}, more=variables, **programs)
    log = folder / "mpirun.log"
    expect(log.exists(), messages)
    return code, messages, starts, log.read_text().splitlines()


def test_fewer_slots_give_fewer_data_parallel_ranks_and_the_same_tokens_per_step(folder):
    # 12 micro-batches per step: dp 3 fits into 7 slots of tp 2, and has 4 micro-batches per rank.
    code, messages, starts, launched = elastic(folder / "a", 7)
    expect(code == 0 and starts[1] == [*TYPED, "--grad-accum", "4", "--resume"] and "-np 6 " in launched[1], (messages, starts, launched))
    expect("with 6 ranks instead of 8 (7 slots: --slots)" in messages, messages)
    code, messages, starts, launched = elastic(folder / "typed", 7, "--grad-accum", 3)
    expect(starts[1] == [*TYPED, "--grad-accum", "4", "--resume"], starts)
    code, messages, starts, launched = elastic(folder / "joined", 4, "--grad-accum=3")
    expect(starts[1] == [*TYPED, "--grad-accum=6", "--resume"] and "-np 4 " in launched[1], (starts, launched))
    code, messages, starts, launched = elastic(folder / "total", 7, "--total-batch-tokens", 384)
    expect(starts[1] == [*TYPED, "--total-batch-tokens", "384", "--resume"] and "-np 6 " in launched[1], (starts, launched))
    # A number that does not divide the micro-batches is skipped: 5 of 8 data-parallel ranks do not, 4 do.
    code, messages, starts, launched = elastic(folder / "skip", 5, settings={"--tp": 1, "--grad-accum": 1})
    expect(code == 0 and "-np 4 " in launched[1] and starts[1][4:6] == ["--grad-accum", "2"], (messages, launched, starts))
    # The ranks that -np names come back, and no more.
    code, messages, starts, launched = elastic(folder / "back", 99, settings={"--ranks": 4, "--grad-accum": 6})
    expect("-np 8 " in launched[1] and starts[1][4:6] == ["--grad-accum", "3"] and "8 ranks instead of 4" in messages, (messages, starts))


def test_slots_come_from_a_command_the_environment_or_hosts_that_answer(folder):
    code, messages, _, launched = elastic(folder / "command", 0, options=["--slots-command", "echo 4"])
    expect(code == 0 and "-np 4 " in launched[1] and "(4 slots: --slots-command)" in messages, messages)
    code, messages, starts, _ = elastic(folder / "bad", 0, options=["--slots-command", "echo many; exit 3"])
    expect(code == 1 and len(starts) == 1 and "--slots-command printed 'many' with exit code 3" in messages, messages)
    code, messages, _, launched = elastic(folder / "variable", 0, options=[], variables={"LLMC_SLOTS": "4"})
    expect(code == 0 and "-np 4 " in launched[1] and "LLMC_SLOTS" in messages, messages)
    code, messages, starts, launched = elastic(folder / "same", 0, options=[])
    expect(code == 0 and "-np 8 " in launched[1] and starts[1] == [*TYPED, "--resume"], (messages, launched))
    ssh = {"bin/ssh": "#!/bin/bash\n[[ \" $* \" != *' lost '* ]]\n"}
    code, messages, _, launched = elastic(folder / "host", 0, options=[], launcher=["--host", "one:4,lost:4"], **ssh)
    expect(code == 0 and "-np 4 --hostfile " in launched[1] and "without lost, which does not answer" in messages, (messages, launched))
    (folder / "hosts").write_text("# comment\none slots=2\nlost slots=2\ntwo  slots=4 max_slots=8\n")
    code, messages, _, launched = elastic(folder / "file", 0, options=[], launcher=["-hostfile", folder / "hosts", "-x", "A"], **ssh)
    expect(code == 0 and "-np 6 --hostfile " in launched[1] and " -x A ./program.py" in launched[1], (messages, launched))


def test_a_layout_that_does_not_fit_ends_the_run_with_the_reason(folder):
    for name, slots, more, reason in (
            ("few", 1, {}, "--tp 2 x --pp 1 need 2 ranks, and there are 1 slots (--slots)"),
            ("shard", 6, {"--shard-group": 4}, "no number of data-parallel ranks up to 3 fits (--slots): --shard-group 4 does not divide 3"),
            ("tensor", 4, {"--tp": 8}, "--tp 8 x --pp 1 need 8 ranks, and there are 4 slots (--slots)")):
        code, messages, starts, _ = elastic(folder / name, slots, settings=more)
        expect(code == 1 and len(starts) == 1 and reason in messages, (name, code, messages))
    # 2 x 3 micro-batches: an interleaved pipeline of 2 needs an even number per rank, so 1 data-parallel rank is possible.
    code, messages, starts, launched = elastic(folder / "chunks", 4, settings={"--tp": 1, "--pp": 2, "--pp-chunks": 2, "--ranks": 4})
    expect(code == 0 and "-np 2 " in launched[1] and starts[1][4:6] == ["--grad-accum", "6"], (messages, starts))
    code, messages, starts, _ = elastic(folder / "unsaved", 4, saved=False)
    expect(code == 1 and "no checkpoint or log records the tokens per step" in messages, messages)


def test_wrong_words_are_reported(folder):
    code, messages, _ = run(folder, ["--restarts", 2, "-np", 2, "./program.py", "--train", "x"], {"code": 1})
    expect(code == 2 and "--restarts needs --out DIR" in messages, messages)
    code, messages, _ = run(folder, ["-np", 2, "--restarts", 2, "./program.py", "--out", "x", ":", "-np", 1, "./program.py"], {"code": 1})
    expect(code == 2 and "without ':'" in messages, messages)
    (folder / "run.toml").write_text('# settings\nout = "out"  # here\n')
    code, messages, starts = run(folder, ["-np", 2, "--restarts", 2, "./program.py", "--config", "run.toml"], {**BEGINS, "save": 1, "code": 1},
                                 {"code": 0})
    expect(code == 0 and starts == [["--config", "run.toml"], ["--config", "run.toml", "--resume"]], (code, messages, starts))


def main(pattern="*"):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_tests(globals(), lambda folder: (folder,), pattern)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
