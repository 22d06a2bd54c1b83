#!/usr/bin/env python3
"""Tests that a rank which is killed, stopped, hangs or does something else is named, that no other rank waits for it
without end, and that the last checkpoint loads: ranks of test/lost_ranks.cu and of train_gpt2.

    python3 test/test_lost_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. With LLMC_LONG each fault happens 30 times, at random moments, on 4 and 8
ranks, in any of them.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from free_ports import master_port
from runner import Skip, expect
from test_checkpoint_programs import QUIET, TINY, wait_for, with_flags
from test_programs import run_program_tests
from test_rank_programs import RUN, environment, launch, mpirun, require_mpi

LONG = os.environ.get("LLMC_LONG", "0") != "0"
LOST = Path(__file__).resolve().parent.parent / "scripts" / "lost.py"
HEARTBEAT, COMM = 3, 3  # seconds
# A quiet machine needs 5 s after a connection broke, and the deadline + 5 s otherwise.
TOLERANCE = 15
FAULTS = {  # the message of a run in which `{0}` has the fault
    "kill": r"rank {0} \(.*\) is lost: its connection ended\n",
    "stop": r"rank {0} \(.*\) is lost: no sign of life for 3.* s\n",
    "throw": r"rank {0}: a fault of this rank|rank {0} \(.*\) has failed: a fault",
    "loop": r"rank {0} \(.*\) hangs: .*\n  rank {0} at its last sign of life: step {1}, training, in no call",
    "read": r"rank {0} \(.*\) hangs: .*\n  rank {0} at its last sign of life: step {1}, training, in no call",
    "skip": r"rank {0} \(.*\) hangs: .*\n  rank {0} at its last sign of life: step {1}, training, in all-reduce {1} of 1024 fp32 of group 'half'",
    "other": r"rank {0} (calls )?broadcast {1} of 4096",
}
CALL = r"in all-reduce {1} of 4096 fp32 of group 'all' since"


class Ranks:
    """Ranks of lost_ranks, by mpirun or each started by itself."""

    def __init__(self, program, backend, fault, victim, *, ranks=4, step=20, steps=60, launcher="mpirun", comm=COMM):
        self.binary = program.binary.with_name("lost_ranks")
        if not self.binary.exists():
            raise Skip(f"{self.binary} was not built")
        self.ranks, self.victim, self.step = ranks, victim, step
        self.out = program.folder / f"{backend}-{fault}-{victim}-{ranks}-{random.getrandbits(32):x}"
        self.out.mkdir()
        words = [self.binary, backend, fault, victim, step, steps, self.out, HEARTBEAT, comm]
        if launcher == "mpirun":
            require_mpi(program)
            self.processes = [self.start([RUN, "-np", ranks, *words], {})]
        else:
            place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": str(master_port())}
            self.processes = [self.start(words, {**place, "RANK": str(rank)}) for rank in range(ranks)]
        self.launcher = launcher
        self.fault, self.backend = fault, backend

    def start(self, words, more):
        return subprocess.Popen([str(word) for word in words], cwd=self.out, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                env={**environment(), **more})

    def finish(self, seconds):
        """Waits for the ranks, the victim excepted if it is stopped and started by itself. Returns their output. The loss is
        printed by one rank, which may be the one that hangs."""
        end, text = time.monotonic() + seconds, ""
        survivors = [process for rank, process in enumerate(self.processes)
                     if self.launcher == "mpirun" or self.fault != "stop" or rank != self.victim]
        try:
            for process in survivors:
                text += process.communicate(timeout=max(0.1, end - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.backend} {self.fault}: ranks still run after {seconds} s: {text}") from None
        finally:
            for process in self.processes:
                kill_group(process)
        self.codes = [process.returncode for process in survivors]
        return text


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    process.stdout.close()


def limit_of(fault):
    return TOLERANCE + {"stop": HEARTBEAT, "loop": COMM, "read": COMM, "skip": COMM}.get(fault, 0)


def expect_named(program, backend, fault, victim, **more):
    """Runs ranks of which one has a fault; the others name it, the call, and write their reports."""
    run = Ranks(program, backend, fault, victim, **more)
    start = time.monotonic()
    text = run.finish(limit_of(fault) + 5)  # with the start
    seconds = f"{time.monotonic() - start:.1f} s: {text}"
    expect(all(code not in (0, None) for code in run.codes), f"{backend} {fault}: exit codes {run.codes}, {seconds}")
    expect(re.search(FAULTS[fault].format(victim, run.step), text), f"{backend} {fault} of rank {victim}: {seconds}")
    if fault in ("throw", "other"):
        return text
    expect(re.search(CALL.format(victim, run.step), text), f"{backend} {fault}: the call is not named: {seconds}")
    reports = {path.stem: json.loads(path.read_text()) for path in (run.out / "lost").glob("*.json")}
    survivors = {str(rank) for rank in range(run.ranks)} - {str(victim)}
    expect(survivors <= set(reports), f"{backend} {fault}: reports of {sorted(reports)}: {seconds}")
    # A rank that is not yet in the call when another is killed need not reach it.
    for rank in survivors if fault != "kill" else ():
        last = [call for call in reports[rank]["calls"] if call["left"] is None]
        expect(last and (last[0]["group"], last[0]["number"], last[0]["bytes"]) == ("all", run.step, 16384),
               f"{backend} {fault}: rank {rank}: {reports[rank]['calls'][-2:]}")
        expect(reports[rank]["backtrace"], f"rank {rank} has no backtrace")
    compared = subprocess.run([str(LOST), str(run.out / "lost")], capture_output=True, text=True, check=False)
    # A rank that was stopped runs on when its launcher ends it.
    expect(compared.returncode == 0 or fault == "stop", (compared, text))
    if fault in ("skip", "loop", "read"):
        expect(f"  rank {victim}: not entered" in compared.stdout and f"call {run.step}:" in compared.stdout, compared.stdout)
    if fault == "kill":
        expect(f"rank {victim}: wrote no report" in compared.stdout, compared.stdout)
    return text


def each(program, cases):
    """Runs the cases (positional, named arguments of expect_named) at the same time: mostly they wait."""
    with ThreadPoolExecutor(5) as pool:
        for result in [pool.submit(expect_named, program, *case[:-1], **case[-1]) for case in cases]:
            result.result()


def test_a_rank_with_a_fault_is_named_with_its_call(program):
    alone = {"launcher": "alone"}
    each(program, [("mpi", "kill", 2, {}), ("tcp", "kill", 0, alone), ("mpi", "stop", 0, {}), ("tcp", "stop", 3, alone),
                   ("tcp", "throw", 1, alone), ("mpi", "loop", 1, {}), ("tcp", "read", 2, alone), ("mpi", "skip", 3, {}),
                   ("tcp", "other", 2, alone)])


def test_nccl_communicators_are_aborted(program):
    with ThreadPoolExecutor(5) as pool:
        texts = [pool.submit(expect_named, program, "nccl", fault, victim)
                 for fault, victim in (("kill", 1), ("stop", 2), ("read", 3), ("throw", 0), ("other", 2))]
        for text in [text.result() for text in texts][:3]:
            expect(re.search(r"opened 2, destroyed 0, aborted 2, misuses 0", text), text)


def expect_no_alarm(run, seconds):
    text = run.finish(seconds)
    expect(run.codes == [0] and "done" in text and " lost" not in text and " hang" not in text, (run.fault, text))


def test_no_false_alarm(program):
    cases = [("tcp", "long", 1, 20), ("mpi", "late", 2, 20), ("mpi", "slow", 0, 6)]
    runs = [Ranks(program, backend, fault, victim, step=2, steps=steps, comm=2) for backend, fault, victim, steps in cases]
    for run in runs:
        expect_no_alarm(run, 90)


def namespaces(number):
    """Two network namespaces with a link, of which the second one's end is `vb`."""
    names = [f"llmc-{os.getpid()}-{number}-{side}" for side in "ab"]
    commands = [f"ip netns add {name}" for name in names]
    commands += [f"ip link add va netns {names[0]} type veth peer name vb netns {names[1]}"]
    for name, device, address in zip(names, ("va", "vb"), ("10.77.0.1", "10.77.0.2")):
        commands += [f"ip -n {name} addr add {address}/24 dev {device}", f"ip -n {name} link set {device} up",
                     f"ip -n {name} link set lo up"]
    for command in commands:
        if subprocess.run(command.split(), capture_output=True, check=False).returncode != 0:
            remove_namespaces(names)
            raise Skip("no network namespaces can be made here")
    return names


