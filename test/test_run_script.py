#!/usr/bin/env python3
"""Tests scripts/run.sh: with Open MPI, and with stand-ins for mpirun.

    python3 test/test_run_script.py [PATTERN]

Prints and exits as runner.py does. Tests that start ranks are skipped if Open MPI is missing.
"""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from runner import Skip, expect, run_tests  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "scripts" / "run.sh"
# A rank that saves when it is asked to end, longer than Open MPI waits by default before SIGKILL. It writes
# files in its folder: ready.RANK, saved.RANK.
RANK = """
import os, signal, sys, time
rank, seconds_to_save, ending = os.environ["OMPI_COMM_WORLD_RANK"], float(sys.argv[1]), sys.argv[2]
signals = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: signals.append(signal.Signals(number).name))
open("ready." + rank, "w").write(str(os.getpid()))
begin = time.monotonic()
while not signals and time.monotonic() < begin + 100:
    time.sleep(0.01)
    if ending == "fail" and rank == "1" and all(os.path.exists(f"ready.{i}") and os.path.getsize(f"ready.{i}") for i in range(3)):
        sys.exit(7)
end = time.monotonic() + seconds_to_save
while time.monotonic() < end and len(signals) < 2:
    time.sleep(0.01)
open("saved." + rank, "w").write(" ".join(signals))
"""
SECONDS_TO_SAVE = 2.5


def environment(**more):
    """This process's, without the place that a launcher may have given it and without DEPS."""
    launcher = ("OMPI_", "PMI", "SLURM_", "OPAL_")
    return {**{key: value for key, value in os.environ.items() if not key.startswith(launcher) and key != "DEPS"}, **more}


def run(*arguments, script=RUN, **more):
    return subprocess.run([str(word) for word in (script, *arguments)], env=environment(**more), capture_output=True,
                          text=True, timeout=100, stdin=subprocess.DEVNULL)


def require_open_mpi():
    result = run("--dry-run", "-np", 1, "true")
    if result.returncode != 0 or result.stderr:
        raise Skip("Open MPI is missing")


