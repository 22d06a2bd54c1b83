"""One side of a comparison in a process of its own, which waits between its turns.

The comparing program starts `SCRIPT --serve SETTINGS` with the interpreter that PYTHON names, and asks for one
turn at a time. The script calls serve(), which answers each request with one line of JSON.
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

PYTHON = os.environ.get("PYTHON", sys.executable)


class SideFailed(Exception):
    """The reason why a side has no time, in one line."""


def last_line(text, otherwise):
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else otherwise


def quiet_threads(threads):
    """Environment of a side with this many threads. Threads that wait must not slow the other sides down."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive",
            "KMP_BLOCKTIME": "0"}


class SideProcess:
    def __init__(self, script, settings, environment):
        self.messages = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([PYTHON, script, "--serve", json.dumps(settings)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.messages, text=True, env=environment)

    def turn(self):
        """Returns the answer, or raises SideFailed."""
        with contextlib.suppress(BrokenPipeError):  # a process that ended is reported below
            self.process.stdin.write("turn\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            code = self.process.wait()
            self.messages.seek(0)
            raise SideFailed(last_line(self.messages.read(), f"the process ended with exit code {code}"))
        answer = json.loads(answer)
        if "error" in answer:
            raise SideFailed(answer["error"])
        return answer

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()  # closes its input, which ends it, and waits
        self.messages.close()


def serve(turn):
    """Answers each line on standard input with what turn() returns. An error becomes an answer too: its side is
    reported as not available, and the others continue.
    """
    answers, sys.stdout = sys.stdout, sys.stderr  # keeps library output out of the answers
    for _ in sys.stdin:
        try:
            answer = turn()
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            name = "" if isinstance(error, SideFailed) else f"{type(error).__name__}: "
            answer = {"error": f"{name}{lines[0][:300]}"}
        print(json.dumps(answer), file=answers, flush=True)
