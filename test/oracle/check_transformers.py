#!/usr/bin/env python3
"""Checks a GPT-2 directory (config.json, model.safetensors) with Hugging Face transformers.

    check_transformers.py DIR --tokens FILE     load with from_pretrained, print "loss VALUE"
    check_transformers.py DIR --tensors OTHER   compare two directories' tensors bit by bit

FILE has one window per line: T + 1 token ids separated by spaces, all lines equally long; or a JSON
list of such lists. The loss is the mean over the T predictions of all windows. Exit code: 0 success,
1 different or not loadable, 77 if torch, transformers or safetensors is not installed.
"""

import argparse
import json
import pathlib
import re
import sys

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"not installed: {error.name}")
    sys.exit(77)

# Tensors in some GPT-2 files that are not parameters: the causal mask, and the head tied to wte.
NOT_A_PARAMETER = re.compile(r"(h\.\d+\.attn\.(bias|masked_bias)|lm_head\.weight)$")


def read_windows(path):
    text = path.read_text()
    rows = json.loads(text) if text.lstrip().startswith("[") else [
        [int(word) for word in line.split()] for line in text.splitlines() if line.strip()]
    return torch.tensor(rows, dtype=torch.int64)


def load_strictly(directory):
    """Returns (model, list of the tensor mismatches that from_pretrained accepts without an error)."""
    model, info = transformers.GPT2LMHeadModel.from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    problems = [f"{kind}: {name}" for kind in ("missing_keys", "mismatched_keys")
                for name in info[kind]]
    problems += [f"unexpected: {name}" for name in info["unexpected_keys"]
                 if not NOT_A_PARAMETER.search(str(name))]
    return model.eval(), problems


def mean_loss(model, windows):
    with torch.no_grad():
        logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()


def tensors_of(directory):
    """{name without `transformer.`: tensor} of all the directory's parameters."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        for name, tensor in safetensors.torch.load_file(path).items():
            name = name.removeprefix("transformer.")
            if not NOT_A_PARAMETER.match(name):
                tensors[name] = tensor
    if not tensors:
        raise OSError(f"{directory}: no tensors in *.safetensors")
    return tensors


def differences(first, second):
    """Returns (one line per tensor that only one directory has or that differs in dtype, shape or any bit,
    number of tensors in `first`)."""
    a, b = tensors_of(first), tensors_of(second)
    lines = [f"{name}: only in {first if name in a else second}" for name in sorted(a.keys() ^ b.keys())]
    for name in sorted(a.keys() & b.keys()):
        x, y = a[name], b[name]
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            lines.append(f"{name}: {x.dtype} {tuple(x.shape)} against {y.dtype} {tuple(y.shape)}")
        elif not torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8)):
            lines.append(f"{name}: values differ")
    return lines, len(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--tokens", type=pathlib.Path)
    parser.add_argument("--tensors", type=pathlib.Path, metavar="OTHER")
    arguments = parser.parse_args()
    if not arguments.tokens and not arguments.tensors:
        parser.error("nothing to do: pass --tokens or --tensors")
    for directory in filter(None, (arguments.directory, arguments.tensors)):
        if not directory.is_dir():
            print(f"{directory} is not a directory")
            return 1
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    try:
        if arguments.tensors:
            lines, count = differences(arguments.directory, arguments.tensors)
            print("\n".join(lines) or f"{count} tensors bitwise equal")
            failed |= bool(lines)
        if arguments.tokens:
            model, problems = load_strictly(arguments.directory)
            for problem in problems:
                print(problem)
            failed |= bool(problems)
            print(f"loss {mean_loss(model, read_windows(arguments.tokens))!r}")
    except (OSError, ValueError, RuntimeError, IndexError) as error:
        print(f"{type(error).__name__}: {error}")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