class Ranks:
    """Three ranks that scripts/run.sh starts in a folder of their own, as a process group of their own."""

    def __init__(self, folder, seconds_to_save=SECONDS_TO_SAVE, ending="save", **more):
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True)
        (folder / "rank.py").write_text(RANK)
        self.output = open(folder / "output", "w+")
        self.process = subprocess.Popen([str(RUN), "-np", "3", sys.executable, "rank.py", str(seconds_to_save), ending],
                                        cwd=folder, env=environment(TMPDIR=str(self.temporary), **more), stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)
        self.wait_for(lambda: len(self.files("ready")) == 3)

    def files(self, name):
        return {path.suffix: path.read_text() for path in self.folder.glob(name + ".*") if path.stat().st_size > 0}

    def wait_for(self, condition):
        end = time.monotonic() + 100
        while not condition():
            self.output.seek(0)
            expect(time.monotonic() < end, f"timeout; output: {self.output.read()}")
            time.sleep(0.01)

    def mpirun(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next(int(child) for child in children if "mpirun" in Path(f"/proc/{child}/comm").read_text())

    def end(self):
        code = self.process.wait(100)
        self.output.seek(0)
        return code, self.output.read()

    def alive(self):
        return [pid for pid in self.files("ready").values()
                if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()]


def expect_saved(ranks, name):
    code, output = ranks.end()
    expect(code == 0, (name, code, output))
    expect(ranks.files("saved") == {f".{rank}": name for rank in range(3)}, (ranks.files("saved"), output))


def test_a_signal_to_run_sh_or_to_mpirun_lets_all_ranks_save(folder):
    require_open_mpi()
    runs = [Ranks(folder / name) for name in ("run", "mpirun", "terminal", "hang_up")]
    os.kill(runs[0].process.pid, signal.SIGTERM)
    os.kill(runs[1].mpirun(), signal.SIGTERM)
    os.killpg(runs[2].process.pid, signal.SIGINT)
    os.kill(runs[3].process.pid, signal.SIGHUP)
    for ranks, name in zip(runs, ("SIGTERM", "SIGTERM", "SIGINT", "SIGTERM")):
        expect_saved(ranks, name)


def test_a_second_signal_reaches_the_ranks(folder):
    require_open_mpi()
    ranks = Ranks(folder / "run", seconds_to_save=60)
    os.kill(ranks.process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.kill(ranks.process.pid, signal.SIGTERM)
    expect_saved(ranks, "SIGINT SIGTERM")


def test_the_ranks_save_if_run_sh_is_killed(folder):
    require_open_mpi()
    ranks = Ranks(folder / "run", seconds_to_save=0.1)
    expect(list(ranks.temporary.iterdir()), "no folder for temporary files")
    ranks.process.kill()
    ranks.wait_for(lambda: len(ranks.files("saved")) == 3)
    ranks.end()
    ranks.wait_for(lambda: not list(ranks.temporary.iterdir()))


def test_every_run_has_a_folder_for_temporary_files_and_removes_it(folder):
    require_open_mpi()
    # Open MPI creates its own folder in it, which runs would otherwise remove while others need it.
    script = 'echo "$OMPI_MCA_orte_tmpdir_base"; ls "$OMPI_MCA_orte_tmpdir_base"; exit "$0"'
    folders = set()
    for code in (0, 0, 7):
        result = run("-np", 1, "bash", "-c", script, code, TMPDIR=str(folder))
        lines = result.stdout.split()
        expect(result.returncode == code and len(lines) == 2 and lines[1].startswith("ompi."), result)
        expect(Path(lines[0]).parent == folder and not Path(lines[0]).exists(), result)
        folders.add(lines[0])
    expect(len(folders) == 3, folders)
    (folder / "own").mkdir()
    for words, more in ((["--mca", "orte_tmpdir_base", folder / "own"], {}),
                        ([], {"OMPI_MCA_orte_tmpdir_base": str(folder / "own")})):
        result = run("-np", 1, *words, "bash", "-c", script, 0, TMPDIR=str(folder), **more)
        expect(result.returncode == 0 and result.stdout.split()[0] == str(folder / "own"), result)
    expect([path.name for path in folder.iterdir()] == ["own"], list(folder.iterdir()))


def test_a_rank_that_fails_or_is_killed_ends_all(folder):
    require_open_mpi()
    # The others need longer to save than end() waits, and the failed rank is not there to save with them.
    more = {"OMPI_MCA_odls_base_sigkill_timeout": "1"}
    failing, killed = Ranks(folder / "fail", 1000, "fail", **more), Ranks(folder / "kill", 1000, **more)
    os.kill(int(killed.files("ready")[".2"]), signal.SIGKILL)
    for ranks, expected in ((failing, 7), (killed, 128 + signal.SIGKILL)):
        code, output = ranks.end()
        expect(code == expected and not ranks.alive(), (code, expected, ranks.alive(), output))


def test_ranks_have_five_seconds_after_a_failure_and_stopped_ones_end_too(folder):
    require_open_mpi()
    saving, stuck = Ranks(folder / "saving", 0), Ranks(folder / "stuck", 1000)
    begin = time.monotonic()
    for ranks in (saving, stuck):
        os.kill(int(ranks.files("ready")[".0"]), signal.SIGSTOP)
        os.kill(int(ranks.files("ready")[".2"]), signal.SIGKILL)
    code, output = saving.end()
    expect(code == 128 + signal.SIGKILL and time.monotonic() - begin > 4.5 and not saving.alive(), (code, output))
    expect(saving.files("saved")[".1"] == "SIGTERM", (saving.files("saved"), output))
    code, output = stuck.end()
    expect(code == 128 + signal.SIGKILL and not stuck.alive() and not stuck.files("saved"), (code, output))
    expect(9 < time.monotonic() - begin < 20, time.monotonic() - begin)


def test_a_failure_without_other_ranks_ends_at_once(folder):
    require_open_mpi()
    begin = time.monotonic()
    result = run("-np", 3, "sh", "-c", "exit 3", TMPDIR=str(folder))
    expect(result.returncode == 3 and time.monotonic() - begin < 4, (result, time.monotonic() - begin))


def test_options_of_mpirun_and_arguments_are_passed_on(folder):
    require_open_mpi()
    result = run("-np", 5, "-x", "PAPER", "--tag-output", "sh", "-c", 'echo "$PAPER" "$1" "$OMPI_COMM_WORLD_SIZE"', "sh", "a  b",
                 PAPER="white")
    lines = sorted(line.split(":")[-1] for line in result.stdout.splitlines())
    expect(result.returncode == 0 and lines == ["white a  b 5"] * 5, result)
    result = run("-np", 2, "sh", "-c", "exit 3")
    expect(result.returncode == 3, result)


# ---- without Open MPI -----------------------------------------------------------------------------
def make_tree(folder, *places, version="mpirun (Open MPI) 4.1.4"):
    """A copy of run.sh with a stand-in for mpirun in each of the places. PATH has no other one."""
    (folder / "scripts").mkdir()
    shutil.copy(RUN, folder / "scripts" / "run.sh")
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bash", "sh", "env", "dirname", "head", "sed", "true", "grep", "cat", "sleep"):
        (programs / name).symlink_to(shutil.which(name))
    for place in places:
        (folder / place).mkdir(parents=True, exist_ok=True)
        mpirun = folder / place / "mpirun"
        mpirun.write_text(f'#!/bin/sh\n[ "$1" != --version ] || {{ echo "{version}"; exit; }}\nprintf "<%s>" "$@"\nexit 4\n')
        mpirun.chmod(0o755)
    return folder / "scripts" / "run.sh", {"PATH": str(programs)}


def test_a_missing_mpirun_is_reported_with_a_hint(folder):
    script, more = make_tree(folder)
    result = run("-np", 2, "true", script=script, **more)
    expect(result.returncode == 2 and "mpirun is missing in PATH" in result.stderr, result)
    expect("scripts/setup.sh --prefix deps" in result.stderr, result)
    (folder / "other" / "usr").mkdir(parents=True)
    result = run("-np", 2, "true", script=script, DEPS=str(folder / "other"), **more)
    expect(result.returncode == 2 and f"in {folder}/other/usr/bin" in result.stderr, result)
    result = run("-np", 2, "true", script=script, DEPS=str(folder / "none"), **more)
    expect(result.returncode == 2 and f"DEPS={folder}/none is not a folder" in result.stderr, result)


def test_an_unpacked_open_mpi_finds_its_parts(folder):
    script, more = make_tree(folder, "deps/usr/bin", "other/usr/bin")
    for name in ("deps", "other"):
        (folder / name / "usr/lib/x86_64-linux-gnu/pmix2").mkdir(parents=True)
    for name, variables in (("deps", {}), ("other", {"DEPS": str(folder / "other")})):
        result = run("--dry-run", "-np", 2, "prog", script=script, LD_LIBRARY_PATH="/mine", **variables, **more)
        words, usr = shlex.split(result.stdout), f"{folder}/{name}/usr"
        expect(result.returncode == 0 and f"{usr}/bin/mpirun" in words, result)
        expect(f"OPAL_PREFIX={usr}" in words, words)
        expect(f"LD_LIBRARY_PATH={usr}/lib/x86_64-linux-gnu:/mine" in words, words)
        expect(f"PMIX_LIBDIR={usr}/lib/x86_64-linux-gnu/pmix2/lib" in words, words)
    # Without ssh in PATH; see run.sh.
    expect("OMPI_MCA_plm=^rsh" in words, words)


def test_an_installed_mpirun_comes_first(folder):
    script, more = make_tree(folder, "deps/usr/bin", "programs")
    words = shlex.split(run("--dry-run", "-np", 2, "prog", script=script, **more).stdout)
    expect(f"{folder}/programs/mpirun" in words and not any(word.startswith("OPAL_") for word in words), words)
    # make adds the folder to PATH.
    (folder / "programs" / "mpirun").unlink()
    more["PATH"] += f":{folder}/deps/usr/bin"
    words = shlex.split(run("--dry-run", "-np", 2, "prog", script=script, **more).stdout)
    expect(f"OPAL_PREFIX={folder}/deps/usr" in words, words)


def test_ranks_find_programs_as_the_shell_does(folder):
    """A program that PATH has before the system's, such as python3 of a virtual environment."""
    require_open_mpi()
    program = folder / "early" / "python3"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "the first one"\n')
    program.chmod(0o755)
    result = run("-np", 2, "python3", PATH=f"{program.parent}:{os.environ['PATH']}")
    expect(result.returncode == 0 and result.stdout == "the first one\n" * 2, result)


def test_another_mpi_gets_only_the_users_words(folder):
    script, more = make_tree(folder, "programs", version="HYDRA build details:")
    result = run("-np", 2, "-genv", "A", "b", "prog", "c  d", script=script, **more)
    expect(result.returncode == 4 and result.stdout == "<-np><2><-genv><A><b><prog><c  d>", result)
    expect("is not Open MPI ('HYDRA build details:')" in result.stderr, result)
    result = run("--dry-run", "-np", 2, "prog", "c  d", script=script, **more)
    expect(result.returncode == 0 and shlex.split(result.stdout) == [f"{folder}/programs/mpirun", "-np", "2", "prog", "c  d"],
           result)


def test_a_user_overrides_the_settings(folder):
    script, more = make_tree(folder, "programs")
    words = shlex.split(run("--dry-run", "-np", 2, "--bind-to", "core", "prog", script=script, **more).stdout)
    expect("OMPI_MCA_mpi_yield_when_idle=1" in words, words)
    place = words.index("--bind-to")
    expect(words[place:] == ["--bind-to", "none", "-np", "2", "--bind-to", "core", "prog"], words)
    expect("OMPI_MCA_odls_base_sigkill_timeout=5" in words, words)
    result = run("-np", 2, "--dry-run", "prog", script=script, OMPI_MCA_mpi_yield_when_idle="0",
                 OMPI_MCA_odls_base_sigkill_timeout="9", **more)
    expect("OMPI_MCA_mpi_yield_when_idle=0" in result.stdout and "sigkill_timeout=9" in result.stdout, result)


def test_without_blocked_signals_open_mpi_waits_longer(folder):
    script, more = make_tree(folder, "programs")
    env = folder / "programs" / "env"
    env.unlink()
    env.write_text(f'#!/bin/sh\ncase $1 in --*) exit 125 ;; esac\nexec {shutil.which("env")} "$@"\n')
    env.chmod(0o755)
    result = run("--dry-run", "-np", 2, "prog", script=script, **more)
    expect(result.returncode == 0 and "OMPI_MCA_odls_base_sigkill_timeout=12" in result.stdout, result)
    expect("--block-signal" not in result.stdout, result)
    result = run("-np", 2, "prog", script=script, **more)
    expect(result.returncode == 4 and result.stdout.endswith("<-np><2><prog>"), result)


def test_wrong_words_are_reported(folder):
    for words, reason in (((), "give the number of ranks first"), (("prog", "-np", 2), "give the number of ranks first"),
                          (("-np", 0, "prog"), "-np '0'"), (("-np", "two", "prog"), "-np 'two'"),
                          (("-np", 2), "give the program"), (("--restarts", "x", "-np", 2, "prog"), "--restarts 'x'"),
                          (("--elastic", "-np", 2, "prog"), "--elastic needs --restarts"), (("-np", 2, "--restarts"), "needs a value"),
                          (("--restarts", 2, "--slots", 3, "-np", 2, "prog"), "need --elastic")):
        result = run(*words)
        expect(result.returncode == 2 and reason in result.stderr and "--dry-run" in result.stderr, (words, result))
    result = run("--help")
    expect(result.returncode == 0 and "-np N       number of ranks" in result.stdout and not result.stderr, result)


def main(pattern="*"):
    # A background job of a script ignores SIGINT, and so would run.sh.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_tests(globals(), lambda folder: (folder,), pattern)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