def remove_namespaces(names):
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


# A machine of its own: a name, memory that ranks share, and ranks.
MACHINE = """hostname "$0"; mount -t tmpfs none /dev/shm
for rank in $MACHINE_RANKS; do RANK=$rank "$@" & done
for job in $(jobs -p); do wait $job; echo "exit code $?"; done"""


def expect_lost_link(program, number, ranks, seconds):
    """Runs ranks on two machines, whose link is taken down after this time. Both machines name ranks of the other one."""
    binary = program.binary.with_name("lost_ranks")
    if not binary.exists():
        raise Skip(f"{binary} was not built")
    halves = [range(ranks // 2), range(ranks // 2, ranks)]
    names, machines = namespaces(number), []
    try:
        place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29512"}
        for name, half in zip(names, halves):
            words = ["ip", "netns", "exec", name, "unshare", "--uts", "--mount", "bash", "-c", MACHINE, name, str(binary),
                     "tcp", "none", "0", "0", "1000000", str(program.folder / f"link{number}"), str(HEARTBEAT), str(COMM)]
            machines.append(subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                             start_new_session=True, env={**environment(), **place,
                                                                          "MACHINE_RANKS": " ".join(map(str, half))}))
        time.sleep(seconds)
        expect(all(machine.poll() is None for machine in machines), "a machine has ended early")
        subprocess.run(["ip", "-n", names[1], "link", "set", "vb", "down"], check=True)
        texts = [machine.communicate(timeout=TOLERANCE + HEARTBEAT)[0] for machine in machines]
    finally:
        for machine in machines:
            kill_group(machine)
        remove_namespaces(names)
    # Ranks notice the loss of rank 0, and rank 0 that of others, which can be silent for different times.
    for text, half, silent in zip(texts, halves, (halves[1], range(1))):
        lost = re.search(r"lost_ranks: ranks? ([0-9, to]+) (?:\(.*\) is|are) lost: no sign of life for", text)
        expect(lost and set(map(int, re.findall(r"\d+", lost[1]))) <= set(silent), (ranks, seconds, texts))
        expect(re.search(r"in all-reduce \d+ of \d+ fp32 of group '(all|half)' since", text), (ranks, seconds, texts))
        expect(text.count("exit code 1\n") == len(half) and text.count("exit code") == len(half), (ranks, seconds, texts))


def test_a_link_that_goes_down_is_noticed(program):
    expect_lost_link(program, 0, 4, 3)


TRAIN = [*with_flags(TINY, layers=2, heads=1, channels=8, batch_size=1), *QUIET, "--steps", 10 ** 6, "--out", "out",
         "--checkpoint-every", 100, "--heartbeat-timeout", HEARTBEAT, "--comm-timeout", COMM]


def rank_processes(binary, out):
    """{rank: process id} of the ranks that mpirun started for this run."""
    ranks = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe") == str(binary) and os.readlink(entry / "cwd") == str(out):
                rank = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)\0", (entry / "environ").read_bytes())
                if rank:
                    ranks[int(rank[1])] = int(entry.name)
        except OSError:
            continue
    return ranks


