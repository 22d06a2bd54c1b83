"""The files that a run of train_gpt2 leaves: status.json, checkpoints and the log."""
import json
from pathlib import Path

LOG_TAIL = 1 << 16  # bytes at the end of a log that have a line of a step


def parse(text):
    """The JSON object in a text; an empty one if there is none, such as in a line that was cut off."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def read(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class RunFiles:
    def __init__(self, words):
        self.words, self.out = words, Path(words.value("--out"))

    def status_text(self):
        return read(self.out / "status.json")

    def status(self):
        return parse(self.status_text())

    def newest_checkpoint(self):
        """Path of the newest complete checkpoint, or None. A damaged one counts; the program skips it."""
        complete = [path for path in self.out.glob("step_*") if path.name[5:].isdigit() and (path / "manifest.json").exists()]
        return max(complete, key=lambda path: int(path.name[5:]), default=None)

    def log(self):
        name = self.words.value("--log") or self.recorded().get("--log")
        return Path(name) if name else None

    def logged_step(self):
        """The last step in the log, or None."""
        log = self.log()
        try:
            with open(log, "rb") as file:
                file.seek(max(0, file.seek(0, 2) - LOG_TAIL))
                lines = file.read().decode("utf-8", errors="replace").splitlines()
        except (OSError, TypeError):
            return None
        steps = [line["step"] for line in map(parse, lines) if "loss" in line]
        return steps[-1] if steps else None

    def recorded(self):
        """The settings in the newest checkpoint; empty if there is none."""
        checkpoint = self.newest_checkpoint()
        return parse(read(checkpoint / "manifest.json")).get("state", {}) if checkpoint else {}

    def settings(self):
        """The settings of the run so far by their flags, of its newest checkpoint or its log; empty if it has neither."""
        recorded = self.recorded()
        log = self.log()
        if recorded or not log:
            return recorded
        lines = [line for line in map(parse, read(log).splitlines()) if "run" in line]
        return lines[-1] if lines else {}
