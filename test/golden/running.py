"""Runs the commands of a run in a folder of their own."""
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field

TIME_LIMIT = 300  # seconds for one command
_COMMAND = re.compile(r"(?:(exit|error) (\d+): )?(.+)", re.DOTALL)

# Results should not depend on the number of threads; two threads are enough to run the parallel code.
ENVIRONMENT = {"LLMC_HOST_THREADS": "2", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C"}


@dataclass
class Command:
    """A line of runs.py without its prefix, the expected exit code, and whether stderr is an error message."""
    text: str
    code: int = 0
    is_error: bool = False

    @classmethod
    def parse(cls, line):
        kind, code, text = _COMMAND.fullmatch(line).groups()
        return cls(text, int(code or 0), kind == "error")

    def program(self):
        return self.text.split()[0]


@dataclass
class Outcome:
    """Results of a run that are not files: one entry per command."""
    codes: list = field(default_factory=list)
    last_lines: list = field(default_factory=list)  # last line of each command's standard error


def run_commands(lines, programs, inputs, folder):
    """Copies `inputs` to in/ in `folder` and executes the commands there, with the programs in the folder
    `programs`. Writes the standard output and error of command N to N.PROGRAM.stdout and N.PROGRAM.stderr."""
    shutil.copytree(inputs, folder / "in")
    outcome = Outcome()
    for number, command in enumerate(map(Command.parse, lines), 1):
        if command.program() == "remove":
            for name in shlex.split(command.text)[1:]:
                (folder / name).unlink(missing_ok=True)
            outcome.codes.append(0)
            outcome.last_lines.append("")
            continue
        code, errors = run_command(command, programs, folder, f"{number}.{command.program()}")
        outcome.codes.append(code)
        outcome.last_lines.append(errors.decode(errors="replace").strip().rpartition("\n")[2])
    return outcome


def run_command(command, programs, folder, name):
    """Returns (exit code, -N after signal N, or the string "time limit"; standard error)."""
    text, _, source = command.text.partition(" < ")
    program, *arguments = shlex.split(text)
    stdin = (folder / source).read_bytes() if source else b""
    try:
        done = subprocess.run([programs / program, *arguments], cwd=folder, input=stdin, capture_output=True,
                              timeout=TIME_LIMIT, env={**os.environ, **ENVIRONMENT})
        code, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as expired:
        code, output, errors = "time limit", expired.stdout or b"", expired.stderr or b""
    (folder / f"{name}.stdout").write_bytes(output)
    (folder / f"{name}.stderr").write_bytes(errors)
    return code, errors
