"""The number of ranks of a restart with --elastic: tp, pp and the tokens per step stay, data-parallel ranks change."""
import os
import re
import socket
import subprocess

SECONDS_TO_ANSWER = 5
SECONDS_FOR_COMMAND = 120
LOCAL = ("localhost", "127.0.0.1", "::1")


class NoFit(Exception):
    pass


# ---- slots ------------------------------------------------------------------------------------


def answers(host):
    if host in LOCAL or host in (socket.gethostname(), socket.gethostname().split(".")[0]):
        return True
    command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={SECONDS_TO_ANSWER}", host, "true"]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=3 * SECONDS_TO_ANSWER, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def host_slots(words):
    """The slots of each host in --host or --hostfile, in their order, and the index of the option in the words of mpirun.
    A host without a number has one slot per mention. Returns ({}, -1) if there is no such option."""
    slots = {}
    for i, word in enumerate(words.launcher[:-1]):
        name, value = word.lstrip("-"), words.launcher[i + 1]
        if name in ("H", "host"):
            entries = [re.fullmatch(r"(.*?)(?::(\d+))?", entry).groups() for entry in value.split(",")]
        elif name in ("hostfile", "machinefile", "default-hostfile"):
            try:
                with open(value, encoding="utf-8") as file:
                    lines = [line.split("#")[0] for line in file]
            except OSError as error:
                raise NoFit(f"the hostfile cannot be read: {error}") from error
            entries = [(line.split()[0], (re.search(r"slots\s*=\s*(\d+)", line) or ["", None])[1]) for line in lines if line.split()]
        else:
            continue
        for host, number in entries:
            slots[host] = slots.get(host, 0) + int(number or 1)
        return slots, i
    return {}, -1


def printed_number(command):
    done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=SECONDS_FOR_COMMAND)
    if done.returncode != 0 or not done.stdout.strip().isdigit():
        raise NoFit(f"--slots-command printed '{done.stdout.strip()[:80]}' with exit code {done.returncode}, not a number")
    return int(done.stdout)


class Slots:
    """The usable slots now, where the number comes from, and the option of mpirun for hosts if hosts are missing."""

    def __init__(self, number, source, place=-1, option=()):
        self.number, self.source, self.place, self.option = number, source, place, option


def usable_slots(options, words, folder):
    if options.slots_command:
        try:
            return Slots(printed_number(options.slots_command), "--slots-command")
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoFit(f"--slots-command: {error}") from error
    if options.slots is not None:
        return Slots(options.slots, "--slots")
    if os.environ.get("LLMC_SLOTS", "").isdigit():
        return Slots(int(os.environ["LLMC_SLOTS"]), "LLMC_SLOTS")
    hosts, place = host_slots(words)
    if place < 0:
        return Slots(words.ranks, "-np")
    alive = {host: number for host, number in hosts.items() if answers(host)}
    if not alive:
        raise NoFit("none of the hosts " + ", ".join(hosts) + " answers ssh")
    if len(alive) == len(hosts):
        return Slots(sum(alive.values()), "all hosts answer")
    file = folder / "hosts"
    file.write_text("".join(f"{host} slots={number}\n" for host, number in alive.items()))
    missing = ", ".join(host for host in hosts if host not in alive)
    return Slots(sum(alive.values()), f"without {missing}, which does not answer ssh", place, ["--hostfile", str(file)])


# ---- the layout -------------------------------------------------------------------------------


def rejection(dp, per_group, settings):
    """Why this number of data-parallel ranks is impossible; empty: it is possible."""
    batch, shard = settings["--batch-size"] * settings["--seq-len"], settings.get("--shard-group", 0)
    tokens = per_group * batch
    if tokens % (batch * dp):
        return f"{tokens} tokens per step are not a multiple of {batch} tokens per micro-batch x {dp} data-parallel ranks"
    if shard and dp % shard:
        return f"--shard-group {shard} does not divide {dp} data-parallel ranks"
    chunks, pp = settings.get("--pp-chunks", 1), settings["--pp"]
    if chunks > 1 and per_group // dp % pp:
        return f"--pp-chunks {chunks} needs micro-batches that are a multiple of --pp {pp}, not {per_group // dp}"
    return ""


def fitting_words(slots, words, settings):
    """The words of a start with the largest number of data-parallel ranks, and a note about a change. Throws NoFit."""
    new = words
    if slots.place >= 0:
        launcher = list(words.launcher)
        launcher[slots.place:slots.place + 2] = slots.option
        new = words.copy(launcher=launcher)
    if not settings:
        if slots.number >= words.ranks:
            return new, ""
        raise NoFit(f"there are {slots.number} slots ({slots.source}) for {words.ranks} ranks, and no checkpoint or log "
                    "records the tokens per step that must stay")
    model_ranks = settings["--tp"] * settings["--pp"]
    largest = min(slots.number, words.ranks) // model_ranks
    if largest == 0:
        raise NoFit(f"--tp {settings['--tp']} x --pp {settings['--pp']} need {model_ranks} ranks, and there are "
                    f"{slots.number} slots ({slots.source})")
    micro_batches = settings["--grad-accum"] * settings["--ranks"] // model_ranks  # of all data-parallel ranks
    reasons = {dp: rejection(dp, micro_batches, settings) for dp in range(largest, 0, -1)}
    dp = next((dp for dp, reason in reasons.items() if not reason), None)
    if dp is None:
        raise NoFit(f"no number of data-parallel ranks up to {largest} fits ({slots.source}): {reasons[largest]}")
    ranks = dp * model_ranks
    note = ""
    if ranks != settings["--ranks"]:
        note = f", with {ranks} ranks instead of {settings['--ranks']} ({slots.number} slots: {slots.source})"
    new = new.copy(ranks=ranks)
    # A total that was typed stays, and the program derives --grad-accum from it.
    if words.value("--total-batch-tokens") or settings.get("--total-batch-tokens"):
        return new, note
    accum = micro_batches // dp
    if str(accum) != (words.value("--grad-accum") or str(settings["--grad-accum"])):
        new = new.with_value("--grad-accum", accum)
    return new, note
