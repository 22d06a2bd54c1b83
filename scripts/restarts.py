#!/usr/bin/env python3
"""Restarts a run that fails; scripts/run.sh --restarts starts it, and describes its options.

Each start is a scripts/run.sh without --restarts. After a failure, the same words start again, and the program
continues from its newest checkpoint (--resume). These end the loop, with the exit code of the last start:

- exit code 0 or 2, a signal to this script, or a run that a signal ended (status.json of the run);
- N restarts in a row without a new checkpoint;
- two failures at the same step without a new checkpoint between them;
- with --elastic, too few slots for any number of data-parallel ranks.
"""
import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import standard_output  # noqa: E402
from run_restarts.elastic import NoFit, fitting_words, usable_slots  # noqa: E402
from run_restarts.run_files import RunFiles  # noqa: E402
from run_restarts.words import Words, WrongWords  # noqa: E402

RUN = Path(__file__).resolve().parent / "run.sh"
USAGE_ERROR = 2
PR_SET_PDEATHSIG = 1
LONGEST_PAUSE = 60  # seconds


def say(text):
    print(f"run.sh: {text}", file=sys.stderr, flush=True)


def code_text(code):
    """exit code 137 (SIGKILL)"""
    try:
        return f"exit code {code} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"exit code {code}"


class Signals:
    """The signals that stop a run, which this process receives only in wait()."""

    def __init__(self):
        names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # A signal that was ignored at the start (nohup, a script's background job) stays without effect.
        self.stops = [number for number in names if signal.getsignal(number) != signal.SIG_IGN]
        self.stop = None  # the last one that arrived
        signal.pthread_sigmask(signal.SIG_BLOCK, [*self.stops, signal.SIGCHLD])

    def unblock(self):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [*self.stops, signal.SIGCHLD])

    def wait(self, seconds, on_stop=lambda number: None):
        """Waits for a signal, or for so many seconds."""
        info = signal.sigtimedwait([*self.stops, signal.SIGCHLD], seconds)
        if info and info.si_signo != signal.SIGCHLD:
            self.stop = signal.Signals(info.si_signo)
            on_stop(self.stop)

    def pause(self, seconds):
        """Waits, unless a signal stops the run."""
        end = time.monotonic() + seconds
        while not self.stop and time.monotonic() < end:
            self.wait(max(0, end - time.monotonic()))


def start(words, signals):
    """Runs scripts/run.sh in a session of its own, so that a terminal's Ctrl-C reaches only this process, which
    passes it on. Returns the exit code."""
    libc = ctypes.CDLL(None)

    def prepare():
        signals.unblock()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # the ranks save if this process is killed

    process = subprocess.Popen([str(RUN), *words], stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=prepare)
    while process.poll() is None:
        signals.wait(1, process.send_signal)
    code = process.returncode
    return code if code >= 0 else 128 - code


@dataclass
class Failure:
    code: int
    checkpoint: object  # Path of the newest checkpoint, or None
    step: object  # the last step that is known to be done; None: unknown
    began: bool  # whether the run wrote its status
    reason: str  # empty: unknown

    def place(self):
        if not self.began:
            return "before the run began"
        return f"after step {self.step}" if self.step is not None else "at an unknown step"

    def text(self):
        return f"{code_text(self.code)} {self.place()}{': ' if self.reason else ''}{self.reason}"

    def same_place(self, other):
        known = not self.began or self.step is not None
        return known and (self.checkpoint, self.step, self.began) == (other.checkpoint, other.step, other.began)


class Restarts:
    def __init__(self, options, words):
        self.options, self.words = options, words
        self.files = RunFiles(words)
        self.signals = Signals()
        self.may_resume = "--resume" in words.program  # the files in --out are those of this run
        self.count = 0  # restarts without a new checkpoint
        self.last = None  # the failure before
        self.temporary = tempfile.TemporaryDirectory(prefix="llmc-restarts-")

    def next_words(self):
        """The words of the next start, and a note about its ranks. Throws NoFit."""
        words = self.words
        if self.options.elastic:
            slots = usable_slots(self.options, words, Path(self.temporary.name))
            words, note = fitting_words(slots, words, self.files.settings())
        else:
            note = ""
        resumes = self.may_resume and (self.last.checkpoint or words.has_flag("--train") or words.has_flag("--config"))
        return words.with_resume() if resumes else words, note

    def failure(self, code, before):
        began = self.files.status_text() != before
        status = self.files.status() if began else {}
        step = None if not began else status["step"] if status.get("status") == "failed" else self.files.logged_step()
        reason = (status.get("reason") or "").split("\n")[0] if status.get("status") == "failed" else ""
        return Failure(code, self.files.newest_checkpoint(), step, began, reason)

    def was_stopped(self, code, before):
        """Whether the user ended the run, or must change its words."""
        text = self.files.status_text()
        return (code in (0, USAGE_ERROR) or self.signals.stop is not None
                or text != before and self.files.status().get("status") == "stopped")

    def end_reason(self, failure, has_new):
        """Why there is no restart; empty: there is one."""
        if not has_new and self.last and failure.same_place(self.last):
            return "two failures in a row at the same place without a new checkpoint; correct the cause, then start again"
        if self.count == self.options.restarts:
            return f"{self.count} of {self.options.restarts} restarts are used up without a new checkpoint"
        return ""

    def run(self):
        words, newest = self.words, self.files.newest_checkpoint()
        while True:
            before = self.files.status_text()
            code = start(words.all(), self.signals)
            if self.was_stopped(code, before):
                return code
            failure = self.failure(code, before)
            has_new = failure.checkpoint is not None and failure.checkpoint != newest
            newest = failure.checkpoint
            self.may_resume |= failure.began or has_new
            self.count = 0 if has_new else self.count
            reason = self.end_reason(failure, has_new)
            self.last = failure
            if not reason:
                self.signals.pause(0 if has_new else min(2 ** self.count - 1, LONGEST_PAUSE))
                if self.signals.stop:
                    return 128 + self.signals.stop
                try:
                    words, note = self.next_words()
                except NoFit as error:
                    reason = str(error)
            if reason:
                say(f"no restart after {failure.text()}: {reason}")
                return code
            self.count += 1
            source = f"continues from {newest}" if newest and self.may_resume else "starts from the beginning"
            say(f"restart {self.count} of {self.options.restarts} after {failure.text()}; {source}{note}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int)
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--slots-command")
    parser.add_argument("-np", type=int)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    if end == len(sys.argv):
        parser.error("the program is missing; scripts/run.sh --restarts starts this script")
    try:
        words = Words(options.np, sys.argv[end + 1:])
    except WrongWords as error:
        say(error)
        return USAGE_ERROR
    return Restarts(options, words).run()


if __name__ == "__main__":
    standard_output.run(main)
