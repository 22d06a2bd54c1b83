"""Progress output and number flags of the commands in this folder."""
import argparse
import sys
import time


def format_size(count):
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000


class Progress:
    """Progress on standard error: on a terminal one line that is rewritten, otherwise a new line every ten
    seconds."""

    def __init__(self, name, out=None):
        self.name, self.out = name, out or sys.stderr
        self.is_terminal = self.out.isatty()
        self.interval = 0.2 if self.is_terminal else 10.0
        self.start = self.last = time.monotonic()
        self.first = None

    def show(self, done, total, verb="downloaded"):
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if now - self.last < self.interval:
            return
        self.last = now
        speed = (done - self.first) / (now - self.start)
        line = f"{self.name}: {verb} {format_size(done)}"
        if total:
            line += f" of {format_size(total)} ({100 * done / total:.0f} %)"
        line += f", {format_size(speed)}/s"
        if total and speed > 0:
            line += f", {(total - done) / speed:.0f} s left"
        self.out.write(f"\r\x1b[K{line}" if self.is_terminal else line + "\n")
        self.out.flush()

    def note(self, text):
        self.out.write(("\r\x1b[K" if self.is_terminal else "") + f"{self.name}: {text}\n")
        self.out.flush()

    def clear(self):
        if self.is_terminal:
            self.out.write("\r\x1b[K")
            self.out.flush()


def number(kind, min_value, max_value):
    """An argparse type: an int or float from `min_value` to `max_value`."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not min_value <= value <= max_value:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {min_value} to {max_value}")
        return value
    return parse
