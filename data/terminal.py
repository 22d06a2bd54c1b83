"""Progress output and number flags of the commands in this folder."""
import argparse
import sys
import time


def human(count):
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000


class Progress:
    """Progress on standard error: on a terminal one line that is rewritten, otherwise a new line every ten
    seconds."""

    def __init__(self, name, out=None):
        self.name, self.out = name, out or sys.stderr
        self.live = self.out.isatty()
        self.every = 0.2 if self.live else 10.0
        self.begun = self.last = time.monotonic()
        self.first = None

    def show(self, done, total, verb="got"):
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if now - self.last < self.every:
            return
        self.last = now
        speed = (done - self.first) / (now - self.begun)
        line = f"{self.name}: {verb} {human(done)}"
        if total:
            line += f" of {human(total)} ({100 * done / total:.0f} %)"
        line += f", {human(speed)}/s"
        if total and speed > 0:
            line += f", {(total - done) / speed:.0f} s to go"
        self.out.write(f"\r\x1b[K{line}" if self.live else line + "\n")
        self.out.flush()

    def note(self, text):
        self.out.write(("\r\x1b[K" if self.live else "") + f"{self.name}: {text}\n")
        self.out.flush()

    def clear(self):
        if self.live:
            self.out.write("\r\x1b[K")
            self.out.flush()


def number(kind, least, most):
    """An argparse type: an int or float from `least` to `most`."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} to {most}")
        return value
    return parse