def start_training(program, ranks, *more):
    require_mpi(program)
    process = launch(program, ranks, *TRAIN, *more)
    messages = wait_for(process, "saved out/step_")
    return process, messages, rank_processes(program.binary.resolve(), program.folder.resolve())


def test_training_ends_and_continues_after_the_loss_of_a_rank(program):
    for victim, number in ((0, signal.SIGKILL), (1, signal.SIGSTOP)):
        process, _, ranks = start_training(program, 2, *([] if victim == 0 else ["--resume"]))
        expect(sorted(ranks) == [0, 1], ranks)
        os.kill(ranks[victim], number)
        messages = process.communicate(timeout=limit_of("stop") + 5)[1]
        expect(re.search(rf"train_gpt2: rank {victim} \(.*\) is lost", messages), messages)
        status = json.loads((program.folder / "out" / "status.json").read_text())
        expect(status["status"] == "failed" and f"rank {victim}" in status["reason"], status)
        expect(rank_processes(program.binary.resolve(), program.folder.resolve()) == {}, "processes are left")
        before = status["step"]
        mpirun(program, 2, *with_flags(TRAIN, steps=before + 150), "--resume")


def test_sigusr2_writes_a_report_and_ends_nothing(program):
    process, _, ranks = start_training(program, 2)
    os.kill(ranks[1], signal.SIGUSR2)
    wait_for(process, "SIGUSR2: ")
    report = json.loads((program.folder / "out" / "lost" / "1.json").read_text())
    expect(report["rank"] == 1 and report["reason"] == "SIGUSR2" and len(report["calls"]) > 100, report["reason"])
    expect(report["step"] > 0 and report["calls"][-1]["group"], report["calls"][-1])
    os.kill(ranks[0], signal.SIGTERM)
    messages = process.communicate(timeout=60)[1]
    expect(process.returncode == 0 and re.search("interrupted by SIGTERM", messages), messages)


