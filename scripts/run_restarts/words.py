"""The words after `scripts/run.sh -np N`: options of mpirun, the program and its arguments."""
import re
from pathlib import Path

# Options of mpirun with values, without their dashes. All others have none.
VALUES = dict.fromkeys("""x H host hostfile machinefile default-hostfile N npernode npersocket map-by rank-by bind-to wd wdir
                       path output-filename stdin tune am cpu-set cpu-list prefix preload-files timeout report-pid report-uri
                       max-restarts personality launch-agent rankfile rf""".split(), 1)
VALUES |= dict.fromkeys("mca gmca omca pmca".split(), 2)


class WrongWords(Exception):
    pass


class Words:
    def __init__(self, ranks, words):
        self.ranks = ranks
        i = 0
        while i < len(words) and words[i].startswith("-"):
            i += 1 + VALUES.get(words[i].lstrip("-"), 0)
        self.launcher, self.program = list(words[:i]), list(words[i:])
        if ":" in self.program:
            raise WrongWords("--restarts needs one program for all ranks, without ':'")
        if not self.value("--out"):
            raise WrongWords("--restarts needs --out DIR among the program's arguments (or out = in its --config file): "
                             "a restart continues from a checkpoint")

    def copy(self, ranks=None, launcher=None, program=None):
        other = object.__new__(Words)
        other.ranks, other.launcher, other.program = ranks or self.ranks, launcher or self.launcher, program or self.program
        return other

    def all(self):
        return ["-np", str(self.ranks), *self.launcher, *self.program]

    def place(self, flag):
        """The index of the value of a flag of the program, and its text. None if it was not typed."""
        for i, word in enumerate(self.program):
            if word == flag and i + 1 < len(self.program):
                return i + 1, self.program[i + 1]
            if word.startswith(flag + "="):
                return i, word[len(flag) + 1:]
        return None

    def has_flag(self, flag):
        return flag in self.program or any(word.startswith(flag + "=") for word in self.program)

    def value(self, flag):
        """The value of a flag that was typed, or in the file of --config; else an empty text."""
        place = self.place(flag)
        if place:
            return place[1]
        config = self.place("--config")
        try:
            text = Path(config[1]).read_text(encoding="utf-8") if config else ""
        except OSError:  # the program reports it
            text = ""
        line = re.search(rf"""^\s*{flag[2:]}\s*=\s*("([^"\n]*)"|'([^'\n]*)'|[^\s#]+)""", text, re.MULTILINE)
        return "" if not line else next(part for part in (line[2], line[3], line[1]) if part is not None)

    def with_resume(self):
        return self if self.has_flag("--resume") else self.copy(program=[*self.program, "--resume"])

    def with_value(self, flag, value):
        """With a value of the program's flag, in the place of one that was typed."""
        program, place = list(self.program), self.place(flag)
        if not place:
            return self.copy(program=[*program, flag, str(value)])
        program[place[0]] = str(value) if program[place[0] - 1] == flag else f"{flag}={value}"
        return self.copy(program=program)
