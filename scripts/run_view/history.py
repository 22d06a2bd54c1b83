"""Processes of a run and their settings, from the lines that train_gpt2 logs when it starts and resumes."""
import math
from dataclasses import dataclass, field

PLANNED = "planned_mem_mb_ranks"
NO_SETTINGS = ("step", "run", "checkpoint", PLANNED)  # keys of a line of settings that are none
HIDDEN = ("--log",)  # the log itself
NAMES = {"tokenizer_xxh64": "tokenizer (checksum)", "bytes_per_token": "bytes per token of validation text",
         "version": "version of the program"}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def printable(text):
    """The text with a ? for each byte of a file's name or an argument that is not UTF-8."""
    return text.encode("utf-8", "replace").decode()


@dataclass
class Process:
    """One process of a run. A log of an older program has no settings."""
    step: int  # the number of steps before this process
    resumed: bool
    planned_memory: str = ""  # MiB of each rank
    settings: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)  # changes compared with the checkpoint

    def description(self):
        if self.notes:
            return f"resumed at step {self.step:,}: " + "; ".join(self.notes)
        return f"resumed at step {self.step:,}" + (", nothing changed" if self.settings else "")


class History:
    """The processes that contributed to a run, in order of their steps."""

    def __init__(self):
        self.processes = []

    def begin(self, step, resumed, settings=None):
        """Adds a process. Processes that made only later steps no longer belong to the run."""
        self.discard_after(step - 1)
        values = {printable(name): printable(value) if isinstance(value, str) else value
                  for name, value in (settings or {}).items()
                  if name not in NO_SETTINGS and (isinstance(value, (str, bool)) or is_number(value))}
        self.processes.append(Process(step, resumed, (settings or {}).get(PLANNED, ""), values))

    def discard_after(self, step):
        self.processes = [process for process in self.processes if process.step <= step]

    def add_note(self, step, note):
        """Adds a change to the process that was resumed at this step."""
        if not self.processes or self.processes[-1].step != step or not self.processes[-1].resumed:
            self.begin(step, resumed=True)
        if note not in self.processes[-1].notes:
            self.processes[-1].notes.append(printable(note))

    def resumes(self):
        return [process for process in self.processes if process.resumed]

    def settings(self):
        """{name: value}, the latest of each."""
        return {name: values[-1][1] for name, values in self.changes().items() if values[-1][1] is not None}

    def changes(self):
        """{name: [(step, value)]}: the values of each setting, and the steps after which they held. None: no value."""
        known = [process for process in self.processes if process.settings]
        changes = {}
        for name in dict.fromkeys(name for process in known for name in process.settings):
            values = changes[name] = []
            for process in known:
                value = process.settings.get(name)
                if not values or values[-1][1] != value:
                    values.append((process.step, value))
        return changes

    def planned_memory(self):
        """The memory that each rank of the newest process has planned, as the log has it; empty if it is unknown."""
        return self.processes[-1].planned_memory if self.processes else ""

    def tokenizer(self):
        """The checksum of the tokenizer; None if it is unknown."""
        checksum = self.settings().get("tokenizer_xxh64")
        return checksum if isinstance(checksum, str) and checksum else None

    def bits_per_byte(self, loss):
        """A loss of the newest process in bits per byte of validation text; None if that is unknown."""
        bytes_per_token = self.processes[-1].settings.get("bytes_per_token") if self.processes else None
        if not is_number(bytes_per_token) or bytes_per_token <= 0:
            return None
        bits = loss / math.log(2) / bytes_per_token
        return bits if math.isfinite(bits) else None


def value_text(value):
    """A setting for people. A missing value and an empty text are a dash."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == "":
        return "–"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def setting_rows(histories):
    """Two lists: (name, [text per run]) of settings that differ between runs, and (name, [text]) of equal ones. A
    run without settings is not compared. A setting that is off or empty in all processes is left out.
    """
    tables = [history.changes() for history in histories]
    known = [i for i, table in enumerate(tables) if table]
    different, equal = [], []
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table.get(name, [(0, None)]) for table in tables]
        if name in HIDDEN or all(value in (None, "") or value is False for history in values for _, value in history):
            continue
        texts = [", ".join((f"from step {step:,}: " if k else "") + value_text(value)
                           for k, (step, value) in enumerate(history)) for history in values]
        if len({texts[i] for i in known}) == 1:
            equal.append((NAMES.get(name, name), [texts[known[0]]]))
        else:
            different.append((NAMES.get(name, name), texts))
    return different, equal
