"""What the scripts that write fixtures have in common: their command line, and PyTorch in the same order every time."""
import argparse
import pathlib

import torch

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"


def begin(description, default, with_cases=False):
    """The arguments: --out, the directory to write, and names of cases if the script has several."""
    parser = argparse.ArgumentParser(description=description)
    if with_cases:
        parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    parser.add_argument("--out", type=pathlib.Path, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so that every run writes the same bits
    torch.use_deterministic_algorithms(True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments
