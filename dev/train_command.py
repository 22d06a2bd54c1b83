"""The command that trains GPT-2 on some ranks, for the measurements of this folder."""
import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def arguments_of(description, add_flags=lambda parser: None):
    """The words of a script: a text, --program, its own flags, and in `more` those of train_gpt2."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("text", help="text to train on")
    parser.add_argument("--program", default=ROOT / "build/host/train_gpt2", help="default: the host build")
    add_flags(parser)
    arguments, arguments.more = parser.parse_known_args()
    return arguments


def train_command(arguments, ranks, flags, defaults, starter=()):
    """The words of a run without evaluations and samples. `defaults` are {flag: value} that `more` may set
    otherwise; `starter` are words before those of each rank."""
    words = [*starter, arguments.program, "--train", arguments.text, "--eval-every", 0, "--sample-every", 0, "--quiet",
             *flags, *arguments.more]
    for flag, value in defaults.items():
        words += [] if flag in arguments.more else [flag, value]
    launcher = [ROOT / "scripts/run.sh", "-np", ranks] if ranks > 1 else []
    return [str(word) for word in [*launcher, *words]]