def test_a_signal_on_the_way_down_is_no_save(program):
    process, _, ranks = start_training(program, 2)
    os.kill(ranks[1], signal.SIGSTOP)
    time.sleep(2)  # the loss is known a second later, the answer of the other ranks 2 s after that
    os.kill(ranks[0], signal.SIGTERM)
    messages = process.communicate(timeout=limit_of("stop") + 5)[1]
    expect(process.returncode != 0 and re.search(r"rank 1 \(.*\) is lost", messages), messages)
    # All announcements have the first of these. The place of a rank can be "saving".
    expect(not re.search("send the signal again|saved step|interrupted", messages), messages)


def test_bad_control_settings_are_errors(program):
    for value, phrase in (("x", "LLMC_CONTROL_PORT"), ("1", "cannot listen on LLMC_CONTROL_PORT 1")):
        if value == "1" and os.geteuid() == 0:
            continue
        _, messages = mpirun(program, 2, *TRAIN, code=1, LLMC_CONTROL_PORT=value)
        expect(phrase in messages, messages)


def long_test():
    """The random moments of a long test."""
    if not LONG:
        raise Skip("LLMC_LONG is not set")
    return random.Random(int(os.environ.get("LOST_SEED", "1")))


def test_random_faults(program):
    draw = long_test()
    for fault in FAULTS:
        for _ in range(30):
            ranks = draw.choice([4, 8])
            backend = draw.choice(["mpi", "tcp", "nccl"])
            launcher = "alone" if backend == "tcp" and draw.random() < 0.5 else "mpirun"
            expect_named(program, backend, fault, draw.randrange(ranks), ranks=ranks, step=draw.randint(2, 400), steps=500,
                         launcher=launcher)


def test_random_links(program):
    draw = long_test()
    for number in range(30):
        expect_lost_link(program, number, draw.choice([4, 8]), draw.uniform(4, 7))


def test_random_slow_ranks(program):
    draw = long_test()
    for _ in range(30):
        ranks = draw.choice([4, 8])
        expect_no_alarm(Ranks(program, draw.choice(["mpi", "tcp"]), "slow", draw.randrange(ranks), ranks=ranks, steps=6), 60)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
