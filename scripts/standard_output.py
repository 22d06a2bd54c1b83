"""Results of a Python program on stdout: one that cannot be written is an error with a message and exit code 1."""
import os
import signal
import sys
from pathlib import Path


class OutputError(Exception):
    """Not an OSError: handlers of errors about files, and argparse, would take it for one of theirs."""


class ReaderEnded(OutputError):
    """The reader of the pipe has ended, as `head` does."""


class CheckedOutput:
    """A stream whose failed writes are OutputErrors."""

    def __init__(self, stream):
        self.stream = stream  # None: stdout is closed

    def write(self, text):
        if self.stream is None:
            raise OutputError("stdout cannot be written: it is closed")
        return self._checked(self.stream.write, text)

    def flush(self):
        return self._checked(self.stream.flush) if self.stream is not None else None

    def __getattr__(self, name):
        return getattr(self.stream, name)

    @staticmethod
    def _checked(call, *arguments):
        try:
            return call(*arguments)
        except BrokenPipeError:
            raise ReaderEnded from None
        except OSError as error:
            raise OutputError(f"stdout cannot be written: {os.strerror(error.errno)}") from None


def run(main):
    """Calls main(), writes all output, and ends the process with what main() returns unless that is None or 0."""
    stream = sys.stdout
    sys.stdout = CheckedOutput(stream)
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()
    except OutputError as error:
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the rest, which Python writes at its end
        if isinstance(error, ReaderEnded):  # silently, as SIGPIPE ends other programs
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    finally:
        sys.stdout = stream
    if code:
        sys.exit(code)
